//! A workload as its file describes it (docs/lab.md).
//!
//! A new field is a field of [`Section`] or [`Step`]. A new kind of request is a variant of [`Kind`]; `worker.rs` sends
//! it.

use super::concern::Concern;
use super::generator::{Constant, Generator, Template};
use crate::load::LoadEnd;
use crate::load::keys::{Keys, UpTo};
use crate::result::Kind as Shape;
use crate::{Error, Result};
use indexmap::IndexMap;
use mongodb::IndexModel;
use mongodb::options::IndexOptions;
use serde::{Deserialize, Deserializer};
use std::num::{NonZeroU16, NonZeroU64};
use std::ops::Range;
use toml::{Spanned, Table};

/// The file, for error messages.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

impl Source<'_> {
    /// Returns an error with the file's name, the line number and the line.
    fn invalid(self, at: Range<usize>, message: &str) -> Error {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let number = before.matches('\n').count();
        let line = self.text.lines().nth(number).unwrap_or_default().trim();
        Error::Input(format!("{}, line {}, '{line}': {message}", self.name, number + 1))
    }

    /// Parses the text, with the file's name in errors.
    fn read<T: for<'de> Deserialize<'de>>(self) -> Result<T> {
        let read = toml::from_str(self.text);
        read.map_err(|error| self.invalid(error.span().unwrap_or_default(), error.message()))
    }
}

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) title: String,
    pub(super) about: String,
    /// Options that the workload does not support.
    pub(super) refuse: Vec<String>,
    #[serde(rename = "section")]
    pub(super) sections: Vec<Section>,
}

/// Operations on one collection: a table of the report.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) about: String,
    /// Unsupported options, for a file with a single section.
    refuse: Vec<String>,
    #[serde(rename = "kind")]
    pub(super) shape: Shape,
    pub(super) collection: String,
    /// Number of numbered collections that share the documents; 0 is one collection without a number.
    pub(super) collections: u64,
    /// Initial numbers of documents; several sizes are measured in turn.
    #[serde(deserialize_with = "one_or_more")]
    pub(super) documents: Vec<u64>,
    #[serde(deserialize_with = "one_or_more")]
    pub(super) connections: Vec<NonZeroU16>,
    operations: Option<NonZeroU64>,
    seconds: Option<Positive>,
    pub(super) indexes: Vec<Index>,
    #[serde(rename = "document")]
    pub(super) template: Template,
    pub(super) keys: Keys,
    operation: Vec<Spanned<Step>>,
    /// The operations after parsing.
    #[serde(skip)]
    pub(super) kinds: Vec<Step>,
    /// True to measure each kind of operation by itself.
    pub(super) each: bool,
    /// Number of blocks while the data grows.
    pub(super) blocks: u64,
    /// Commands after loading the documents.
    pub(super) setup: Vec<Step>,
    pub(super) postgres: Option<Postgres>,
    /// True to report storage sizes and cache misses.
    pub(super) cache: bool,
}

type Positive = UpTo<1_000_000>;

/// Deserializes a list, or a single value as a list of one.
fn one_or_more<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore<T> {
        One(T),
        More(Vec<T>),
    }
    Ok(match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    })
}

/// An index of the section's collection.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    keys: Constant,
    unique: Option<bool>,
}

impl Index {
    pub(super) fn model(&self) -> IndexModel {
        let options = IndexOptions::builder().unique(self.unique).build();
        IndexModel::builder().keys(self.keys.0.clone()).options(options).build()
    }
}

/// PostgreSQL's side of the workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Postgres {
    pub(super) setup: String,
    /// A statement with an array parameter for each column.
    pub(super) load: Option<String>,
    /// Fields of the documents.
    #[serde(default)]
    pub(super) columns: Vec<String>,
    /// Commands before each case.
    pub(super) before: Option<String>,
}

/// A number of documents: a number, or the word `all`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Count {
    All,
    #[serde(untagged)]
    Of(u64),
}

