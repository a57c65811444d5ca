//! Aggregation pipelines: parsed completely before any document is read, then pulled one [`Row`] at a time.
//!
//! [`Pipeline::parse`] turns the array of stages into [`Step`]s, each with its [`Operator`]. [`Pipeline::run`] stacks
//! the running stages on a source. A running stage is a pull iterator ([`Stage`]) that owns all its state, so a cursor
//! can keep it between requests. [`Collections`], which the database implements, gives access to other collections.
//!
//! A stage of the language is a file here, or a part of a file of related stages, and one row of the table in
//! [`registry`]. The row has all other facts about the stage ([`StageDefinition`]). The server and the database match
//! no names of stages.

mod bucket;
mod bucket_auto;
mod change_stream;
mod collections;
mod count;
mod definition;
mod densify;
pub(crate) mod depth;
mod explained;
mod external;
mod facet;
mod fields;
mod fill;
mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod limit;
mod lookup;
mod lookup_table;
mod r#match;
mod merge;
mod merge_spec;
mod metadata;
pub(crate) mod operator;
mod optimize;
mod out;
mod parallel;
mod parse;
mod planner;
mod project;
mod redact;
mod registry;
mod replace_root;
mod sample;
mod set_window_fields;
mod sort;
mod source;
mod transformation;
mod union_with;
mod unwind;
mod variables;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use collections::{Collections, Environment, Namespace, Sink, UniqueIndex};
pub use definition::{Inputs, Requester, Resource, Right, RunsOn, StageDefinition};
pub use external::{CollStats, External};
pub use fields::set_path;
pub use geo_near::GeoNear;
pub use r#match::matching;
pub use parallel::Split;
pub use planner::LeadingSort;
pub use registry::{first_stage, stages, stages_of};
pub use sort::RowSorter;
pub use source::{from_documents, from_fn, from_iter};

use base::Result;
use base::bson::{Array, DocumentBuf};
use depth::{Bounded, Growth};
use operator::{Kind, Operator};
use parse::Scope;
pub use parse::{DEPTH_MAX, too_deep};
use std::fmt;
use std::sync::Arc;

use crate::{Context, Row};

/// A running source or stage, which returns documents one at a time.
///
/// It owns its plan, snapshot and environment (no borrows). An open cursor can therefore keep it between requests,
/// which may run on different threads.
pub trait Stage: Send {
    /// Returns the next row, or `None` at the end. After the end it always returns `None`, except for a change stream,
    /// which may have more rows later.
    fn next(&mut self) -> Result<Option<Row>>;

    /// Begins a section of a large scan: the next `None` is the end of the section, not of the rows. Returns false if
    /// the stream has no sections or its last section begins.
    fn begin_section(&mut self) -> bool {
        false
    }

    /// Gives up the later part of the remaining rows, for another thread; `None` if the stream is not split. Called
    /// between two sections.
    fn split(&mut self) -> Option<Split> {
        None
    }
}

/// A boxed stage.
pub type Stream = Box<dyn Stage>;

/// A parsed stage with its specification.
#[derive(Clone)]
pub(crate) struct Step {
    definition: &'static StageDefinition,
    /// `{ $stage: specification }`, for explain and for rewriting.
    spec: DocumentBuf,
    operator: Arc<dyn Operator>,
    /// Levels that it may add to documents.
    growth: usize,
}

impl Step {
    fn new(definition: &'static StageDefinition, spec: DocumentBuf, operator: Arc<dyn Operator>) -> Step {
        let growth = depth::of_stage(spec.view(), &operator.effect());
        Step { definition, spec, operator, growth }
    }

    /// Returns the stages that explain prints.
    fn explained(&self) -> Vec<DocumentBuf> {
        let specification = self.spec.view().first().map(|spec| spec.value());
        match (self.definition.explained, specification) {
            (Some(explained), Some(specification)) => explained(specification),
            _ => vec![self.spec.clone()],
        }
    }
}

/// A parsed, immutable pipeline. Clones are cheap.
#[derive(Clone, Default)]
pub struct Pipeline {
    steps: Vec<Step>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.describe()).finish()
    }
}

impl Pipeline {
    /// Parses every stage and checks their positions.
    ///
    /// Errors, as in MongoDB: TypeMismatch for a stage that is not a document, 40323 for a stage without exactly one
    /// field, 40324 for an unknown stage, 40601/40602 for a misplaced stage. NotImplemented for a known but unsupported
    /// stage, and the errors of each stage.
    pub fn parse(stages: Array<'_>, context: &Context) -> Result<Pipeline> {
        Scope::top(context).pipeline(stages)
    }

    /// Stacks the stages on a source of documents.
    ///
    /// The source is not read if [`reads_collection`](Self::reads_collection) is false, because the pipeline brings its
    /// own documents.
    pub fn run(&self, source: Stream, environment: &Environment) -> Result<Stream> {
        self.run_through(source, environment, &mut |stream| stream)
    }

    /// Stacks the stages as [`run`](Self::run) does, and passes the output of each through `wrap`: for explain, which
    /// counts it.
    pub fn run_through(
        &self,
        source: Stream,
        environment: &Environment,
        wrap: &mut dyn FnMut(Stream) -> Stream,
    ) -> Result<Stream> {
        let mut stream = source;
        let mut growth = Growth::default();
        let below = environment.below(self.steps.len())?;
        for step in &self.steps {
            stream = wrap(Arc::clone(&step.operator).start(stream, &below)?);
            if growth.note(step.growth) {
                stream = Box::new(Bounded(stream));
            }
        }
        Ok(if growth.checks_output() { Box::new(Bounded(stream)) } else { stream })
    }

    /// The number of stages.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the pipeline has no stages.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The stages as explain prints them, in order, each with its position in the pipeline.
    pub fn explained(&self) -> impl Iterator<Item = (DocumentBuf, usize)> {
        let steps = self.steps.iter().enumerate();
        steps.flat_map(|(position, step)| step.explained().into_iter().map(move |stage| (stage, position)))
    }

    /// The stages in order: `{ $stage: specification }`.
    pub fn describe(&self) -> impl Iterator<Item = &DocumentBuf> {
        self.steps.iter().map(|step| &step.spec)
    }

    /// The stages' names in order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &'static str> {
        self.steps.iter().map(|step| step.definition.name)
    }

    /// The first stage.
    pub fn first(&self) -> Option<&'static StageDefinition> {
        self.steps.first().map(|step| step.definition)
    }

    /// The last stage, if it writes to a collection.
    pub fn writer(&self) -> Option<&'static StageDefinition> {
        self.steps.last().map(|step| step.definition).filter(|definition| definition.writes())
    }

    /// Checks the collection that the pipeline writes to, without a run. Errors: 51183, 31320, 31321.
    pub fn check_target(&self, environment: &Environment) -> Result<()> {
        self.steps.last().map_or(Ok(()), |step| step.operator.check_target(environment))
    }

    /// Whether the pipeline writes to a collection.
    pub fn writes(&self) -> bool {
        self.writer().is_some()
    }

    /// Whether the documents come from the collection: false if the first stage brings its own (`$documents`,
    /// `$collStats`, …).
    pub fn reads_collection(&self) -> bool {
        !self.steps.first().is_some_and(|step| matches!(step.operator.kind(), Kind::Source))
    }
}
