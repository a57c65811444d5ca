//! Conversions between strings and binaries, by `format`.

use super::super::evaluate::{Computed, Scope, type_name};
use super::unsupported;
use base::bson::{Type, Value};
use base::encoding;
use base::{Result, bail, err};

/// Text format of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Format {
    /// A UUID if the subtype is UUID, otherwise base64.
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

/// The subtype of UUIDs.
pub(in super::super) const UUID: u8 = 4;

impl Format {
    /// Parses the argument `format`, which may be null.
    ///
    /// Errors: 4341114 for a value that is not a string, 4341125 for an unknown format.
    pub(super) fn read(found: Option<Value<'_>>) -> Result<Option<Format>> {
        let name = match found.filter(|value| !value.is_nullish()) {
            None => return Ok(None),
            Some(Value::String(name)) => name,
            other => {
                let found = type_name(other);
                bail!(4341114, "$convert requires that 'format' be a string, found: {found}");
            }
        };
        Ok(Some(match name {
            "auto" => Format::Auto,
            "base64" => Format::Base64,
            "base64url" => Format::Base64Url,
            "hex" => Format::Hex,
            "utf8" => Format::Utf8,
            "uuid" => Format::Uuid,
            other => bail!(4341125, "Invalid 'format' argument for $convert: {other}"),
        }))
    }
}

/// Converts a binary to a string. Errors: 4341115 without a format, ConversionFailure if the bytes are not text or not
/// a UUID.
pub(super) fn to_string<'a>(
    subtype: u8,
    bytes: &[u8],
    format: Option<Format>,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    let failed = |message: &str| err!(ConversionFailure, "{message} in $convert with no onError value");
    let text = match format {
        None => return Err(format_missing("binData", "string")),
        Some(Format::Auto) => auto_text(subtype, bytes),
        Some(Format::Base64) => encoding::base64(bytes),
        Some(Format::Base64Url) => base64_url_text(bytes),
        Some(Format::Hex) => encoding::hex_upper(bytes),
        Some(Format::Utf8) => std::str::from_utf8(bytes)
            .map_err(|_| failed("BinData does not represent a valid UTF-8 string"))?
            .to_string(),
        Some(Format::Uuid) if subtype == UUID && bytes.len() == 16 => encoding::uuid(bytes),
        Some(Format::Uuid) => return Err(failed("Unsupported format 'uuid' for BinData of another subtype")),
    };
    scope.text(&text)
}

/// Converts a string to a binary. Errors: 4341115 without a format, ConversionFailure if the text has another format.
pub(super) fn to_binary<'a>(
    input: Value<'a>,
    subtype: u8,
    format: Option<Format>,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    let text = match input {
        Value::String(text) => text,
        Value::Binary { subtype: found, .. } if found == subtype => return Ok(Some(input)),
        Value::Binary { .. } => {
            bail!(
                ConversionFailure,
                "Conversions between different BinData subtypes are not supported in $convert with no onError value"
            );
        }
        other => return Err(unsupported(other, Type::Binary)),
    };
    let uuid = subtype == UUID;
    let bytes = match format {
        None => return Err(format_missing("string", "binData")),
        Some(Format::Auto | Format::Uuid) if uuid => uuid_bytes(text),
        Some(_) if uuid => None,
        Some(Format::Uuid) => None,
        Some(Format::Auto) => None,
        Some(Format::Base64) => base64_bytes(text),
        Some(Format::Base64Url) => base64_url_bytes(text),
        Some(Format::Hex) => encoding::from_hex(text),
        Some(Format::Utf8) => Some(text.as_bytes().to_vec()),
    };
    let bytes = bytes.ok_or_else(|| {
        let name = format.map_or_else(String::new, |format| format!("{format:?}").to_ascii_lowercase());
        err!(
            ConversionFailure,
            "Input string '{text}' does not represent binary data in format '{name}' in $convert with no onError value"
        )
    })?;
    Ok(Some(Value::Binary { subtype, bytes: scope.bytes(&bytes)? }))
}

fn format_missing(from: &str, to: &str) -> base::Error {
    err!(4341115, "Format must be specified when converting from '{from}' to '{to}'")
}

/// Formats a UUID with dashes, and another binary as base64.
pub(super) fn auto_text(subtype: u8, bytes: &[u8]) -> String {
    if subtype == UUID && bytes.len() == 16 { encoding::uuid(bytes) } else { encoding::base64(bytes) }
}

/// Parses a UUID with dashes.
pub(in super::super) fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let dashes = text.char_indices().filter(|(_, c)| *c == '-').map(|(index, _)| index);
    if text.len() != 36 || !dashes.eq([8, 13, 18, 23]) {
        return None;
    }
    encoding::from_uuid(text).map(Vec::from)
}

/// Encodes base64url: without padding, with `-` and `_`.
fn base64_url_text(bytes: &[u8]) -> String {
    encoding::base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fn base64_url_bytes(text: &str) -> Option<Vec<u8>> {
    if text.contains(['+', '/']) || text.trim_end_matches('=').len() % 4 == 1 {
        return None;
    }
    encoding::from_base64(&text.replace('-', "+").replace('_', "/"))
}

/// Decodes base64; padding is required, as in MongoDB.
pub(in super::super) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let padding = text.len() - text.trim_end_matches('=').len();
    if padding > 2 || !text.len().is_multiple_of(4) {
        return None;
    }
    encoding::from_base64(text)
}
