//! PEM: the text format of certificates and keys. A file may hold several sections.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// One section of a PEM file.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The label, such as `CERTIFICATE`.
    pub label: String,
    /// The content, in DER.
    pub bytes: Vec<u8>,
    /// Whether a header marks the bytes as encrypted in OpenSSL's format from before PKCS#8.
    pub is_legacy_encrypted: bool,
}

/// Returns the sections of a file in order. Text between sections is a comment.
///
/// # Errors
/// A section without an end, or with invalid base64.
pub fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut sections = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let (mut base64, mut is_legacy_encrypted) = (String::new(), false);
        loop {
            let line = lines.next().ok_or_else(|| format!("the section {label} has no end"))?;
            if line == end {
                break;
            }
            // A colon distinguishes headers, which only old key formats have, from base64.
            match line.contains(':') {
                true => is_legacy_encrypted |= line.ends_with("ENCRYPTED"),
                false => base64.push_str(line),
            }
        }
        let bytes = match is_legacy_encrypted {
            // An initialisation vector may be wrapped over lines. These bytes are never read.
            true => Vec::new(),
            false => STANDARD.decode(&base64).map_err(|_| format!("the section {label} isn't base64"))?,
        };
        sections.push(Section { label: label.to_string(), bytes, is_legacy_encrypted });
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_stand_among_comments() {
        let text = "a comment\n-----BEGIN A-----\nAQ\n ID\n-----END A-----\r\nmore\n-----BEGIN B C-----\r\n-----END B C-----";
        let found = sections(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].label.as_str(), found[0].bytes.as_slice()), ("A", &[1, 2, 3][..]));
        assert_eq!((found[1].label.as_str(), found[1].bytes.as_slice()), ("B C", &[][..]));
        assert_eq!(sections("nothing").unwrap(), []);
    }

    #[test]
    fn broken_sections_are_named() {
        assert!(sections("-----BEGIN A-----\nAQID").unwrap_err().contains("A has no end"));
        assert!(sections("-----BEGIN A-----\n!\n-----END A-----").unwrap_err().contains("A isn't base64"));
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAQID\n-----END RSA PRIVATE KEY-----";
        assert!(sections(old).unwrap()[0].is_legacy_encrypted);
    }
}
