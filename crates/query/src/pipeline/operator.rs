//! Interface of parsed stages: starting them, and their properties for the optimiser.

use super::geo_near::GeoNear;
use super::r#match::Match;
use super::sort::Sort;
use super::transformation::Transformation;
use super::unwind::Unwind;
use super::{Environment, Stream};
use base::Result;
use base::bson::{DocumentBuf, Path};
use std::sync::Arc;

/// A parsed stage: immutable, shared by all its runs.
pub(crate) trait Operator: Send + Sync {
    /// Stacks the running stage on its input.
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream>;

    /// Checks the collection that the stage writes to, before a run and for explain.
    fn check_target(&self, _environment: &Environment) -> Result<()> {
        Ok(())
    }

    /// The kind of stage, for the optimiser and the planner.
    fn kind(&self) -> Kind<'_> {
        Kind::Other
    }

    /// The stage's effect on documents.
    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    /// Returns the stage that combines this one with an `$unwind` after it, if possible, and its specification for
    /// explain.
    fn unwinding(&self, _unwind: &Unwind) -> Option<(DocumentBuf, Arc<dyn Operator>)> {
        None
    }

    /// The paths that the stage reads from its input.
    fn reads(&self) -> Reads {
        Reads::Everything
    }
}

/// Stages that the optimiser and the planner treat specially.
pub(crate) enum Kind<'a> {
    /// A `$match`, for moving its conditions.
    Match(&'a Match),
    /// A `$sort`, for joining limits to it.
    Sort(&'a Sort),
    /// A `$geoNear`, which the plan executes.
    GeoNear(&'a Arc<GeoNear>),
    Limit(u64),
    /// An `$unwind`, which a preceding stage may absorb.
    Unwind(&'a Unwind),
    Skip(u64),
    /// A stage that updates may run.
    Transformation(&'a dyn Transformation),
    /// A source of documents; must be first.
    Source,
    /// All other stages.
    Other,
}

/// A stage's effect on documents, by top-level field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Each document passes unchanged or is dropped.
    Filters,
    /// Documents are only reordered.
    Reorders,
    /// Each document yields one document, with only these fields changed.
    Changes(Vec<String>),
    /// Each document yields one document, with these fields unchanged and all others changed or removed.
    Keeps(Vec<String>),
    /// Each document yields any number of documents, with only these fields changed.
    Multiplies(Vec<String>),
    /// Any other effect.
    Opaque,
}

/// The paths that a stage reads.
pub(crate) enum Reads {
    /// These paths; the stage passes on all fields.
    Also(Vec<Path>),
    /// Only these paths; the output depends on nothing else.
    Only(Vec<Path>),
    /// Possibly the whole document.
    Everything,
}
