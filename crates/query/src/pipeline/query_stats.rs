//! `$queryStats`: statistics of query shapes. As in MongoDB with its default sample rate of 0, no query is recorded, so
//! the stage returns no documents.

use super::external::External;
use base::bson::{Element, Value};
use base::{Error, Result, bail};

/// Errors: FailedToParse unless the options are a document; 40415 and TypeMismatch for bad options; 40414 for
/// `transformIdentifiers` without an algorithm; BadValue for an unknown algorithm.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let name = spec.name();
    let Value::Document(options) = spec.value() else {
        let found = spec.value();
        bail!(FailedToParse, "{name} value must be an object. Found: {}", found.kind().alias());
    };
    for option in options {
        let field = option.name();
        if field != "transformIdentifiers" {
            bail!(40415, "BSON field '{name}.{field}' is an unknown field.");
        }
        let Value::Document(transform) = option.value() else {
            return Err(Error::wrong_type(format_args!("{name}.{field}"), option.kind(), "object"));
        };
        let Some(algorithm) = transform.get("algorithm") else {
            bail!(40414, "BSON field '{name}.{field}.algorithm' is missing but a required field");
        };
        match algorithm.as_str() {
            Some("hmac-sha-256") => {}
            Some(other) => {
                bail!(
                    BadValue,
                    "Enumeration value '{other}' for field '{name}.{field}.algorithm' is not a valid value."
                );
            }
            None => {
                return Err(Error::wrong_type(
                    format_args!("{name}.{field}.algorithm"),
                    algorithm.kind(),
                    "string",
                ));
            }
        }
    }
    Ok(External::QueryStats)
}
