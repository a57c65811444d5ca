//! State of authentication that all connections share.

mod delays;

use crate::access::Requirements;
use crate::observe::counters::Logins;
use crate::state::settings::Settings;
use database::Database;
use delays::Delays;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use wire::secret;

/// Authentication state that all connections share.
pub(crate) struct Auth {
    /// The database of users and roles.
    pub(crate) database: Arc<Database>,
    /// True if other servers may share the database.
    pub(crate) is_shared: bool,
    /// True if a local client may create the first user.
    pub(crate) localhost_exception: bool,
    /// Returns the needs of the command with a name.
    pub(crate) requirements_of: fn(&str) -> Option<Requirements>,
    /// Counters of logins.
    pub(crate) logins: Logins,
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
    pub(crate) fn new(
        settings: &Settings,
        database: Arc<Database>,
        requirements_of: fn(&str) -> Option<Requirements>,
    ) -> Auth {
        Auth {
            database,
            is_shared: settings.shared,
            localhost_exception: settings.localhost_exception,
            requirements_of,
            logins: Logins::default(),
            enabled: settings.auth,
            mechanisms: settings.mechanisms.clone(),
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
