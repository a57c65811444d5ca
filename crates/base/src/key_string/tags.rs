//! First bytes of encoded values, in the order of the types. 00 ends documents and arrays. 00 and FF never start a
//! value.

use crate::bson::Type;

pub(super) const END: u8 = 0x00;
pub(super) const MIN_KEY: u8 = 0x08;
pub(super) const UNDEFINED: u8 = 0x0C;
pub(super) const NULL: u8 = 0x10;
pub(super) const NAN: u8 = 0x20;
/// Zero, the middle of the numbers. The tag of a negative number mirrors the tag of its magnitude.
pub(super) const ZERO: u8 = 0x2C;
/// Magnitudes below one.
pub(super) const SMALL: u8 = 0x2D;
/// Magnitudes from one to 2^63: this tag plus the number of bytes (1 to 8) of the integer part.
pub(super) const INTEGER: u8 = 0x2D;
/// Magnitudes of 2^63 and more.
pub(super) const LARGE: u8 = 0x36;
pub(super) const INFINITY: u8 = 0x37;
pub(super) const STRING: u8 = 0x40;
pub(super) const DOCUMENT: u8 = 0x48;
pub(super) const ARRAY: u8 = 0x50;
pub(super) const BINARY: u8 = 0x58;
pub(super) const OBJECT_ID: u8 = 0x60;
pub(super) const FALSE: u8 = 0x68;
pub(super) const TRUE: u8 = 0x69;
pub(super) const DATE_TIME: u8 = 0x70;
pub(super) const TIMESTAMP: u8 = 0x74;
pub(super) const REGEX: u8 = 0x78;
pub(super) const DB_POINTER: u8 = 0x80;
pub(super) const JAVASCRIPT: u8 = 0x88;
pub(super) const JAVASCRIPT_WITH_SCOPE: u8 = 0x90;
pub(super) const MAX_KEY: u8 = 0xF0;

/// Returns the byte for a type's rank, which precedes an element's name: documents compare ranks first, then names,
/// then values.
pub(super) fn rank(kind: Type) -> u8 {
    match kind {
        Type::MinKey => MIN_KEY,
        Type::Undefined => UNDEFINED,
        Type::Null => NULL,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => ZERO,
        Type::String | Type::Symbol => STRING,
        Type::Document => DOCUMENT,
        Type::Array => ARRAY,
        Type::Binary => BINARY,
        Type::ObjectId => OBJECT_ID,
        Type::Boolean => FALSE,
        Type::DateTime => DATE_TIME,
        Type::Timestamp => TIMESTAMP,
        Type::Regex => REGEX,
        Type::DbPointer => DB_POINTER,
        Type::JavaScript => JAVASCRIPT,
        Type::JavaScriptWithScope => JAVASCRIPT_WITH_SCOPE,
        Type::MaxKey => MAX_KEY,
    }
}
