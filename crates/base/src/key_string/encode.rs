//! Encoder of key strings. The table in the parent module specifies the format.
//!
//! A new type needs a tag in `tags`, and cases here, in `decode` and in `skip`.

use super::number;
use super::tags;
use super::type_bits::{Item, TypeBits};
use crate::bson::{Array, Document, Value};

/// Appends the collation key of a text: bytes that sort as the text does under a collation.
pub type Collate<'c> = dyn Fn(&str, &mut Vec<u8>) + 'c;

/// Appends one component to a key, without type bits. Bounds and sort keys use this.
pub fn encode(value: Value<'_>, ascending: bool, out: &mut Vec<u8>) {
    component(value, ascending, (None, None, None), out);
}

/// Appends one component as [`encode`], with strings, also nested strings, encoded by a collation.
pub fn encode_collated(value: Value<'_>, ascending: bool, collate: &Collate<'_>, out: &mut Vec<u8>) {
    component(value, ascending, (Some(collate), None, None), out);
}

/// Appends one component as [`encode`] or [`encode_collated`], and calls `should_continue` at intervals because large
/// values take long.
///
/// Returns false if `should_continue` did; the appended bytes are then not a key.
pub fn encode_while(
    value: Value<'_>,
    ascending: bool,
    collate: Option<&Collate<'_>>,
    should_continue: &mut dyn FnMut() -> bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut interrupt = Interrupt { next: out.len() + BYTES_PER_CHECK, should_continue, interrupted: false };
    component(value, ascending, (collate, None, Some(&mut interrupt)), out);
    !interrupt.interrupted
}

/// Bytes of a key between two calls of `should_continue`. Encoding them takes at most some 100 µs.
const BYTES_PER_CHECK: usize = 16 << 10;

/// Calls `should_continue` each [`BYTES_PER_CHECK`] bytes of output.
struct Interrupt<'p> {
    /// Length of the key at the next call.
    next: usize,
    should_continue: &'p mut dyn FnMut() -> bool,
    interrupted: bool,
}

/// Builder of compound keys, with the type bits that make decoding exact. Reusable.
#[derive(Clone, Default, Debug)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
    types: TypeBits,
}

impl KeyBuilder {
    /// A key without components.
    pub fn new() -> KeyBuilder {
        KeyBuilder::default()
    }

    /// A key without components and with capacity for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> KeyBuilder {
        KeyBuilder { bytes: Vec::with_capacity(bytes), ..KeyBuilder::default() }
    }

    /// Appends a component.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>, ascending: bool) -> &mut Self {
        component(value.into(), ascending, (None, Some(&mut self.types), None), &mut self.bytes);
        self
    }

    /// Appends a component whose strings, also nested strings, sort by a collation. The key decodes to collation keys,
    /// not to the strings.
    pub fn push_collated(&mut self, value: Value<'_>, ascending: bool, collate: &Collate<'_>) -> &mut Self {
        component(value, ascending, (Some(collate), Some(&mut self.types), None), &mut self.bytes);
        self
    }

    /// The key so far.
    pub fn key(&self) -> &[u8] {
        &self.bytes
    }

    /// The type bits, which [`decode`](super::decode) needs in addition to the key; mostly empty.
    pub fn type_bits(&self) -> &[u8] {
        self.types.bytes()
    }

    /// Returns the key and its type bits.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.bytes, self.types.into_bytes())
    }

    /// Clears the key and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.types.clear();
    }
}

