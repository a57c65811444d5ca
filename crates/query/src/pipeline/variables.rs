//! `let` of `$lookup` and `$merge`: variables of a sub-pipeline, evaluated for each document.

use crate::expression::{Dependencies, Expression, check_name_for_binding};
use crate::{Arena, Context, RowView};
use base::bson::{Element, Path, Value, ValueBuf};
use base::{Result, bail};
use foldhash::fast::RandomState;
use indexmap::IndexMap;

/// Parsed variables in the given order.
#[derive(Clone, Default)]
pub(crate) struct Let {
    variables: IndexMap<String, Expression, RandomState>,
}

/// Parses `let`. Errors: TypeMismatch unless it is a document, FailedToParse for an invalid name.
pub(crate) fn parse_let(stage: &str, option: &Element<'_>, context: &Context) -> Result<Let> {
    let Value::Document(spec) = option.value() else {
        bail!(TypeMismatch, "{stage} argument '{option}' must be an object, is type {}", option.kind());
    };
    let mut variables = IndexMap::default();
    for variable in spec {
        check_name_for_binding(variable.name())?;
        variables.insert(variable.name().to_string(), Expression::parse(variable.value(), context)?);
    }
    Ok(Let { variables })
}

impl Let {
    pub(crate) fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// Returns the context for parsing the sub-pipeline: the outer variables, overlaid by these.
    pub(crate) fn declare(&self, outer: &Context) -> Context {
        let mut variables = outer.variables.clone();
        for name in self.variables.keys() {
            put(&mut variables, outer, name, None);
        }
        outer.with_variables(variables)
    }

    /// Returns the context for running it on one row.
    pub(crate) fn set(&self, row: RowView<'_>, outer: &Context, arena: &Arena) -> Result<Context> {
        let mut variables = outer.variables.clone();
        for (name, expression) in &self.variables {
            let value = expression.evaluate(row, outer, arena)?;
            put(&mut variables, outer, name, value.map(|value| value.to_owned()));
        }
        Ok(outer.with_variables(variables))
    }

    /// Returns the context of a row without these variables that have no value there; `None` if each has one.
    pub(crate) fn without_missing(&self, own: &Context) -> Option<Context> {
        let is_missing =
            |(name, value): &(String, Option<ValueBuf>)| value.is_none() && self.variables.contains_key(name);
        own.variables.iter().any(is_missing).then(|| {
            let known = own.variables.iter().filter(|variable| !is_missing(variable));
            own.with_variables(known.cloned().collect())
        })
    }

    /// The paths that the variables read; `None` for the whole document.
    pub(crate) fn dependencies(&self) -> Option<Vec<Path>> {
        let mut paths = Vec::new();
        for expression in self.variables.values() {
            match expression.dependencies() {
                Dependencies::Paths(read) => paths.extend(read),
                Dependencies::Whole => return None,
            }
        }
        Some(paths)
    }
}

/// Sets a variable. It replaces an outer variable of equal name in its position, so positions found while parsing are
/// valid while running.
fn put(
    variables: &mut Vec<(String, Option<ValueBuf>)>,
    outer: &Context,
    name: &str,
    value: Option<ValueBuf>,
) {
    match variables.iter_mut().take(outer.variables.len()).find(|(known, _)| known == name) {
        Some((_, place)) => *place = value,
        None => variables.push((name.to_string(), value)),
    }
}
