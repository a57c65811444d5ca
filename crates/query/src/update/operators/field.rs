//! Update operators that write, remove or move a field without regard to its old value.
//!
//! ```text
//! {$set: {<path>: <value>}}    {$setOnInsert: {<path>: <value>}}
//! {$unset: {<path>: <ignored>}}
//! {$currentDate: {<path>: true | {$type: "date" | "timestamp"}}}      the operation's time
//! {$rename: {<path>: <new path>}}                                     neither path may lie within an array
//! ```
//!
//! The tree has two leaves for a `$rename`. One removes the source. The other writes the value that it reads from the
//! document before the update. No other operator may touch either path, so this suffices.

use super::{Change, Operator, depth};
use crate::Context;
use crate::update::apply::FieldContext;
use crate::update::tree::{Fields, check_path, is_dynamic};
use base::bson::{Document, Element, FieldName, Path, Value, ValueBuf};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$set` or `$setOnInsert`.
#[derive(Debug)]
struct Set {
    value: ValueBuf,
    only_on_insert: bool,
}

pub(super) fn parse_set(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(set_to(argument.value()))
}

pub(super) fn parse_set_on_insert(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Set { value: argument.value().to_owned(), only_on_insert: true }))
}

/// Returns an operator that sets the field to a value.
pub(crate) fn set_to(value: Value<'_>) -> Arc<dyn Operator> {
    Arc::new(Set { value: value.to_owned(), only_on_insert: false })
}

impl Operator for Set {
    fn existing<'v>(&'v self, _value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(if self.creates(field)? { Change::Value(self.value.view()) } else { Change::Keep })
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.value.view()))
    }

    fn creates(&self, field: &FieldContext<'_>) -> Result<bool> {
        Ok(field.is_insert || !self.only_on_insert)
    }

    fn depth(&self) -> Option<usize> {
        Some(depth(self.value.view()))
    }
}

/// Removes a field; also the source side of a `$rename`.
#[derive(Debug)]
pub(super) struct Unset;

pub(super) fn parse_unset(_argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Unset))
}

impl Operator for Unset {
    fn existing<'v>(&'v self, _value: Value<'v>, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Remove)
    }
}

/// A parsed `$currentDate`.
#[derive(Debug)]
struct CurrentDate {
    as_timestamp: bool,
}

/// Parses a boolean, which means a date, or a `$type`. Errors: BadValue.
pub(super) fn parse_current_date(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let as_timestamp = match argument.value() {
        // False means true, as in MongoDB.
        Value::Boolean(_) => false,
        Value::Document(options) => wants_timestamp(options)?,
        other => {
            bail!(
                BadValue,
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression \
                 ({{$type: 'timestamp/date'}}).",
                other.kind().alias()
            );
        }
    };
    Ok(Arc::new(CurrentDate { as_timestamp }))
}

/// Parses `$type`: `date` or `timestamp`. Errors: BadValue.
fn wants_timestamp(options: Document<'_>) -> Result<bool> {
    let mut type_name = None;
    for option in options {
        if option.name() != "$type" {
            bail!(BadValue, "Unrecognized $currentDate option: {}", option.name());
        }
        type_name = option.value().as_str();
    }
    match type_name {
        Some("date") => Ok(false),
        Some("timestamp") => Ok(true),
        _ => Err(err!(
            BadValue,
            "The '$type' string field is required to be 'date' or 'timestamp': {{$currentDate: {{field : \
             {{$type: 'date'}}}}}}"
        )),
    }
}

impl CurrentDate {
    fn now(&self, field: &FieldContext<'_>) -> Value<'static> {
        if self.as_timestamp {
            Value::Timestamp(super::super::timestamp(field.context))
        } else {
            Value::DateTime(field.context.now_millis)
        }
    }
}

impl Operator for CurrentDate {
    fn existing<'v>(&'v self, _value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.now(field)))
    }

    fn missing<'v>(&'v self, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.now(field)))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }
}

/// The leaf at the target of a `$rename`, which reads the source.
#[derive(Debug)]
struct RenameTo {
    source: Path,
    target: Path,
}

/// Adds both leaves of a `source: "target"`.
///
/// Errors: BadValue for a target that is not a string, equals the source, or lies on its path.
pub(super) fn add_rename(tree: &mut Fields, argument: &Element<'_>) -> Result<()> {
    let Value::String(target) = argument.value() else {
        bail!(BadValue, "The 'to' field for $rename must be a string: {argument}");
    };
    let Ok(target_name) = FieldName::new(target) else {
        bail!(BadValue, "The 'to' field for $rename cannot contain an embedded null byte");
    };
    let source = argument.name();
    check_path(source)?;
    check_path(target)?;
    let (from, to) = (Path::new(argument.field_name()), Path::new(target_name));
    if from == to {
        bail!(BadValue, "The source and target field for $rename must differ: {argument}");
    }
    if from.starts_with(&to) || to.starts_with(&from) {
        bail!(BadValue, "The source and target field for $rename must not be on the same path: {argument}");
    }
    if is_dynamic(source) {
        bail!(BadValue, "The source field for $rename may not be dynamic: {source}");
    }
    if is_dynamic(target) {
        bail!(BadValue, "The destination field for $rename may not be dynamic: {target}");
    }
    tree.add(source, Arc::new(Unset))?;
    tree.add(target, Arc::new(RenameTo { source: from, target: to }))
}

impl RenameTo {
    /// Returns the value to move, if the source exists.
    fn value<'v>(&self, field: &FieldContext<'v>) -> Result<Option<Value<'v>>> {
        let (value, array) = field.sources.value_at(&self.source)?;
        if let (Some(_), Some(array)) = (value, array) {
            return Err(self.refuse("source", &self.source, array, field));
        }
        if let (Some(_), Some(array)) = (value, field.sources.array_on_path(&self.target)) {
            return Err(self.refuse("destination", &self.target, array, field));
        }
        Ok(value)
    }

    fn refuse(&self, which: &str, path: &Path, array: &str, field: &FieldContext<'_>) -> base::Error {
        err!(
            BadValue,
            "The {which} field cannot be an array element, '{path}' in doc with {} has an array field called \
             '{array}'",
            field.id_text()
        )
    }
}

impl Operator for RenameTo {
    fn existing<'v>(&'v self, _value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(self.value(field)?.map_or(Change::Keep, Change::Value))
    }

    fn missing<'v>(&'v self, field: &FieldContext<'v>) -> Result<Change<'v>> {
        self.existing(Value::Null, field)
    }

    fn creates(&self, field: &FieldContext<'_>) -> Result<bool> {
        Ok(self.value(field)?.is_some())
    }

    fn depth(&self) -> Option<usize> {
        None
    }
}
