//! Text format of SCRAM messages: attributes between commas, escaped names, binary data in base64.

use super::{ScramError, scram_error};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Maximum size of a message in bytes.
pub(super) const MESSAGE_MAX: usize = 16 * 1024;

/// Decodes the text of a message.
///
/// Errors: invalid UTF-8, or a message beyond the limit.
pub(super) fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_MAX {
        return scram_error("a message is too long");
    }
    std::str::from_utf8(message).map_err(|_| ScramError("a message is not UTF-8".to_string()))
}

/// Returns the value of an attribute that begins with `name=`.
pub(super) fn value(attribute: Option<&str>, name: char) -> Result<&str, ScramError> {
    let value = attribute.and_then(|attribute| attribute.strip_prefix(name)?.strip_prefix('='));
    value.ok_or_else(|| ScramError(format!("the attribute '{name}' is missing or in the wrong position")))
}

/// Escapes a user's name for a message.
pub(super) fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// Unescapes a user's name from a message.
///
/// Errors: an invalid escape.
pub(super) fn unescaped(name: &str) -> Result<String, ScramError> {
    let mut plain = String::with_capacity(name.len());
    let mut parts = name.split('=');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return scram_error("the user's name has an invalid escape"),
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Ok(plain)
}

/// Encodes bytes in base64.
pub(super) fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Decodes base64.
pub(super) fn decoded(text: &str) -> Result<Vec<u8>, ScramError> {
    BASE64_STANDARD.decode(text).map_err(|_| ScramError("an attribute is not base64".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["user", "a=b,c", "=", ",", "=2C", ""] {
            assert_eq!(unescaped(&escaped(name)).unwrap(), name);
        }
        assert_eq!(escaped("=2C"), "=3D2C");
        for invalid in ["a=", "=2c", "=3", "a=4D"] {
            assert!(unescaped(invalid).is_err(), "{invalid}");
        }
    }
}
