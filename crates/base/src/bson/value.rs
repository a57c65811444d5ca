//! A single value: borrowed as [`Value`], owned as [`ValueBuf`], growing in a [`ValueBuffer`]. The size of an encoded
//! value is in `raw::value_length`.

use super::raw::read_length;
use super::{Array, Builder, Decimal128, Document, FieldNameBuf, Number, RegexText, Type};
use crate::encoding;
use std::fmt;

/// A BSON value. Strings, binaries and documents borrow from the document.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Double(f64),
    String(&'a str),
    Document(Document<'a>),
    Array(Array<'a>),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    Undefined,
    ObjectId(ObjectId),
    Boolean(bool),
    /// Milliseconds since 1970-01-01 UTC.
    DateTime(i64),
    Null,
    Regex {
        pattern: RegexText<'a>,
        options: RegexText<'a>,
    },
    DbPointer {
        namespace: &'a str,
        id: ObjectId,
    },
    JavaScript(&'a str),
    Symbol(&'a str),
    JavaScriptWithScope {
        code: &'a str,
        scope: Document<'a>,
    },
    Int32(i32),
    /// Seconds in the high half, increment in the low half.
    Timestamp(u64),
    Int64(i64),
    Decimal128(Decimal128),
    MinKey,
    MaxKey,
}

impl<'a> Value<'a> {
    /// Decodes the outer layer of a value. Broken bytes read as null instead of panicking; validated bytes are never
    /// broken.
    #[inline]
    pub fn decode(kind: Type, bytes: &'a [u8]) -> Value<'a> {
        Self::try_decode(kind, bytes).unwrap_or(Value::Null)
    }

    /// Decodes the outer layer; `None` for broken bytes.
    fn try_decode(kind: Type, bytes: &'a [u8]) -> Option<Value<'a>> {
        Some(match kind {
            Type::Double => Value::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
            Type::String => Value::String(text(bytes)?),
            Type::Document => Value::Document(Document::from_valid(bytes)),
            Type::Array => Value::Array(Array::from_valid(bytes)),
            Type::Binary => Value::Binary { subtype: *bytes.get(4)?, bytes: bytes.get(5..)? },
            Type::Undefined => Value::Undefined,
            Type::ObjectId => Value::ObjectId(ObjectId(*bytes.first_chunk()?)),
            Type::Boolean => Value::Boolean(*bytes.first()? != 0),
            Type::DateTime => Value::DateTime(i64::from_le_bytes(*bytes.first_chunk()?)),
            Type::Null => Value::Null,
            Type::Regex => {
                let mut parts = bytes.split(|&byte| byte == 0);
                let mut part = || Some(RegexText::terminated(utf8(parts.next()?)?));
                Value::Regex { pattern: part()?, options: part()? }
            }
            Type::DbPointer => {
                let id = ObjectId(*bytes.last_chunk()?);
                Value::DbPointer { namespace: text(bytes.get(..bytes.len() - 12)?)?, id }
            }
            Type::JavaScript => Value::JavaScript(text(bytes)?),
            Type::Symbol => Value::Symbol(text(bytes)?),
            Type::JavaScriptWithScope => {
                let rest = bytes.get(4..)?;
                let length = 4 + read_length(rest)?;
                let scope = Document::from_valid(rest.get(length..)?);
                Value::JavaScriptWithScope { code: text(rest.get(..length)?)?, scope }
            }
            Type::Int32 => Value::Int32(i32::from_le_bytes(*bytes.first_chunk()?)),
            Type::Timestamp => Value::Timestamp(u64::from_le_bytes(*bytes.first_chunk()?)),
            Type::Int64 => Value::Int64(i64::from_le_bytes(*bytes.first_chunk()?)),
            Type::Decimal128 => Value::Decimal128(Decimal128::from_bytes(*bytes.first_chunk()?)),
            Type::MinKey => Value::MinKey,
            Type::MaxKey => Value::MaxKey,
        })
    }

    /// The BSON type.
    pub fn kind(&self) -> Type {
        match self {
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Document(_) => Type::Document,
            Value::Array(_) => Type::Array,
            Value::Binary { .. } => Type::Binary,
            Value::Undefined => Type::Undefined,
            Value::ObjectId(_) => Type::ObjectId,
            Value::Boolean(_) => Type::Boolean,
            Value::DateTime(_) => Type::DateTime,
            Value::Null => Type::Null,
            Value::Regex { .. } => Type::Regex,
            Value::DbPointer { .. } => Type::DbPointer,
            Value::JavaScript(_) => Type::JavaScript,
            Value::Symbol(_) => Type::Symbol,
            Value::JavaScriptWithScope { .. } => Type::JavaScriptWithScope,
            Value::Int32(_) => Type::Int32,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Int64(_) => Type::Int64,
            Value::Decimal128(_) => Type::Decimal128,
            Value::MinKey => Type::MinKey,
            Value::MaxKey => Type::MaxKey,
        }
    }

    /// The number, if the type is numeric.
    pub fn as_number(&self) -> Option<Number> {
        Some(match *self {
            Value::Double(v) => Number::Double(v),
            Value::Int32(v) => Number::Int32(v),
            Value::Int64(v) => Number::Int64(v),
            Value::Decimal128(v) => Number::Decimal128(v),
            _ => return None,
        })
    }

    /// The number as an i64, if it has exactly that integral value.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.to_i64_exact()
    }

    /// The string, if the type is string (not symbol).
    pub fn as_str(&self) -> Option<&'a str> {
        if let Value::String(text) = *self { Some(text) } else { None }
    }

    /// The boolean, if the type is boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Boolean(value) = *self { Some(value) } else { None }
    }

    /// The embedded document, if the type is document (not array).
    pub fn as_document(&self) -> Option<Document<'a>> {
        if let Value::Document(document) = *self { Some(document) } else { None }
    }

    /// The array, if the type is array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        if let Value::Array(array) = *self { Some(array) } else { None }
    }

    /// Whether the value is null or undefined.
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Null | Value::Undefined)
    }

    /// Whether the value counts as true in an expression: everything except false, null, undefined and zero.
    pub fn is_truthy(&self) -> bool {
        match *self {
            Value::Boolean(value) => value,
            Value::Null | Value::Undefined => false,
            _ => self.as_number().is_none_or(|number| !number.is_zero()),
        }
    }

    /// Appends the undecoded bytes of the value (without type and name) to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
            Value::String(v) | Value::JavaScript(v) | Value::Symbol(v) => write_text(v, out),
            Value::Document(v) => out.extend_from_slice(v.bytes()),
            Value::Array(v) => out.extend_from_slice(v.bytes()),
            Value::Binary { subtype, bytes } => {
                out.extend_from_slice(&(bytes.len() as i32).to_le_bytes());
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            Value::ObjectId(v) => out.extend_from_slice(&v.0),
            Value::Boolean(v) => out.push(u8::from(v)),
            Value::DateTime(v) | Value::Int64(v) => out.extend_from_slice(&v.to_le_bytes()),
            Value::Regex { pattern, options } => {
                out.extend_from_slice(pattern.as_bytes());
                out.push(0);
                out.extend_from_slice(options.as_bytes());
                out.push(0);
            }
            Value::DbPointer { namespace, id } => {
                write_text(namespace, out);
                out.extend_from_slice(&id.0);
            }
            Value::JavaScriptWithScope { code, scope } => {
                let length = 4 + 4 + code.len() + 1 + scope.bytes().len();
                out.extend_from_slice(&(length as i32).to_le_bytes());
                write_text(code, out);
                out.extend_from_slice(scope.bytes());
            }
            Value::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
            Value::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
            Value::Decimal128(v) => out.extend_from_slice(&v.bytes()),
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
        }
    }

    /// A copy that owns its bytes.
    pub fn to_owned(&self) -> ValueBuf {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes);
        ValueBuf { kind: self.kind(), bytes }
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.len().checked_sub(1)?;
    utf8(bytes.get(4..end)?)
}

