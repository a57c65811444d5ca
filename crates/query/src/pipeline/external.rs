//! Sources of documents in the database or the server: statistics, cursors, operations.

use super::coll_stats::CollStats;
use super::definition::Parser;
use super::operator::{Kind, Operator};
use super::{Environment, Stream, registry};
use base::ErrorCode;
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use base::{Error, Result, bail, err};
use std::sync::Arc;

/// A parsed source.
#[derive(Clone, Debug)]
pub enum External {
    /// `$collStats`.
    CollStats(CollStats),
    /// `$currentOp`, with its options.
    CurrentOp(DocumentBuf),
    /// `$indexStats`.
    IndexStats,
    /// `$listLocalSessions`, whose options the server reads.
    ListLocalSessions(DocumentBuf),
    /// `$queryStats`.
    QueryStats,
    /// `$planCacheStats`.
    PlanCacheStats,
    /// `$querySettings`.
    QuerySettings {
        /// Whether each document shows the query shape, too.
        shows_shape: bool,
    },
}

impl External {
    /// Returns the first stage of an unparsed pipeline, if it is a valid external source.
    pub fn first_of(pipeline: Array<'_>) -> Option<External> {
        let spec = pipeline.iter().next()?.as_document()?.first()?;
        match registry::find(spec.name()).ok()?.parser {
            Parser::External(parse) => parse(&spec).ok(),
            _ => None,
        }
    }
}

/// The stage that reads an external source.
pub(crate) struct Source(pub(crate) External);

impl Operator for Source {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        environment.collections.source(&self.0, &environment.context)
    }
}

/// Returns the options of a source.
///
/// Errors: the given code unless they are a document.
pub(super) fn options<'v>(spec: &Element<'v>, no_document: ErrorCode) -> Result<Document<'v>> {
    spec.value().as_document().ok_or_else(|| {
        let message = format!("{} must take a nested object but found: {}", spec.name(), spec.kind().alias());
        Error::new(no_document, message)
    })
}

/// Checks that all options are booleans.
///
/// Errors: 40415 and TypeMismatch for other options.
pub(super) fn check_flags(name: &str, options: Document<'_>, flags: &[&str]) -> Result<()> {
    for option in options {
        let flag = option.name();
        if !flags.contains(&flag) {
            bail!(40415, "BSON field '{name}.{flag}' is an unknown field.");
        }
        if option.value().as_bool().is_none() {
            return Err(Error::wrong_type(format_args!("{name}.{flag}"), option.kind(), "bool"));
        }
    }
    Ok(())
}

/// Refuses an option for sharded clusters.
///
/// Errors: FailedToParse.
pub(super) fn refuse_sharded(name: &str, options: Document<'_>, flag: &str) -> Result<()> {
    match options.get(flag) {
        Some(Value::Boolean(true)) => {
            Err(err!(FailedToParse, "{name} takes {flag} on sharded clusters only"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, pipeline};

    #[test]
    fn the_database_is_asked() {
        let text = "[{$indexStats: {}}, {$project: {_id: 0}}]";
        gives("[]", text, "[{source: 'IndexStats'}]");
        assert!(!pipeline(text).unwrap().reads_collection());
        fails("[{$indexStats: {a: 1}}]", 28803, "must be an empty object");
        fails("[{$collStats: null}]", 5447000, "found: $collStats: null");
        fails("[{$currentOp: 1}]", 14, "$currentOp must take a nested object");
        fails("[{$limit: 1}, {$collStats: {}}]", 40602, "$collStats is only valid as the first stage");
    }
}
