//! Updates by a pipeline, limited to the stages that map one document to one document.

use super::replacement::replace;
use crate::pipeline::depth::{Growth, growth};
use crate::pipeline::{check_length, stages};
use crate::{Arena, Context, Expression, Metadata, Projection};
use base::bson::{Array, Document, DocumentBuf, Element, Value, check_depth};
use base::{Result, bail, err};

/// The parsed stages.
#[derive(Debug)]
pub(super) struct UpdatePipeline {
    /// Each stage, with the number of levels that it may add to the document.
    stages: Vec<(Stage, usize)>,
}

/// A parsed stage.
#[derive(Debug)]
enum Stage {
    Project(Projection),
    /// `$replaceRoot` and `$replaceWith`, with the name of the expression for messages.
    Replace(Expression, &'static str),
}

impl UpdatePipeline {
    /// Parses the stages.
    ///
    /// Errors: 40323 for a stage without exactly one field, InvalidOptions for stages that updates do not support,
    /// 40324 for unknown stages, errors of the stages. 40218 for `$meta`, because an update's documents have no
    /// metadata.
    pub(super) fn parse(pipeline: Array<'_>, context: &Context) -> Result<UpdatePipeline> {
        let mut context = context.with_variables(context.variables.clone());
        context.metadata = Metadata::default();
        // Parsing evaluates no constants; that happens once a document exists.
        context.defers_constants = true;
        check_length(pipeline.len())?;
        let parse = |stage| Ok((parse_stage(stage, &context)?, growth(stage)));
        let stages = pipeline.iter().map(parse).collect::<Result<_>>()?;
        context.metadata.refuse_required()?;
        Ok(UpdatePipeline { stages })
    }

    /// Returns the document that the pipeline produces, with its `_id` kept.
    ///
    /// Errors: ImmutableField; 40228 if `$replaceRoot` does not yield a document; errors of expressions.
    pub(super) fn apply(&self, document: Document<'_>, context: &Context) -> Result<DocumentBuf> {
        let mut current = document.to_owned();
        let mut growth = Growth::default();
        let mut arena = Arena::new();
        for (stage, levels) in &self.stages {
            context.interrupt.check()?;
            arena.reset();
            current = stage.apply(current.view(), context, &arena)?;
            if growth.note(*levels) {
                check_depth(current.view())?;
            }
        }
        replace(document, current.view(), None)
    }
}

impl Stage {
    fn apply(&self, document: Document<'_>, context: &Context, arena: &Arena) -> Result<DocumentBuf> {
        match self {
            Stage::Project(projection) => projection.apply(document, None, context, arena),
            Stage::Replace(expression, operand) => match expression.evaluate(document, context, arena)? {
                Some(Value::Document(root)) => Ok(root.to_owned()),
                other => Err(not_a_document(other, operand, document)),
            },
        }
    }
}

fn not_a_document(value: Option<Value<'_>>, operand: &str, document: Document<'_>) -> base::Error {
    let kind = value.map_or("missing", |value| value.kind().alias());
    let shown = value.map_or_else(|| "MISSING".to_owned(), |value| value.to_string());
    err!(
        40228,
        "{operand}must evaluate to an object, but resulting value was: {shown}. Type of resulting value: \
         '{kind}'. Input document: {document}"
    )
}

/// Parses one stage.
fn parse_stage(stage: Value<'_>, context: &Context) -> Result<Stage> {
    let Value::Document(stage) = stage else {
        bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
    };
    let mut fields = stage.iter();
    let (Some(spec), None) = (fields.next(), fields.next()) else {
        bail!(40323, "A pipeline stage specification object must contain exactly one field.");
    };
    match spec.name() {
        "$addFields" | "$set" => {
            let fields = document(&spec, 40272, "specification stage must be an object")?;
            Ok(Stage::Project(Projection::add_fields(spec.name(), fields, context)?))
        }
        "$fill" => {
            let fields = crate::pipeline::fill_in_update(&spec)?;
            Ok(Stage::Project(Projection::add_fields("$addFields", fields.view(), context)?))
        }
        "$project" => {
            let fields = document(&spec, 15969, "specification must be an object")?;
            Ok(Stage::Project(Projection::parse_aggregate(fields, context)?))
        }
        "$unset" => Ok(Stage::Project(Projection::unset(&unset_paths(spec.value())?)?)),
        "$replaceRoot" => parse_replace_root(&spec, context),
        "$replaceWith" => {
            Ok(Stage::Replace(Expression::parse(spec.value(), context)?, "'replacement document' "))
        }
        other => Err(refuse(other)),
    }
}

fn document<'a>(spec: &Element<'a>, code: i32, message: &str) -> Result<Document<'a>> {
    spec.value().as_document().ok_or_else(|| {
        let text = match code {
            40272 => format!("{} {message}, got {}", spec.name(), spec.kind().alias()),
            _ => format!("{} {message}", spec.name()),
        };
        base::Error::new(base::ErrorCode::from_number(code), text)
    })
}

/// Returns the paths of an `$unset`: a string or an array of strings.
///
/// Errors: 31002, 31119 and 31120 as in MongoDB.
fn unset_paths(value: Value<'_>) -> Result<Vec<&str>> {
    match value {
        Value::String(path) => Ok(vec![path]),
        Value::Array(paths) if paths.is_empty() => {
            Err(err!(31119, "$unset specification must be a string or an array with at least one field"))
        }
        Value::Array(paths) => paths
            .iter()
            .map(|path| {
                path.as_str().ok_or_else(|| {
                    err!(
                        31120,
                        "$unset specification must be a string or an array containing only string values"
                    )
                })
            })
            .collect(),
        _ => Err(err!(31002, "$unset specification must be a string or an array")),
    }
}

/// Parses `$replaceRoot`. Errors: 40229 to 40231.
fn parse_replace_root(spec: &Element<'_>, context: &Context) -> Result<Stage> {
    let Value::Document(options) = spec.value() else {
        bail!(
            40229,
            "expected an object as specification for $replaceRoot stage, got {}",
            spec.kind().alias()
        );
    };
    let mut root = None;
    for option in options {
        if option.name() != "newRoot" {
            bail!(
                40230,
                "unrecognized option to $replaceRoot stage: {}, only valid option is 'newRoot'.",
                option.name()
            );
        }
        root = Some(option.value());
    }
    let root = root.ok_or_else(|| err!(40231, "no newRoot specified for the $replaceRoot stage"))?;
    Ok(Stage::Replace(Expression::parse(root, context)?, "'newRoot' expression "))
}

/// Returns the error for a stage: known stages are not allowed in updates, others are unknown.
fn refuse(name: &str) -> base::Error {
    if stages().any(|stage| stage.name == name) {
        return err!(InvalidOptions, "{name} is not allowed to be used within an update");
    }
    err!(40324, "Unrecognized pipeline stage name: '{name}'")
}