impl Count {
    /// Returns the number in a collection of this size. For an empty collection the number is used as given.
    pub(super) fn of(self, documents: u64) -> u64 {
        match self {
            Count::Of(number) if documents == 0 => number,
            Count::Of(number) => number.min(documents),
            Count::All => documents,
        }
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    /// A step with substeps, or an unspecified kind.
    #[default]
    #[serde(skip)]
    Steps,
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

impl Kind {
    /// Returns the name in the file.
    fn name(self) -> String {
        let mut name = format!("{self:?}");
        name[..1].make_ascii_lowercase();
        name
    }

    /// Returns the fields of this kind in addition to common ones. A mark means that the first is required.
    fn fields(self) -> &'static str {
        match self {
            Kind::Steps | Kind::Connect | Kind::Start => "",
            Kind::Insert => "collection expect save document batch",
            Kind::Find => "collection expect save filter sort projection limit",
            Kind::Count => "collection expect filter",
            Kind::Update => "update! collection expect filter upsert many",
            Kind::Delete => "collection expect filter many",
            Kind::Aggregate => "pipeline! collection expect",
            Kind::FindAndModify => "update! collection expect save filter sort projection upsert",
            Kind::Command => "command! admin",
        }
    }
}

/// One request, or an operation of one or more requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Step {
    pub(super) kind: Kind,
    // Fields of a request.
    pub(super) collection: Option<String>,
    /// Document of an insert, instead of the workload's own.
    pub(super) document: Option<Generator>,
    pub(super) batch: Option<NonZeroU64>,
    pub(super) filter: Option<Generator>,
    update: Option<Generator>,
    pipeline: Option<Generator>,
    command: Option<Generator>,
    pub(super) sort: Option<Constant>,
    pub(super) projection: Option<Constant>,
    pub(super) limit: Option<NonZeroU64>,
    pub(super) upsert: Option<bool>,
    pub(super) many: Option<bool>,
    pub(super) admin: Option<bool>,
    /// Number of documents that must be found.
    pub(super) expect: Option<Count>,
    pub(super) save: Option<String>,
    /// Runs the step only for multiples of this operation number.
    pub(super) every: Option<NonZeroU64>,
    // Fields of an operation.
    name: String,
    weight: Option<Positive>,
    pub(super) keys: Option<Keys>,
    operations: Option<NonZeroU64>,
    pub(super) warm_up: Option<u64>,
    /// Number of documents that each operation touches, to report the cost of one.
    pub(super) touches: Option<Count>,
    pub(super) vellum: Option<bool>,
    #[serde(rename = "writeConcern")]
    pub(super) concern: Option<Concern>,
    /// Values shared by all steps.
    pub(super) with: Option<IndexMap<String, Generator>>,
    pub(super) before: Vec<Step>,
    pub(super) after: Vec<Step>,
    pub(super) steps: Vec<Step>,
    sql: Option<Statements>,
    /// The SQL statements after parsing.
    #[serde(skip)]
    pub(super) statements: Vec<Sql>,
    values: Option<Vec<Generator>>,
    row: Option<String>,
    rows: Option<Count>,
}

/// Returns the names of the given fields that are present.
macro_rules! given {
    ($fields:expr, $($name:ident)*) => {
        [$((stringify!($name), $fields.$name.is_some())),*].into_iter().filter_map(|(name, given)| given.then_some(name))
    };
}

impl Step {
    /// Refuses fields of other kinds of request.
    fn check(&self) -> std::result::Result<(), String> {
        let given = given!(self, collection document batch filter update pipeline command sort projection)
            .chain(given!(self, limit upsert many admin expect save));
        let (known, kind) = (self.kind.fields(), self.kind.name());
        let needed = known.split_once('!').map_or("", |(needed, _)| needed);
        let known = known.split([' ', '!']);
        match given.clone().find(|name| !known.clone().any(|known| known == *name)) {
            Some(name) => Err(format!("{kind} has no field '{name}'")),
            None if !needed.is_empty() && !given.clone().any(|name| name == needed) => {
                Err(format!("'{needed}' is missing"))
            }
            None => Ok(()),
        }
    }

