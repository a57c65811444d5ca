//! The error type of all layers above storage: MongoDB's code, a message, structured details.

use crate::bson::{Document, DocumentBuf, Type};
use crate::codes::ErrorCode;
use std::fmt;
use std::ops::RangeInclusive;

/// A failure as MongoDB would report it.
#[derive(Clone)]
pub struct Error(Box<Inner>);

/// The content of an error. Boxing keeps results of fallible functions small.
#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    info: Option<DocumentBuf>,
}

/// Result type of all operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns the number in a field if it is within bounds.
///
/// Errors: BadValue, also for NaN.
pub fn check_bounds<T: PartialOrd + fmt::Display>(
    path: impl fmt::Display,
    value: T,
    bounds: RangeInclusive<T>,
) -> Result<T> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (sign, bound) = if value > *bounds.end() { ("<=", bounds.end()) } else { (">=", bounds.start()) };
    Err(crate::err!(BadValue, "BSON field '{path}' value must be {sign} {bound}, actual value '{value}'"))
}

impl Error {
    /// Builds an error from a code and a message. [`err!`](crate::err) formats the message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { code, message: message.into(), info: None }))
    }

    /// Returns TypeMismatch for a field of another type. `expected` is the name of a type, or `[` and several names.
    pub fn wrong_type(path: impl fmt::Display, found: Type, expected: &str) -> Error {
        let (plural, end) = if expected.starts_with('[') { ("s", "]") } else { ("", "") };
        let found = found.alias();
        crate::err!(
            TypeMismatch,
            "BSON field '{path}' is the wrong type '{found}', expected type{plural} '{expected}'{end}"
        )
    }

    /// Returns the error for a field that is not known.
    pub fn unknown_field(path: impl fmt::Display) -> Error {
        crate::err!(40415, "BSON field '{path}' is an unknown field.")
    }

    /// Returns the error for a field that is required.
    pub fn missing_field(path: impl fmt::Display) -> Error {
        crate::err!(40414, "BSON field '{path}' is missing but a required field")
    }

    /// Returns the error for a value that is none of a field's choices.
    pub fn unknown_value(path: impl fmt::Display, value: impl fmt::Display) -> Error {
        crate::err!(BadValue, "Enumeration value '{value}' for field '{path}' is not a valid value.")
    }

    /// Adds fields to the error reply, such as keyPattern and keyValue of a duplicate key or errInfo of a failed
    /// validation.
    pub fn with_info(mut self, info: DocumentBuf) -> Error {
        self.0.info = Some(info);
        self
    }

    /// Prefixes the message with `context`, as MongoDB does: `context :: caused by :: message`.
    pub fn context(mut self, context: &str) -> Error {
        self.0.message = format!("{context} :: caused by :: {}", self.0.message);
        self
    }

    /// MongoDB's code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Additional fields of the error reply.
    pub fn info(&self) -> Option<Document<'_>> {
        self.0.info.as_ref().map(DocumentBuf::view)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.0.code.name(), self.0.code.number(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Builds an [`Error`]: `err!(BadValue, "…{}", x)` with a name of MongoDB's table, or `err!(40324, "…")` with the
/// number of an unnamed assertion.
#[macro_export]
macro_rules! err {
    ($code:ident, $($message:tt)+) => {
        $crate::Error::new($crate::ErrorCode::$code, ::std::format!($($message)+))
    };
    ($number:literal, $($message:tt)+) => {
        $crate::Error::new($crate::ErrorCode::Location($number), ::std::format!($($message)+))
    };
}

/// Returns an [`Error`] from the function: `return Err(err!(…))`.
#[macro_export]
macro_rules! bail {
    ($($error:tt)+) => {
        return ::std::result::Result::Err($crate::err!($($error)+))
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_forms_of_the_macro() {
        let name = "a";
        let named = err!(BadValue, "unknown operator: {name}");
        assert_eq!(named.to_string(), "BadValue (2): unknown operator: a");
        let unnamed = err!(40324, "field '{}' is unknown", name);
        assert_eq!(unnamed.code().name(), "Location40324");
        assert_eq!(unnamed.context("parsing").message(), "parsing :: caused by :: field 'a' is unknown");
    }
}
