//! TLS: its options and the current certificates, which can be rotated at any time.
//!
//! Open connections keep their certificate. New connections use the current certificate.

use crate::process::logging::now_millis;
use parking_lot::{Mutex, RwLock};
use rustls::server::{NoClientAuth, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::certificates::{self, CertificateInfo};

/// Number of sessions that can be resumed without a full handshake.
const RESUMABLE: usize = 4096;

/// Remaining validity below which the server warns, in milliseconds: 30 days, as mongod.
const ENDS_SOON: i64 = 30 * 24 * 60 * 60 * 1000;

/// Policy for connections without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Accepts plain connections and TLS.
    Allow,
    /// Equals `Allow` here. In MongoDB connections between servers differ.
    Prefer,
    /// Refuses plain connections.
    Require,
}

impl TlsMode {
    /// Returns mongod's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            TlsMode::Allow => "allowTLS",
            TlsMode::Prefer => "preferTLS",
            TlsMode::Require => "requireTLS",
        }
    }

    /// Returns the next stricter mode, the only mode that a change at run time may select.
    pub(crate) fn next(self) -> Option<TlsMode> {
        match self {
            TlsMode::Allow => Some(TlsMode::Prefer),
            TlsMode::Prefer => Some(TlsMode::Require),
            TlsMode::Require => None,
        }
    }
}

/// Options of TLS.
#[derive(Clone)]
pub struct TlsOptions {
    /// Policy for plain connections.
    pub mode: TlsMode,
    /// File with the server's certificate and key.
    pub certificate_key_file: PathBuf,
    /// Password of the key.
    pub password: Option<String>,
    /// CA that must sign clients' certificates; `None` requests no certificates.
    pub ca_file: Option<PathBuf>,
    /// Revoked client certificates.
    pub crl_file: Option<PathBuf>,
    /// True if clients may omit a certificate in spite of a CA file.
    pub without_certificates: bool,
    /// True to offer TLS 1.2.
    pub tls12: bool,
    /// True to offer TLS 1.3.
    pub tls13: bool,
}

impl std::fmt::Debug for TlsOptions {
    /// Formats all fields but the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("mode", &self.mode)
            .field("certificate_key_file", &self.certificate_key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// TLS in use.
#[derive(Debug)]
pub struct Tls {
    options: TlsOptions,
    /// Current mode, which can only become stricter.
    mode: RwLock<TlsMode>,
    loaded: RwLock<Arc<Loaded>>,
}

/// Contents of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Configuration for new connections.
    pub(crate) config: Arc<ServerConfig>,
    /// Facts of the server's certificate.
    pub(crate) certificate_info: CertificateInfo,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file and its problem.
    pub fn open(options: TlsOptions) -> Result<Tls, String> {
        let loaded = RwLock::new(Arc::new(load(&options)?));
        let mode = RwLock::new(options.mode);
        Ok(Tls { options, mode, loaded })
    }

    /// Returns the options of the start.
    pub(crate) fn options(&self) -> &TlsOptions {
        &self.options
    }

    /// Returns the current mode.
    pub fn mode(&self) -> TlsMode {
        *self.mode.read()
    }

    /// Sets a stricter mode, one step at a time.
    pub(crate) fn set_mode(&self, mode: TlsMode) {
        *self.mode.write() = mode;
    }

    /// Returns true if clients must send a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.options.ca_file.is_some() && !self.options.without_certificates
    }

    /// Returns true if clients' certificates are verified.
    pub(crate) fn has_authority(&self) -> bool {
        self.options.ca_file.is_some()
    }

    /// Returns the files' contents in use.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().clone()
    }

    /// Reads the files again for new connections.
    ///
    /// # Errors
    /// The file and its problem. The present certificates stay in use.
    pub fn rotate(&self) -> Result<(), String> {
        let loaded = load(&self.options)?;
        *self.loaded.write() = Arc::new(loaded);
        Ok(())
    }

    /// Returns warnings for the start: missing checks and a certificate that expires soon.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.has_authority() {
            warnings.push(
                "Client certificates are not requested, because no file of certificate authorities is set"
                    .to_string(),
            );
        }
        let left = millis(self.loaded().certificate_info.not_after).saturating_sub(now_millis());
        if left < ENDS_SOON {
            let days = left / (24 * 60 * 60 * 1000);
            warnings.push(format!(
                "The certificate in {} ends in {days} days",
                self.options.certificate_key_file.display()
            ));
        }
        warnings
    }
}

impl Loaded {
    /// Returns the end of the certificate's validity, in milliseconds since 1970.
    pub(crate) fn ends(&self) -> i64 {
        millis(self.certificate_info.not_after)
    }
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn load(options: &TlsOptions) -> Result<Loaded, String> {
    let path = &options.certificate_key_file;
    let pair = certificates::key_pair(path, options.password.as_deref())?;
    let named = |why: String| format!("{}: {why}", path.display());
    let first = pair.cert.first().ok_or_else(|| named("it contains no certificate".to_string()))?;
    let certificate_info = certificates::certificate_info(first).map_err(named)?;
    let now = SystemTime::now();
    if now < certificate_info.not_before || now > certificate_info.not_after {
        return Err(named("the certificate is expired or not yet valid".to_string()));
    }
    let provider = certificates::provider();
    let verifier = match &options.ca_file {
        None => Arc::new(NoClientAuth),
        Some(ca_file) => {
            let roots = Arc::new(certificates::authorities(ca_file)?);
            let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            if let Some(crl_file) = &options.crl_file {
                let lists = certificates::revocations(crl_file)?;
                builder = builder.with_crls(lists).only_check_end_entity_revocation();
            }
            if options.without_certificates {
                builder = builder.allow_unauthenticated();
            }
            builder.build().map_err(|error| format!("{}: {error}", ca_file.display()))?
        }
    };
    let offered: [(bool, &'static SupportedProtocolVersion); 2] =
        [(options.tls13, &TLS13), (options.tls12, &TLS12)];
    let offered: Vec<_> = offered.into_iter().filter(|(on, _)| *on).map(|(_, version)| version).collect();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&offered)
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.session_storage = ServerSessionMemoryCache::new(RESUMABLE);
    Ok(Loaded { config: Arc::new(config), certificate_info })
}

/// Maximum number of entries. A full table is cleared.
const REMEMBERED: usize = 4096;

/// Reported addresses and reasons.
#[derive(Default)]
pub(crate) struct ReportedErrors {
    /// Texts are stored as hashes. On a collision a reason is logged only at the debug level.
    reported: Mutex<HashSet<(IpAddr, u64)>>,
    hasher: RandomState,
}

impl ReportedErrors {
    /// Returns true for the first report.
    pub(crate) fn is_new(&self, address: IpAddr, message: &str) -> bool {
        let mut reported = self.reported.lock();
        if reported.len() >= REMEMBERED {
            reported.clear();
        }
        reported.insert((address, self.hasher.hash_one(message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_logged_once_per_address() {
        let reported = ReportedErrors::default();
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!(reported.is_new(one, "a") && reported.is_new(one, "b") && reported.is_new(other, "a"));
        assert!(!reported.is_new(one, "a"));
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let reported = ReportedErrors::default();
        for number in 0..2 * REMEMBERED as u32 {
            reported.is_new(IpAddr::V4(number.into()), "a");
        }
        assert!(reported.reported.lock().len() <= REMEMBERED);
    }
}
