//! Conversion of numbers, dates and ids to text.

use super::super::show;
use base::bson::Value;

/// Returns the text that `$toString` prints; `None` for types without a text form.
pub(in super::super) fn to_text(value: Value<'_>) -> Option<String> {
    Some(match value {
        Value::String(text) | Value::Symbol(text) => text.to_string(),
        Value::Double(number) => double(number),
        Value::Boolean(value) => value.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Decimal128(number) => number.to_string(),
        Value::DateTime(millis) => show::date(millis),
        Value::Timestamp(time) => show::value(Value::Timestamp(time)),
        Value::ObjectId(id) => id.to_string(),
        _ => return None,
    })
}

/// Prints a double with the fewest digits that parse to it again; scientific below 1e-4 and from 1e16 on.
fn double(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_string()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_string()
    } else {
        show::shortest(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_have_as_many_digits_as_they_need() {
        assert_eq!(to_text(Value::Double(0.1)).as_deref(), Some("0.1"));
        assert_eq!(to_text(Value::Double(2.0)).as_deref(), Some("2"));
        assert_eq!(to_text(Value::Double(0.1 + 0.2)).as_deref(), Some("0.30000000000000004"));
        assert_eq!(to_text(Value::Double(1e15)).as_deref(), Some("1000000000000000"));
        assert_eq!(to_text(Value::Double(-9e-5)).as_deref(), Some("-9e-05"));
        assert_eq!(to_text(Value::Double(5e-324)).as_deref(), Some("5e-324"));
        assert_eq!(to_text(Value::Double(1e21)).as_deref(), Some("1e+21"));
        assert_eq!(to_text(Value::Double(f64::NAN)).as_deref(), Some("NaN"));
        assert_eq!(to_text(Value::Null), None);
    }
}
