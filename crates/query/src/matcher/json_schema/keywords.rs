//! A parsed schema: the constraints of each keyword.

use super::super::element::TypeSet;
use crate::regex::Regex;
use base::bson::{Number, ValueBuf};

/// The keywords of one schema. Absent keywords impose no constraint.
#[derive(Debug, Default)]
pub(super) struct Keywords {
    /// `type` or `bsonType`.
    pub(super) types: Option<TypeSet>,
    /// `enum`: the allowed values, normalised and sorted.
    pub(super) allowed: Option<Vec<ValueBuf>>,
    pub(super) numbers: Numbers,
    pub(super) strings: Strings,
    pub(super) arrays: Arrays,
    pub(super) objects: Objects,
    pub(super) all_of: Vec<Keywords>,
    /// `anyOf`; empty if absent.
    pub(super) any_of: Vec<Keywords>,
    /// `oneOf`; empty if absent.
    pub(super) one_of: Vec<Keywords>,
    pub(super) not: Option<Box<Keywords>>,
}

/// Constraints on numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) minimum: Option<Number>,
    pub(super) exclusive_minimum: bool,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<Number>,
}

/// Constraints on strings; lengths are in code points.
#[derive(Debug, Default)]
pub(super) struct Strings {
    pub(super) length_min: Option<u64>,
    pub(super) length_max: Option<u64>,
    pub(super) pattern: Option<Regex>,
}

/// Constraints on arrays.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    pub(super) count_min: Option<u64>,
    pub(super) count_max: Option<u64>,
    pub(super) unique: bool,
    pub(super) items: Option<Items>,
    /// `additionalItems`: constraint on elements beyond a list of `items`.
    pub(super) additional: Additional,
}

/// `items`.
#[derive(Debug)]
pub(super) enum Items {
    /// One schema for every element.
    Each(Box<Keywords>),
    /// A schema for each position.
    List(Vec<Keywords>),
}

/// `additionalItems` and `additionalProperties`.
#[derive(Debug, Default)]
pub(super) enum Additional {
    #[default]
    Allowed,
    Refused,
    Schema(Box<Keywords>),
}

/// Constraints on documents.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) required: Vec<String>,
    /// Sorted by name.
    pub(super) properties: Vec<(String, Keywords)>,
    pub(super) pattern_properties: Vec<(Regex, Keywords)>,
    /// `additionalProperties`: constraint on fields that neither of the two keywords above names.
    pub(super) additional: Additional,
    pub(super) count_min: Option<u64>,
    pub(super) count_max: Option<u64>,
    pub(super) dependencies: Vec<(String, Dependency)>,
}

/// Constraint that depends on the presence of a field.
#[derive(Debug)]
pub(super) enum Dependency {
    /// These fields must be present too.
    Fields(Vec<String>),
    /// The whole document must satisfy a schema.
    Schema(Box<Keywords>),
}
