//! Decoder of keys, and the length of a component without decoding. Any bytes are accepted: broken keys return an error
//! and never panic.

use super::type_bits::{Item, TypeReader};
use super::{number, tags};
use crate::bson::{
    Builder, Decimal128, FieldName, FieldNameBuf, MAX_DEPTH, ObjectId, RegexText, Value, ValueBuf,
};
use crate::{Error, Result, encoding, err};

/// Decodes a whole key, one component for each direction in `ascending`.
///
/// Errors: InternalError for bytes that are not a key of this shape.
pub fn decode(key: &[u8], type_bits: &[u8], ascending: &[bool]) -> Result<Vec<ValueBuf>> {
    let mut decoder = Decoder::new(key, type_bits);
    let values = ascending.iter().map(|&up| decoder.next(up)).collect::<Result<Vec<_>>>()?;
    if decoder.rest().is_empty() { Ok(values) } else { Err(broken()) }
}

/// Decodes a key component by component.
#[derive(Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    types: TypeReader<'a>,
    /// FF within a descending component.
    mask: u8,
    /// Whether strings are collation keys.
    collated: bool,
}

fn broken() -> Error {
    err!(InternalError, "index key is corrupted")
}

impl<'a> Decoder<'a> {
    /// Starts at the first component.
    pub fn new(key: &'a [u8], type_bits: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: key, types: TypeReader::new(type_bits), mask: 0, collated: false }
    }

