//! The `to` of `$convert`: a type by name or number, or `{type, subtype}`.

use super::super::show;
use base::bson::{Type, Value};
use base::{Result, bail, err};

/// The target type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Type,
    /// The subtype of a binary.
    pub(super) subtype: u8,
}

impl Target {
    /// Parses the target.
    ///
    /// Errors: FailedToParse for a value that is not a type's name or number, BadValue for an unknown name, 4341106 to
    /// 4341108 for the subtype.
    pub(super) fn read(to: Value<'_>) -> Result<Target> {
        let Value::Document(document) = to else { return Ok(Target { kind: kind(to)?, subtype: 0 }) };
        let (mut found, mut subtype) = (None, 0);
        for element in document {
            match element.name() {
                "type" => found = Some(kind(element.value())?),
                "subtype" => subtype = read_subtype(element.value())?,
                // MongoDB ignores all other fields.
                _ => {}
            }
        }
        let kind = found.ok_or_else(|| err!(FailedToParse, "Missing 'type' parameter to $convert"))?;
        Ok(Target { kind, subtype })
    }
}

/// Parses a type by name or number. Errors: BadValue and FailedToParse; ConversionFailure for 0.
fn kind(to: Value<'_>) -> Result<Type> {
    if let Value::String(name) = to {
        return Type::from_alias(name).ok_or_else(|| err!(BadValue, "Unknown type name: {name}"));
    }
    let Some(number) = to.as_number() else {
        let found = to.kind().alias();
        bail!(FailedToParse, "$convert's 'to' argument must be a string or number, but is {found}");
    };
    let code = number
        .to_i64_exact()
        .ok_or_else(|| err!(FailedToParse, "In $convert, numeric 'to' argument is not an integer"))?;
    if code == 0 {
        // This number marks the end of a document and is not a value's type.
        bail!(ConversionFailure, "Unsupported conversion to missing in $convert with no onError value");
    }
    i32::try_from(code).ok().and_then(Type::from_number).ok_or_else(|| {
        let found = show::value(to);
        err!(FailedToParse, "In $convert, numeric value for 'to' does not correspond to a BSON type: {found}")
    })
}

/// Reads the subtype of a binary: 0 to 9, or 128 and more. Errors: 4341106 to 4341108.
fn read_subtype(found: Value<'_>) -> Result<u8> {
    if found.as_number().is_none() {
        let kind = found.kind().alias();
        bail!(4341108, "In $convert, 'subtype' must be a number, but is {kind}");
    }
    let integer = found.as_i64().ok_or_else(|| {
        err!(4341106, "In $convert, 'subtype' must be an integer, found: {}", show::value(found))
    })?;
    u8::try_from(integer).ok().filter(|subtype| *subtype <= 9 || *subtype >= 128).ok_or_else(|| {
        err!(
            4341107,
            "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {integer}"
        )
    })
}
