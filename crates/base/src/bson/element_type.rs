//! BSON element types: tags, aliases for `$type`, and ranks in the order of values.
//!
//! A new type starts here. The compiler then reports each `match` that lacks it, except in
//! `key_string/decode.rs`, which matches on bytes.

use std::fmt;

/// A BSON element type; the discriminant is the tag byte on the wire.
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Type {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Boolean = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    JavaScript = 0x0D,
    Symbol = 0x0E,
    JavaScriptWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MinKey = 0xFF,
    MaxKey = 0x7F,
}

/// Every type with the number `$type` takes and its alias, in the order of the numbers.
const ALL: [(Type, i32, &str); 21] = [
    (Type::MinKey, -1, "minKey"),
    (Type::Double, 1, "double"),
    (Type::String, 2, "string"),
    (Type::Document, 3, "object"),
    (Type::Array, 4, "array"),
    (Type::Binary, 5, "binData"),
    (Type::Undefined, 6, "undefined"),
    (Type::ObjectId, 7, "objectId"),
    (Type::Boolean, 8, "bool"),
    (Type::DateTime, 9, "date"),
    (Type::Null, 10, "null"),
    (Type::Regex, 11, "regex"),
    (Type::DbPointer, 12, "dbPointer"),
    (Type::JavaScript, 13, "javascript"),
    (Type::Symbol, 14, "symbol"),
    (Type::JavaScriptWithScope, 15, "javascriptWithScope"),
    (Type::Int32, 16, "int"),
    (Type::Timestamp, 17, "timestamp"),
    (Type::Int64, 18, "long"),
    (Type::Decimal128, 19, "decimal"),
    (Type::MaxKey, 127, "maxKey"),
];

impl Type {
    /// Returns the type of a tag byte; `None` for an unknown tag.
    #[inline]
    pub fn from_tag(tag: u8) -> Option<Type> {
        Some(match tag {
            0x01 => Type::Double,
            0x02 => Type::String,
            0x03 => Type::Document,
            0x04 => Type::Array,
            0x05 => Type::Binary,
            0x06 => Type::Undefined,
            0x07 => Type::ObjectId,
            0x08 => Type::Boolean,
            0x09 => Type::DateTime,
            0x0A => Type::Null,
            0x0B => Type::Regex,
            0x0C => Type::DbPointer,
            0x0D => Type::JavaScript,
            0x0E => Type::Symbol,
            0x0F => Type::JavaScriptWithScope,
            0x10 => Type::Int32,
            0x11 => Type::Timestamp,
            0x12 => Type::Int64,
            0x13 => Type::Decimal128,
            0xFF => Type::MinKey,
            0x7F => Type::MaxKey,
            _ => return None,
        })
    }

    /// The tag byte on the wire.
    pub fn tag(self) -> u8 {
        self as u8
    }

    /// MongoDB's name of the type, as `$type` returns it and its messages spell it.
    pub fn alias(self) -> &'static str {
        ALL.iter().find(|(kind, _, _)| *kind == self).map_or("missing", |(_, _, alias)| alias)
    }

    /// The type with this alias (`"number"` is not one type and has none).
    pub fn from_alias(alias: &str) -> Option<Type> {
        ALL.iter().find(|(_, _, name)| *name == alias).map(|(kind, _, _)| *kind)
    }

    /// The type with this `$type` number (MinKey is −1, MaxKey 127).
    pub fn from_number(number: i32) -> Option<Type> {
        ALL.iter().find(|(_, n, _)| *n == number).map(|(kind, _, _)| *kind)
    }

    /// Whether this is one of the four numeric types.
    pub fn is_numeric(self) -> bool {
        matches!(self, Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128)
    }

    /// The rank of the type in MongoDB's order of values. Types that compare with one another share a rank: the
    /// numbers; strings and symbols. Comparison operators such as `$lt` match only values of one rank (type
    /// bracketing).
    pub fn canonical_rank(self) -> u8 {
        match self {
            Type::MinKey => 1,
            Type::Undefined => 3,
            Type::Null => 5,
            Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => 10,
            Type::String | Type::Symbol => 15,
            Type::Document => 20,
            Type::Array => 25,
            Type::Binary => 30,
            Type::ObjectId => 35,
            Type::Boolean => 40,
            Type::DateTime => 45,
            Type::Timestamp => 47,
            Type::Regex => 50,
            Type::DbPointer => 55,
            Type::JavaScript => 60,
            Type::JavaScriptWithScope => 65,
            Type::MaxKey => 127,
        }
    }
}

/// Prints the alias, as messages name types.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.alias())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_numbers_and_aliases_agree() {
        for (kind, number, alias) in ALL {
            assert_eq!(Type::from_tag(kind.tag()), Some(kind));
            assert_eq!(Type::from_number(number), Some(kind));
            assert_eq!(Type::from_alias(alias), Some(kind));
            assert_eq!(kind.alias(), alias);
        }
        assert_eq!(Type::from_alias("number"), None);
        assert_eq!(Type::from_tag(0x14), None);
    }
}
