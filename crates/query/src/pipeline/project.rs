//! `$project`, `$addFields`/`$set` and `$unset`: reshape each document.
//!
//! [`Projection`] implements their effect. This module parses them and describes them to the optimiser.
//!
//! ```text
//! {$project: {<path>: 1 | 0 | <expression>, …}}
//! {$addFields: {<path>: <expression>, …}}     also $set
//! {$unset: <path> | [<path>, …]}
//! ```

use super::operator::{Effect, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Split, Stage, Stream};
use crate::expression::{Dependencies, Expression};
use crate::{Arena, Context, Projection, Row};
use base::bson::{Document, Element, FieldName, Path, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed stage of any of these kinds.
struct Reshape {
    projection: Projection,
    effect: Effect,
    reads: Option<Vec<Path>>,
    /// Whether the output depends only on the paths read.
    closed: bool,
}

/// Parses `$project`. Errors: 15969 unless it is a document; the errors of projections.
pub(crate) fn parse_project(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(fields) = spec.value() else {
        bail!(15969, "$project specification must be an object");
    };
    let projection = Projection::parse_aggregate(fields, scope.context)?;
    let exclusion = projection.is_exclusion();
    let effect =
        if exclusion { Effect::Changes(top_names(fields)) } else { Effect::Keeps(included_names(fields)) };
    let mut reads = if exclusion { Some(Vec::new()) } else { read_paths(fields, "", scope.context) };
    if let Some(paths) = &mut reads
        && !exclusion
        && fields.find("_id").is_none()
    {
        paths.push(Path::new(c"_id"));
    }
    Ok(Parsed::one(Reshape { projection, effect, reads, closed: !exclusion }))
}

/// Parses `$addFields` and `$set`. Errors: 40272 unless it is a document; the errors of projections.
pub(crate) fn parse_add_fields(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let name = if spec.name() == "$set" { "$set" } else { "$addFields" };
    let Value::Document(fields) = spec.value() else {
        bail!(40272, "{name} specification stage must be an object, got {}", spec.kind().alias());
    };
    let projection = Projection::add_fields(name, fields, scope.context)?;
    let effect = Effect::Changes(top_names(fields));
    let reads = read_paths(fields, "", scope.context);
    Ok(Parsed::one(Reshape { projection, effect, reads, closed: false }))
}

/// Parses `$unset`. Errors: 31002, 31119, 31120 as in MongoDB, 9527900 for a null byte, and errors of paths.
pub(crate) fn parse_unset(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let paths: Vec<&str> = match spec.value() {
        Value::String(path) => vec![path],
        Value::Array(paths) => {
            paths.iter().map(|path| path.as_str()).collect::<Option<_>>().ok_or_else(|| {
                err!(31120, "$unset specification must be a string or an array containing only string values")
            })?
        }
        _ => bail!(31002, "$unset specification must be a string or an array"),
    };
    if paths.is_empty() {
        bail!(31119, "$unset specification must be a string or an array with at least one field");
    }
    if paths.iter().any(|path| path.contains('\0')) {
        bail!(9527900, "$unset specification must not contain null bytes");
    }
    let projection = Projection::unset(&paths)?;
    let effect = Effect::Changes(paths.iter().map(|path| first_component(path)).collect());
    Ok(Parsed::one(Reshape { projection, effect, reads: Some(Vec::new()), closed: false }))
}

fn first_component(path: &str) -> String {
    path.split('.').next().unwrap_or(path).to_string()
}

fn top_names(fields: Document<'_>) -> Vec<String> {
    fields.iter().map(|field| first_component(field.name())).collect()
}

fn starts_operator(document: Document<'_>) -> bool {
    document.first().is_some_and(|first| first.name().starts_with('$'))
}

fn is_included(value: Value<'_>) -> bool {
    match value {
        Value::Boolean(value) => value,
        other => other.as_number().is_some_and(|number| !number.is_zero()),
    }
}

/// Returns the top-level fields that an inclusion leaves unchanged.
fn included_names(fields: Document<'_>) -> Vec<String> {
    let mut names: Vec<String> = fields
        .iter()
        .filter(|field| !field.name().contains('.') && is_included(field.value()))
        .map(|field| field.name().to_string())
        .collect();
    if fields.find("_id").is_none() {
        names.push("_id".to_string());
    }
    names
}

/// Returns the paths that the fields of a specification read; `None` for the whole document.
fn read_paths(fields: Document<'_>, prefix: &str, context: &Context) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    for field in fields {
        let name = format!("{prefix}{}", field.name());
        match field.value() {
            Value::Document(nested) if !nested.is_empty() && !starts_operator(nested) => {
                // The array or document around computed fields determines their shape.
                paths.push(Path::new(FieldName::trusted(&name)));
                paths.extend(read_paths(nested, &format!("{name}."), context)?);
            }
            value if is_included(value) => paths.push(Path::new(FieldName::trusted(&name))),
            value => match Expression::parse(value, context).ok()?.dependencies() {
                Dependencies::Paths(read) => {
                    paths.extend(read);
                    if name.contains('.') {
                        paths.push(Path::new(FieldName::trusted(&first_component(&name))));
                    }
                }
                Dependencies::Whole => return None,
            },
        }
    }
    Some(paths)
}

