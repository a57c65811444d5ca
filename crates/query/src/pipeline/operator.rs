//! What every parsed stage can do: start running, and tell the optimiser what it does.

use super::geo_near::GeoNear;
use super::unwind::Unwind;
use super::{Environment, Stream};
use base::Result;
use base::bson::{DocumentBuf, Path};
use std::sync::Arc;

/// A parsed stage: immutable, shared by all its runs.
pub(crate) trait Operator: Send + Sync {
    /// Puts the running stage on top of its input.
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream>;

    /// What the optimiser and the planner may take apart.
    fn kind(&self) -> Kind<'_> {
        Kind::Other
    }

    /// What happens to the documents on their way through.
    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    /// The stage that does what this and an `$unwind` behind it do, where there is one, and how
    /// explain shows it.
    fn unwinding(&self, _unwind: &Unwind) -> Option<(DocumentBuf, Arc<dyn Operator>)> {
        None
    }

    /// The paths that the stage reads of its input.
    fn reads(&self) -> Reads {
        Reads::Everything
    }
}

/// The stages that others know from within.
pub(crate) enum Kind<'a> {
    /// A `$match` by its filter.
    Match(&'a DocumentBuf),
    /// A `$sort`, and how many of its first documents are wanted.
    Sort {
        pattern: &'a DocumentBuf,
        limit: Option<u64>,
    },
    /// A `$geoNear`, which the plan does.
    GeoNear(&'a Arc<GeoNear>),
    Limit(u64),
    /// An `$unwind`, for what can unwind its own output.
    Unwind(&'a Unwind),
    Skip(u64),
    /// Brings its own documents; must be first.
    Source,
    /// Nothing that others look into.
    Other,
}

/// What a stage does to documents, told by top-level field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Each document by itself passes as it is or not at all.
    Filters,
    /// Only puts documents into another order.
    Reorders,
    /// Each document comes out once, only these fields changed.
    Changes(Vec<String>),
    /// Each document comes out once, these fields as they were, all else changed or gone.
    Keeps(Vec<String>),
    /// Each document comes out any number of times, only these fields changed.
    Multiplies(Vec<String>),
    /// Anything else.
    Opaque,
}

/// What a stage reads.
pub(crate) enum Reads {
    /// These paths, and passes everything on.
    Also(Vec<Path>),
    /// These paths alone: what comes out is made of nothing else.
    Only(Vec<Path>),
    /// Perhaps all of the document.
    Everything,
}
