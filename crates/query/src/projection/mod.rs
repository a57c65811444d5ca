//! Projections: which fields of a document go out, and what is computed on the way.

use base::bson::{Document, DocumentBuf, Path};
use base::{Result, err};

use crate::{Arena, Context};

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {}

impl Projection {
    /// Parses the `projection` of a find.
    pub fn parse_find(spec: Document<'_>, _context: &Context) -> Result<Projection> {
        Err(err!(NotImplemented, "projection {spec}"))
    }

    /// Parses the specification of a `$project`.
    pub fn parse_aggregate(spec: Document<'_>, _context: &Context) -> Result<Projection> {
        Err(err!(NotImplemented, "projection {spec}"))
    }

    /// Parses the specification of a `$addFields` or `$set`.
    pub fn add_fields(spec: Document<'_>, _context: &Context) -> Result<Projection> {
        Err(err!(NotImplemented, "projection {spec}"))
    }

    /// A projection without these fields: the paths of an `$unset`.
    pub fn unset(paths: &[&str]) -> Result<Projection> {
        Err(err!(NotImplemented, "projection {paths:?}"))
    }

    /// The projected document. `position` is where the filter matched, for the positional `$`.
    pub fn apply(
        &self,
        document: Document<'_>,
        _position: Option<usize>,
        _context: &Context,
        _arena: &Arena,
    ) -> Result<DocumentBuf> {
        Ok(document.to_owned())
    }

    /// The paths read, where an index over them could stand for the document.
    pub fn fields(&self) -> Option<Vec<Path>> {
        None
    }

    /// Whether the positional `$` is used.
    pub fn needs_position(&self) -> bool {
        false
    }
}