/// The text of bytes; `None` if they are not UTF-8. Nearly all names and most values are short and ASCII, for which the
/// standard check takes three times as many instructions.
#[inline]
pub(super) fn utf8(bytes: &[u8]) -> Option<&str> {
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        #[allow(unsafe_code)]
        return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).ok()
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// A value that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct ValueBuf {
    kind: Type,
    bytes: Vec<u8>,
}

impl ValueBuf {
    /// The null value.
    pub fn null() -> ValueBuf {
        ValueBuf { kind: Type::Null, bytes: Vec::new() }
    }

    /// The value, borrowed.
    pub fn view(&self) -> Value<'_> {
        Value::decode(self.kind, &self.bytes)
    }

    /// The BSON type.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// The undecoded bytes of the value.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for ValueBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(f)
    }
}

macro_rules! value_from {
    ($($type:ty => |$v:ident| $value:expr),* $(,)?) => {
        $(impl<'a> From<$type> for Value<'a> {
            fn from($v: $type) -> Value<'a> { $value }
        })*
    };
}

value_from! {
    f64 => |v| Value::Double(v),
    i32 => |v| Value::Int32(v),
    i64 => |v| Value::Int64(v),
    bool => |v| Value::Boolean(v),
    &'a str => |v| Value::String(v),
    &'a String => |v| Value::String(v),
    Document<'a> => |v| Value::Document(v),
    &'a super::DocumentBuf => |v| Value::Document(v.view()),
    Array<'a> => |v| Value::Array(v),
    ObjectId => |v| Value::ObjectId(v),
    Decimal128 => |v| Value::Decimal128(v),
    &'a ValueBuf => |v| v.view(),
    Number => |v| match v {
        Number::Int32(v) => Value::Int32(v),
        Number::Int64(v) => Value::Int64(v),
        Number::Double(v) => Value::Double(v),
        Number::Decimal128(v) => Value::Decimal128(v),
    },
}

/// A BSON ObjectId; ordered as its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 12]);

