//! Values as MongoDB's messages print them: `{ a: 1.0, b: [ "x", ObjectId('…') ] }`.
//!
//! The format is not JSON and is never parsed. Clients see it in error texts (`dup key: { x: "A" }`), so it matches
//! MongoDB's to the space. Long strings and binaries are cut.

use super::{Array, Document, DocumentBuf, Element, Value, ValueBuf};
use crate::encoding;
use std::fmt::{self, Display, Formatter, Write};

/// Strings longer than this are cut in messages.
const TEXT_MAX: usize = 160;
/// Length to which longer strings are cut, in bytes.
const TEXT_KEPT: usize = 150;
/// Binaries longer than this are cut in messages.
const BINARY_MAX: usize = 80;
/// Length to which longer binaries are cut, in bytes.
const BINARY_KEPT: usize = 70;

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Double(v) => double(v, f),
            Value::String(v) | Value::Symbol(v) => text(v, f),
            Value::Document(v) => v.fmt(f),
            Value::Array(v) => v.fmt(f),
            Value::Binary { subtype, bytes } => binary(subtype, bytes, f),
            Value::Undefined => f.write_str("undefined"),
            Value::ObjectId(v) => write!(f, "{v:?}"),
            Value::Boolean(v) => write!(f, "{v}"),
            Value::DateTime(v) => write!(f, "new Date({v})"),
            Value::Null => f.write_str("null"),
            Value::Regex { pattern, options } => write!(f, "/{pattern}/{options}"),
            Value::DbPointer { namespace, id } => write!(f, "DBRef('{namespace}',{id})"),
            Value::JavaScript(v) => f.write_str(v),
            Value::JavaScriptWithScope { code, scope } => write!(f, "CodeWScope( {code}, {scope})"),
            Value::Int32(v) => write!(f, "{v}"),
            Value::Timestamp(v) => write!(f, "Timestamp({}, {})", v >> 32, v & 0xFFFF_FFFF),
            Value::Int64(v) => write!(f, "{v}"),
            Value::Decimal128(v) => write!(f, "{v}"),
            Value::MinKey => f.write_str("MinKey"),
            Value::MaxKey => f.write_str("MaxKey"),
        }
    }
}

impl Display for Document<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("{}");
        }
        for (position, element) in self.iter().enumerate() {
            f.write_str(if position == 0 { "{ " } else { ", " })?;
            element.fmt(f)?;
        }
        f.write_str(" }")
    }
}

impl Display for Array<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("[]");
        }
        for (position, value) in self.iter().enumerate() {
            f.write_str(if position == 0 { "[ " } else { ", " })?;
            value.fmt(f)?;
        }
        f.write_str(" ]")
    }
}

impl Display for Element<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.value())
    }
}

impl Display for DocumentBuf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl Display for ValueBuf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Prints a double with 16 significant digits; integral values end in `.0`.
fn double(value: f64, f: &mut Formatter<'_>) -> fmt::Result {
    if value.is_nan() {
        return f.write_str("nan");
    }
    if value.is_infinite() {
        return f.write_str(if value < 0.0 { "-inf" } else { "inf" });
    }
    let scientific = format!("{value:.15e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return f.write_str(&scientific) };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = format!("{value:.*}", (15 - exponent).max(0) as usize);
        return match trim_zeros(&fixed) {
            integral if !integral.contains('.') => write!(f, "{integral}.0"),
            fraction => f.write_str(fraction),
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Prints a quoted string with escapes. A long string is cut at a character boundary and ends in `...`.
fn text(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let mut end = text.len();
    if end >= TEXT_MAX {
        end = TEXT_KEPT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
    }
    f.write_char('"')?;
    for c in text.get(..end).unwrap_or(text).chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{c}' => f.write_str("\\f")?,
            c if (c as u32) < 0x20 || c as u32 == 0x7F => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_str(if end < text.len() { "...\"" } else { "\"" })
}

/// Prints a UUID as `UUID("…")` and any other binary as `BinData(subtype, HEX)`.
fn binary(subtype: u8, bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    if subtype == 4 && bytes.len() == 16 {
        return write!(f, "UUID(\"{}\")", encoding::uuid(bytes));
    }
    let (shown, end) = match bytes.get(..BINARY_KEPT).filter(|_| bytes.len() > BINARY_MAX) {
        Some(start) => (start, "...)"),
        None => (bytes, ")"),
    };
    write!(f, "BinData({subtype}, {}{end}", encoding::hex_upper(shown))
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, ObjectId};
    use super::*;

    #[test]
    fn documents_print_as_in_mongodb_messages() {
        let mut builder = Builder::new();
        builder.append(c"a", 4.0).append(c"b", 1i32).begin_array(c"c").push("x\n").push(true).end();
        builder.begin_document(c"d").end().begin_array(c"e").end();
        builder.append(c"f", ObjectId([0xAB; 12])).append(c"g", Value::Null);
        assert_eq!(
            builder.finish().to_string(),
            r#"{ a: 4.0, b: 1, c: [ "x\n", true ], d: {}, e: [], f: ObjectId('abababababababababababab'), g: null }"#
        );
    }

    #[test]
    fn doubles_keep_sixteen_digits() {
        let print = |v: f64| Value::Double(v).to_string();
        assert_eq!(print(1.0), "1.0");
        assert_eq!(print(-0.5), "-0.5");
        assert_eq!(print(0.1), "0.1");
        assert_eq!(print(1e20), "1e+20");
        assert_eq!(print(1.5e-7), "1.5e-07");
        assert_eq!(print(123456789.25), "123456789.25");
        assert_eq!(print(f64::NAN), "nan");
        assert_eq!(print(0.0), "0.0");
        assert_eq!(print(-0.0), "-0.0");
    }

    #[test]
    fn long_strings_are_cut() {
        let long = "é".repeat(200);
        let printed = Value::String(&long).to_string();
        assert!(printed.ends_with("...\"") && printed.len() < 160, "{printed}");
    }
}
