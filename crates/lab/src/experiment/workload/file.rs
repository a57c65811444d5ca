//! A workload as its file describes it (docs/lab.md).

use super::concern::Concern;
use super::fields::{Fields, Item, Source};
use super::maker::{Maker, Template, theta};
use crate::error::Result;
use crate::load::Until;
use crate::load::keys::{Keys, Zipf};
use crate::result::Kind as Shape;
use mongodb::IndexModel;
use mongodb::bson::{Bson, Document};
use mongodb::options::IndexOptions;

/// The whole of it.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) title: String,
    pub(super) about: String,
    /// Options that it can't honour.
    pub(super) refuse: Vec<String>,
    pub(super) sections: Vec<Section>,
}

/// Operations on one collection: a table of the report.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) shape: Shape,
    pub(super) collection: String,
    /// So many collections of that name with a number behind it, which share the documents; 0 is one without a number.
    pub(super) collections: u64,
    /// Documents that are there before; several sizes are measured in turn.
    pub(super) documents: Vec<u64>,
    pub(super) connections: Vec<u32>,
    pub(super) until: Until,
    pub(super) indexes: Vec<IndexModel>,
    pub(super) template: Template,
    pub(super) keys: Keys,
    pub(super) operations: Vec<Operation>,
    /// Each kind of operation is measured by itself.
    pub(super) each: bool,
    /// So many times in turn, while the data grows.
    pub(super) blocks: u64,
    /// Commands once the documents are there.
    pub(super) setup: Vec<Step>,
    pub(super) postgres: Option<Postgres>,
    /// Whether sizes of storage and misses of the cache stand beside.
    pub(super) cache: bool,
}

/// How PostgreSQL takes part.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    pub(super) setup: String,
    /// A statement that takes an array for each of the columns.
    pub(super) load: Option<String>,
    /// Fields of the documents.
    pub(super) columns: Vec<String>,
    /// Before each case.
    pub(super) before: Option<String>,
}

/// One kind of operation, and how often it comes up among the others.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) weight: f64,
    pub(super) keys: Option<Keys>,
    /// So many, whatever the options say.
    pub(super) exactly: Option<u64>,
    pub(super) warm_up: Option<u64>,
    /// Documents that each of them touches, to tell the cost of one.
    pub(super) touches: Option<Count>,
    pub(super) is_vellums: bool,
    pub(super) concern: Option<Concern>,
    /// Values that all steps share.
    pub(super) with: Vec<(String, Maker)>,
    pub(super) before: Vec<Step>,
    pub(super) after: Vec<Step>,
    pub(super) steps: Vec<Step>,
    pub(super) sql: Vec<Sql>,
}

/// A number of documents.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    All,
    Of(u64),
}

impl Count {
    pub(super) fn of(self, documents: u64) -> u64 {
        match self {
            Count::All => documents,
            Count::Of(number) => number,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) collection: Option<String>,
    /// Of an insert, instead of the workload's own.
    pub(super) document: Option<Maker>,
    pub(super) batch: u64,
    pub(super) filter: Maker,
    /// Of an update or findAndModify; pipeline of an aggregation; a command.
    pub(super) change: Maker,
    pub(super) sort: Option<Document>,
    pub(super) projection: Option<Document>,
    pub(super) limit: Option<i64>,
    pub(super) upsert: bool,
    pub(super) many: bool,
    pub(super) admin: bool,
    /// What must be found.
    pub(super) expect: Option<Count>,
    pub(super) save: Option<String>,
    /// Only operations whose number this divides.
    pub(super) every: u64,
}

/// One statement.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    pub(super) text: String,
    pub(super) values: Vec<Maker>,
    pub(super) save: Option<String>,
    pub(super) every: u64,
    /// Rows that must be found or changed.
    pub(super) expect: Option<Count>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Insert,
    Find,
    Count,
    Update,
    Delete,
    Aggregate,
    FindAndModify,
    Command,
    Connect,
    Start,
}

const KINDS: &[(&str, Kind)] = &[
    ("insert", Kind::Insert),
    ("find", Kind::Find),
    ("count", Kind::Count),
    ("update", Kind::Update),
    ("delete", Kind::Delete),
    ("aggregate", Kind::Aggregate),
    ("findAndModify", Kind::FindAndModify),
    ("command", Kind::Command),
    ("connect", Kind::Connect),
    ("start", Kind::Start),
];

const SHAPES: &[(&str, Shape)] =
    &[("bars", Shape::Bars), ("growth", Shape::Growth), ("matrix", Shape::Matrix)];

