//! Certificates, keys and revocation lists: read from PEM files into rustls types, and the subject and validity of a
//! certificate. The subject names a user, in MongoDB's format.
//!
//! PEM is a text format. A file may hold several sections. Every error names the file and the problem.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};

/// The built-in provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads a certificate with its chain and its key from one file.
///
/// # Errors
/// An unreadable file, a missing certificate or key, a missing or wrong password, or a key of another certificate.
pub fn key_pair(path: &Path, password: Option<&str>) -> Result<CertifiedKey, String> {
    build_pair(read(path)?, path, path, password)
}

/// Reads a certificate with its chain, and its unencrypted key from a second file.
///
/// # Errors
/// As [`key_pair`].
pub fn key_pair_from(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let mut sections = read(certificate)?;
    sections.retain(|section| section.label == "CERTIFICATE");
    sections.extend(read(key)?.into_iter().filter(|section| section.label.ends_with("PRIVATE KEY")));
    build_pair(sections, certificate, key, None)
}

/// Builds a key pair from the sections of a PEM file: all certificates form the chain, the first private key is used.
/// `certificate_path` and `key_path` name the files in errors.
fn build_pair(
    sections: Vec<Section>,
    certificate_path: &Path,
    key_path: &Path,
    password: Option<&str>,
) -> Result<CertifiedKey, String> {
    let (mut chain, mut key) = (Vec::new(), None);
    for section in sections {
        match section.label.as_str() {
            "CERTIFICATE" => chain.push(CertificateDer::from(section.bytes)),
            label if label.ends_with("PRIVATE KEY") && key.is_none() => {
                key = Some(private_key(section, password).map_err(in_file(key_path))?);
            }
            _ => {}
        }
    }
    if chain.is_empty() {
        return Err(in_file(certificate_path)("it contains no certificate".to_string()));
    }
    let key = key.ok_or_else(|| in_file(key_path)("it contains no private key".to_string()))?;
    if let Some(Ok(certificate)) = chain.first().map(|first| Certificate::from_der(first))
        && certificate.tbs_certificate().version() != Version::V3
    {
        return Err(in_file(certificate_path)("the certificate must be X.509 version 3".to_string()));
    }
    provider().key_provider.load_private_key(key.clone_key()).map_err(|_| {
        in_file(key_path)(
            "the private key must be RSA with 2,048 to 4,096 bits, ECDSA (P-256, P-384) or Ed25519"
                .to_string(),
        )
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| in_file(key_path)(error.to_string()))
}

/// Reads the certificate authorities that verify peers.
///
/// # Errors
/// An unreadable file, or a file without an authority's certificate.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for section in read(path)?.into_iter().filter(|section| section.label == "CERTIFICATE") {
        roots.add(CertificateDer::from(section.bytes)).map_err(|error| in_file(path)(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(in_file(path)("it contains no certificate".to_string())),
        false => Ok(roots),
    }
}

/// Reads certificate revocation lists.
///
/// # Errors
/// An unreadable file, or a file without a revocation list.
pub fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let lists = read(path)?.into_iter().filter(|section| section.label == "X509 CRL");
    let lists: Vec<_> = lists.map(|section| CertificateRevocationListDer::from(section.bytes)).collect();
    match lists.is_empty() {
        true => Err(in_file(path)("it contains no revocation list".to_string())),
        false => Ok(lists),
    }
}

