//! A workload as its file describes it (docs/lab.md).

use super::fields::{Fields, Item, Source};
use super::maker::{Maker, Template, theta};
use crate::error::Result;
use crate::load::Until;
use crate::load::keys::{Keys, Zipf};
use mongodb::IndexModel;
use mongodb::bson::{Bson, Document};
use mongodb::options::IndexOptions;

/// The whole of it.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) collection: String,
    /// Documents that are there before.
    pub(super) documents: u64,
    pub(super) connections: Vec<u32>,
    pub(super) until: Until,
    pub(super) indexes: Vec<IndexModel>,
    pub(super) template: Template,
    pub(super) keys: Keys,
    pub(super) operations: Vec<Operation>,
}

/// One kind of operation, and how often it comes up among the others.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) weight: f64,
    pub(super) kind: Kind,
    pub(super) filter: Maker,
    /// Of an update or findAndModify; pipeline of an aggregation.
    pub(super) change: Maker,
    pub(super) sort: Option<Document>,
    pub(super) projection: Option<Document>,
    pub(super) limit: Option<i64>,
    pub(super) upsert: bool,
    pub(super) many: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Insert,
    Find,
    Update,
    Delete,
    Aggregate,
    FindAndModify,
}

const KINDS: &[(&str, Kind)] = &[
    ("insert", Kind::Insert),
    ("find", Kind::Find),
    ("update", Kind::Update),
    ("delete", Kind::Delete),
    ("aggregate", Kind::Aggregate),
    ("findAndModify", Kind::FindAndModify),
];

impl Kind {
    /// Whether operations of this kind may add or remove documents.
    pub(super) fn moves(self, upsert: bool) -> bool {
        matches!(self, Kind::Insert | Kind::Delete) || upsert
    }
}

impl Workload {
    /// Reads a workload; `scale` is applied to its sizes.
    ///
    /// # Errors
    /// Anything that is wrong with it, by line and field.
    pub(super) fn read(source: Source, seed: u64, scale: f64) -> Result<Workload> {
        let mut fields = source.parse()?;
        let title = fields.take("title").map_or(Ok(source.name.to_string()), |title| title.string())?;
        let about = fields.take("about").map_or(Ok(String::new()), |about| about.string())?;
        let collection =
            fields.take("collection").map_or(Ok("documents".to_string()), |name| name.string())?;
        let scaled = |number: u64| ((number as f64 * scale).round() as u64).max(1);
        let documents = match fields.take("documents") {
            Some(documents) => documents.at_least(0)?,
            None => 0,
        };
        let documents = if documents == 0 { 0 } else { scaled(documents) };
        let connections = match fields.take("connections") {
            Some(each) => each.one_or_more()?.iter().map(connections).collect::<Result<_>>()?,
            None => vec![1],
        };
        let until = until(&mut fields, scale)?;
        let indexes = match fields.take("indexes") {
            Some(indexes) => indexes.items()?.iter().map(index).collect::<Result<_>>()?,
            None => Vec::new(),
        };
        let template = template(&mut fields, seed)?;
        let keys = match fields.take("keys") {
            Some(keys) => distribution(keys.fields()?, documents)?,
            None => Keys::Uniform,
        };
        let list = fields.need("operation")?;
        let operations: Vec<Operation> =
            list.items()?.iter().map(|item| operation(item, &template)).collect::<Result<_>>()?;
        if operations.is_empty() {
            return Err(list.wrong("there must be one at least"));
        }
        if documents == 0 && !operations.iter().any(|operation| operation.kind == Kind::Insert) {
            return Err(fields
                .wrong("no 'documents' and no operation that inserts: there would be nothing to work on"));
        }
        fields.end()?;
        Ok(Workload {
            title,
            about,
            collection,
            documents,
            connections,
            until,
            indexes,
            template,
            keys,
            operations,
        })
    }

    /// Whether the collection has to be loaded again for each round.
    pub(super) fn moves(&self) -> bool {
        self.operations.iter().any(|operation| operation.kind.moves(operation.upsert))
    }
}

fn connections(item: &Item) -> Result<u32> {
    let number = item.at_least(1)?;
    u32::try_from(number).ok().filter(|n| *n <= 10_000).ok_or_else(|| item.wrong("must be at most 10000"))
}

/// `operations` or `seconds`, of each round.
fn until(fields: &mut Fields, scale: f64) -> Result<Until> {
    match (fields.take("operations"), fields.take("seconds")) {
        (Some(_), Some(seconds)) => Err(seconds.wrong("either 'operations' or 'seconds' is possible")),
        (Some(operations), None) => {
            Ok(Until::Operations(((operations.at_least(1)? as f64 * scale).round() as u64).max(1)))
        }
        (None, Some(seconds)) => Ok(Until::Seconds((seconds.share(f64::MAX)? * scale).max(0.05))),
        (None, None) => Ok(Until::Seconds((10.0 * scale).max(0.05))),
    }
}