impl Operation {
    /// Whether it may add documents to the section's own collection, or remove some.
    pub(super) fn moves(&self) -> bool {
        let own = self.steps.iter().filter(|step| step.collection.is_none());
        own.into_iter().any(|step| matches!(step.kind, Kind::Insert | Kind::Delete) || step.upsert)
    }
}

/// What a file's sizes are multiplied by, and what its values come from.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) seed: u64,
    pub(super) scale: f64,
}

impl Size {
    fn of(self, number: u64) -> u64 {
        ((number as f64 * self.scale).round() as u64).max(1)
    }
}

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// Anything that is wrong with it, by line and field.
    pub(super) fn read(source: Source, size: Size) -> Result<Workload> {
        let mut fields = source.parse()?;
        let title = fields.take("title").map_or(Ok(source.name.to_string()), |title| title.string())?;
        let about = fields.take("about").map_or(Ok(String::new()), |about| about.string())?;
        let refuse = strings(fields.take("refuse"))?;
        let sections = match fields.take("section") {
            Some(list) => {
                fields.end()?;
                list.items()?.iter().map(|item| section(item.fields()?, size, None)).collect::<Result<_>>()?
            }
            // A file without sections is one.
            None => vec![section(fields, size, Some(&title))?],
        };
        Ok(Workload { title, about, refuse, sections })
    }
}

/// A section of the file, or the whole file, whose title that is.
fn section(mut fields: Fields, size: Size, whole: Option<&str>) -> Result<Section> {
    let (id, title, about) = match whole {
        None => {
            let id = fields.need("id")?.string()?;
            let title = fields.need("title")?.string()?;
            (id, title, fields.take("about").map_or(Ok(String::new()), |about| about.string())?)
        }
        Some(title) => ("run".to_string(), title.to_string(), String::new()),
    };
    let shape = word(fields.take("kind"), SHAPES)?.unwrap_or(Shape::Bars);
    let collection = fields.take("collection").map_or(Ok("documents".to_string()), |name| name.string())?;
    let collections = fields.take("collections").map_or(Ok(0), |number| number.at_least(1))?;
    let documents = match fields.take("documents") {
        Some(each) => each.one_or_more()?.iter().map(|each| each.at_least(0)).collect::<Result<_>>()?,
        None => vec![0],
    };
    let mut documents: Vec<u64> =
        documents.into_iter().map(|number| if number == 0 { 0 } else { size.of(number) }).collect();
    documents.dedup();
    let connections = match fields.take("connections") {
        Some(each) => each.one_or_more()?.iter().map(connections).collect::<Result<_>>()?,
        None => vec![1],
    };
    let until = until(&mut fields, size.scale)?;
    let blocks = fields.take("blocks").map_or(Ok(0), |blocks| blocks.at_least(1))?;
    let each = fields.take("each").map_or(Ok(false), |each| each.boolean())?;
    let cache = fields.take("cache").map_or(Ok(false), |cache| cache.boolean())?;
    let indexes = match fields.take("indexes") {
        Some(indexes) => indexes.items()?.iter().map(index).collect::<Result<_>>()?,
        None => Vec::new(),
    };
    let template = template(&mut fields, size.seed)?;
    let largest = documents.iter().copied().max().unwrap_or(0);
    let keys = match fields.take("keys") {
        Some(keys) => distribution(keys.fields()?, largest)?,
        None => Keys::Uniform,
    };
    let list = fields.need("operation")?;
    let read = Reading { template: &template, size, documents: largest };
    let operations: Vec<Operation> =
        list.items()?.iter().map(|item| read.operation(item)).collect::<Result<_>>()?;
    if operations.is_empty() {
        return Err(list.wrong("there must be one at least"));
    }
    let setup = read.steps(fields.take("setup"))?;
    let works = |step: &Step| !matches!(step.kind, Kind::Find | Kind::Update | Kind::Aggregate);
    if largest == 0
        && !operations.iter().flat_map(|operation| &operation.steps).any(works)
        && setup.is_empty()
    {
        return Err(
            fields.wrong("no 'documents' and no operation that inserts: there would be nothing to work on")
        );
    }
    let postgres = fields.take("postgres").map(|postgres| read_postgres(postgres.fields()?)).transpose()?;
    fields.end()?;
    let section = Section {
        id,
        title,
        about,
        shape,
        collection,
        collections,
        documents,
        connections,
        until,
        indexes,
        template,
        keys,
        operations,
        each: each || blocks > 0,
        // Of a few operations each there are fewer.
        blocks: if matches!(until, Until::Operations(few) if few < 10) { blocks.min(8) } else { blocks },
        setup,
        postgres,
        cache,
    };
    Ok(section)
}

