//! Writer of extended JSON (both formats of the specification) and of the shell's syntax.

use super::typed;
use crate::bson::{Array, Document, Value};
use crate::encoding;
use std::fmt::Write;

/// Milliseconds of the first instant of the year 10000. Relaxed dates before it are text.
const YEAR_10000: i64 = 253_402_300_800_000;

/// Writes canonical extended JSON, which keeps every type.
pub fn to_canonical(document: Document<'_>) -> String {
    value_to_canonical(Value::Document(document))
}

/// Writes relaxed extended JSON: plain JSON numbers where possible, dates as text.
pub fn to_relaxed(document: Document<'_>) -> String {
    value_to_relaxed(Value::Document(document))
}

/// Writes the shell's syntax on one line, which keeps every type: `{_id: 1, n: NumberLong(2), d: 1.0}`.
pub fn to_shell(document: Document<'_>) -> String {
    value_to_shell(Value::Document(document))
}

/// Writes a value as canonical extended JSON.
pub fn value_to_canonical(value: Value<'_>) -> String {
    write(value, Format::Canonical)
}

/// Writes a value as relaxed extended JSON.
pub fn value_to_relaxed(value: Value<'_>) -> String {
    write(value, Format::Relaxed)
}

/// Writes a value in the shell's syntax.
pub fn value_to_shell(value: Value<'_>) -> String {
    write(value, Format::Shell)
}

/// The output format: one of the two of the Extended JSON specification, or the shell's.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Canonical,
    Relaxed,
    Shell,
}

fn write(value: Value<'_>, format: Format) -> String {
    let mut writer = Writer { out: String::new(), format };
    writer.value(value);
    writer.out
}

/// The text so far, and its format.
struct Writer {
    out: String,
    format: Format,
}

impl Writer {
    /// Writes a value: as plain JSON if the format allows it, otherwise as a typed value or a call.
    fn value(&mut self, value: Value<'_>) {
        match value {
            Value::Document(document) => self.document(document),
            Value::Array(array) => self.array(array),
            Value::String(text) => self.quoted(text),
            Value::Boolean(value) => self.raw(if value { "true" } else { "false" }),
            Value::Null => self.raw("null"),
            Value::Int32(number) if self.format != Format::Canonical => self.raw(&number.to_string()),
            Value::Int64(number) if self.format == Format::Relaxed => self.raw(&number.to_string()),
            Value::Double(number) if self.format != Format::Canonical && number.is_finite() => {
                self.raw(&format!("{number:?}"));
            }
            _ if self.format == Format::Shell => self.shell(value),
            _ => self.typed(value),
        }
    }

    fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn separator(&mut self, first: &mut bool) {
        if !std::mem::take(first) {
            self.raw(if self.format == Format::Shell { ", " } else { "," });
        }
    }

    /// Writes a document; only the shell's format has a blank after the colon.
    fn document(&mut self, document: Document<'_>) {
        self.raw("{");
        let mut first = true;
        for element in document {
            self.separator(&mut first);
            self.name(element.name());
            self.raw(if self.format == Format::Shell { ": " } else { ":" });
            self.value(element.value());
        }
        self.raw("}");
    }

    fn array(&mut self, array: Array<'_>) {
        self.raw("[");
        let mut first = true;
        for value in array.iter() {
            self.separator(&mut first);
            self.value(value);
        }
        self.raw("]");
    }

