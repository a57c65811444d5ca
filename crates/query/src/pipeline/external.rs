//! Stages whose documents only the database can tell: statistics, cursors, operations.

use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::{Environment, Stream};
use base::bson::{Element, Value, ValueBuf};
use base::{Result, err};
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
    if spec.name() == "$planCacheStats" {
        check_plan_cache(spec)?;
    }
    let Value::Document(_) = spec.value() else {
        let found = spec.kind().alias();
        return Err(err!(FailedToParse, "{} must take a nested object but found: {found}", spec.name()));
    };
    let name = super::registry::find(spec.name())?.name;
    Ok(Parsed::one(External { name, spec: spec.value().to_owned() }))
}

/// Errors: FailedToParse unless it is a document, and where it asks for other hosts; 40415 and TypeMismatch for other
/// options.
fn check_plan_cache(spec: &Element<'_>) -> Result<()> {
    let name = spec.name();
    let Value::Document(options) = spec.value() else {
        return Err(err!(FailedToParse, "{name} value must be an object. Found: {}", spec.kind().alias()));
    };
    for option in options {
        match (option.name(), option.value()) {
            ("allHosts", Value::Boolean(false)) => {}
            ("allHosts", Value::Boolean(true)) => {
                return Err(err!(FailedToParse, "{name} takes allHosts on sharded clusters only"));
            }
            ("allHosts", _) => {
                return Err(err!(
                    TypeMismatch,
                    "BSON field '{name}.allHosts' is the wrong type '{}', expected type 'bool'",
                    option.kind().alias()
                ));
            }
            (other, _) => return Err(err!(40415, "BSON field '{name}.{other}' is an unknown field.")),
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
        fails("[{$currentOp: 1}]", 9, "$currentOp must take a nested object");
        fails("[{$limit: 1}, {$collStats: {}}]", 40602, "$collStats is only valid as the first stage");
    }
}
