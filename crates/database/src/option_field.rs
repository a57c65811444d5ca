//! The types of the create command's fields, checked.

use base::bson::{Document, Value};
use base::{Result, err};

/// A boolean, or a number that stands for one. Errors: TypeMismatch.
pub(crate) fn flag(name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(flag) => Ok(flag),
        _ => value.as_number().map(|number| !number.is_zero()).ok_or_else(|| {
            err!(
                TypeMismatch,
                "BSON field 'create.{name}' is the wrong type '{}', expected types '[bool, long, int, decimal, double']",
                value.kind().alias()
            )
        }),
    }
}

/// A document. Errors: TypeMismatch.
pub(crate) fn object<'a>(name: &str, value: Value<'a>) -> Result<Document<'a>> {
    value.as_document().ok_or_else(|| wrong_type(name, value, "object"))
}

/// A string. Errors: TypeMismatch.
pub(crate) fn text<'a>(name: &str, value: Value<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(name, value, "string"))
}

/// A whole number; a size has bounds. Errors: TypeMismatch, BadValue.
pub(crate) fn count(name: &str, value: Value<'_>) -> Result<i64> {
    let number = value.as_number().ok_or_else(|| {
        err!(
            TypeMismatch,
            "BSON field 'create.{name}' is the wrong type '{}', expected types '[long, int, decimal, double]'",
            value.kind().alias()
        )
    })?;
    let size = number.to_i64_coerced();
    match name {
        "size" if size < 0 => Err(err!(BadValue, "size has to be >= 0")),
        "max" if size > i64::from(i32::MAX) => {
            Err(err!(BadValue, "max in a capped collection has to be < 2^31 or not set"))
        }
        "size" if size > 1 << 50 => Err(err!(BadValue, "size cannot exceed 1 PB")),
        _ => Ok(size),
    }
}

/// The error for a value of another type.
pub(crate) fn wrong_type(name: &str, value: Value<'_>, expected: &str) -> base::Error {
    err!(
        TypeMismatch,
        "BSON field 'create.{name}' is the wrong type '{}', expected type '{expected}'",
        value.kind().alias()
    )
}
