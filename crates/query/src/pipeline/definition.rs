//! The columns of the table of stages: every fact about a stage but what it does with documents.

use super::external::External;
use super::parse::{Parsed, Scope};
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use base::{Error, Result};

/// How a specification is read.
pub(crate) enum Parser {
    /// The stage runs here.
    Stage(fn(&Element<'_>, &Scope<'_>) -> Result<Parsed>),
    /// A source whose documents the database or the server holds.
    External(fn(&Element<'_>) -> Result<External>),
    /// Every specification is refused.
    Refused(fn(&Element<'_>) -> Error),
}

/// Where in a pipeline a stage may stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Anywhere,
    First,
    /// The stage writes and returns nothing.
    Last,
}

/// Where the documents of a stage come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Documents {
    /// The stage before it, or the collection.
    Input,
    /// The stage itself: its pipeline reads no collection.
    Own,
    /// The oplog: its pipeline is a change stream.
    Events,
}

/// Whether a stage may follow `$changeStream`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Refused,
    /// The stage passes each event on, or not, by itself.
    Allowed,
    /// The stage stands nowhere else, and is last.
    Required,
}

/// What a pipeline that begins with a stage runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunsOn {
    /// A collection.
    Collection,
    /// A database: `{aggregate: 1}`.
    Database,
    /// The database `admin`: `{aggregate: 1}`.
    Admin,
    /// A collection or a database.
    Any,
}

/// Whether the stable API contains a stage.
#[derive(Clone, Copy)]
pub(crate) enum Stable {
    Yes,
    No,
    /// The specification decides.
    If(fn(Document<'_>) -> bool),
}

/// The actions that a stage needs, by MongoDB's names.
#[derive(Clone, Copy)]
pub(crate) enum Rights {
    /// None, or those of what the stage [reads](Inputs).
    Nothing,
    /// An action on the collection that the pipeline runs on.
    Collection(&'static str),
    /// An action on the cluster.
    Cluster(&'static str),
    /// The specification decides.
    By(for<'v> fn(Value<'v>, &Asker<'_>) -> Vec<Right<'v>>),
}

/// Actions on one resource.
pub struct Right<'v> {
    /// The resource.
    pub on: Resource<'v>,
    /// MongoDB's names of the actions.
    pub actions: &'static [&'static str],
}

/// The resource of a [`Right`].
pub enum Resource<'v> {
    /// All databases and collections but the system's.
    AnyNormal,
    /// The cluster.
    Cluster,
    /// The database that the pipeline runs on.
    Database,
    /// The collection that the pipeline runs on.
    Collection,
    /// A collection that the stage writes to, named by text or by `{db, coll}`.
    Target(Value<'v>),
}

/// The user of a pipeline, and what the pipeline runs on.
pub struct Asker<'a> {
    /// The database.
    pub database: &'a str,
    /// The collection; `None` if the pipeline runs on the database.
    pub collection: Option<&'a str>,
    /// Whether `{user, db}` names the user.
    pub is: &'a dyn Fn(Value<'_>) -> bool,
}

/// What a stage reads besides the documents before it.
#[derive(Default)]
pub struct Inputs<'v> {
    /// Names of collections. A stage whose [pipelines](Self::pipelines) bring documents of their own reads none.
    pub collections: Vec<Value<'v>>,
    /// Pipelines over the collection, or over the stage's own input if it names none.
    pub pipelines: Vec<Array<'v>>,
}

/// A row of the table of stages.
pub struct StageDefinition {
    /// The name, `$` included.
    pub name: &'static str,
    /// What a pipeline that begins with the stage runs on.
    pub runs_on: RunsOn,
    /// The only read concern level that the stage takes; `None` is any.
    pub read_concern: Option<&'static str>,
    /// Whether a transaction may run the stage.
    pub in_transactions: bool,
    pub(crate) parser: Parser,
    pub(crate) position: Position,
    pub(crate) documents: Documents,
    /// Whether `$facet` may contain it.
    pub(crate) in_facet: bool,
    /// Whether the pipelines of `$lookup` and `$unionWith` may contain it.
    pub(crate) in_joins: bool,
    pub(crate) streams: Streams,
    /// Whether its documents are new, without metadata.
    pub(crate) makes_new: bool,
    /// The stages that explain shows in its place.
    pub(crate) explained: Option<fn(Value<'_>) -> Vec<DocumentBuf>>,
    stable: Stable,
    rights: Rights,
    inputs: Option<for<'v> fn(Value<'v>) -> Inputs<'v>>,
}

impl StageDefinition {
    /// A stage with a parser and no restrictions.
    pub(crate) const fn new(name: &'static str, parser: Parser) -> StageDefinition {
        StageDefinition {
            name,
            runs_on: RunsOn::Collection,
            read_concern: None,
            in_transactions: true,
            parser,
            position: Position::Anywhere,
            documents: Documents::Input,
            in_facet: true,
            in_joins: true,
            streams: Streams::Refused,
            makes_new: false,
            explained: None,
            stable: Stable::Yes,
            rights: Rights::Nothing,
            inputs: None,
        }
    }

