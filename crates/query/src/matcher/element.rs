//! `$exists` and `$type`.
//!
//! ```text
//! {<path>: {$exists: <boolean>}}
//! {<path>: {$type: <code or alias> | [<code or alias>, …]}}
//! ```

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use base::bson::{Element, Number, Type, Value};
use base::{Result, bail, err};

/// The types that `$type` matches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeSet {
    /// Whether the alias `number` was given, which means all four numeric types.
    pub all_numbers: bool,
    /// The types given by code or alias, ordered by code, without duplicates.
    pub types: Vec<Type>,
}

impl TypeSet {
    /// Whether a type is in the set.
    pub fn contains(&self, kind: Type) -> bool {
        (self.all_numbers && kind.is_numeric()) || self.types.contains(&kind)
    }

    pub(super) fn test(&self, element: Option<&Element<'_>>) -> bool {
        element.is_some_and(|element| self.contains(element.kind()))
    }

    /// Parses one code or alias, or an array of them. Error messages name `operator`.
    ///
    /// Errors: BadValue for an unknown type, TypeMismatch for a value that is neither number nor string, FailedToParse
    /// for an empty array.
    pub(super) fn parse(operator: &str, value: Value<'_>) -> Result<TypeSet> {
        let mut set = TypeSet::default();
        match value {
            Value::Array(array) => {
                if array.is_empty() {
                    bail!(FailedToParse, "{operator} must match at least one type");
                }
                array.iter().try_for_each(|value| set.add(value))?;
            }
            single => set.add(single)?,
        }
        set.types.sort_by_key(|kind| type_number(*kind));
        set.types.dedup();
        Ok(set)
    }

    fn add(&mut self, value: Value<'_>) -> Result<()> {
        match (value, value.as_number()) {
            (Value::String("number"), _) => self.all_numbers = true,
            (Value::String(alias), _) => {
                let kind = Type::from_alias(alias);
                self.types.push(kind.ok_or_else(|| err!(BadValue, "Unknown type name alias: {alias}"))?);
            }
            (_, Some(number)) => self.types.push(by_number(number)?),
            _ => bail!(TypeMismatch, "type must be represented as a number or a string"),
        }
        Ok(())
    }
}

/// Returns the code that `$type` uses for a type.
pub(super) fn type_number(kind: Type) -> i32 {
    match kind {
        Type::MinKey => -1,
        other => i32::from(other.tag()),
    }
}

fn by_number(number: Number) -> Result<Type> {
    let known = number.to_i64_exact().and_then(|code| i32::try_from(code).ok()).and_then(Type::from_number);
    known.ok_or_else(|| {
        let hint = if number.is_zero() { ". Instead use {$exists:false}." } else { "" };
        err!(BadValue, "Invalid numerical type code: {}{hint}", number.to_f64())
    })
}

pub(super) fn parse_type(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let set = TypeSet::parse(argument.path.as_str(), argument.value())?;
    Ok(Some(Node::Field { path: argument.path.clone(), predicate: Predicate::Type(set) }))
}

/// `$exists`, whose argument is converted to a boolean.
pub(super) fn parse_exists(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let exists = Node::Field { path: argument.path.clone(), predicate: Predicate::Exists };
    Ok(Some(if argument.value().is_truthy() { exists } else { Node::Not(Box::new(exists)) }))
}