impl Operator for Reshape {
    fn effect(&self) -> Effect {
        self.effect.clone()
    }

    fn reads(&self) -> Reads {
        match &self.reads {
            None => Reads::Everything,
            Some(paths) if self.closed => Reads::Only(paths.clone()),
            Some(paths) => Reads::Also(paths.clone()),
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let context = Arc::clone(&environment.context);
        Ok(Box::new(Running { stage: self, input, context, arena: Arena::new() }))
    }
}

/// Reshapes one document at a time.
struct Running {
    stage: Arc<Reshape>,
    input: Stream,
    context: Arc<Context>,
    arena: Arena,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.input.next()? else { return Ok(None) };
        let shaped = self.stage.projection.apply(row.view(), None, &self.context, &self.arena)?;
        self.arena.reset();
        self.context.steps(shaped.bytes().len() / 1024)?;
        Ok(Some(row.with(shaped)))
    }

    fn begin_section(&mut self) -> bool {
        self.input.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        let later = self.input.split()?;
        let running = |input, interrupt: &_| -> Stream {
            let context = Arc::new(self.context.for_helper(interrupt));
            Box::new(Running { stage: self.stage.clone(), input, context, arena: Arena::new() })
        };
        Some(later.through(running))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn picks_adds_and_removes() {
        gives("[{_id: 1, a: 2, b: 3}]", "[{$project: {a: 1}}]", "[{_id: 1, a: 2}]");
        gives("[{_id: 1, a: 2, b: 3}]", "[{$project: {a: 0, _id: 0}}]", "[{b: 3}]");
        gives("[{_id: 1, a: 2}]", "[{$addFields: {b: '$a'}}]", "[{_id: 1, a: 2, b: 2}]");
        gives("[{_id: 1, a: 2}]", "[{$set: {a: {$add: ['$a', 1]}}}]", "[{_id: 1, a: 3}]");
        gives("[{_id: 1, a: {b: 2, c: 3}, d: 4}]", "[{$unset: ['a.b', 'd']}]", "[{_id: 1, a: {c: 3}}]");
    }

    #[test]
    fn refuses_wrong_types() {
        fails("[{$project: 1}]", 15969, "$project specification must be an object");
        fails("[{$addFields: 1}]", 40272, "$addFields specification stage must be an object, got int");
        fails("[{$set: 1}]", 40272, "$set specification stage must be an object, got int");
        fails("[{$unset: 1}]", 31002, "$unset specification must be a string or an array");
        fails("[{$unset: []}]", 31119, "with at least one field");
        fails("[{$unset: [1]}]", 31120, "containing only string values");
    }
}
