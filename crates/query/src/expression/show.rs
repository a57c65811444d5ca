//! Values in messages of aggregation errors: `[1, "a", {b: 1.5}]`.

use super::date::calendar::Civil;
use base::bson::{Document, Value};
use base::encoding;
use std::fmt::Write;

/// Formats an optional value as MongoDB's aggregation messages do.
pub(crate) fn optional(value: Option<Value<'_>>) -> String {
    value.map_or_else(|| "MISSING".to_string(), self::value)
}

/// Formats a value as MongoDB's aggregation messages do.
pub(crate) fn value(value: Value<'_>) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// Formats a document as MongoDB's aggregation messages do.
pub(crate) fn document(document: Document<'_>) -> String {
    value(Value::Document(document))
}

/// Appends a value in the notation of MongoDB's C++ messages.
fn write(value: Value<'_>, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Double(v) => write!(out, "{}", double(v)),
        Value::String(v) | Value::Symbol(v) => write!(out, "\"{v}\""),
        Value::Document(v) => return fields(v, out),
        Value::Array(v) => return elements(v.iter(), out),
        Value::Binary { subtype, bytes } => {
            write!(out, "BinData({subtype}, \"{}\")", encoding::hex_upper(bytes))
        }
        Value::Undefined => write!(out, "undefined"),
        Value::ObjectId(v) => write!(out, "{v}"),
        Value::Boolean(v) => write!(out, "{v}"),
        Value::DateTime(v) => write!(out, "{}", date(v)),
        Value::Null => write!(out, "null"),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { namespace, id } => write!(out, "DBRef(\"{namespace}\", {id})"),
        Value::JavaScript(code) => write!(out, "Code(\"{code}\")"),
        Value::JavaScriptWithScope { code, scope } => {
            write!(out, "CodeWScope(\"{code}\", {})", document(scope))
        }
        Value::Int32(v) => write!(out, "{v}"),
        Value::Timestamp(v) => write!(out, "Timestamp({}, {})", v >> 32, v & 0xFFFF_FFFF),
        Value::Int64(v) => write!(out, "{v}"),
        Value::Decimal128(v) => write!(out, "{v}"),
        Value::MinKey => write!(out, "MinKey"),
        Value::MaxKey => write!(out, "MaxKey"),
    };
}

/// Appends a document as `{name: value, …}`.
fn fields(document: Document<'_>, out: &mut String) {
    out.push('{');
    for (index, element) in document.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        out.push_str(element.name());
        out.push_str(": ");
        write(element.value(), out);
    }
    out.push('}');
}

fn elements<'a>(values: impl Iterator<Item = Value<'a>>, out: &mut String) {
    out.push('[');
    for (index, value) in values.enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        write(value, out);
    }
    out.push(']');
}

/// Formats a date as `2020-01-02T03:04:05.006Z`, or as milliseconds outside the printable years.
pub(crate) fn date(millis: i64) -> String {
    let Civil { year, month, day, hour, minute, second, milli } = Civil::from_local(millis);
    if !(0..=9999).contains(&year) {
        return millis.to_string();
    }
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Formats a double with six significant digits, the default of C++ streams.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    general(value, 6)
}

/// Implements C's `%.{digits}g`: the shorter of fixed and scientific, without trailing zeros.
pub(crate) fn general(value: f64, digits: usize) -> String {
    let scientific = format!("{:.*e}", digits - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.decimals$}")).to_string()
}

/// Formats a finite double with the fewest digits that parse to it again; scientific below 1e-4 and from 1e16 on.
pub(crate) fn shortest(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => value.to_string(),
        exponent if exponent < 0 => format!("{mantissa}e-{:02}", -exponent),
        exponent => format!("{mantissa}e+{exponent:02}"),
    }
}

/// Formats a timestamp: its seconds as C's `ctime` without weekday and year, and its increment.
pub(crate) fn ctime(time: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Civil { month, day, hour, minute, second, .. } =
        Civil::from_local(i64::from((time >> 32) as u32) * 1000);
    let month = usize::try_from(month).ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    format!("{} {day:2} {hour:02}:{minute:02}:{second:02}:{}", month.unwrap_or(&""), time as u32)
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_c_streams_do() {
        assert_eq!(double(1.5), "1.5");
        assert_eq!(double(4_294_967_296.0), "4.29497e+09");
        assert_eq!(double(1e-7), "1e-07");
        assert_eq!(double(100_000.0), "100000");
        assert_eq!(double(-0.0), "-0");
    }

    #[test]
    fn dates_print_in_utc() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(-1), "1969-12-31T23:59:59.999Z");
    }
}
