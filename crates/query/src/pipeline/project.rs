//! `$project`, `$addFields`/`$set` and `$unset`: reshape each document.
//!
//! [`Projection`] implements their effect. This module parses them and describes them to the optimiser.
//!
//! ```text
//! {$project: {<path>: 1 | 0 | <expression>, …}}
//! {$addFields: {<path>: <expression>, …}}     also $set
//! {$unset: <path> | [<path>, …]}
//! ```

use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::transformation::{Transformation, start};
use super::{Environment, Stream};
use crate::{Arena, Context, Projection, RowView};
use base::bson::{DocumentBuf, Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed stage of any of these kinds.
struct Reshape(Projection);

/// Parses `$project`. Errors: 15969 unless it is a document; the errors of projections.
pub(crate) fn parse_project(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(fields) = spec.value() else {
        bail!(15969, "$project specification must be an object");
    };
    Ok(Parsed::one(Reshape(Projection::parse_aggregate(fields, scope.context)?)))
}

/// Parses `$addFields` and `$set`. Errors: 40272 unless it is a document; the errors of projections.
pub(crate) fn parse_add_fields(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let name = if spec.name() == "$set" { "$set" } else { "$addFields" };
    let Value::Document(fields) = spec.value() else {
        bail!(40272, "{name} specification stage must be an object, got {}", spec.kind().alias());
    };
    Ok(Parsed::one(Reshape(Projection::add_fields(name, fields, scope.context)?)))
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
    Ok(Parsed::one(Reshape(Projection::unset(&paths)?)))
}

impl Transformation for Reshape {
    fn transform(&self, row: RowView<'_>, context: &Context, arena: &Arena) -> Result<DocumentBuf> {
        self.0.apply(row, None, context, arena)
    }
}

impl Operator for Reshape {
    fn kind(&self) -> Kind<'_> {
        Kind::Transformation(self)
    }

    fn effect(&self) -> Effect {
        self.0.effect()
    }

    fn reads(&self) -> Reads {
        match self.0.reads() {
            None => Reads::Everything,
            Some(paths) if self.0.includes() => Reads::Only(paths),
            Some(paths) => Reads::Also(paths),
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(start(self, input, environment))
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
