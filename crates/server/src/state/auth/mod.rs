//! State of authentication that all connections share.

mod delays;

use delays::Delays;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::Instant;
use wire::secret;

/// Authentication state that all connections share.
pub(crate) struct Auth {
    enabled: bool,
    /// Enabled mechanisms.
    mechanisms: Vec<String>,
    /// Secret from which salts of unknown users are derived.
    secret: OnceLock<[u8; 32]>,
    /// Delays after failed logins.
    pub(crate) delays: Delays,
    /// Held during each read-modify-write of users or roles.
    pub(crate) changing: Mutex<()>,
    /// Cached result of `has_any`, with its generation and time.
    pub(crate) has_any: Mutex<Option<(u64, Instant, bool)>>,
}

impl Auth {
    /// Creates the state from the options.
    pub(crate) fn new(enabled: bool, mechanisms: Vec<String>) -> Auth {
        Auth {
            enabled,
            mechanisms,
            secret: OnceLock::new(),
            delays: Delays::default(),
            changing: Mutex::new(()),
            has_any: Mutex::new(None),
        }
    }

    /// Returns true if access control is enabled.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if a mechanism is enabled.
    pub(crate) fn takes(&self, mechanism: &str) -> bool {
        self.mechanisms.iter().any(|known| known == mechanism)
    }

    /// Returns the enabled mechanisms.
    pub(crate) fn mechanisms(&self) -> &[String] {
        &self.mechanisms
    }

    /// Returns the secret, generated on first use.
    pub(crate) fn secret(&self) -> std::result::Result<&[u8; 32], String> {
        if let Some(secret) = self.secret.get() {
            return Ok(secret);
        }
        let drawn = secret::random()?;
        Ok(self.secret.get_or_init(|| drawn))
    }
}
