//! Columns of the table of stages: all facts about a stage except its processing of documents.
//!
//! `registry.rs` has the rows. A fact about stages that another module needs becomes a column here, with a default in
//! `StageDefinition::new`.

use super::external::External;
use super::parse::{Parsed, Scope};
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use base::{Error, Result};

/// The parser of a specification.
pub(crate) enum Parser {
    /// A stage that runs in the pipeline.
    Stage(fn(&Element<'_>, &Scope<'_>) -> Result<Parsed>),
    /// A source of documents in the database or the server.
    External(fn(&Element<'_>) -> Result<External>),
    /// A stage that is refused.
    Refused(fn(&Element<'_>) -> Error),
}

/// Allowed position of a stage in a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Anywhere,
    First,
    /// Last, because the stage writes and returns nothing.
    Last,
}

/// Origin of a stage's documents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Documents {
    /// The previous stage, or the collection.
    Input,
    /// The stage itself; the pipeline reads no collection.
    Own,
    /// The oplog; the pipeline is a change stream.
    Events,
}

/// Whether a stage may follow `$changeStream`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Refused,
    /// Allowed: the stage filters events one by one.
    Allowed,
    /// The stage occurs only in change streams, and last.
    Required,
}

/// Target of a pipeline that begins with a stage.
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
    /// The collection of sessions, `config.system.sessions`.
    Sessions,
}

/// Whether the stable API contains a stage.
#[derive(Clone, Copy)]
pub(crate) enum Stable {
    Yes,
    No,
    /// The specification decides.
    If(fn(Document<'_>) -> bool),
}

/// The actions that a stage requires, by MongoDB's names.
#[derive(Clone, Copy)]
pub(crate) enum Rights {
    /// None, or only those of its [inputs](Inputs).
    Nothing,
    /// An action on the pipeline's collection.
    Collection(&'static str),
    /// An action on the cluster.
    Cluster(&'static str),
    /// The specification decides.
    By(for<'v> fn(Value<'v>, &Requester<'_>) -> Vec<Right<'v>>),
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
    /// All databases and collections except system collections.
    AnyNormal,
    /// The cluster.
    Cluster,
    /// The pipeline's database.
    Database,
    /// The pipeline's collection.
    Collection,
    /// A collection that the stage writes to, named by a string or by `{db, coll}`.
    Target(Value<'v>),
}

/// The user of a pipeline, and the pipeline's target.
pub struct Requester<'a> {
    /// The database.
    pub database: &'a str,
    /// The collection; `None` if the pipeline runs on the database.
    pub collection: Option<&'a str>,
    /// Whether `{user, db}` names the user.
    pub is: &'a dyn Fn(Value<'_>) -> bool,
}

/// The inputs of a stage other than the documents before it.
#[derive(Default)]
pub struct Inputs<'v> {
    /// Names of collections. Empty for a stage whose [pipelines](Self::pipelines) bring their own documents.
    pub collections: Vec<Value<'v>>,
    /// Pipelines over the collection, or over the stage's own input without a collection.
    pub pipelines: Vec<Array<'v>>,
}

/// A row of the table of stages.
pub struct StageDefinition {
    /// The name, `$` included.
    pub name: &'static str,
    /// Target of a pipeline that begins with the stage.
    pub runs_on: RunsOn,
    /// The only allowed read concern level; `None` allows all.
    pub read_concern: Option<&'static str>,
    /// Whether transactions may run the stage.
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
    pub(crate) creates_documents: bool,
    /// The stages that explain prints instead.
    pub(crate) explained: Option<fn(Value<'_>) -> Vec<DocumentBuf>>,
    stable: Stable,
    rights: Rights,
    inputs: Option<for<'v> fn(Value<'v>) -> Inputs<'v>>,
}

impl StageDefinition {
    /// Defines a stage with a parser and no restrictions.
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
            creates_documents: false,
            explained: None,
            stable: Stable::Yes,
            rights: Rights::Nothing,
            inputs: None,
        }
    }

    pub(crate) const fn first(self) -> StageDefinition {
        StageDefinition { position: Position::First, in_facet: false, ..self }
    }

    /// Marks the stage as writing: it is last, in the command's own pipeline, and outside transactions.
    pub(crate) const fn writes_documents(self) -> StageDefinition {
        let out = StageDefinition { position: Position::Last, in_facet: false, ..self };
        out.not_in_joins().not_in_transactions()
    }

    pub(crate) const fn documents_from(self, documents: Documents) -> StageDefinition {
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

    pub(crate) const fn creates_documents(self) -> StageDefinition {
        StageDefinition { creates_documents: true, ..self }
    }

    pub(crate) const fn explained_by(self, explained: fn(Value<'_>) -> Vec<DocumentBuf>) -> StageDefinition {
        StageDefinition { explained: Some(explained), ..self }
    }

    pub(crate) const fn stable(self, stable: Stable) -> StageDefinition {
        StageDefinition { stable, ..self }
    }

    pub(crate) const fn requires(self, rights: Rights) -> StageDefinition {
        StageDefinition { rights, ..self }
    }

    pub(crate) const fn reads(self, inputs: for<'v> fn(Value<'v>) -> Inputs<'v>) -> StageDefinition {
        StageDefinition { inputs: Some(inputs), ..self }
    }

    /// Whether a pipeline that begins with the stage can run only without a collection.
    pub fn needs_no_collection(&self) -> bool {
        matches!(self.runs_on, RunsOn::Admin | RunsOn::Database)
    }

    /// Whether a pipeline that begins with the stage reads no collection.
    pub fn generates_documents(&self) -> bool {
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

    /// Returns the required rights of the pipeline's user, except reading the stage's inputs.
    pub fn rights<'v>(&'static self, specification: Value<'v>, requester: &Requester<'_>) -> Vec<Right<'v>> {
        match &self.rights {
            Rights::Nothing => Vec::new(),
            Rights::Collection(action) => {
                vec![Right { on: Resource::Collection, actions: std::slice::from_ref(action) }]
            }
            Rights::Cluster(action) => {
                vec![Right { on: Resource::Cluster, actions: std::slice::from_ref(action) }]
            }
            Rights::By(decide) => decide(specification, requester),
        }
    }

    /// Returns the inputs of the stage other than the documents before it, as far as its specification is valid.
    pub fn inputs<'v>(&self, specification: Value<'v>) -> Inputs<'v> {
        self.inputs.map(|inputs| inputs(specification)).unwrap_or_default()
    }
}

impl<'v> Inputs<'v> {
    /// Returns the inputs named by one option and by the option `pipeline`.
    pub(crate) fn of_options(specification: Value<'v>, collection: &str) -> Inputs<'v> {
        let options = specification.as_document().unwrap_or(Document::EMPTY);
        let pipelines = values(options, "pipeline").filter_map(|pipeline| pipeline.as_array());
        Inputs { collections: values(options, collection).collect(), pipelines: pipelines.collect() }
    }
}

/// Returns all values of an option, which an unparsed specification may repeat.
pub(crate) fn values<'v>(options: Document<'v>, name: &str) -> impl Iterator<Item = Value<'v>> {
    options.iter().filter(move |option| option.name() == name).map(|option| option.value())
}

/// Whether an option is set in an unparsed specification.
pub(crate) fn is_set(specification: Value<'_>, name: &str) -> bool {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    values(options, name).any(|value| value.is_truthy())
}
