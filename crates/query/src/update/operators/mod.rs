//! The update operators: a file for each kind of operator, and the table of all operators.
//!
//! An operator is parsed once per path into a leaf of the update's tree. Its application returns a [`Change`] of one
//! field. It neither walks, writes nor creates paths.

mod array;
mod field;
mod number;

pub(super) use field::set_to;

use super::apply::FieldContext;
use super::tree::Fields;
use crate::Context;
use base::bson::{Array, Document, Element, Value};
use base::{Result, bail};
use std::fmt::Debug;
use std::sync::Arc;

/// The change of a field.
pub(crate) enum Change<'v> {
    /// The field is unchanged, or stays missing.
    Keep,
    /// The field is removed; an array element becomes null.
    Remove,
    /// The field gets this value.
    Value(Value<'v>),
    /// The field becomes an array of these values.
    Array(Vec<Value<'v>>),
    /// The values are appended to the array, whose elements are copied undecoded.
    Append(Array<'v>, Vec<Value<'v>>),
}

/// An operator with its argument, at one path.
pub(crate) trait Operator: Debug + Send + Sync {
    /// Returns the change of an existing field.
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>>;

    /// Returns the change of a missing field; called only if [`creates`](Operator::creates) returns true.
    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Keep)
    }

    /// Whether the operator creates a missing field and the documents on its path.
    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Whether an operator that creates nothing still refuses a path through a value without fields.
    fn checks_path(&self) -> bool {
        false
    }

    /// Returns the number of elements appended to an array of this length, if the operator only appends. The oplog then
    /// records only these.
    fn appended(&self, _length: usize) -> Option<usize> {
        None
    }

    /// Nesting depth of the written values below the path; `None` if not known beforehand.
    fn depth(&self) -> Option<usize> {
        Some(0)
    }
}

/// Parses the argument of an operator at one path.
type Parse = fn(&Element<'_>, &Context) -> Result<Arc<dyn Operator>>;

/// The parser of one `path: argument`.
enum Entry {
    /// A leaf at the path.
    Leaf(Parse),
    /// `$rename` touches two paths.
    Rename,
}

/// Every update operator, sorted by name.
const TABLE: &[(&str, Entry)] = &[
    ("$addToSet", Entry::Leaf(array::parse_add_to_set)),
    ("$bit", Entry::Leaf(number::parse_bit)),
    ("$currentDate", Entry::Leaf(field::parse_current_date)),
    ("$inc", Entry::Leaf(number::parse_inc)),
    ("$max", Entry::Leaf(number::parse_max)),
    ("$min", Entry::Leaf(number::parse_min)),
    ("$mul", Entry::Leaf(number::parse_mul)),
    ("$pop", Entry::Leaf(array::parse_pop)),
    ("$pull", Entry::Leaf(array::parse_pull)),
    ("$pullAll", Entry::Leaf(array::parse_pull_all)),
    ("$push", Entry::Leaf(array::parse_push)),
    ("$rename", Entry::Rename),
    ("$set", Entry::Leaf(field::parse_set)),
    ("$setOnInsert", Entry::Leaf(field::parse_set_on_insert)),
    ("$unset", Entry::Leaf(field::parse_unset)),
];

/// The names of all update operators, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// Parses an update document of operators into a tree.
///
/// Errors: FailedToParse for unknown operators and arguments that are not documents; ConflictingUpdateOperators; errors
/// of the operators' arguments.
pub(crate) fn parse(update: Document<'_>, context: &Context) -> Result<Fields> {
    let mut tree = Fields::default();
    for element in update {
        let name = element.name();
        let Ok(row) = TABLE.binary_search_by_key(&name, |row| row.0) else {
            bail!(
                FailedToParse,
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update \
                 specified as an array"
            );
        };
        let Value::Document(arguments) = element.value() else {
            bail!(
                FailedToParse,
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: \
                 ...}}}} not {{{element}}}",
                element.kind().alias()
            );
        };
        let Some((_, entry)) = TABLE.get(row) else { continue };
        for argument in arguments {
            add(&mut tree, entry, &argument, context)?;
        }
    }
    tree.sort();
    Ok(tree)
}

fn add(tree: &mut Fields, entry: &Entry, argument: &Element<'_>, context: &Context) -> Result<()> {
    match entry {
        Entry::Leaf(parse) => {
            super::tree::check_path(argument.name())?;
            tree.add(argument.name(), parse(argument, context)?)
        }
        Entry::Rename => field::add_rename(tree, argument),
    }
}

/// Nesting depth of a value: 0 for scalars.
pub(crate) fn depth(value: Value<'_>) -> usize {
    let inner = match value {
        Value::Document(document) => document,
        Value::Array(array) => array.as_document(),
        _ => return 0,
    };
    // Values come from validated documents, whose depth bounds the recursion.
    1 + inner.iter().map(|element| depth(element.value())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(names().count(), 15);
    }
}
