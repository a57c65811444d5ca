//! Keys in all usual file formats.
//!
//! The fixtures hold one key, written by OpenSSL 3.0: `openssl pkcs8 -topk8` with AES, with triple DES and SHA-1, and
//! with scrypt; `openssl ec` with and without `-aes256`. `rsa1024.pem` and `version1.pem` are refused pairs of a
//! certificate and its key.

#![allow(clippy::unwrap_used)]

use rcgen::{CertificateParams, KeyPair};
use std::path::{Path, PathBuf};
use wire::certificates::{authorities, certificate_info, key_pair, revocations};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A temporary file of one test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pem", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that cannot be removed stays in the target directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn short_keys_and_old_versions_are_refused_with_the_rule() {
    for (name, rule) in
        [("rsa1024.pem", "RSA with 2,048 to 4,096 bits"), ("version1.pem", "must be X.509 version 3")]
    {
        let error = key_pair(&fixture(name), None).unwrap_err();
        assert!(error.contains(name) && error.contains(rule), "{error}");
    }
}

#[test]
fn a_key_is_read_in_each_form() {
    for (name, password) in [
        ("plain.pem", None),
        ("sec1.pem", None),
        ("plain.pem", Some("not needed")),
        ("aes.pem", Some("secret")),
        ("des.pem", Some("secret")),
        ("scrypt.pem", Some("secret")),
    ] {
        let pair = key_pair(&fixture(name), password).unwrap_or_else(|why| panic!("{why}"));
        let certificate_info = certificate_info(&pair.cert[0]).unwrap();
        assert_eq!(certificate_info.subject, "CN=localhost,O=Vellum,C=DE", "{name}");
        assert!(certificate_info.not_before < certificate_info.not_after);
    }
}

#[test]
fn errors_name_the_file() {
    let wrong = |path: &Path, password: Option<&str>, part: &str| {
        let why = key_pair(path, password).map(drop).unwrap_err();
        assert!(why.contains(part) && why.contains(&path.display().to_string()), "{why}");
        assert!(!why.contains("guess"), "{why}");
    };
    wrong(&fixture("aes.pem"), None, "no password is given");
    wrong(&fixture("aes.pem"), Some("guess"), "password is wrong");
    wrong(&fixture("legacy.pem"), Some("guess"), "openssl pkcs8 -topk8");
    wrong(Path::new("/nowhere/a.pem"), None, "No such file");
    let text = std::fs::read_to_string(fixture("plain.pem")).unwrap();
    let at = text.find("-----BEGIN PRIVATE").unwrap();
    wrong(&File::new("certificate", &text[..at]).0, None, "no private key");
    wrong(&File::new("key", &text[at..]).0, None, "no certificate");
    let other = format!("{}{}", &text[..at], KeyPair::generate().unwrap().serialize_pem());
    wrong(&File::new("mixed", &other).0, None, "KeyMismatch");
    wrong(&File::new("cut", &text[..text.len() - 30]).0, None, "has no end");
}

#[test]
fn authorities_and_lists_are_looked_for_in_their_files() {
    let key = KeyPair::generate().unwrap();
    let one = CertificateParams::new(vec!["a".to_string()]).unwrap().self_signed(&key).unwrap().pem();
    assert_eq!(authorities(&File::new("roots", &format!("{one}\n{one}")).0).unwrap().len(), 2);
    assert!(authorities(&File::new("none", "nothing").0).unwrap_err().contains("no certificate"));
    assert!(revocations(&File::new("no-list", &one).0).unwrap_err().contains("no revocation list"));
}
