//! MongoDB's key strings (version 1), the format of resume tokens.
//!
//! Tools read the cluster time and the collection from tokens, so these bytes are MongoDB's. Vellum's own key strings
//! ([`base::key_string`]) have a similar layout but different first bytes.
//!
//! The only difference from MongoDB: numbers that are not integers have Vellum's digits after MongoDB's first byte.
//! Their order is equal, and the difference is visible only for such values of `_id`.

use base::bson::{Document, Type, Value};
use base::key_string;

pub(super) const END: u8 = 4;
const MIN_KEY: u8 = 10;
const UNDEFINED: u8 = 15;
pub(super) const NULL: u8 = 20;
/// The rank of numbers before an element's name, except NaN.
const NUMBER: u8 = 30;
const NEGATIVE_LARGE: u8 = 31;
pub(super) const ZERO: u8 = 41;
const SMALL: u8 = 42;
const LARGE: u8 = 51;
const STRING: u8 = 60;
pub(super) const OBJECT: u8 = 70;
const ARRAY: u8 = 80;
pub(super) const BINARY: u8 = 90;
const OBJECT_ID: u8 = 100;
pub(super) const FALSE: u8 = 110;
pub(super) const TRUE: u8 = 111;
const DATE_TIME: u8 = 120;
pub(super) const TIMESTAMP: u8 = 130;
const REGEX: u8 = 140;
const DB_POINTER: u8 = 150;
const CODE: u8 = 160;
const CODE_WITH_SCOPE: u8 = 170;
const MAX_KEY: u8 = 240;

/// Vellum's first bytes of numbers, as they correspond to MongoDB's.
const OUR_NAN: u8 = 0x20;
const OUR_NEGATIVE_INFINITY: u8 = 0x21;
const OUR_ZERO: u8 = 0x2C;
const OUR_INFINITY: u8 = 0x37;

/// Returns the first byte of a type, which precedes an element's name.
fn rank(kind: Type) -> u8 {
    match kind {
        Type::MinKey => MIN_KEY,
        Type::Undefined => UNDEFINED,
        Type::Null => NULL,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => NUMBER,
        Type::String | Type::Symbol => STRING,
        Type::Document => OBJECT,
        Type::Array => ARRAY,
        Type::Binary => BINARY,
        Type::ObjectId => OBJECT_ID,
        Type::Boolean => FALSE,
        Type::DateTime => DATE_TIME,
        Type::Timestamp => TIMESTAMP,
        Type::Regex => REGEX,
        Type::DbPointer => DB_POINTER,
        Type::JavaScript => CODE,
        Type::JavaScriptWithScope => CODE_WITH_SCOPE,
        Type::MaxKey => MAX_KEY,
    }
}

