//! Stands before the matcher.

use crate::Context;
use base::bson::Document;
use base::{Result, err};

#[derive(Debug, Clone)]
pub(crate) struct Filter;

impl Filter {
    pub(crate) fn parse(filter: Document<'_>, _context: &Context) -> Result<Filter> {
        Err(err!(NotImplemented, "filter {filter}"))
    }

    pub(crate) fn matches(&self, _document: Document<'_>, _context: &Context) -> Result<bool> {
        Ok(false)
    }
}
