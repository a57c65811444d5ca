//! Stages whose documents only the database can tell: statistics, cursors, operations.

use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::{Environment, Stream};
use base::ErrorCode::{self, FailedToParse, TypeMismatch};
use base::bson::{Element, Value, ValueBuf};
use base::{Error, Result, err};
use std::sync::Arc;

struct External {
    name: &'static str,
    spec: ValueBuf,
}

/// Parses a stage whose specification is the database's to read.
///
/// Errors: FailedToParse unless it is a document, 5447000 in the case of `$collStats`, 28803 for `$indexStats` of anything but `{}`.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let is_empty = spec.value().as_document().is_some_and(|document| document.is_empty());
    if spec.name() == "$indexStats" && !is_empty {
        return Err(err!(28803, "The $indexStats stage specification must be an empty object"));
    }
    if spec.name() == "$collStats" && spec.value().as_document().is_none() {
        return Err(err!(5447000, "$collStats must take a nested object but found: {spec}"));
    }
    match spec.name() {
        "$planCacheStats" => check_flags(spec, FailedToParse, &["allHosts"])?,
        "$currentOp" => check_flags(spec, TypeMismatch, CURRENT_OP)?,
        _ => {}
    }
    let Value::Document(_) = spec.value() else {
        let found = spec.kind().alias();
        return Err(err!(FailedToParse, "{} must take a nested object but found: {found}", spec.name()));
    };
    let name = super::registry::find(spec.name())?.name;
    Ok(Parsed::one(External { name, spec: spec.value().to_owned() }))
}

/// The options of `$currentOp`. The last asks all nodes of a sharded cluster.
const CURRENT_OP: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "truncateOps",
    "targetAllNodes",
];

/// Checks a specification of booleans; the last of them is for sharded clusters.
///
/// Errors: the given code unless it is a document, 40415 and TypeMismatch for other options, FailedToParse for what only a
/// sharded cluster has.
fn check_flags(spec: &Element<'_>, no_document: ErrorCode, flags: &[&str]) -> Result<()> {
    let name = spec.name();
    let Value::Document(options) = spec.value() else {
        let message = format!("{name} must take a nested object but found: {}", spec.kind().alias());
        return Err(Error::new(no_document, message));
    };
    for option in options {
        let flag = option.name();
        if !flags.contains(&flag) {
            return Err(err!(40415, "BSON field '{name}.{flag}' is an unknown field."));
        }
        match option.value() {
            Value::Boolean(true) if flags.last() == Some(&flag) => {
                return Err(err!(FailedToParse, "{name} takes {flag} on sharded clusters only"));
            }
            Value::Boolean(_) => {}
            other => {
                return Err(err!(
                    TypeMismatch,
                    "BSON field '{name}.{flag}' is the wrong type '{}', expected type 'bool'",
                    other.kind().alias()
                ));
            }
        }
    }
    Ok(())
}

impl Operator for External {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        environment.collections.source(self.name, self.spec.view(), &environment.context)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, pipeline};

    #[test]
    fn the_database_is_asked() {
        let text = "[{$indexStats: {}}, {$project: {_id: 0}}]";
        gives("[]", text, "[{stage: '$indexStats', spec: {}}]");
        assert!(!pipeline(text).unwrap().reads_collection());
        fails("[{$indexStats: {a: 1}}]", 28803, "must be an empty object");
        fails("[{$collStats: null}]", 5447000, "found: $collStats: null");
        fails("[{$currentOp: 1}]", 14, "$currentOp must take a nested object");
        fails("[{$limit: 1}, {$collStats: {}}]", 40602, "$collStats is only valid as the first stage");
    }
}
