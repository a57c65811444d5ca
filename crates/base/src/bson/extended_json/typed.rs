//! Typed values in text: extended JSON's documents such as `{"$oid": "…"}`, the shell's constants and constructors
//! (`MinKey`, `NumberLong(1)`, `ISODate('…')`), and dates as ISO 8601 text in the proleptic Gregorian calendar.

use crate::bson::{Decimal128, Document, ObjectId, RegexText, Value, ValueBuf};
use crate::calendar::{days_in_month, from_days, to_days};
use crate::encoding::{from_base64, from_hex, from_uuid};

/// Names that make a document a typed value in first position.
// tidy: sorted
const TYPE_NAMES: [&str; 17] = [
    "$binary",
    "$code",
    "$date",
    "$dbPointer",
    "$maxKey",
    "$minKey",
    "$numberDecimal",
    "$numberDouble",
    "$numberInt",
    "$numberLong",
    "$oid",
    "$regularExpression",
    "$scope",
    "$symbol",
    "$timestamp",
    "$undefined",
    "$uuid",
];

pub(super) fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.binary_search(&name).is_ok()
}

/// Returns the value that the document represents; `None` if its shape does not match. Nested typed values have been
/// converted already.
pub(super) fn from_document(document: Document<'_>) -> Option<ValueBuf> {
    let first = document.first()?;
    let expected = if matches!(first.name(), "$code" | "$binary") { 2 } else { 1 };
    if document.iter().count() > expected {
        return None;
    }
    let value = first.value();
    let value = match first.name() {
        "$binary" => return from_binary(document, value),
        "$code" => match document.get("$scope") {
            Some(scope) => Value::JavaScriptWithScope { code: value.as_str()?, scope: scope.as_document()? },
            None if document.iter().count() == 1 => Value::JavaScript(value.as_str()?),
            None => return None,
        },
        "$date" => match value {
            Value::String(text) => Value::DateTime(parse_millis(text)?),
            _ => Value::DateTime(value.as_i64()?),
        },
        "$dbPointer" => {
            let pointer = value.as_document()?;
            let Value::ObjectId(id) = pointer.get("$id")? else { return None };
            Value::DbPointer { namespace: pointer.get("$ref")?.as_str()?, id }
        }
        "$maxKey" => Value::MaxKey,
        "$minKey" => Value::MinKey,
        "$numberDecimal" => Value::Decimal128(Decimal128::parse(value.as_str()?)?),
        "$numberDouble" => Value::Double(double(value.as_str()?)?),
        "$numberInt" => Value::Int32(value.as_str()?.parse().ok()?),
        "$numberLong" => Value::Int64(value.as_str()?.parse().ok()?),
        "$oid" => Value::ObjectId(ObjectId::parse(value.as_str()?)?),
        "$regularExpression" => {
            let parts = value.as_document()?;
            regex(parts.get("pattern")?.as_str()?, parts.get("options")?.as_str()?)?
        }
        "$symbol" => Value::Symbol(value.as_str()?),
        "$timestamp" => {
            let parts = value.as_document()?;
            timestamp(parts.get("t")?.as_i64()?, parts.get("i")?.as_i64()?)?
        }
        "$undefined" => Value::Undefined,
        "$uuid" => {
            return Some(Value::Binary { subtype: 4, bytes: &from_uuid(value.as_str()?)? }.to_owned());
        }
        _ => return None,
    };
    Some(value.to_owned())
}

/// Reads the present form, a document, and the older form with a `$type` field.
fn from_binary(document: Document<'_>, value: Value<'_>) -> Option<ValueBuf> {
    let (text, subtype) = match value.as_document() {
        Some(parts) => (parts.get("base64")?, parts.get("subType")?),
        None => (value, document.get("$type")?),
    };
    let subtype = u8::from_str_radix(subtype.as_str()?, 16).ok()?;
    binary(subtype, &from_base64(text.as_str()?)?)
}

