//! Whether and how connections are encrypted: libpq's `sslmode` and the files beside it.

use rustls::ClientConfig;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::uri::Encryption;

/// What is asked of one attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encrypt {
    /// No encryption.
    No,
    /// Encryption where the server has it.
    IfOffered,
    /// Encryption.
    Yes,
}

/// libpq's modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    Disable,
    Allow,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// What a connection string says of encryption.
#[derive(Clone, Default)]
pub struct Tls {
    mode: Mode,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    client: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.mode)
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        (self.mode, &self.root, &self.certificate, &self.key)
            == (other.mode, &other.root, &other.certificate, &other.key)
    }
}

impl Eq for Tls {}

/// The parameters as they were read.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) mode: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

impl Read {
    /// Reads the files; what isn't said comes from the environment, and from libpq's own folder.
    ///
    /// Errors: an unknown mode, files that don't serve, in words.
    pub(crate) fn finish(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Tls, String> {
        let mode = match self.mode.or_else(|| environment("PGSSLMODE")).as_deref() {
            None => Mode::default(),
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("prefer") => Mode::Prefer,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(other) => return Err(format!("sslmode={other} is not known")),
        };
        let beside = |name: &str| {
            let path = Path::new(&environment("HOME")?).join(".postgresql").join(name);
            path.exists().then(|| path.display().to_string())
        };
        let find = |given: Option<String>, variable: &str, name: &str| {
            given.or_else(|| environment(variable)).or_else(|| beside(name))
        };
        let root = find(self.root, "PGSSLROOTCERT", "root.crt");
        let certificate = find(self.certificate, "PGSSLCERT", "postgresql.crt");
        let key = find(self.key, "PGSSLKEY", "postgresql.key");
        let client = (mode != Mode::Disable)
            .then(|| client(mode, root.as_deref(), certificate.as_deref(), key.as_deref()));
        Ok(Tls { mode, root, certificate, key, client: client.transpose()?.map(Arc::new) })
    }
}

fn client(
    mode: Mode,
    root: Option<&str>,
    certificate: Option<&str>,
    key: Option<&str>,
) -> Result<ClientConfig, String> {
    let (verifies, full) = (matches!(mode, Mode::VerifyCa | Mode::VerifyFull), mode == Mode::VerifyFull);
    let is_system = root == Some("system");
    if verifies && root.is_none() {
        return Err("sslmode=verify-ca and verify-full need sslrootcert: a file, or system".to_string());
    }
    if is_system && !full {
        return Err("sslrootcert=system needs sslmode=verify-full".to_string());
    }
    let pair = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(wire::certificates::pair_of(Path::new(certificate), Path::new(key))?)
        }
        (Some(_), None) => return Err("sslcert needs sslkey".to_string()),
        (None, _) => None,
    };
    let encryption = Encryption {
        ca_file: root.filter(|_| !is_system).map(PathBuf::from),
        // As libpq does: who names an authority has certificates checked, whatever the mode.
        any_certificate: root.is_none(),
        any_name: !full,
        ..Encryption::default()
    };
    wire::trust::config_with(&encryption, pair)
}

impl Tls {
    /// How to connect, one way after the other.
    pub(crate) fn attempts(&self, host: &str) -> &'static [Encrypt] {
        match self.mode {
            _ if host.starts_with('/') => &[Encrypt::No],
            Mode::Disable => &[Encrypt::No],
            Mode::Allow => &[Encrypt::No, Encrypt::Yes],
            Mode::Prefer => &[Encrypt::IfOffered, Encrypt::No],
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[Encrypt::Yes],
        }
    }

    /// What connections are encrypted with.
    pub(crate) fn client(&self) -> Option<&Arc<ClientConfig>> {
        self.client.as_ref()
    }
}