/// Appends a value. Documents must be validated, which bounds the recursion.
pub(super) fn push(value: Value<'_>, out: &mut Vec<u8>) {
    if value.as_number().is_some() {
        return number(value, out);
    }
    match value {
        Value::Boolean(value) => out.push(if value { TRUE } else { FALSE }),
        other => out.push(rank(other.kind())),
    }
    match value {
        Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => escaped(text, out),
        Value::Document(inner) => document(inner, out),
        Value::Array(inner) => {
            inner.iter().for_each(|value| push(value, out));
            out.push(0);
        }
        Value::Binary { subtype, bytes } => {
            match u8::try_from(bytes.len()) {
                Ok(short) if short < 0xFF => out.push(short),
                _ => {
                    out.push(0xFF);
                    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                }
            }
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(id) => out.extend_from_slice(&id.0),
        Value::DateTime(millis) => out.extend_from_slice(&(millis as u64 ^ 1 << 63).to_be_bytes()),
        Value::Timestamp(time) => out.extend_from_slice(&time.to_be_bytes()),
        Value::Regex { pattern, options } => {
            for part in [pattern, options] {
                out.extend_from_slice(part.as_bytes());
                out.push(0);
            }
        }
        Value::DbPointer { namespace, id } => {
            out.extend_from_slice(&(namespace.len() as u32).to_be_bytes());
            out.extend_from_slice(namespace.as_bytes());
            out.extend_from_slice(&id.0);
        }
        Value::JavaScriptWithScope { code, scope } => {
            escaped(code, out);
            document(scope, out);
        }
        _ => {}
    }
}

fn document(inner: Document<'_>, out: &mut Vec<u8>) {
    for element in inner {
        out.push(rank(element.kind()));
        out.extend_from_slice(element.name_bytes());
        out.push(0);
        push(element.value(), out);
    }
    out.push(0);
}

/// Appends text with its NULs escaped and a final NUL.
fn escaped(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.push(0);
}

/// Appends a number: Vellum's encoding, with MongoDB's first byte.
fn number(value: Value<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    key_string::encode(value, true, out);
    let Some(first) = out.get_mut(start) else { return };
    match *first {
        OUR_NAN => *first = NUMBER,
        // MongoDB encodes infinity as the largest of the large numbers.
        OUR_INFINITY => {
            *first = LARGE;
            out.extend_from_slice(&(f64::INFINITY.to_bits() << 1).to_be_bytes());
        }
        OUR_NEGATIVE_INFINITY => {
            *first = NEGATIVE_LARGE;
            out.extend_from_slice(&(!(f64::INFINITY.to_bits() << 1)).to_be_bytes());
        }
        ours => *first = ours.wrapping_sub(OUR_ZERO).wrapping_add(ZERO),
    }
}

/// Reads a key string piece by piece; returns `None` for invalid bytes.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the first byte of the next value; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied().filter(|byte| *byte != END)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// Reads an integer after its first byte.
    pub(super) fn integer(&mut self, first: u8) -> Option<i64> {
        if first == ZERO {
            return Some(0);
        }
        let (negative, length) = match first {
            43..=50 => (false, first - SMALL),
            32..=39 => (true, 40 - first),
            _ => return None,
        };
        let mut bits = 0u64;
        for byte in self.take(usize::from(length))? {
            bits = bits << 8 | u64::from(if negative { !byte } else { *byte });
        }
        let magnitude = i64::try_from(bits >> 1).ok().filter(|_| bits & 1 == 0)?;
        Some(if negative { -magnitude } else { magnitude })
    }

    /// Skips one value.
    pub(super) fn skip(&mut self) -> Option<()> {
        let first = self.byte()?;
        self.skip_rest(first, 0)
    }

    /// Skips the bytes after a value's first byte. The depth is limited, because tokens come from clients.
    fn skip_rest(&mut self, first: u8, depth: usize) -> Option<()> {
        if depth > base::bson::MAX_DEPTH {
            return None;
        }
        match first {
            MIN_KEY | UNDEFINED | NULL | NUMBER | FALSE | TRUE | MAX_KEY => Some(()),
            NEGATIVE_LARGE..=LARGE => self.skip_number(first),
            STRING | CODE => self.skip_text(),
            OBJECT => self.skip_document(depth + 1),
            ARRAY => loop {
                match self.byte()? {
                    0 => return Some(()),
                    first => self.skip_rest(first, depth + 1)?,
                }
            },
            BINARY => {
                let length = match self.byte()? {
                    0xFF => u32::from_be_bytes(self.chunk()?) as usize,
                    short => usize::from(short),
                };
                self.take(length.checked_add(1)?).map(drop)
            }
            OBJECT_ID => self.take(12).map(drop),
            DATE_TIME | TIMESTAMP => self.take(8).map(drop),
            REGEX => {
                self.skip_name()?;
                self.skip_name()
            }
            DB_POINTER => {
                let length = u32::from_be_bytes(self.chunk()?) as usize;
                self.take(length.checked_add(12)?).map(drop)
            }
            CODE_WITH_SCOPE => {
                self.skip_text()?;
                self.skip_document(depth + 1)
            }
            _ => None,
        }
    }

    fn skip_document(&mut self, depth: usize) -> Option<()> {
        while self.byte()? != 0 {
            self.skip_name()?;
            let first = self.byte()?;
            self.skip_rest(first, depth)?;
        }
        Some(())
    }

    fn skip_name(&mut self) -> Option<()> {
        while self.byte()? != 0 {}
        Some(())
    }

    fn skip_text(&mut self) -> Option<()> {
        loop {
            self.skip_name()?;
            match self.rest.first() {
                Some(0xFF) => self.byte()?,
                _ => return Some(()),
            };
        }
    }

    /// Skips the bytes that [`number`] writes after the first byte.
    fn skip_number(&mut self, first: u8) -> Option<()> {
        if first == ZERO {
            return Some(());
        }
        // Negative numbers are inverted, and their first bytes mirrored.
        let mask = if first < ZERO { 0xFF } else { 0 };
        let magnitude = if first < ZERO { 2 * ZERO - first } else { first };
        let length = match magnitude {
            SMALL | LARGE => 8,
            length => usize::from(length - SMALL),
        };
        let last = |bytes: &[u8]| bytes.last().is_some_and(|byte| (byte ^ mask) & 1 == 1);
        let mut more = last(self.take(length)?);
        if more && !matches!(magnitude, SMALL | LARGE) {
            more = last(self.take(7)?);
        }
        if more {
            self.take(2)?;
            while (self.byte()? ^ mask) & 1 == 1 {}
        }
        Some(())
    }
}
