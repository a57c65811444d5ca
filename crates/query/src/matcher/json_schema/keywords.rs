//! A parsed schema: what each keyword demands.

use super::super::element::TypeSet;
use crate::regex::Regex;
use base::bson::{Number, ValueBuf};

/// The keywords of one schema; those not given demand nothing.
#[derive(Debug, Default)]
pub(super) struct Keywords {
    /// `type` or `bsonType`.
    pub(super) types: Option<TypeSet>,
    /// `enum`: the values allowed, normalised and in order.
    pub(super) allowed: Option<Vec<ValueBuf>>,
    pub(super) numbers: Numbers,
    pub(super) strings: Strings,
    pub(super) arrays: Arrays,
    pub(super) objects: Objects,
    pub(super) all_of: Vec<Keywords>,
    /// `anyOf`, empty where not given.
    pub(super) any_of: Vec<Keywords>,
    /// `oneOf`, empty where not given.
    pub(super) one_of: Vec<Keywords>,
    pub(super) not: Option<Box<Keywords>>,
}

/// What numbers must satisfy.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) minimum: Option<Number>,
    pub(super) exclusive_minimum: bool,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<Number>,
}

/// What strings must satisfy; lengths count code points.
#[derive(Debug, Default)]
pub(super) struct Strings {
    pub(super) length_min: Option<u64>,
    pub(super) length_max: Option<u64>,
    pub(super) pattern: Option<Regex>,
}

/// What arrays must satisfy.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    pub(super) count_min: Option<u64>,
    pub(super) count_max: Option<u64>,
    pub(super) unique: bool,
    pub(super) items: Option<Items>,
    /// `additionalItems`: for elements beyond a list of `items`.
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

/// What documents must satisfy.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) required: Vec<String>,
    pub(super) properties: Vec<(String, Keywords)>,
    pub(super) pattern_properties: Vec<(Regex, Keywords)>,
    /// `additionalProperties`: for fields named by neither of the two above.
    pub(super) additional: Additional,
    pub(super) count_min: Option<u64>,
    pub(super) count_max: Option<u64>,
    pub(super) dependencies: Vec<(String, Dependency)>,
}

/// What the presence of a field demands.
#[derive(Debug)]
pub(super) enum Dependency {
    /// That these fields be present too.
    Fields(Vec<String>),
    /// That the whole document satisfy a schema.
    Schema(Box<Keywords>),
}