    /// Refuses fields that a step cannot have.
    fn check_step(&self) -> std::result::Result<(), String> {
        let lists = [&self.before, &self.after, &self.steps].iter().any(|steps| !steps.is_empty());
        let mut own =
            given!(self, weight keys operations warm_up touches vellum concern with sql values row rows);
        match own.next() {
            Some(name) => Err(format!("a step has no field '{name}'")),
            None if lists || !self.name.is_empty() => Err("a step has no steps and no name".to_string()),
            None if self.kind == Kind::Steps => Err("'kind' is missing".to_string()),
            None => self.check(),
        }
    }

    /// Returns the operation with at least one step.
    fn operation(mut self) -> std::result::Result<Step, String> {
        self.check()?;
        match (self.kind, self.steps.is_empty()) {
            (Kind::Steps, true) => return Err("'kind' is missing".to_string()),
            (Kind::Steps, false) if self.name.is_empty() => return Err("'name' is missing".to_string()),
            (Kind::Steps, false) => {}
            (_, false) => return Err("'kind' and 'steps' are exclusive".to_string()),
            (kind, true) => {
                self.steps = vec![self.clone()];
                if self.name.is_empty() {
                    self.name = kind.name();
                }
            }
        }
        if self.kind == Kind::Steps {
            self.steps.iter().try_for_each(Step::check_step)?;
        }
        self.before.iter().chain(&self.after).try_for_each(Step::check_step)?;
        let (values, row, rows) = (self.values.take().unwrap_or_default(), self.row.take(), self.rows);
        self.statements = match self.sql.take() {
            Some(Statements::Several(statements)) => statements,
            Some(Statements::One(text)) => vec![Sql { text, values, row, rows, every: None }],
            None => Vec::new(),
        };
        Ok(self)
    }

    /// Returns the name of the operation, or the name of its kind.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the share of the operation in a mix.
    pub(super) fn weight(&self) -> f64 {
        self.weight.map_or(1.0, |weight| weight.0)
    }

    /// Returns the update, the pipeline or the command.
    pub(super) fn change(&self) -> Option<&Generator> {
        self.update.as_ref().or(self.pipeline.as_ref()).or(self.command.as_ref())
    }

    /// Returns the fixed number of operations, whatever the options are.
    pub(super) fn exactly(&self, size: Size) -> Option<u64> {
        self.operations.map(|number| size.of(number.get()))
    }

    /// Returns true if it may add or remove documents of the section's own collection.
    pub(super) fn changes_documents(&self) -> bool {
        let changes_documents =
            |step: &Step| matches!(step.kind, Kind::Insert | Kind::Delete) || step.upsert == Some(true);
        self.steps.iter().any(|step| step.collection.is_none() && changes_documents(step))
    }

    /// Returns a field that a key needs and documents lack.
    fn unknown_key(&self, template: &Template) -> Option<&str> {
        let values = self.statements.iter().flat_map(|sql| &sql.values);
        let values = values.chain(self.with.iter().flat_map(IndexMap::values));
        let steps = self.steps.iter().chain(&self.before).chain(&self.after);
        let of_steps = steps.flat_map(|step| {
            [step.document.as_ref(), step.filter.as_ref(), step.change()].into_iter().flatten()
        });
        values.chain(of_steps).flat_map(Generator::keys).find(|field| !template.has(field))
    }
}

/// Returns true if the operation of this number has a step.
pub(super) fn is_due(every: Option<NonZeroU64>, number: u64) -> bool {
    every.is_none_or(|every| number.is_multiple_of(every.get()))
}

/// PostgreSQL's statements for an operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Statements {
    One(String),
    Several(Vec<Sql>),
}

/// One SQL statement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sql {
    pub(super) text: String,
    #[serde(default)]
    pub(super) values: Vec<Generator>,
    /// Name under which the found row is kept.
    pub(super) row: Option<String>,
    pub(super) every: Option<NonZeroU64>,
    /// Number of rows that must be found or changed.
    pub(super) rows: Option<Count>,
}

/// Multiplier of the file's sizes, and seed of its values.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) seed: u64,
    pub(super) scale: f64,
}

