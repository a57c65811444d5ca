//! Stages without effect, which MongoDB's own tests insert between other stages. `$_internalInhibitOptimization`
//! prevents stages from moving past it. `$_internalSplitPipeline` marks where a sharded cluster would split a pipeline.

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Stream};
use base::bson::{Element, Value};
use base::{Result, err};
use std::sync::Arc;

/// A stage without effect, which no rule of the optimiser moves or joins.
struct Barrier;

/// Parses both stages. Errors: TypeMismatch unless the specification is a document.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let name = spec.name();
    match spec.value() {
        Value::Document(_) => Ok(Parsed::one(Barrier)),
        other => {
            Err(err!(TypeMismatch, "{name} must take a nested object but found: {}", other.kind().alias()))
        }
    }
}

impl Operator for Barrier {
    fn reads(&self) -> Reads {
        Reads::Also(Vec::new())
    }

    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        Ok(input)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn documents_pass() {
        gives(
            "[{a: 2}, {a: 1}]",
            "[{$_internalInhibitOptimization: {}}, {$sort: {a: 1}}]",
            "[{a: 1}, {a: 2}]",
        );
        fails("[{$_internalInhibitOptimization: 1}]", 14, "must take a nested object but found: int");
    }
}
