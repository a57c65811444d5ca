//! Bytes as text: base64, hexadecimal digits, UUIDs, percent encoding.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Formats bytes as base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Parses base64 with or without padding; `None` for other text.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Formats bytes as hexadecimal digits in lower case.
pub fn hex(bytes: &[u8]) -> String {
    digits(bytes, b"0123456789abcdef")
}

/// Formats bytes as hexadecimal digits in upper case.
pub fn hex_upper(bytes: &[u8]) -> String {
    digits(bytes, b"0123456789ABCDEF")
}

fn digits(bytes: &[u8], alphabet: &[u8; 16]) -> String {
    let digit = |half: u8| alphabet.get(usize::from(half)).map_or('0', |digit| char::from(*digit));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Parses pairs of hexadecimal digits; `None` for other text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Formats a UUID with its dashes.
pub fn uuid(bytes: &[u8]) -> String {
    let mut text = hex(bytes);
    [20, 16, 12, 8]
        .into_iter()
        .filter(|dash| *dash < 2 * bytes.len())
        .for_each(|dash| text.insert(dash, '-'));
    text
}

/// Parses a UUID with or without dashes.
pub fn from_uuid(text: &str) -> Option<[u8; 16]> {
    from_hex(&text.replace('-', ""))?.try_into().ok()
}

/// Decodes text in which a percent sign and two hexadecimal digits stand for a byte; `None` for invalid text.
pub fn from_percent(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.extend(from_hex(part.get(..2)?)?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&base64(&bytes)).unwrap(), bytes);
        assert_eq!(from_hex(&hex(&bytes)).unwrap(), bytes);
        assert_eq!(from_hex(&hex_upper(&bytes)).unwrap(), bytes);
        assert_eq!((base64(b"ab").as_str(), hex(b"\x0F\xA0").as_str()), ("YWI=", "0fa0"));
        assert_eq!(from_base64("YWI"), from_base64("YWI="));
        assert_eq!(uuid(&bytes[..16]), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(from_uuid(&uuid(&bytes[..16])).unwrap(), bytes[..16]);
        assert_eq!(from_percent("a%20b%C3%A4%25").unwrap(), "a bä%");
        assert!(["%", "%4", "%+4", "%C3"].into_iter().all(|text| from_percent(text).is_none()));
        assert!(from_base64("Y*").is_none() && from_hex("0").is_none() && from_hex("0-").is_none());
    }
}
