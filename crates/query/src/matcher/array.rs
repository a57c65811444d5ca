//! Conditions on the shape of a value: its type, and the elements of an array.
//!
//! ```text
//! {<path>: {$exists: <boolean>}}
//! {<path>: {$type: <code or alias> | [<code or alias>, …]}}
//! {<path>: {$size: <integer>}}
//! {<path>: {$elemMatch: <filter> | {<operator>: <argument>, …}}}
//! {<path>: {$all: [<value> | {$elemMatch: …}, …]}}
//! ```

use super::comparison::{self, ComparisonOp};
use super::node::{Node, Predicate};
use super::operators::{self, FieldArgument};
use super::parse::{Parser, is_database_reference};
use super::{integer, regex_match};
use base::bson::{Array, Document, Element, Number, Path, Type, Value};
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

/// `$size`: the required number of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub usize);

impl Size {
    pub(super) fn test(self, element: Option<&Element<'_>>) -> bool {
        let Some(element) = element.filter(|element| element.kind() == Type::Array) else { return false };
        let mut elements = Document::from_valid(element.value_bytes()).iter();
        // Counting stops as soon as the result is known.
        elements.by_ref().take(self.0).count() == self.0 && elements.next().is_none()
    }
}

pub(super) fn parse_size(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let parsed = integer::parse_non_negative("$size", argument.value());
    let size = parsed.map_err(|error| err!(BadValue, "Failed to parse $size. {}", error.message()))?;
    let size = i32::try_from(size).map_err(|_| {
        err!(BadValue, "Failed to parse $size. Cannot represent as a 32-bit integer: $size: {size}")
    })?;
    let predicate = Predicate::Size(Size(size as usize));
    Ok(Some(Node::Field { path: argument.path.clone(), predicate }))
}

pub(super) fn parse_elem_match(parser: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    elem_match(parser, argument.path, argument.value()).map(Some)
}

/// Parses the argument of `$elemMatch`: operators on the elements, or a filter of documents.
fn elem_match(parser: &Parser<'_>, path: &Path, value: Value<'_>) -> Result<Node> {
    let Value::Document(inner) = value else {
        bail!(BadValue, "$elemMatch needs an Object");
    };
    let parser = parser.deeper()?.inside();
    let predicate = if takes_values(inner) {
        Predicate::ElemMatchValue(Box::new(Node::And(parser.field_operators(path, inner)?)))
    } else {
        Predicate::ElemMatchObject(Box::new(parser.filter(inner)?))
    };
    Ok(Node::Field { path: path.clone(), predicate })
}

/// Whether an `$elemMatch` contains operators on the elements themselves, rather than a filter.
fn takes_values(inner: Document<'_>) -> bool {
    let first = inner.first().map_or("", |element| element.name());
    first.starts_with('$') && !is_database_reference(inner) && !operators::is_top_level(first)
}

/// `$all`: every constant, pattern or `$elemMatch` must match.
pub(super) fn parse_all(parser: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let Value::Array(array) = argument.value() else {
        bail!(BadValue, "$all needs an array");
    };
    let children = if array.iter().next().is_some_and(|first| elem_match_of(first).is_some()) {
        all_elem_match(parser, argument.path, array)?
    } else {
        array.iter().map(|value| all_value(argument.path, value)).collect::<Result<Vec<_>>>()?
    };
    Ok(Some(if children.is_empty() { Node::AlwaysFalse } else { Node::And(children) }))
}

fn all_elem_match(parser: &Parser<'_>, path: &Path, array: Array<'_>) -> Result<Vec<Node>> {
    let parts = array.iter().map(|value| match elem_match_of(value) {
        Some(inner) => elem_match(parser, path, inner),
        None => Err(err!(BadValue, "$all/$elemMatch has to be consistent")),
    });
    parts.collect()
}

/// Returns the argument of `{$elemMatch: …}`, if the value has this form.
fn elem_match_of(value: Value<'_>) -> Option<Value<'_>> {
    let first = value.as_document()?.first()?;
    (first.name() == "$elemMatch").then(|| first.value())
}

/// Whether a document is a condition. Names with a dollar sign that are not operators are data.
fn begins_with_operator(document: Document<'_>) -> bool {
    document.first().is_some_and(|first| operators::is_of_fields(first.name()))
}

fn all_value(path: &Path, value: Value<'_>) -> Result<Node> {
    match value {
        Value::Regex { pattern, options } => regex_match::field(path, &pattern, &options),
        Value::Document(inner) if begins_with_operator(inner) => {
            Err(err!(BadValue, "no $ expressions in $all"))
        }
        _ => comparison::field(path, ComparisonOp::Eq, value),
    }
}
