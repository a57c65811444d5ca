//! `$collStats`: sizes, counts and latencies of the collection.
//!
//! ```text
//! {$collStats: {
//!     latencyStats: {histograms: <boolean>},
//!     storageStats: {scale: <number>},
//!     count: {},
//!     queryExecStats: {},
//! }}
//! ```
//!
//! All parts are optional, and null means an absent part.

use super::external::External;
use base::bson::{Document, Element, Value};
use base::{Error, Result, bail, err};

/// The requested parts of the statistics.
#[derive(Clone, Debug, Default)]
pub struct CollStats {
    /// Latencies; true adds histograms.
    pub latencies: Option<bool>,
    /// Sizes, divided by this number.
    pub scale: Option<i64>,
    /// The number of documents.
    pub count: bool,
    /// The number of collection scans.
    pub scans: bool,
}

/// Parses `$collStats`.
///
/// Errors: 5447000 unless the options are a document, TypeMismatch, 40415 and BadValue for invalid options,
/// 31170 for an unexpected argument.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let Value::Document(options) = spec.value() else {
        bail!(5447000, "$collStats must take a nested object but found: {spec}");
    };
    Ok(External::CollStats(CollStats::parse(options)?))
}

/// Whether only the count is requested, which the stable API allows.
pub(crate) fn only_counts(options: Document<'_>) -> bool {
    options.iter().all(|part| part.name() == "count")
}

impl CollStats {
    /// Parses the requested parts, each an object.
    fn parse(spec: Document<'_>) -> Result<CollStats> {
        let mut asked = CollStats::default();
        for element in spec {
            match element.name() {
                "count" | "storageStats" | "latencyStats" | "queryExecStats"
                    if element.value().is_nullish() => {}
                "count" => asked.count = empty(&element)?,
                "queryExecStats" => asked.scans = empty(&element)?,
                "storageStats" => {
                    asked.scale = Some(parse_storage_stats(object(&element)?)?);
                }
                "latencyStats" => {
                    asked.latencies = Some(parse_latency_stats(object(&element)?)?);
                }
                name => bail!(40415, "BSON field '$collStats.{name}' is an unknown field."),
            }
        }
        Ok(asked)
    }
}

/// Returns the divisor of sizes. The other options concern sections of WiredTiger, and locks that this server does not
/// take. MongoDB ignores unknown options here.
fn parse_storage_stats(argument: Document<'_>) -> Result<i64> {
    let mut scale = 1;
    for element in argument {
        match (element.name(), element.value()) {
            ("scale" | "verbose" | "waitForLock" | "numericOnly", value) if value.is_nullish() => {}
            ("scale", value) => scale = parse_scale(value)?,
            (name @ ("verbose" | "waitForLock" | "numericOnly"), value) if value.as_bool().is_none() => {
                return Err(Error::wrong_type(
                    format_args!("$collStats.storageStats.{name}"),
                    element.kind(),
                    "bool",
                ));
            }
            _ => {}
        }
    }
    Ok(scale)
}

/// Whether histograms are requested.
fn parse_latency_stats(argument: Document<'_>) -> Result<bool> {
    let mut histograms = false;
    for element in argument {
        match (element.name(), element.value()) {
            ("histograms", Value::Boolean(enabled)) => histograms = enabled,
            ("histograms", _) => {
                bail!(
                    TypeMismatch,
                    "Field 'histograms' should be a boolean value, but found: {}",
                    element.kind().alias()
                );
            }
            (name, _) => {
                bail!(40415, "BSON field '$collStats.latencyStats.{name}' is an unknown field.");
            }
        }
    }
    Ok(histograms)
}

/// Checks a part without arguments. Errors: TypeMismatch, 31170 for an argument.
fn empty(element: &Element<'_>) -> Result<bool> {
    match object(element)?.is_empty() {
        true => Ok(true),
        false => Err(err!(31170, "{} argument must be an empty object", element.name())),
    }
}

/// Returns the argument of an option. Errors: TypeMismatch unless it is a document.
fn object<'a>(element: &Element<'a>) -> Result<Document<'a>> {
    element.value().as_document().ok_or_else(|| {
        Error::wrong_type(format_args!("$collStats.{}", element.name()), element.kind(), "object")
    })
}

/// Parses the divisor of sizes, at least 1. Errors: TypeMismatch and BadValue.
fn parse_scale(scale: Value<'_>) -> Result<i64> {
    let number = scale.as_number().ok_or_else(|| {
        Error::wrong_type("$collStats.storageStats.scale", scale.kind(), "[long, int, decimal, double")
    })?;
    // A greater value counts as the maximum of an int32.
    match number.to_i64_coerced().min(i64::from(i32::MAX)) {
        scale if scale < 1 => {
            Err(err!(BadValue, "BSON field 'scale' value must be >= 1, actual value '{scale}'"))
        }
        scale => Ok(scale),
    }
}
