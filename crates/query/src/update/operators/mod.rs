//! The update operators: one file per operator or small family, and the table of them all.
//!
//! An operator is parsed once per path into a leaf of the update's tree. Applied, it says what
//! becomes of one field as a [`Change`]; walking, writing and creating paths are not its business.

mod add_to_set;
mod arithmetic;
mod bit;
mod current_date;
mod extremum;
mod pop;
mod pull;
mod push;
mod rename;
pub(super) mod set;
mod unset;

use super::apply::At;
use super::tree::Fields;
use crate::Context;
use base::bson::{Array, Document, Element, Value};
use base::{Result, err};
use std::fmt::Debug;
use std::sync::Arc;

/// What becomes of a field.
pub(crate) enum Change<'v> {
    /// It stays as it is (or stays missing).
    Keep,
    /// It goes; in an array its place is kept by a null.
    Remove,
    /// It gets this value.
    Value(Value<'v>),
    /// It becomes the array of these values.
    Array(Vec<Value<'v>>),
    /// It becomes the array with these values behind it: the elements are copied undecoded.
    Append(Array<'v>, Vec<Value<'v>>),
}

/// One operator with its argument, at one path.
pub(crate) trait Operator: Debug + Send + Sync {
    /// What becomes of a field that exists.
    fn existing<'v>(&'v self, value: Value<'v>, at: &At<'v>) -> Result<Change<'v>>;

    /// What a missing field becomes; asked only where [`creates`](Operator::creates) says so.
    fn missing<'v>(&'v self, _at: &At<'v>) -> Result<Change<'v>> {
        Ok(Change::Keep)
    }

    /// Whether a missing field, and the documents that lead to it, would be created.
    fn creates(&self, _at: &At<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Whether an operator that creates nothing still refuses a path through something that has
    /// no fields.
    fn checks_path(&self) -> bool {
        false
    }

    /// How many elements it puts behind an array of this length, where it does only that: the oplog then
    /// has these alone.
    fn appended(&self, _length: usize) -> Option<usize> {
        None
    }

    /// How deep the values it writes may nest beyond its path; `None` if not known beforehand.
    fn depth(&self) -> Option<usize> {
        Some(0)
    }
}

type Parse = fn(&Element<'_>, &Context) -> Result<Arc<dyn Operator>>;

/// How an operator takes one `path: argument`.
enum Entry {
    /// A leaf at the path.
    Leaf(Parse),
    /// `$rename` touches two paths.
    Rename,
}

/// Every update operator, sorted by name.
const TABLE: &[(&str, Entry)] = &[
    ("$addToSet", Entry::Leaf(add_to_set::parse)),
    ("$bit", Entry::Leaf(bit::parse)),
    ("$currentDate", Entry::Leaf(current_date::parse)),
    ("$inc", Entry::Leaf(arithmetic::parse_inc)),
    ("$max", Entry::Leaf(extremum::parse_max)),
    ("$min", Entry::Leaf(extremum::parse_min)),
    ("$mul", Entry::Leaf(arithmetic::parse_mul)),
    ("$pop", Entry::Leaf(pop::parse)),
    ("$pull", Entry::Leaf(pull::parse)),
    ("$pullAll", Entry::Leaf(pull::parse_all)),
    ("$push", Entry::Leaf(push::parse)),
    ("$rename", Entry::Rename),
    ("$set", Entry::Leaf(set::parse)),
    ("$setOnInsert", Entry::Leaf(set::parse_on_insert)),
    ("$unset", Entry::Leaf(unset::parse)),
];

/// The names of all update operators, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// Parses an update document of operators into a tree.
///
/// Errors: FailedToParse for unknown operators and arguments that are not documents;
/// ConflictingUpdateOperators; whatever the operators say of their arguments.
pub(crate) fn parse(update: Document<'_>, context: &Context) -> Result<Fields> {
    let mut tree = Fields::default();
    for element in update {
        let name = element.name();
        let Ok(row) = TABLE.binary_search_by_key(&name, |row| row.0) else {
            return Err(err!(
                FailedToParse,
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update \
                 specified as an array"
            ));
        };
        let Value::Document(arguments) = element.value() else {
            return Err(err!(
                FailedToParse,
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: \
                 ...}}}} not {{{element}}}",
                element.kind().alias()
            ));
        };
        let Some((_, entry)) = TABLE.get(row) else { continue };
        for argument in arguments {
            add(&mut tree, entry, &argument, context)?;
        }
    }
    Ok(tree)
}

fn add(tree: &mut Fields, entry: &Entry, argument: &Element<'_>, context: &Context) -> Result<()> {
    match entry {
        Entry::Leaf(parse) => {
            super::tree::check_path(argument.name())?;
            tree.add(argument.name(), parse(argument, context)?)
        }
        Entry::Rename => rename::add(tree, argument),
    }
}

/// How deep a value nests: scalars 0.
pub(crate) fn depth(value: Value<'_>) -> usize {
    let inner = match value {
        Value::Document(document) => document,
        Value::Array(array) => array.as_document(),
        _ => return 0,
    };
    // Values come out of validated documents, so the recursion is bounded by their depth.
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