impl Size {
    /// Multiplies a number by the scale, with a minimum of one.
    fn of(self, number: u64) -> u64 {
        ((number as f64 * self.scale).round() as u64).max(1)
    }
}

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// Any error of the file, by line and field.
    pub(super) fn read(source: Source, size: Size) -> Result<Workload> {
        let mut workload = match source.read::<Table>()?.get("section") {
            Some(_) => source.read::<Workload>()?,
            None => {
                let mut section = source.read::<Section>()?;
                let (about, refuse) =
                    (std::mem::take(&mut section.about), std::mem::take(&mut section.refuse));
                section.id = "run".to_string();
                if section.title.is_empty() {
                    section.title = source.name.to_string();
                }
                Workload { title: section.title.clone(), about, refuse, sections: vec![section] }
            }
        };
        if workload.title.is_empty() {
            workload.title = source.name.to_string();
        }
        workload.sections.iter_mut().try_for_each(|section| section.finish(source, size))?;
        Ok(workload)
    }
}

impl Section {
    /// Checks fields against each other, and applies `--scale`.
    fn finish(&mut self, source: Source, size: Size) -> Result<()> {
        let Some(first) = self.operation.first().map(Spanned::span) else {
            return Err(source.invalid(0..0, "'operation' is missing"));
        };
        let invalid = |message: &str| Err(source.invalid(first.clone(), message));
        let problems = [
            (self.template.is_empty(), "the section has no 'document'"),
            (self.id.is_empty() || self.title.is_empty(), "the section has no 'id' or no 'title'"),
            (!self.refuse.is_empty(), "a section has no field 'refuse'"),
            (
                self.operations.is_some() && self.seconds.is_some(),
                "the section has 'operations' and 'seconds', which are exclusive",
            ),
        ];
        if let Some((_, message)) = problems.iter().find(|(is_found, _)| *is_found) {
            return invalid(message);
        }
        if let Err(message) = self.setup.iter().try_for_each(Step::check_step) {
            return invalid(&format!("'setup': {message}"));
        }
        self.template.seed = size.seed;
        for operation in std::mem::take(&mut self.operation) {
            let at = operation.span();
            let operation =
                operation.into_inner().operation().map_err(|why| source.invalid(at.clone(), &why))?;
            if let Some(field) = operation.unknown_key(&self.template) {
                let message = format!("documents have no field '{field}' that a key could be taken from");
                return Err(source.invalid(at, &message));
            }
            self.kinds.push(operation);
        }
        let works = |step: &Step| !matches!(step.kind, Kind::Find | Kind::Update | Kind::Aggregate);
        let mut steps = self.kinds.iter().flat_map(|operation| &operation.steps);
        if self.documents.iter().all(|number| *number == 0) && self.setup.is_empty() && !steps.any(works) {
            return invalid("no 'documents' and no operation that inserts: the collection would be empty");
        }
        if self.collection.is_empty() {
            self.collection = "documents".to_string();
        }
        if self.documents.is_empty() {
            self.documents.push(0);
        }
        self.documents.iter_mut().filter(|number| **number > 0).for_each(|number| *number = size.of(*number));
        self.documents.dedup();
        // Rounds of few operations have fewer blocks.
        if matches!(self.until(size), LoadEnd::Operations(few) if few < 10) {
            self.blocks = self.blocks.min(8);
        }
        self.each |= self.blocks > 0;
        Ok(())
    }

    /// Returns the length of a round.
    pub(super) fn until(&self, size: Size) -> LoadEnd {
        match self.operations {
            Some(operations) => LoadEnd::Operations(size.of(operations.get())),
            None => LoadEnd::Seconds((self.seconds.map_or(10.0, |seconds| seconds.0) * size.scale).max(0.05)),
        }
    }

    /// Returns the numbers of connections, by default one.
    pub(super) fn connections(&self) -> Vec<u32> {
        let own: Vec<u32> = self.connections.iter().map(|number| number.get().into()).collect();
        if own.is_empty() { vec![1] } else { own }
    }
}