    /// Writes a field name; the shell's format omits quotes around identifiers.
    fn name(&mut self, name: &str) {
        let mut bytes = name.bytes();
        let plain = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'$'))
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$'));
        if plain && self.format == Format::Shell {
            self.raw(name);
        } else {
            self.quoted(name);
        }
    }

    /// Writes a JSON string in double quotes.
    fn quoted(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.raw("\\\""),
                '\\' => self.raw("\\\\"),
                '\n' => self.raw("\\n"),
                '\t' => self.raw("\\t"),
                '\r' => self.raw("\\r"),
                c if c < ' ' || c == '\u{7f}' => {
                    // Writing to a String cannot fail.
                    let _ = write!(self.out, "\\u{:04x}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Writes `{"name":"text"}`.
    fn wrapped(&mut self, name: &str, text: &str) {
        self.raw("{");
        self.quoted(name);
        self.raw(":");
        self.quoted(text);
        self.raw("}");
    }

    /// Writes a value in the `{"$type": …}` notation of extended JSON.
    fn typed(&mut self, value: Value<'_>) {
        match value {
            Value::Int32(number) => self.wrapped("$numberInt", &number.to_string()),
            Value::Int64(number) => self.wrapped("$numberLong", &number.to_string()),
            Value::Double(number) => self.wrapped("$numberDouble", &double(number)),
            Value::Decimal128(number) => self.wrapped("$numberDecimal", &number.to_string()),
            Value::ObjectId(id) => self.wrapped("$oid", &id.to_string()),
            Value::Symbol(text) => self.wrapped("$symbol", text),
            Value::JavaScript(code) => self.wrapped("$code", code),
            Value::MinKey => self.raw("{\"$minKey\":1}"),
            Value::MaxKey => self.raw("{\"$maxKey\":1}"),
            Value::Undefined => self.raw("{\"$undefined\":true}"),
            Value::DateTime(millis) => self.date(millis),
            Value::Timestamp(time) => {
                let (seconds, increment) = (time >> 32, time & 0xFFFF_FFFF);
                self.raw(&format!("{{\"$timestamp\":{{\"t\":{seconds},\"i\":{increment}}}}}"));
            }
            Value::Binary { subtype, bytes } => {
                let text = encoding::base64(without_inner_length(subtype, bytes));
                self.raw(&format!("{{\"$binary\":{{\"base64\":\"{text}\",\"subType\":\"{subtype:02x}\"}}}}"));
            }
            Value::Regex { pattern, options } => {
                self.raw("{\"$regularExpression\":{\"pattern\":");
                self.quoted(&pattern);
                self.raw(",\"options\":");
                self.quoted(&options);
                self.raw("}}");
            }
            Value::DbPointer { namespace, id } => {
                self.raw("{\"$dbPointer\":{\"$ref\":");
                self.quoted(namespace);
                self.raw(&format!(",\"$id\":{{\"$oid\":\"{id}\"}}}}}}"));
            }
            Value::JavaScriptWithScope { code, scope } => {
                self.raw("{\"$code\":");
                self.quoted(code);
                self.raw(",\"$scope\":");
                self.document(scope);
                self.raw("}");
            }
            _ => {}
        }
    }

    fn date(&mut self, millis: i64) {
        let text = typed::format_millis(millis).filter(|_| (0..YEAR_10000).contains(&millis));
        match text {
            Some(text) if self.format == Format::Relaxed => self.wrapped("$date", &text),
            _ => self.raw(&format!("{{\"$date\":{{\"$numberLong\":\"{millis}\"}}}}")),
        }
    }

    /// Writes a value as the shell's constructor call.
    fn shell(&mut self, value: Value<'_>) {
        match value {
            Value::Double(number) => self.raw(&double(number)),
            Value::Int64(number) => self.raw(&format!("NumberLong({number})")),
            Value::Decimal128(number) => self.raw(&format!("NumberDecimal(\"{number}\")")),
            Value::ObjectId(id) => self.raw(&format!("ObjectId(\"{id}\")")),
            Value::Symbol(text) => self.call("Symbol", &[text]),
            Value::JavaScript(code) => self.call("Code", &[code]),
            Value::MinKey => self.raw("MinKey"),
            Value::MaxKey => self.raw("MaxKey"),
            Value::Undefined => self.raw("undefined"),
            Value::DateTime(millis) => match typed::format_millis(millis) {
                Some(text) => self.call("ISODate", &[&text]),
                None => self.raw(&format!("Date({millis})")),
            },
            Value::Timestamp(time) => {
                self.raw(&format!("Timestamp({}, {})", time >> 32, time & 0xFFFF_FFFF));
            }
            Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
                self.call("UUID", &[&encoding::uuid(bytes)]);
            }
            Value::Binary { subtype, bytes } => {
                let text = encoding::base64(without_inner_length(subtype, bytes));
                self.raw(&format!("BinData({subtype}, \"{text}\")"));
            }
            Value::Regex { pattern, options } => self.regex(&pattern, &options),
            Value::DbPointer { namespace, id } => {
                self.raw("DBPointer(");
                self.quoted(namespace);
                self.raw(&format!(", ObjectId(\"{id}\"))"));
            }
            Value::JavaScriptWithScope { code, scope } => {
                self.raw("Code(");
                self.quoted(code);
                self.raw(", ");
                self.document(scope);
                self.raw(")");
            }
            _ => {}
        }
    }

    /// Writes a call with string arguments.
    fn call(&mut self, name: &str, texts: &[&str]) {
        self.raw(name);
        self.raw("(");
        let mut first = true;
        for text in texts {
            self.separator(&mut first);
            self.quoted(text);
        }
        self.raw(")");
    }

    /// Writes a literal if it parses back unchanged, otherwise a call.
    fn regex(&mut self, pattern: &str, options: &str) {
        // An odd number of backslashes at the end would escape the closing slash.
        let open_escape = pattern.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1;
        let literal = !pattern.is_empty() && !pattern.contains(['/', '\n', '\0']) && !open_escape;
        if literal && options.bytes().all(|b| b.is_ascii_lowercase()) {
            self.raw(&format!("/{pattern}/{options}"));
        } else {
            self.call("RegExp", &[pattern, options]);
        }
    }
}

/// Returns the bytes of a binary without the length that the old subtype 2 repeats inside.
fn without_inner_length(subtype: u8, bytes: &[u8]) -> &[u8] {
    if subtype == 2 { bytes.get(4..).unwrap_or(&[]) } else { bytes }
}

fn double(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_string()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity".to_string() } else { "-Infinity".to_string() }
    } else {
        format!("{number:?}")
    }
}
