//! The types of the create command's fields, checked.

use base::bson::{Document, Value};
use base::{Error, Result, bail, err};

/// A boolean, or a number that stands for one. Errors: TypeMismatch.
pub(crate) fn flag(name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(flag) => Ok(flag),
        _ => value.as_number().map(|number| !number.is_zero()).ok_or_else(|| {
            Error::wrong_type(
                format_args!("create.{name}"),
                value.kind(),
                "[bool, long, int, decimal, double",
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

/// A whole number. Errors: TypeMismatch.
pub(crate) fn count(name: &str, value: Value<'_>) -> Result<i64> {
    let number = value.as_number().ok_or_else(|| {
        err!(
            TypeMismatch,
            "BSON field 'create.{name}' is the wrong type '{}', expected types '[long, int, decimal, double]'",
            value.kind().alias()
        )
    })?;
    Ok(number.to_i64_coerced())
}

/// Maximum size of a capped collection in bytes.
pub(crate) const CAPPED_SIZE_MAX: i64 = 1 << 50;

/// Returns the size of a capped collection in bytes. Errors: BadValue.
pub(crate) fn capped_size(size: i64) -> Result<i64> {
    match size {
        ..0 => Err(err!(BadValue, "size has to be >= 0")),
        _ if size > CAPPED_SIZE_MAX => Err(err!(BadValue, "size cannot exceed 1 PB")),
        _ => Ok(size.max(1)),
    }
}

/// Returns the greatest number of documents in a capped collection, as MongoDB stores it. Errors: BadValue.
pub(crate) fn capped_max(max: i64) -> Result<i64> {
    match max > i64::from(i32::MAX) {
        true => Err(err!(BadValue, "max in a capped collection has to be < 2^31 or not set")),
        false => Ok(if max > 0 { max } else { i64::from(i32::MAX) }),
    }
}

/// Checks the options of storage engines, which are stored and have no effect. The known engine is WiredTiger.
///
/// Errors: InvalidOptions for an unknown engine or field, BadValue for an invalid value, FailedToParse for a NUL byte.
pub(crate) fn check_storage_engine(engines: Document<'_>) -> Result<()> {
    for engine in engines {
        let name = engine.name();
        if name != "wiredTiger" {
            bail!(InvalidOptions, "{name} is not a registered storage engine for this server");
        }
        let Value::Document(options) = engine.value() else {
            bail!(BadValue, "'storageEngine.{name}' has to be an embedded document.");
        };
        for option in options {
            match (option.name(), option.value()) {
                ("configString", Value::String(config)) => check_config(config)?,
                ("configString", _) => bail!(TypeMismatch, "'configString' must be a string."),
                (other, _) => {
                    bail!(InvalidOptions, "'{other}' is not a supported option in {name} options");
                }
            }
        }
    }
    Ok(())
}

/// Checks the names in a configuration of WiredTiger: `name=value` or `name=(…)`, separated by commas.
fn check_config(config: &str) -> Result<()> {
    if config.contains('\0') {
        bail!(FailedToParse, "'configString' must not contain NUL bytes");
    }
    let mut depth = 0usize;
    let options = config.split(|c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for option in options.map(str::trim).filter(|option| !option.is_empty()) {
        let name = option.split(['=', ':']).next().unwrap_or_default().trim();
        if !WIRED_TIGER.contains(&name) {
            bail!(BadValue, "unknown configuration key '{name}': Invalid argument");
        }
    }
    Ok(())
}

/// Options of a table of WiredTiger.
const WIRED_TIGER: [&str; 36] = [
    "access_pattern_hint",
    "allocation_size",
    "app_metadata",
    "assert",
    "block_allocation",
    "block_compressor",
    "cache_resident",
    "checksum",
    "colgroups",
    "collator",
    "columns",
    "dictionary",
    "encryption",
    "exclusive",
    "extractor",
    "format",
    "huffman_key",
    "huffman_value",
    "ignore_in_memory_cache_size",
    "immutable",
    "import",
    "internal_key_max",
    "internal_key_truncate",
    "internal_page_max",
    "key_format",
    "leaf_key_max",
    "leaf_page_max",
    "leaf_value_max",
    "log",
    "memory_page_max",
    "prefix_compression",
    "prefix_compression_min",
    "split_pct",
    "type",
    "value_format",
    "write_timestamp_usage",
];

/// The error for a value of another type.
pub(crate) fn wrong_type(name: &str, value: Value<'_>, expected: &str) -> base::Error {
    Error::wrong_type(format_args!("create.{name}"), value.kind(), expected)
}