    /// Decodes a key whose strings are collation keys. They are returned in hexadecimal, as in MongoDB, because the
    /// strings cannot be recovered from them.
    pub fn collated(self) -> Decoder<'a> {
        Decoder { collated: true, ..self }
    }

    /// The bytes after the components read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes the next component. Errors: InternalError for invalid bytes.
    pub fn next(&mut self, ascending: bool) -> Result<ValueBuf> {
        let mut holder = Builder::new();
        self.append_next(c"", ascending, &mut holder)?;
        let holder = holder.finish();
        let element = holder.view().first().ok_or_else(broken)?;
        Ok(element.value().to_owned())
    }

    /// Decodes the next component and appends it to `out` under a name.
    ///
    /// Errors: InternalError for invalid bytes; `out` is then incomplete.
    pub fn append_next<'n>(
        &mut self,
        name: impl Into<FieldName<'n>>,
        ascending: bool,
        out: &mut Builder,
    ) -> Result<()> {
        self.mask = if ascending { 0 } else { 0xFF };
        let tag = self.byte().ok_or_else(broken)?;
        self.value(tag, Some(name.into()), out, 0).ok_or_else(broken)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte ^ self.mask)
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes.iter().map(|byte| byte ^ self.mask).collect())
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(bytes.map(|byte| byte ^ self.mask))
    }

    /// Decodes the value after `tag` into `out`: under a name, or as an array's next element.
    fn value(&mut self, tag: u8, name: Option<FieldName<'_>>, out: &mut Builder, depth: usize) -> Option<()> {
        match tag {
            tags::NAN..=tags::INFINITY => out.append_at(name, self.number(tag)?),
            tags::MIN_KEY => out.append_at(name, Value::MinKey),
            tags::UNDEFINED => out.append_at(name, Value::Undefined),
            tags::NULL => out.append_at(name, Value::Null),
            tags::FALSE | tags::TRUE => out.append_at(name, Value::Boolean(tag == tags::TRUE)),
            tags::MAX_KEY => out.append_at(name, Value::MaxKey),
            tags::OBJECT_ID => out.append_at(name, Value::ObjectId(ObjectId(self.chunk()?))),
            tags::DATE_TIME => {
                let bits = u64::from_be_bytes(self.chunk()?) ^ 1 << 63;
                out.append_at(name, Value::DateTime(bits as i64));
            }
            tags::TIMESTAMP => out.append_at(name, Value::Timestamp(u64::from_be_bytes(self.chunk()?))),
            tags::DOCUMENT => {
                out.begin_document_at(name);
                self.document(out, depth)?;
                out.end();
            }
            tags::ARRAY => {
                out.begin_array_at(name);
                self.array(out, depth)?;
                out.end();
            }
            _ => self.text_value(tag, name, out, depth)?,
        }
        Some(())
    }

    /// Decodes types that contain text or bytes of variable length.
    fn text_value(
        &mut self,
        tag: u8,
        name: Option<FieldName<'_>>,
        out: &mut Builder,
        depth: usize,
    ) -> Option<()> {
        match tag {
            tags::STRING => {
                let symbol = self.types.next() == Item::Symbol;
                let text = match self.collated {
                    true => format!("CollationKey(0x{})", encoding::hex(&self.text_bytes()?)),
                    false => self.text()?,
                };
                out.append_at(name, if symbol { Value::Symbol(&text) } else { Value::String(&text) });
            }
            tags::BINARY => {
                let length = self.length()?;
                let subtype = self.byte()?;
                out.append_at(name, Value::Binary { subtype, bytes: &self.take(length)? });
            }
            tags::REGEX => {
                let (pattern, options) = (self.text()?, self.text()?);
                // Both end at a NUL in BSON, so an encoded pattern or option cannot contain one.
                let (pattern, options) = (RegexText::new(&pattern).ok()?, RegexText::new(&options).ok()?);
                out.append_at(name, Value::Regex { pattern, options });
            }
            tags::DB_POINTER => {
                let length = self.length()?;
                let namespace = String::from_utf8(self.take(length)?).ok()?;
                out.append_at(name, Value::DbPointer { namespace: &namespace, id: ObjectId(self.chunk()?) });
            }
            tags::JAVASCRIPT => out.append_at(name, Value::JavaScript(&self.text()?)),
            tags::JAVASCRIPT_WITH_SCOPE => {
                let code = self.text()?;
                let mut scope = Builder::new();
                self.document(&mut scope, depth)?;
                let scope = scope.finish();
                out.append_at(name, Value::JavaScriptWithScope { code: &code, scope: scope.view() });
            }
            _ => return None,
        }
        Some(())
    }

    /// Decodes a number; its type comes from the type bits. Decimals and NaNs have their exact bytes there.
    fn number(&mut self, tag: u8) -> Option<Value<'static>> {
        let decoded = number::decode(tag, &mut || self.byte())?;
        Some(match self.types.next() {
            Item::Plain => decoded.plain(),
            Item::Int64 => decoded.int64(),
            Item::Double => decoded.double(),
            Item::NegativeZero => Value::Double(-0.0),
            Item::RawDouble => Value::Double(f64::from_le_bytes(self.types.payload()?)),
            Item::Decimal => Value::Decimal128(Decimal128::from_bytes(self.types.payload()?)),
            Item::Symbol => return None,
        })
    }

    /// Decodes elements up to the terminator. The depth is limited, because keys may be damaged.
    fn document(&mut self, out: &mut Builder, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        while self.byte()? != tags::END {
            let name = self.name()?;
            let tag = self.byte()?;
            self.value(tag, Some(name.view()), out, depth + 1)?;
        }
        Some(())
    }

    /// Decodes values up to the terminator, with the depth limit of documents.
    fn array(&mut self, out: &mut Builder, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        loop {
            match self.byte()? {
                tags::END => return Some(()),
                tag => self.value(tag, None, out, depth + 1)?,
            }
        }
    }

    fn name(&mut self) -> Option<FieldNameBuf> {
        let end = self.rest.iter().position(|byte| byte ^ self.mask == tags::END)?;
        let bytes = self.take(end)?;
        self.byte()?;
        FieldNameBuf::new(String::from_utf8(bytes).ok()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.text_bytes()?).ok()
    }

    /// Reads text up to the terminator and resolves escapes; `None` for an invalid escape.
    fn text_bytes(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                tags::END => return Some(bytes),
                1 => bytes.push(self.byte()?.checked_sub(1).filter(|&byte| byte <= 1)?),
                byte => bytes.push(byte),
            }
        }
    }

    fn length(&mut self) -> Option<usize> {
        match self.byte()? {
            0xFF => usize::try_from(u32::from_be_bytes(self.chunk()?)).ok(),
            short => Some(usize::from(short)),
        }
    }
}

/// Returns the size of the first component of `key` in bytes; `None` if `key` has no whole component.
pub fn component_length(key: &[u8], ascending: bool) -> Option<usize> {
    let mut skip = Skip { key, at: 0, mask: if ascending { 0 } else { 0xFF } };
    skip.value()?;
    Some(skip.at)
}

