//! TLS: what was asked for, and the certificates in use, which may be changed for new ones at any time.
//!
//! Connections keep what they were opened with; those opened later get what is in use then.

mod told;

use crate::logging::now_millis;
use parking_lot::RwLock;
use rustls::server::{NoClientAuth, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
pub(crate) use told::Told;
use wire::certificates::{self, Facts};

/// How many connections may be resumed without a whole handshake.
const RESUMABLE: usize = 4096;

/// A certificate that ends sooner than this is warned about, in milliseconds: 30 days, as mongod.
const ENDS_SOON: i64 = 30 * 24 * 60 * 60 * 1000;

/// Who may connect without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Everybody, and TLS is taken from whoever begins with it.
    Allow,
    /// The same: what differs in MongoDB are connections between servers.
    Prefer,
    /// Nobody.
    Require,
}

impl TlsMode {
    /// mongod's name of it.
    pub fn name(self) -> &'static str {
        match self {
            TlsMode::Allow => "allowTLS",
            TlsMode::Prefer => "preferTLS",
            TlsMode::Require => "requireTLS",
        }
    }

    /// What it may be changed to while the server runs.
    pub(crate) fn next(self) -> Option<TlsMode> {
        match self {
            TlsMode::Allow => Some(TlsMode::Prefer),
            TlsMode::Prefer => Some(TlsMode::Require),
            TlsMode::Require => None,
        }
    }
}

/// What TLS was asked for.
#[derive(Clone)]
pub struct TlsOptions {
    /// Who may connect without.
    pub mode: TlsMode,
    /// The server's certificate and its key.
    pub certificate_key_file: PathBuf,
    /// What the key is encrypted with.
    pub password: Option<String>,
    /// By whom clients' certificates must be signed; without it none is asked for.
    pub ca_file: Option<PathBuf>,
    /// Clients' certificates that are no longer good.
    pub crl_file: Option<PathBuf>,
    /// Whether a client may have no certificate although there is a CA file.
    pub without_certificates: bool,
    /// Whether TLS 1.2 is offered.
    pub tls12: bool,
    /// Whether TLS 1.3 is offered.
    pub tls13: bool,
}

impl std::fmt::Debug for TlsOptions {
    /// Everything but the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("mode", &self.mode)
            .field("certificate_key_file", &self.certificate_key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// TLS as it is in use.
#[derive(Debug)]
pub struct Tls {
    options: TlsOptions,
    /// Who may connect without, which may become fewer.
    mode: RwLock<TlsMode>,
    loaded: RwLock<Arc<Loaded>>,
}

/// What was read from the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// What connections are opened with.
    pub(crate) config: Arc<ServerConfig>,
    /// What the server's certificate says.
    pub(crate) facts: Facts,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn open(options: TlsOptions) -> Result<Tls, String> {
        let loaded = RwLock::new(Arc::new(load(&options)?));
        let mode = RwLock::new(options.mode);
        Ok(Tls { options, mode, loaded })
    }

    /// Who may connect without.
    pub fn mode(&self) -> TlsMode {
        *self.mode.read()
    }

    /// Lets fewer connect without, one step at a time.
    pub(crate) fn set_mode(&self, mode: TlsMode) {
        *self.mode.write() = mode;
    }

    /// Whether whoever connects needs a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.options.ca_file.is_some() && !self.options.without_certificates
    }

    /// Whether clients' certificates are checked.
    pub(crate) fn has_authority(&self) -> bool {
        self.options.ca_file.is_some()
    }

    /// What is in use now.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().clone()
    }

    /// Reads the files again, for the connections to come.
    ///
    /// # Errors
    /// The file, and what is wrong with it: all stays as it is.
    pub fn rotate(&self) -> Result<(), String> {
        let loaded = load(&self.options)?;
        *self.loaded.write() = Arc::new(loaded);
        Ok(())
    }

    /// What to tell at the start: what is not checked, and what ends soon.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.has_authority() {
            warnings.push(
                "Certificates of clients are not asked for, as no file of certificate authorities is given"
                    .to_string(),
            );
        }
        let left = millis(self.loaded().facts.ends).saturating_sub(now_millis());
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
    /// When the server's certificate ends, as BSON has times.
    pub(crate) fn ends(&self) -> i64 {
        millis(self.facts.ends)
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
    let first = pair.cert.first().ok_or_else(|| named("there is no certificate in it".to_string()))?;
    let facts = certificates::facts(first).map_err(named)?;
    let now = SystemTime::now();
    if now < facts.begins || now > facts.ends {
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
    Ok(Loaded { config: Arc::new(config), facts })
}