    pub(crate) const fn first(self) -> StageDefinition {
        StageDefinition { position: Position::First, in_facet: false, ..self }
    }

    /// The stage writes: it is last, in the command's own pipeline, and outside of transactions.
    pub(crate) const fn writes_documents(self) -> StageDefinition {
        let out = StageDefinition { position: Position::Last, in_facet: false, ..self };
        out.not_in_joins().not_in_transactions()
    }

    pub(crate) const fn brings(self, documents: Documents) -> StageDefinition {
        StageDefinition { documents, ..self.first() }
    }

    pub(crate) const fn runs_on(self, runs_on: RunsOn) -> StageDefinition {
        StageDefinition { runs_on, ..self }
    }

    pub(crate) const fn only_read_concern(self, level: &'static str) -> StageDefinition {
        StageDefinition { read_concern: Some(level), ..self }
    }

    pub(crate) const fn not_in_transactions(self) -> StageDefinition {
        StageDefinition { in_transactions: false, ..self }
    }

    pub(crate) const fn not_in_facet(self) -> StageDefinition {
        StageDefinition { in_facet: false, ..self }
    }

    pub(crate) const fn not_in_joins(self) -> StageDefinition {
        StageDefinition { in_joins: false, ..self }
    }

    pub(crate) const fn in_streams(self) -> StageDefinition {
        StageDefinition { streams: Streams::Allowed, ..self }
    }

    pub(crate) const fn only_in_streams(self) -> StageDefinition {
        let out = StageDefinition { streams: Streams::Required, ..self };
        out.not_in_facet().not_in_joins()
    }

    pub(crate) const fn makes_new(self) -> StageDefinition {
        StageDefinition { makes_new: true, ..self }
    }

    pub(crate) const fn explained_by(self, explained: fn(Value<'_>) -> Vec<DocumentBuf>) -> StageDefinition {
        StageDefinition { explained: Some(explained), ..self }
    }

    pub(crate) const fn stable(self, stable: Stable) -> StageDefinition {
        StageDefinition { stable, ..self }
    }

    pub(crate) const fn needs(self, rights: Rights) -> StageDefinition {
        StageDefinition { rights, ..self }
    }

    pub(crate) const fn reads(self, inputs: for<'v> fn(Value<'v>) -> Inputs<'v>) -> StageDefinition {
        StageDefinition { inputs: Some(inputs), ..self }
    }

    /// False if the stage is refused whatever its specification.
    pub fn is_implemented(&self) -> bool {
        !matches!(self.parser, Parser::Refused(_))
    }

    /// Whether a pipeline that begins with the stage reads no collection.
    pub fn brings_own_documents(&self) -> bool {
        self.documents != Documents::Input
    }

    /// Whether a pipeline that begins with the stage is a change stream.
    pub fn opens_stream(&self) -> bool {
        self.documents == Documents::Events
    }

    /// Whether the stage writes to a collection.
    pub fn writes(&self) -> bool {
        self.position == Position::Last
    }

    /// Whether the stable API contains the stage with this specification.
    pub fn is_stable(&self, specification: Value<'_>) -> bool {
        match self.stable {
            Stable::Yes => true,
            Stable::No => false,
            Stable::If(decide) => specification.as_document().is_some_and(decide),
        }
    }

    /// What the user of a pipeline must be allowed to do, beside reading the stage's inputs.
    pub fn rights<'v>(&'static self, specification: Value<'v>, asker: &Asker<'_>) -> Vec<Right<'v>> {
        match &self.rights {
            Rights::Nothing => Vec::new(),
            Rights::Collection(action) => {
                vec![Right { on: Resource::Collection, actions: std::slice::from_ref(action) }]
            }
            Rights::Cluster(action) => {
                vec![Right { on: Resource::Cluster, actions: std::slice::from_ref(action) }]
            }
            Rights::By(decide) => decide(specification, asker),
        }
    }

    /// What the stage reads besides the documents before it, as far as its specification can be read.
    pub fn inputs<'v>(&self, specification: Value<'v>) -> Inputs<'v> {
        self.inputs.map(|inputs| inputs(specification)).unwrap_or_default()
    }
}

impl<'v> Inputs<'v> {
    /// The collection under one option, and the pipeline.
    pub(crate) fn of_options(specification: Value<'v>, collection: &str) -> Inputs<'v> {
        let options = specification.as_document().unwrap_or(Document::EMPTY);
        let pipelines = values(options, "pipeline").filter_map(|pipeline| pipeline.as_array());
        Inputs { collections: values(options, collection).collect(), pipelines: pipelines.collect() }
    }
}

/// Every value of an option, which a specification that is not parsed yet may repeat.
pub(crate) fn values<'v>(options: Document<'v>, name: &str) -> impl Iterator<Item = Value<'v>> {
    options.iter().filter(move |option| option.name() == name).map(|option| option.value())
}

/// Whether an option is set in a specification that is not parsed yet.
pub(crate) fn is_set(specification: Value<'_>, name: &str) -> bool {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    values(options, name).any(|value| value.is_truthy())
}