fn read(path: &Path) -> Result<Vec<Section>, String> {
    let text = std::fs::read(path).map_err(|error| in_file(path)(error.to_string()))?;
    sections(&String::from_utf8_lossy(&text)).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl Fn(String) -> String {
    move |why| format!("{}: {why}", path.display())
}

/// Reads a private key in PKCS#8, PKCS#1 or SEC1 form. PKCS#8 may be encrypted; OpenSSL's older encryption is refused
/// with advice.
fn private_key(section: Section, password: Option<&str>) -> Result<PrivateKeyDer<'static>, String> {
    if section.is_legacy_encrypted {
        return Err(
            "the private key is encrypted in OpenSSL's legacy format; convert it to PKCS #8 with 'openssl \
             pkcs8 -topk8 -in FILE'"
                .to_string(),
        );
    }
    match section.label.as_str() {
        "PRIVATE KEY" => Ok(PrivatePkcs8KeyDer::from(section.bytes).into()),
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(section.bytes).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(section.bytes).into()),
        "ENCRYPTED PRIVATE KEY" => {
            let password = password.ok_or("the private key is encrypted, but no password is given")?;
            let encrypted = EncryptedPrivateKeyInfoRef::try_from(section.bytes.as_slice())
                .map_err(|error| format!("the encrypted private key can't be read: {error}"))?;
            let key = encrypted.decrypt(password).map_err(|error| {
                format!("the private key can't be decrypted: the password is wrong, or the cipher unknown ({error})")
            })?;
            Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
        }
        other => Err(format!("keys of type {other} are not supported")),
    }
}

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

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateInfo {
    /// The subject in RFC 2253 format: the most specific part first, with OpenSSL's short names.
    pub subject: String,
    /// Start of the validity period.
    pub not_before: SystemTime,
    /// End of the validity period.
    pub not_after: SystemTime,
}

/// OpenSSL's short names of attributes, as MongoDB prints them. Other attributes are printed by number.
const NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Reads the fields of a certificate.
///
/// # Errors
/// Bytes that are not a certificate.
pub fn certificate_info(certificate: &CertificateDer<'_>) -> Result<CertificateInfo, String> {
    let certificate = Certificate::from_der(certificate)
        .map_err(|error| format!("the certificate can't be read: {error}"))?;
    let certificate = certificate.tbs_certificate();
    let mut subject = String::new();
    let parts: Vec<_> = certificate.subject().as_ref().iter().collect();
    for part in parts.into_iter().rev() {
        for (at, attribute) in part.as_ref().iter().enumerate() {
            if !subject.is_empty() {
                subject.push(if at == 0 { ',' } else { '+' });
            }
            subject.push_str(&short_name(&attribute.oid));
            subject.push('=');
            let text = text(attribute.value.tag(), attribute.value.value());
            escape(&text, &mut subject);
        }
    }
    let validity = certificate.validity();
    Ok(CertificateInfo {
        subject,
        not_before: validity.not_before.to_system_time(),
        not_after: validity.not_after.to_system_time(),
    })
}

fn short_name(oid: &ObjectIdentifier) -> String {
    let number = oid.to_string();
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or(number, |(_, name)| (*name).to_string())
}

/// Decodes a string value. Certificates have half a dozen string types.
fn text(tag: Tag, bytes: &[u8]) -> String {
    match tag {
        Tag::BmpString => {
            let units = bytes
                .chunks_exact(2)
                .map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)));
            char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Tag::TeletexString => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Escapes special characters of RFC 2253.
fn escape(text: &str, out: &mut String) {
    let last = text.chars().count().saturating_sub(1);
    for (at, c) in text.chars().enumerate() {
        let at_an_end = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', c]),
            _ if at_an_end => out.extend(['\\', c]),
            '\0'..='\x1F' | '\x7F' => out.push_str(&format!("\\{:02X}", u32::from(c))),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

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

    fn rendered(parts: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate_info(certificate.der()).unwrap().subject
    }

    #[test]
    fn names_begin_with_the_most_specific_part() {
        let parts = [
            (DnType::CountryName, DnValue::PrintableString("US".try_into().unwrap())),
            (DnType::StateOrProvinceName, DnValue::Utf8String("New York".into())),
            (DnType::OrganizationName, DnValue::Utf8String("A, B + Co".into())),
            (DnType::CommonName, DnValue::Utf8String(" Zoë#".into())),
            (
                DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]),
                DnValue::Ia5String("a@b".try_into().unwrap()),
            ),
            (DnType::CustomDnType(vec![1, 2, 3, 4]), DnValue::BmpString("ä".try_into().unwrap())),
        ];
        assert_eq!(
            rendered(&parts),
            "1.2.3.4=ä,emailAddress=a@b,CN=\\ Zoë#,O=A\\, B \\+ Co,ST=New York,C=US"
        );
    }

    #[test]
    fn invalid_certificates_are_reported() {
        assert!(certificate_info(&CertificateDer::from(vec![0x30, 3, 1, 2, 3])).is_err());
    }
}