/// String comparison, type bits and interruption checks of an encoder.
type Options<'a, 'p> = (Option<&'a Collate<'a>>, Option<&'a mut TypeBits>, Option<&'a mut Interrupt<'p>>);

fn component(value: Value<'_>, ascending: bool, options: Options<'_, '_>, out: &mut Vec<u8>) {
    let start = out.len();
    let (collate, types, interrupt) = options;
    Encoder { out, types, collate, interrupt }.value(value);
    if !ascending && let Some(bytes) = out.get_mut(start..) {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Writes one component into a key, always ascending. The caller inverts descending components.
struct Encoder<'e, 'p> {
    out: &'e mut Vec<u8>,
    types: Option<&'e mut TypeBits>,
    collate: Option<&'e Collate<'e>>,
    interrupt: Option<&'e mut Interrupt<'p>>,
}

impl Encoder<'_, '_> {
    /// Encodes a value with its first byte. Numbers are encoded by value; their type goes to the type bits.
    fn value(&mut self, value: Value<'_>) {
        if let Some(number) = value.as_number() {
            let payload = match value {
                Value::Decimal128(decimal) => decimal.bytes().to_vec(),
                Value::Double(double) if double.is_nan() => double.to_le_bytes().to_vec(),
                _ => Vec::new(),
            };
            self.record_type(number::item(number), &payload);
            return number::encode(number, self.out);
        }
        match value {
            Value::Boolean(value) => self.out.push(if value { tags::TRUE } else { tags::FALSE }),
            _ => self.out.push(tags::rank(value.kind())),
        }
        self.body(value);
    }

    /// Encodes the bytes after the first byte.
    fn body(&mut self, value: Value<'_>) {
        match value {
            Value::String(text) => {
                self.record_type(Item::Plain, &[]);
                self.string(text);
            }
            Value::Symbol(text) => {
                self.record_type(Item::Symbol, &[]);
                self.string(text);
            }
            Value::Document(document) => self.document(document),
            Value::Array(array) => self.array(array),
            Value::Binary { subtype, bytes } => {
                self.length(bytes.len());
                self.out.push(subtype);
                self.out.extend_from_slice(bytes);
            }
            Value::ObjectId(id) => self.out.extend_from_slice(&id.0),
            Value::DateTime(millis) => {
                // Flips the sign bit, so unsigned order equals signed order.
                self.out.extend_from_slice(&(millis as u64 ^ 1 << 63).to_be_bytes());
            }
            Value::Timestamp(time) => self.out.extend_from_slice(&time.to_be_bytes()),
            Value::Regex { pattern, options } => {
                self.text(pattern.as_bytes());
                self.text(options.as_bytes());
            }
            Value::DbPointer { namespace, id } => {
                self.length(namespace.len());
                self.out.extend_from_slice(namespace.as_bytes());
                self.out.extend_from_slice(&id.0);
            }
            Value::JavaScript(code) => self.text(code.as_bytes()),
            Value::JavaScriptWithScope { code, scope } => {
                self.text(code.as_bytes());
                self.document(scope);
            }
            _ => {}
        }
    }

    fn record_type(&mut self, item: Item, payload: &[u8]) {
        if let Some(types) = &mut self.types {
            // Only these two have a payload; a plain NaN has none.
            let has_payload = matches!(item, Item::Decimal | Item::RawDouble);
            types.push(item, if has_payload { payload } else { &[] });
        }
    }

    /// Whether encoding may continue: true until `should_continue` returns false.
    #[inline]
    fn should_continue(&mut self) -> bool {
        match &mut self.interrupt {
            Some(interrupt) if interrupt.interrupted => false,
            Some(interrupt) if self.out.len() >= interrupt.next => {
                interrupt.next = self.out.len() + BYTES_PER_CHECK;
                interrupt.interrupted = !(interrupt.should_continue)();
                !interrupt.interrupted
            }
            _ => true,
        }
    }

    /// Encodes the elements: rank, name, terminator, value. Stops without a terminator if interrupted.
    fn document(&mut self, document: Document<'_>) {
        for element in document {
            if !self.should_continue() {
                return;
            }
            self.out.push(tags::rank(element.kind()));
            self.out.extend_from_slice(element.name_bytes());
            self.out.push(tags::END);
            self.value(element.value());
        }
        self.out.push(tags::END);
    }

    fn array(&mut self, array: Array<'_>) {
        for value in array.iter() {
            if !self.should_continue() {
                return;
            }
            self.value(value);
        }
        self.out.push(tags::END);
    }

    /// Encodes a string, or its collation key.
    fn string(&mut self, text: &str) {
        match self.collate {
            None => self.text(text.as_bytes()),
            Some(collate) => {
                let mut sorted = Vec::with_capacity(text.len() * 2);
                collate(text, &mut sorted);
                self.text(&sorted);
            }
        }
    }

    /// Encodes text with escaped 00 and 01 bytes, and a terminator.
    fn text(&mut self, bytes: &[u8]) {
        if bytes.iter().all(|&byte| byte > 1) {
            self.out.extend_from_slice(bytes);
        } else {
            for &byte in bytes {
                match byte {
                    0 | 1 => self.out.extend_from_slice(&[1, byte + 1]),
                    _ => self.out.push(byte),
                }
            }
        }
        self.out.push(tags::END);
    }

    /// Encodes a length in one byte, or as FF and four bytes.
    fn length(&mut self, length: usize) {
        match u8::try_from(length) {
            Ok(short) if short < 0xFF => self.out.push(short),
            _ => {
                self.out.push(0xFF);
                self.out.extend_from_slice(&(length as u32).to_be_bytes());
            }
        }
    }
}