/// A position in a key. `mask` is FF in a descending component.
struct Skip<'a> {
    key: &'a [u8],
    at: usize,
    mask: u8,
}

impl Skip<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.key.get(self.at)?;
        self.at += 1;
        Some(byte ^ self.mask)
    }

    fn bytes(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|&at| at <= self.key.len())?;
        Some(())
    }

    /// Skips to the byte after the next END. Escapes in text contain no END, because both of their bytes are at least
    /// one.
    fn text(&mut self) -> Option<()> {
        let end = tags::END ^ self.mask;
        let length = self.key.get(self.at..)?.iter().position(|&byte| byte == end)?;
        self.bytes(length + 1)
    }

    /// Skips one value. Nesting is counted without recursion, so any depth is safe.
    fn value(&mut self) -> Option<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            let mut tag = self.byte()?;
            match (tag, open.last()) {
                (tags::END, None) => return None,
                (tags::END, Some(_)) => {
                    open.pop();
                    if open.is_empty() {
                        return Some(());
                    }
                    continue;
                }
                (_, Some(&tags::DOCUMENT)) => {
                    // The tag was the element's rank. The name and the value's own tag follow.
                    self.text()?;
                    tag = self.byte()?;
                }
                _ => {}
            }
            match tag {
                tags::DOCUMENT | tags::ARRAY => open.push(tag),
                tags::JAVASCRIPT_WITH_SCOPE => {
                    self.text()?;
                    open.push(tags::DOCUMENT);
                }
                _ => self.scalar(tag)?,
            }
            if open.is_empty() {
                return Some(());
            }
        }
    }

    /// Skips the bytes after the tag of a value that is neither document nor array.
    fn scalar(&mut self, tag: u8) -> Option<()> {
        match tag {
            tags::NAN..=tags::INFINITY => number::decode(tag, &mut || self.byte()).map(drop),
            tags::STRING | tags::JAVASCRIPT => self.text(),
            tags::BINARY => {
                let length = self.length()?;
                self.bytes(length + 1)
            }
            tags::OBJECT_ID => self.bytes(12),
            tags::DATE_TIME | tags::TIMESTAMP => self.bytes(8),
            tags::REGEX => {
                self.text()?;
                self.text()
            }
            tags::DB_POINTER => {
                let length = self.length()?;
                self.bytes(length + 12)
            }
            _ => Some(()),
        }
    }

    /// Reads a length in one byte, or in four bytes after FF.
    fn length(&mut self) -> Option<usize> {
        match self.byte()? {
            0xFF => {
                let mut length = 0usize;
                for _ in 0..4 {
                    length = length << 8 | usize::from(self.byte()?);
                }
                Some(length)
            }
            short => Some(usize::from(short)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::component_length;
    use crate::bson::extended_json;

    #[test]
    fn every_kind_of_value_is_as_long_as_it_was_encoded() {
        let holder = extended_json::parse(
            r#"{v: [null, 1, -3.5, {$numberDecimal: "0.1"}, {$numberDecimal: "-1E-3000"}, "", "a\u0000b\u0001",
                {}, [], {a: {b: [1, {c: "x"}, []]}, d: {}}, [[], [{}], 1.5], {$numberDouble: "NaN"}, true,
                {$date: {$numberLong: "5"}}, {$timestamp: {t: 1, i: 2}}, {$oid: "000102030405060708090a00"},
                {$binary: {base64: "AAECAwQ=", subType: "00"}}, {$regularExpression: {pattern: "a", options: "i"}},
                {$minKey: 1}, {$maxKey: 1}, {$undefined: true}, {$code: "x"},
                {$code: "x", $scope: {a: 1, b: {c: []}}}, {$numberLong: "9223372036854775807"}]}"#,
        )
        .unwrap();
        for value in holder.view().get("v").unwrap().as_array().unwrap().iter() {
            for ascending in [true, false] {
                let mut key = Vec::new();
                encode(value, ascending, &mut key);
                let length = key.len();
                assert_eq!(component_length(&key, ascending), Some(length), "{value}");
                key.extend_from_slice(&[0x00, 0xFF, 0x40]);
                assert_eq!(component_length(&key, ascending), Some(length), "{value}");
                assert_eq!(component_length(&key[..length - 1], ascending).filter(|&n| n == length), None);
            }
        }
    }
}
