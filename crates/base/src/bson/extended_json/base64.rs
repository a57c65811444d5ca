//! Base64 and hexadecimal encodings of binaries.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, &byte| group << 8 | u32::from(byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let index = group >> (18 - 6 * place) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

/// Reads base64 with or without padding; `None` for other characters.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut bits) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let index = ALPHABET.iter().position(|&known| known == byte)?;
        group = group << 6 | index as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits) as u8);
        }
    }
    Some(bytes)
}

/// Reads hexadecimal digits; skips dashes between them.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some((high * 16 + low) as u8),
        _ => None,
    });
    pairs.collect()
}