fn read_postgres(mut fields: Fields) -> Result<Postgres> {
    let text = |item: Option<Item>| item.map(|text| text.string()).transpose();
    let postgres = Postgres {
        setup: fields.need("setup")?.string()?,
        load: text(fields.take("load"))?,
        columns: strings(fields.take("columns"))?,
        before: text(fields.take("before"))?,
    };
    fields.end()?;
    Ok(postgres)
}

fn strings(item: Option<Item>) -> Result<Vec<String>> {
    item.map_or(Ok(Vec::new()), |list| list.items()?.iter().map(Item::string).collect())
}

/// One of the words that are known.
fn word<T: Copy>(item: Option<Item>, known: &[(&str, T)]) -> Result<Option<T>> {
    let Some(item) = item else { return Ok(None) };
    let word = item.string()?;
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word);
    let wrong = || item.wrong(format!("'{word}' is no operation; there are {}", names.join(", ")));
    found.map(|(_, value)| Some(*value)).ok_or_else(wrong)
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
    let template = Template::new(seed, makers);
    match template.misplaced() {
        Some(field) => {
            Err(item.wrong(format!("'{field}' takes a key from a field that doesn't stand before it")))
        }
        None => Ok(template),
    }
}

fn index(item: &Item) -> Result<IndexModel> {
    let mut fields = item.fields()?;
    let keys = constant(&fields.need("keys")?)?;
    let unique = fields.take("unique").map(|unique| unique.boolean()).transpose()?;
    fields.end()?;
    Ok(IndexModel::builder().keys(keys).options(IndexOptions::builder().unique(unique).build()).build())
}

/// A document without generators.
pub(super) fn constant(item: &Item) -> Result<Document> {
    let values = item.fields()?.all().map(|(name, each)| {
        let value = constant_value(&each, Maker::read(&each)?)?;
        Ok((name, value))
    });
    values.collect()
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
            scattered: fields.take("scattered").map_or(Ok(false), |scattered| scattered.boolean())?,
        },
        "growing" => Keys::Growing { every: fields.need("every")?.at_least(1)? },
        other => {
            let message = format!(
                "'{other}' is no distribution; there are uniform, zipfian, latest, focused and growing"
            );
            return Err(kind.wrong(message));
        }
    };
    fields.end()?;
    Ok(keys)
}

/// What operations are read with.
struct Reading<'a> {
    template: &'a Template,
    size: Size,
    documents: u64,
}