/// Builds a binary; the old subtype 2 repeats its length inside.
pub(super) fn binary(subtype: u8, bytes: &[u8]) -> Option<ValueBuf> {
    if subtype != 2 {
        return Some(Value::Binary { subtype, bytes }.to_owned());
    }
    let mut inner = u32::try_from(bytes.len()).ok()?.to_le_bytes().to_vec();
    inner.extend_from_slice(bytes);
    Some(Value::Binary { subtype, bytes: &inner }.to_owned())
}

/// Builds a regular expression; `None` if a part contains NUL.
pub(super) fn regex<'v>(pattern: &'v str, options: &'v str) -> Option<Value<'v>> {
    Some(Value::Regex { pattern: RegexText::new(pattern).ok()?, options: RegexText::new(options).ok()? })
}

/// Parses a double in the syntax of `$numberDouble`.
pub(super) fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => text
            .parse()
            .ok()
            .filter(|_| text.bytes().all(|b| !b.is_ascii_alphabetic() || matches!(b, b'e' | b'E'))),
    }
}

/// Parses a bare number as the narrowest integer that holds it. Numbers with a point or an exponent, and larger
/// numbers, are doubles.
pub(super) fn number(text: &str) -> Option<Value<'static>> {
    if let Ok(integer) = text.parse::<i32>() {
        return Some(Value::Int32(integer));
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Value::Int64(integer));
    }
    double(text).map(Value::Double)
}

/// Returns the value of a constant.
pub(super) fn constant(word: &str) -> Option<Value<'static>> {
    Some(match word {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        "null" => Value::Null,
        "undefined" => Value::Undefined,
        "NaN" => Value::Double(f64::NAN),
        "Infinity" => Value::Double(f64::INFINITY),
        "MinKey" => Value::MinKey,
        "MaxKey" => Value::MaxKey,
        _ => return None,
    })
}

/// Returns the value of a constructor call; `None` for an unknown constructor or wrong arguments.
pub(super) fn construct(name: &str, arguments: &[ValueBuf]) -> Option<ValueBuf> {
    let arguments: Vec<_> = arguments.iter().map(ValueBuf::view).collect();
    let value = match (name, arguments.as_slice()) {
        ("MinKey", []) => Value::MinKey,
        ("MaxKey", []) => Value::MaxKey,
        ("ObjectId", [Value::String(hex)]) => Value::ObjectId(ObjectId::parse(hex)?),
        ("NumberInt" | "Int32", [number]) => Value::Int32(integer(*number)?.try_into().ok()?),
        ("NumberLong" | "Long", [number]) => Value::Int64(integer(*number)?),
        ("Double", [number]) => Value::Double(double_of(*number)?),
        ("NumberDecimal" | "Decimal128", [number]) => Value::Decimal128(decimal(*number)?),
        ("ISODate" | "Date", [Value::String(text)]) => Value::DateTime(parse_millis(text)?),
        ("ISODate" | "Date", [number]) => Value::DateTime(number.as_i64()?),
        ("Timestamp", [seconds, increment]) => timestamp(seconds.as_i64()?, increment.as_i64()?)?,
        ("UUID", [Value::String(hex)]) => {
            return Some(Value::Binary { subtype: 4, bytes: &from_uuid(hex)? }.to_owned());
        }
        ("BinData", [subtype, Value::String(text)]) => return binary_of(*subtype, from_base64(text)?),
        ("HexData", [subtype, Value::String(text)]) => return binary_of(*subtype, from_hex(text)?),
        ("RegExp", [Value::String(pattern)]) => regex(pattern, "")?,
        ("RegExp", [Value::String(pattern), Value::String(options)]) => regex(pattern, options)?,
        ("Code", [Value::String(code)]) => Value::JavaScript(code),
        ("Code", [Value::String(code), Value::Document(scope)]) => {
            Value::JavaScriptWithScope { code, scope: *scope }
        }
        ("Symbol", [Value::String(text)]) => Value::Symbol(text),
        ("DBPointer", [Value::String(namespace), Value::ObjectId(id)]) => {
            Value::DbPointer { namespace, id: *id }
        }
        _ => return None,
    };
    Some(value.to_owned())
}

