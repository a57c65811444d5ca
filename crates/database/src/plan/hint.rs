//! Hints: which index a client wants used.

use base::bson::{Document, DocumentBuf, Value};
use base::{Result, err};

/// An index named by its name or its key pattern, or the collection scan.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key pattern.
    Key(DocumentBuf),
    /// `{$natural: ±1}`: a collection scan, forwards or backwards.
    Natural {
        /// From the oldest document on.
        forward: bool,
    },
}

impl Hint {
    /// Reads the `hint` field of a command; an empty document is no hint.
    ///
    /// Errors: FailedToParse, BadValue.
    pub fn parse(value: Value<'_>) -> Result<Option<Hint>> {
        match value {
            Value::String(name) => Ok(Some(Hint::Name(name.to_string()))),
            Value::Document(key) if key.is_empty() => Ok(None),
            Value::Document(key) => Hint::parse_key(key).map(Some),
            _ => Err(err!(FailedToParse, "Hint must be a string or an object")),
        }
    }

    fn parse_key(key: Document<'_>) -> Result<Hint> {
        let Some(natural) = key.get("$natural") else { return Ok(Hint::Key(key.to_owned())) };
        match natural.as_number().map(|number| number.to_f64()) {
            Some(1.0) => Ok(Hint::Natural { forward: true }),
            Some(-1.0) => Ok(Hint::Natural { forward: false }),
            _ => Err(err!(BadValue, "$natural hint must be specified as 1 or -1")),
        }
    }
}