impl Reading<'_> {
    fn operation(&self, item: &Item) -> Result<Operation> {
        let mut fields = item.fields()?;
        let several = fields.take("steps");
        let (steps, kind) = match &several {
            Some(steps) => (self.steps(Some(steps.clone()))?, None),
            None => {
                let kind = fields.need("kind")?;
                (vec![self.step(kind.clone(), &mut fields)?], Some(kind.string()?))
            }
        };
        let name = fields.take("name").map(|name| name.string()).transpose()?.or(kind);
        let name = name.ok_or_else(|| fields.wrong("'name' is missing"))?;
        let keys =
            fields.take("keys").map(|keys| distribution(keys.fields()?, self.documents)).transpose()?;
        let with = match fields.take("with") {
            Some(with) => with
                .fields()?
                .all()
                .map(|(name, each)| Ok((name, self.maker(&each)?)))
                .collect::<Result<_>>()?,
            None => Vec::new(),
        };
        let number = |item: Option<Item>, least| item.map(|item| item.at_least(least)).transpose();
        let operation = Operation {
            name,
            weight: fields.take("weight").map_or(Ok(1.0), |weight| weight.share(f64::MAX))?,
            keys,
            exactly: number(fields.take("operations"), 1)?.map(|number| self.size.of(number)),
            warm_up: number(fields.take("warm_up"), 0)?,
            touches: fields.take("touches").map(|count| self.count(&count)).transpose()?,
            is_vellums: fields.take("vellum").map_or(Ok(false), |own| own.boolean())?,
            concern: fields.take("writeConcern").map(|concern| Concern::read(&concern)).transpose()?,
            with,
            before: self.steps(fields.take("before"))?,
            after: self.steps(fields.take("after"))?,
            steps,
            sql: self.sql(&mut fields)?,
        };
        fields.end()?;
        Ok(operation)
    }

    fn steps(&self, list: Option<Item>) -> Result<Vec<Step>> {
        let Some(list) = list else { return Ok(Vec::new()) };
        let step = |item: &Item| {
            let mut fields = item.fields()?;
            let kind = fields.need("kind")?;
            let step = self.step(kind, &mut fields)?;
            fields.end()?;
            Ok(step)
        };
        list.items()?.iter().map(step).collect()
    }

    fn step(&self, kind: Item, fields: &mut Fields) -> Result<Step> {
        use Kind::{Aggregate, Command, Count, Delete, Find, FindAndModify, Insert, Update};
        let Some(kind) = word(Some(kind), KINDS)? else { return Err(fields.wrong("'kind' is missing")) };
        let mut take = |name: &'static str, kinds: &[Kind]| {
            if kinds.contains(&kind) { fields.take(name) } else { None }
        };
        let any = [Aggregate, Count, Delete, Find, FindAndModify, Insert, Update];
        let filter = take("filter", &[Count, Delete, Find, FindAndModify, Update]);
        let change = take("update", &[Update, FindAndModify]);
        let change =
            change.or_else(|| take("pipeline", &[Aggregate])).or_else(|| take("command", &[Command]));
        let flag = |item: Option<Item>| item.map_or(Ok(false), |item| item.boolean());
        let number = |item: Option<Item>, least| item.map_or(Ok(least), |item| item.at_least(least));
        let step = Step {
            kind,
            collection: take("collection", &any).map(|name| name.string()).transpose()?,
            document: take("document", &[Insert]).map(|document| self.maker(&document)).transpose()?,
            batch: number(take("batch", &[Insert]), 1)?,
            filter: filter.map_or_else(|| Ok(by_id()), |filter| self.maker(&filter))?,
            change: change.as_ref().map_or(Ok(Maker::Constant(Bson::Null)), |change| self.maker(change))?,
            sort: take("sort", &[Find, FindAndModify]).map(|sort| constant(&sort)).transpose()?,
            projection: take("projection", &[Find, FindAndModify]).map(|item| constant(&item)).transpose()?,
            limit: take("limit", &[Find]).map(|limit| Ok(limit.at_least(1)? as i64)).transpose()?,
            upsert: flag(take("upsert", &[Update, FindAndModify]))?,
            many: flag(take("many", &[Update, Delete]))?,
            admin: flag(take("admin", &[Command]))?,
            expect: take("expect", &any).map(|count| self.count(&count)).transpose()?,
            save: take("save", &[Insert, Find, FindAndModify]).map(|name| name.string()).transpose()?,
            every: number(fields.take("every"), 1)?,
        };
        if change.is_none() && matches!(kind, Update | FindAndModify | Aggregate | Command) {
            let name = match kind {
                Aggregate => "pipeline",
                Command => "command",
                _ => "update",
            };
            return Err(fields.wrong(format!("'{name}' is missing")));
        }
        Ok(step)
    }

    /// `sql`: a statement with its `values`, or several tables of those.
    fn sql(&self, fields: &mut Fields) -> Result<Vec<Sql>> {
        let Some(sql) = fields.take("sql") else { return Ok(Vec::new()) };
        if sql.value().is_str() {
            return Ok(vec![self.statement(sql.string()?, fields)?]);
        }
        let statement = |item: &Item| {
            let mut fields = item.fields()?;
            let text = fields.need("text")?.string()?;
            let statement = self.statement(text, &mut fields)?;
            fields.end()?;
            Ok(statement)
        };
        sql.items()?.iter().map(statement).collect()
    }

    fn statement(&self, text: String, fields: &mut Fields) -> Result<Sql> {
        let values = fields.take("values").map_or(Ok(Vec::new()), |values| values.items())?;
        Ok(Sql {
            text,
            values: values.iter().map(|value| self.maker(value)).collect::<Result<_>>()?,
            save: fields.take("row").map(|name| name.string()).transpose()?,
            every: fields.take("every").map_or(Ok(1), |every| every.at_least(1))?,
            expect: fields.take("rows").map(|count| self.count(&count)).transpose()?,
        })
    }

    fn count(&self, item: &Item) -> Result<Count> {
        if item.value().as_str() == Some("all") {
            return Ok(Count::All);
        }
        let number = item.at_least(0)?;
        Ok(Count::Of(if self.documents == 0 { number } else { number.min(self.documents) }))
    }

    /// A filter, an update or another value; keys must be of fields that documents have.
    fn maker(&self, item: &Item) -> Result<Maker> {
        let maker = Maker::read(item)?;
        match maker.keys().into_iter().find(|field| !self.template.has(field)) {
            Some(field) => {
                Err(item.wrong(format!("documents have no field '{field}' that a key could be taken from")))
            }
            None => Ok(maker),
        }
    }
}

fn by_id() -> Maker {
    Maker::Nested(vec![("_id".to_string(), Maker::Key { field: "_id".to_string() })])
}