impl ObjectId {
    /// Builds an id from seconds since 1970, five bytes of the process, and the low three bytes of a counter.
    pub fn from_parts(seconds: u32, process: [u8; 5], counter: u32) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(&process);
        bytes[9..].copy_from_slice(&counter.to_be_bytes()[1..]);
        ObjectId(bytes)
    }

    /// Reads 24 hexadecimal digits.
    pub fn parse(text: &str) -> Option<ObjectId> {
        encoding::from_hex(text)?.try_into().ok().map(ObjectId)
    }

    /// The time of the id in milliseconds since 1970. The seconds are signed, as in MongoDB.
    pub fn timestamp_millis(&self) -> i64 {
        let [a, b, c, d, ..] = self.0;
        i64::from(i32::from_be_bytes([a, b, c, d])) * 1000
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::hex(&self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId('{self}')")
    }
}

/// A value in a reusable buffer. A string, document or array can grow at its end.
#[derive(Default)]
pub struct ValueBuffer {
    kind: Option<Type>,
    bytes: Vec<u8>,
    /// Number of elements of an array, once it has grown.
    length: Option<usize>,
}

/// Encoded content for the end of a string, document or array.
pub struct ValueContent {
    /// The bytes, and the terminator after them.
    bytes: Vec<u8>,
    /// Number of elements of the array that gets the content.
    length: usize,
}

impl ValueBuffer {
    /// Replaces the value; `None` is a missing value.
    pub fn set(&mut self, value: Option<Value<'_>>) {
        self.bytes.clear();
        self.length = None;
        self.kind = value.map(|value| value.kind());
        if let Some(value) = value {
            value.write_to(&mut self.bytes);
        }
    }

    /// The value.
    pub fn get(&self) -> Option<Value<'_>> {
        self.kind.map(|kind| Value::decode(kind, &self.bytes))
    }

    /// The type of the value.
    pub fn kind(&self) -> Option<Type> {
        self.kind
    }

    /// The size of the value in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Encodes the content of values of the same type for the end of this string, document or array. Elements of arrays
    /// get the next positions as names. Without a value, the content is for an empty document or array.
    pub fn encode(&self, values: &[Value<'_>]) -> ValueContent {
        let mut length = self.length.unwrap_or_else(|| match self.get() {
            Some(Value::Array(array)) => array.len(),
            _ => 0,
        });
        let (mut elements, mut text) = (Builder::new(), Vec::new());
        for value in values {
            match value {
                Value::Array(array) => {
                    for element in array.elements() {
                        elements.append_renamed(&FieldNameBuf::of_number(length), &element);
                        length += 1;
                    }
                }
                Value::Document(document) => {
                    elements.append_all(*document);
                }
                Value::String(part) => text.extend_from_slice(part.as_bytes()),
                _ => {}
            }
        }
        let bytes = if self.kind == Some(Type::String) {
            text.push(0);
            text
        } else {
            elements.into_buffer().split_off(SIZE_BYTES)
        };
        ValueContent { bytes, length }
    }

    /// Adds encoded content.
    pub fn extend(&mut self, content: &ValueContent) {
        self.length = Some(content.length);
        // A string, document or array starts with its size and ends with a zero byte. Only the size of a string does
        // not count itself.
        self.bytes.pop();
        self.bytes.extend_from_slice(&content.bytes);
        let uncounted = if self.kind == Some(Type::String) { SIZE_BYTES } else { 0 };
        let size = (self.bytes.len() - uncounted) as i32;
        if let Some(start) = self.bytes.first_chunk_mut() {
            *start = size.to_le_bytes();
        }
    }
}

/// Size of the length of a string, document or array.
const SIZE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = ObjectId::from_parts(1_600_000_000, [1, 2, 3, 4, 5], 0x00AB_CDEF);
        assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
        assert_eq!(id.timestamp_millis(), 1_600_000_000_000);
        assert_eq!(ObjectId::parse(&"f".repeat(24)).map(|id| id.timestamp_millis()), Some(-1000));
        assert_eq!(ObjectId::parse("zz"), None);
        assert_eq!(ObjectId::parse(&"g".repeat(24)), None);
    }

    #[test]
    fn values_grow_at_their_end() {
        let grown = |first: &str, more: &str, expected: &str| {
            let parse = |text: &str| crate::bson::extended_json::parse_value(text).unwrap();
            let (first, more) = (parse(first), parse(more));
            let mut buffer = ValueBuffer::default();
            buffer.set(Some(first.view()));
            for _ in 0..2 {
                buffer.extend(&buffer.encode(&[more.view(), more.view()]));
            }
            let mut bytes = Vec::new();
            parse(expected).view().write_to(&mut bytes);
            assert_eq!((buffer.size(), buffer.bytes), (bytes.len(), bytes));
        };
        grown("'a'", "'bc'", "'abcbcbcbc'");
        grown("{a: 1}", "{b: {}}", "{a: 1, b: {}, b: {}, b: {}, b: {}}");
        grown("['a']", "[1, 'x']", "['a', 1, 'x', 1, 'x', 1, 'x', 1, 'x']");
        grown("[]", "[]", "[]");
        assert!(ValueBuffer::default().get().is_none());
    }
}
