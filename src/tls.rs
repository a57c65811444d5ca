//! TLS options of Vellum and mongod: finds all contradictions and reads the files.
//!
//! A new option is a field of [`TlsArguments`]; `config.rs` and `mongod/settings.rs` set it.

use server::{Tls, TlsMode, TlsOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Replacement of passwords in displayed options.
const CENSORED: &str = "<password>";

/// Options whose values are never displayed.
const SECRET: &[&str] =
    &["--tls-certificate-key-file-password", "--tlsCertificateKeyFilePassword", "--sslPEMKeyPassword"];

/// Requested TLS options, independent of their names.
#[derive(Default)]
pub(crate) struct TlsArguments {
    /// `None` if TLS is off.
    pub(crate) mode: Option<TlsMode>,
    /// The option that turns TLS on, for errors.
    pub(crate) mode_option: &'static str,
    pub(crate) certificate_key_file: Option<PathBuf>,
    pub(crate) password: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) crl_file: Option<PathBuf>,
    pub(crate) without_certificates: bool,
    /// A list with commas.
    pub(crate) disabled_protocols: Option<String>,
}

impl TlsArguments {
    /// Reads the files. `None` if TLS is off.
    ///
    /// Fails for contradictions and for invalid files, with their names.
    pub(crate) fn open(self) -> Result<Option<Arc<Tls>>, String> {
        let remedy = self.mode_option;
        let Some(mode) = self.mode else {
            return match self.certificate_key_file.or(self.ca_file).or(self.crl_file) {
                Some(file) => Err(format!("{} is given, but TLS is off: add {remedy}", file.display())),
                None if self.disabled_protocols.is_some() || self.without_certificates => {
                    Err(format!("TLS options are given, but TLS is off: add {remedy}"))
                }
                None => Ok(None),
            };
        };
        let certificate_key_file = self.certificate_key_file.ok_or("TLS needs a certificate key file")?;
        let (tls12, tls13) = protocols(self.disabled_protocols.as_deref().unwrap_or("none"))?;
        let options = TlsOptions {
            mode,
            certificate_key_file,
            password: self.password,
            ca_file: self.ca_file,
            crl_file: self.crl_file,
            without_certificates: self.without_certificates,
            tls12,
            tls13,
        };
        Ok(Some(Arc::new(Tls::open(options)?)))
    }
}

/// Returns true for TLS 1.2 and for TLS 1.3 if the list of disabled protocols leaves them enabled.
fn protocols(list: &str) -> Result<(bool, bool), String> {
    let (mut tls12, mut tls13) = (true, true);
    for name in list.split(',').map(str::trim) {
        match name {
            "TLS1_2" => tls12 = false,
            "TLS1_3" => tls13 = false,
            // The server never uses these versions.
            "TLS1_0" | "TLS1_1" | "none" | "noTLS1_0" | "noTLS1_1" => {}
            other => {
                return Err(format!(
                    "Unrecognized disabledProtocols '{other}': use TLS1_0, TLS1_1, TLS1_2 or \
                 TLS1_3"
                ));
            }
        }
    }
    match tls12 || tls13 {
        true => Ok((tls12, tls13)),
        false => Err("all supported versions of TLS are disabled".to_string()),
    }
}

/// Returns the first line of a file.
pub(crate) fn password_in(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_string())
}

/// Returns the command line of this process without passwords, for clients that request it.
pub(crate) fn command_line() -> Vec<String> {
    redacted(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// Returns a command line without passwords.
fn redacted(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut before = String::new();
    let shown = words.map(|word| {
        let shown = match (redacted_value(&before, &word), word.split_once('=')) {
            (Some(value), _) => value,
            (None, Some((name, value))) => {
                redacted_value(name, value).map_or_else(|| word.clone(), |value| format!("{name}={value}"))
            }
            (None, None) => word.clone(),
        };
        before = word;
        shown
    });
    shown.collect()
}

/// Returns the displayed value of an option that contains a password; `None` for other options.
fn redacted_value(name: &str, value: &str) -> Option<String> {
    match name {
        "--postgres" => Some(postgres::Config::redacted(value, CENSORED)),
        name if SECRET.contains(&name) => Some(CENSORED.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_as_mongod_names_them() {
        assert_eq!(protocols("none"), Ok((true, true)));
        assert_eq!(protocols("TLS1_0, TLS1_1"), Ok((true, true)));
        assert_eq!(protocols("TLS1_0,TLS1_1,TLS1_2"), Ok((false, true)));
        assert_eq!(protocols("TLS1_3"), Ok((true, false)));
        assert!(protocols("TLS1_2,TLS1_3").unwrap_err().contains("all supported versions"));
        assert!(protocols("SSLv3").unwrap_err().contains("'SSLv3'"));
    }

    #[test]
    fn contradictions_are_refused() {
        let file = || Some(PathBuf::from("/nowhere/server.pem"));
        let error = |tls_arguments: TlsArguments| tls_arguments.open().unwrap_err();
        assert!(
            error(TlsArguments { certificate_key_file: file(), ..TlsArguments::default() })
                .contains("/nowhere/server.pem")
        );
        assert!(
            error(TlsArguments { without_certificates: true, ..TlsArguments::default() })
                .contains("TLS is off")
        );
        assert!(
            error(TlsArguments { mode: Some(TlsMode::Require), ..TlsArguments::default() })
                .contains("needs a certificate key file")
        );
        let named = TlsArguments {
            mode: Some(TlsMode::Require),
            certificate_key_file: file(),
            ..TlsArguments::default()
        };
        assert!(error(named).contains("/nowhere/server.pem: No such file"));
        assert!(TlsArguments::default().open().unwrap().is_none());
    }

    #[test]
    fn passwords_are_not_shown() {
        let words = "mongod --tlsCertificateKeyFilePassword secret --port 1 --sslPEMKeyPassword=secret";
        let shown = redacted(words.split(' ').map(str::to_string)).join(" ");
        assert_eq!(
            shown,
            "mongod --tlsCertificateKeyFilePassword <password> --port 1 --sslPEMKeyPassword=<password>"
        );
        for (value, expected) in [
            ("postgres://user:secret@host/db", "user=user password=<password> dbname=db host=host port=5432"),
            ("postgres://host?p%61ssword=secret", "host=host port=5432 password=<password>"),
            (r"host=/tmp password = 'sec\'ret' dbname='d b'", "host=/tmp password=<password> dbname='d b'"),
            ("host=/tmp user=user", "host=/tmp user=user"),
            ("password='secret", "<password>"),
        ] {
            let of = |words: &[&str]| redacted(words.iter().map(|word| word.to_string()));
            assert_eq!(
                of(&["vellum", "--postgres", value, "--auth"]),
                ["vellum", "--postgres", expected, "--auth"]
            );
            assert_eq!(of(&[&format!("--postgres={value}")]), [format!("--postgres={expected}")]);
        }
    }
}
