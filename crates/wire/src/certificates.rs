//! Reads certificates, keys and revocation lists from PEM files into rustls types.
//!
//! Every error names the file and the problem.

use crate::pem::{self, Section};
pub use crate::subject::{CertificateInfo, certificate_info};
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
    pem::sections(&String::from_utf8_lossy(&text)).map_err(in_file(path))
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