fn template(fields: &mut Fields, seed: u64) -> Result<Template> {
    let item = fields.need("document")?;
    let makers: Vec<(String, Maker)> =
        item.fields()?.all().map(|(name, each)| Ok((name, Maker::read(&each)?))).collect::<Result<_>>()?;
    if makers.iter().any(|(_, maker)| !maker.keys().is_empty()) {
        return Err(item.wrong("the generator 'key' is for operations, not for documents"));
    }
    Ok(Template::new(seed, makers))
}

fn index(item: &Item) -> Result<IndexModel> {
    let mut fields = item.fields()?;
    let keys = constant(&fields.need("keys")?)?;
    let unique = fields.take("unique").map(|unique| unique.boolean()).transpose()?;
    fields.end()?;
    Ok(IndexModel::builder().keys(keys).options(IndexOptions::builder().unique(unique).build()).build())
}

/// A document without generators.
fn constant(item: &Item) -> Result<Document> {
    let fields = item.fields()?;
    fields
        .all()
        .map(|(name, each)| match Maker::read(&each)? {
            Maker::Constant(value) => Ok((name, value)),
            nested => constant_value(&each, nested).map(|value| (name, value)),
        })
        .collect()
}

fn constant_value(item: &Item, maker: Maker) -> Result<Bson> {
    match maker {
        Maker::Constant(value) => Ok(value),
        Maker::Nested(fields) => {
            let fields = fields.into_iter().map(|(name, maker)| Ok((name, constant_value(item, maker)?)));
            Ok(Bson::Document(fields.collect::<Result<_>>()?))
        }
        _ => Err(item.wrong("generators are not possible here")),
    }
}

fn distribution(mut fields: Fields, documents: u64) -> Result<Keys> {
    let kind = fields.need("distribution")?;
    let keys = match kind.string()?.as_str() {
        "uniform" => Keys::Uniform,
        "zipfian" => Keys::Zipfian(Zipf::new(documents, theta(&mut fields)?)),
        "latest" => Keys::Latest(Zipf::new(documents, theta(&mut fields)?)),
        "focused" => Keys::Focused {
            keys: fields.need("keys")?.share(1.0)?,
            operations: fields.need("operations")?.share(1.0)?,
        },
        other => {
            let message =
                format!("'{other}' is no distribution; there are uniform, zipfian, latest and focused");
            return Err(kind.wrong(message));
        }
    };
    fields.end()?;
    Ok(keys)
}

fn operation(item: &Item, template: &Template) -> Result<Operation> {
    let mut fields = item.fields()?;
    let kind_item = fields.need("kind")?;
    let word = kind_item.string()?;
    let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == word) else {
        let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        return Err(kind_item.wrong(format!("'{word}' is no operation; there are {}", known.join(", "))));
    };
    let kind = *kind;
    let weight = fields.take("weight").map_or(Ok(1.0), |weight| weight.share(f64::MAX))?;
    let name = fields.take("name").map_or(Ok(word), |name| name.string())?;
    let filter = if matches!(kind, Kind::Insert | Kind::Aggregate) { None } else { fields.take("filter") };
    let filter = match filter {
        Some(filter) => reader(&filter, template)?,
        None => by_id(),
    };
    let change = match kind {
        Kind::Update | Kind::FindAndModify => reader(&fields.need("update")?, template)?,
        Kind::Aggregate => reader(&fields.need("pipeline")?, template)?,
        _ => Maker::Constant(Bson::Null),
    };
    let sorts = matches!(kind, Kind::Find | Kind::FindAndModify);
    let (sort, projection) =
        if sorts { (fields.take("sort"), fields.take("projection")) } else { (None, None) };
    let limit = if kind == Kind::Find { fields.take("limit") } else { None };
    let flag = |item: Option<Item>| item.map_or(Ok(false), |item| item.boolean());
    let upsert =
        flag(if matches!(kind, Kind::Update | Kind::FindAndModify) { fields.take("upsert") } else { None })?;
    let many = flag(if matches!(kind, Kind::Update | Kind::Delete) { fields.take("many") } else { None })?;
    fields.end()?;
    Ok(Operation {
        name,
        weight,
        kind,
        filter,
        change,
        sort: sort.map(|sort| constant(&sort)).transpose()?,
        projection: projection.map(|projection| constant(&projection)).transpose()?,
        limit: limit.map(|limit| Ok(limit.at_least(1)? as i64)).transpose()?,
        upsert,
        many,
    })
}

/// A filter, an update or a pipeline; keys must be of fields that documents have.
fn reader(item: &Item, template: &Template) -> Result<Maker> {
    let maker = Maker::read(item)?;
    match maker.keys().into_iter().find(|field| !template.has(field)) {
        Some(field) => {
            Err(item.wrong(format!("documents have no field '{field}' that a key could be taken from")))
        }
        None => Ok(maker),
    }
}

fn by_id() -> Maker {
    Maker::Nested(vec![("_id".to_string(), Maker::Key { field: "_id".to_string() })])
}
