//! `$unionWith`: appends the documents of another collection.
//!
//! ```text
//! {$unionWith: <collection>}
//! {$unionWith: {coll: <collection>, pipeline: [<stage>, …]}}    without coll if the pipeline begins with $documents
//! ```

use super::collections::Namespace;
use super::definition::Inputs;
use super::fields::text_option;
use super::operator::Operator;
use super::parse::{Parsed, Scope, SubPipelineStage};
use super::source::{from_documents, from_fn};
use super::{Environment, Pipeline, Stream};
use base::bson::{Element, Value};
use base::{Error, Result, bail};
use std::sync::Arc;

/// A parsed `$unionWith`.
struct UnionWith {
    /// The other collection; `None` if the pipeline begins with `$documents`.
    from: Option<Namespace>,
    pipeline: Pipeline,
}

/// Parses `$unionWith`.
///
/// Errors: FailedToParse for a specification that is neither a string nor a document, 40415 for an unknown option,
/// InvalidNamespace for a collection and a stage that needs none; the errors of the pipeline.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let (mut from, mut pipeline) = (None, Pipeline::default());
    match spec.value() {
        Value::String(collection) => from = Some(collection),
        Value::Document(options) => {
            for option in options {
                match (option.name(), option.value()) {
                    ("coll", _) => from = Some(text_option("$unionWith", &option)?),
                    ("pipeline", Value::Array(stages)) => {
                        pipeline =
                            scope.within(SubPipelineStage::UnionWith, scope.context)?.pipeline(stages)?;
                        pipeline.optimize(scope.context)?;
                    }
                    ("pipeline", _) => {
                        bail!(TypeMismatch, "'pipeline' option must be specified as an array");
                    }
                    (other, _) => return Err(Error::unknown_field(format_args!("$unionWith.{other}"))),
                }
            }
        }
        other => {
            let found = other.kind().alias();
            bail!(
                FailedToParse,
                "the $unionWith stage specification must be an object or string, but found {found}"
            );
        }
    }
    let generates_documents = !pipeline.is_empty() && !pipeline.reads_collection();
    if from.is_none() && !generates_documents {
        bail!(
            FailedToParse,
            "$unionWith stage without explicit collection must have a pipeline with $documents as first stage"
        );
    }
    if let Some(first) = pipeline.first().filter(|first| from.is_some() && first.needs_no_collection()) {
        bail!(InvalidNamespace, "'{}' can only be run with {{aggregate: 1}}", first.name);
    }
    Ok(Parsed::one(UnionWith { from: from.map(Namespace::local), pipeline }))
}

pub(crate) fn inputs(specification: Value<'_>) -> Inputs<'_> {
    match specification {
        Value::String(_) => Inputs { collections: vec![specification], pipelines: Vec::new() },
        _ => Inputs::of_options(specification, "coll"),
    }
}

impl Operator for UnionWith {
    fn start(self: Arc<Self>, mut input: Stream, environment: &Environment) -> Result<Stream> {
        let (environment, mut is_other) = (environment.clone(), false);
        Ok(from_fn(move || {
            if let Some(row) = input.next()? {
                return Ok(Some(row));
            }
            if is_other {
                return Ok(None);
            }
            is_other = true;
            input = match &self.from {
                Some(from) => environment.collections.aggregate(from, &self.pipeline, &environment)?,
                None => self.pipeline.run(from_documents(Vec::new()), &environment)?,
            };
            input.next()
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails};

    #[test]
    fn documents_of_the_other_collection_follow() {
        let run = |pipeline| Run::new("[{a: 1}]", pipeline).with("f", "[{a: 2}, {a: 3}]");
        run("[{$unionWith: 'f'}]").gives("[{a: 1}, {a: 2}, {a: 3}]");
        run("[{$unionWith: {coll: 'f', pipeline: [{$match: {a: 3}}]}}]").gives("[{a: 1}, {a: 3}]");
        run("[{$unionWith: 'none'}]").gives("[{a: 1}]");
        run("[{$unionWith: {pipeline: [{$documents: [{a: 9}]}]}}]").gives("[{a: 1}, {a: 9}]");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$unionWith: 1}]", 9, "must be an object or string, but found int");
        fails("[{$unionWith: {coll: 'f', x: 1}}]", 40415, "'$unionWith.x' is an unknown field");
        fails("[{$unionWith: {pipeline: []}}]", 9, "without explicit collection");
        fails(
            "[{$unionWith: {coll: 'f', pipeline: [{$out: 'x'}]}}]",
            31441,
            "within a $unionWith's sub-pipeline",
        );
    }
}