fn integer(value: Value<'_>) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn double_of(value: Value<'_>) -> Option<f64> {
    value.as_number().map(|number| number.to_f64()).or_else(|| double(value.as_str()?))
}

fn decimal(value: Value<'_>) -> Option<Decimal128> {
    value.as_number().map(|number| number.to_decimal()).or_else(|| Decimal128::parse(value.as_str()?))
}

/// Builds a timestamp from seconds and increment, each 32 bits.
pub(super) fn timestamp(seconds: i64, increment: i64) -> Option<Value<'static>> {
    let (seconds, increment) = (u32::try_from(seconds).ok()?, u32::try_from(increment).ok()?);
    Some(Value::Timestamp(u64::from(seconds) << 32 | u64::from(increment)))
}

fn binary_of(subtype: Value<'_>, bytes: Vec<u8>) -> Option<ValueBuf> {
    binary(subtype.as_i64()?.try_into().ok()?, &bytes)
}

const DAY_MILLIS: i64 = 86_400_000;

/// Formats `2024-02-29T12:34:56.789Z`, without milliseconds if they are zero. `None` outside the years 1 to 9999, which
/// this format cannot hold.
pub fn format_millis(millis: i64) -> Option<String> {
    let (day, rest) = (millis.div_euclid(DAY_MILLIS), millis.rem_euclid(DAY_MILLIS));
    let (year, month, day) = from_days(day);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let (seconds, fraction) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Parses a date and returns milliseconds since 1970; `None` if the text is not a date.
///
/// The format is `YYYY-MM-DD`, optionally followed by `T` or a space, `HH:MM`, `:SS`, a fraction of which three digits
/// count, and `Z` or an offset.
pub fn parse_millis(text: &str) -> Option<i64> {
    let mut reader = Reader(text.as_bytes());
    let year = reader.digits(4)?;
    reader.expect(b'-')?;
    let month = reader.digits(2).filter(|month| (1..=12).contains(month))?;
    reader.expect(b'-')?;
    let day = reader.digits(2).filter(|&day| day >= 1 && day <= days_in_month(year, month))?;
    let mut millis = to_days(year, month, day)? * DAY_MILLIS;
    if reader.skip(b'T') || reader.skip(b' ') {
        millis += reader.time()?;
        millis -= reader.offset()?;
    }
    reader.0.is_empty().then_some(millis)
}

/// Reads a date string from the front.
struct Reader<'t>(&'t [u8]);

impl Reader<'_> {
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip(byte).then_some(())
    }

    fn time(&mut self) -> Option<i64> {
        let hour = self.digits(2).filter(|&hour| hour < 24)?;
        self.expect(b':')?;
        let minute = self.digits(2).filter(|&minute| minute < 60)?;
        let second = if self.skip(b':') { self.digits(2).filter(|&second| second < 60)? } else { 0 };
        let fraction = if self.skip(b'.') { self.fraction()? } else { 0 };
        Some((hour * 3600 + minute * 60 + second) * 1000 + fraction)
    }

    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let value = self.digits(count.min(3)).filter(|_| count > 0)?;
        self.digits(count.saturating_sub(3).min(15))?;
        Some(value * 10i64.pow(3 - count.min(3) as u32))
    }

    /// Parses the offset from UTC and returns milliseconds.
    fn offset(&mut self) -> Option<i64> {
        if self.0.is_empty() || self.skip(b'Z') {
            return Some(0);
        }
        let sign = if self.skip(b'-') { -1 } else { i64::from(self.skip(b'+')) };
        let hours = self.digits(2)?;
        self.skip(b':');
        let minutes = if self.0.is_empty() { 0 } else { self.digits(2)? };
        (sign != 0).then_some(sign * (hours * 60 + minutes) * 60_000)
    }
}
