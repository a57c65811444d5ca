//! Authentication: users and logins.
//!
//! A user is a document in `admin.system.users` in MongoDB's form. Ordinary writes change it, so
//! journal, oplog and dumps need no special case. An authenticated connection has an [`Identity`].
//! It is read again after any write to users or roles ([`Auth::generation`]). The module `access`
//! checks the privileges of an identity.

mod conversation;
mod delays;
pub(crate) mod identity;
pub(crate) mod login;
pub(crate) mod password;
pub(crate) mod redact;
pub(crate) mod restrictions;
pub(crate) mod store;
pub(crate) mod user;

pub(crate) use conversation::{Conversation, Opening};
pub(crate) use identity::Identity;

use crate::command::Command;
use crate::connection::ConnectionState;
use crate::names::UserName;
use crate::parameters::Setting;
use crate::server::Server;
use base::{Error, Result, err};
use delays::Delays;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use user::User;
use wire::scram::Mechanism;
use wire::secret;

/// Lifetime of a cached identity on a shared store, where writes of other servers do not raise the
/// generation.
const SHARED_MEMORY: Duration = Duration::from_secs(1);

/// Database of users that are authenticated outside of this server.
pub(crate) const EXTERNAL: &str = "$external";

/// Mechanism for client certificates.
pub(crate) const X509: &str = "MONGODB-X509";

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
    has_any: Mutex<Option<(u64, Instant, bool)>>,
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

    /// Returns the mechanisms of a user. An unknown user has all password mechanisms.
    ///
    /// Errors: the store's errors.
    pub(crate) fn mechanisms_of(&self, server: &Server, user: &UserName) -> Result<Vec<&'static str>> {
        let found = store::user(server, user)?.and_then(|found| User::read(found.view()));
        let has = |mechanism: Mechanism| match &found {
            Some(user) => user.credential(mechanism).is_some(),
            None => user.db != EXTERNAL,
        };
        let is_external = found.as_ref().is_some_and(|user| user.is_external) && user.db == EXTERNAL;
        let by_password = Mechanism::ALL.into_iter().filter(|mechanism| has(*mechanism)).map(Mechanism::name);
        let by_certificate = is_external.then_some(X509);
        Ok(by_password.chain(by_certificate).filter(|name| self.takes(name)).collect())
    }

    /// Returns the iteration count for new passwords.
    pub(crate) fn iterations(&self, server: &Server, mechanism: Mechanism) -> u32 {
        let (name, otherwise) = match mechanism {
            Mechanism::Sha1 => ("scramIterationCount", 10_000),
            Mechanism::Sha256 => ("scramSHA256IterationCount", 15_000),
        };
        match server.parameters.get(name) {
            Some(Setting::Integer(count)) => u32::try_from(count).unwrap_or(otherwise),
            _ => otherwise,
        }
    }

    /// Returns the secret, generated on first use.
    fn secret(&self) -> std::result::Result<&[u8; 32], String> {
        if let Some(secret) = self.secret.get() {
            return Ok(secret);
        }
        let drawn = secret::random()?;
        Ok(self.secret.get_or_init(|| drawn))
    }

    /// Returns true if access control is disabled and no user exists, as on most test servers.
    pub(crate) fn is_pointless(&self, server: &Server) -> bool {
        !self.enabled && !self.has_any(server)
    }

    /// Returns true if access control is enabled and the connection has no user.
    pub(crate) fn is_stranger(&self, state: &ConnectionState) -> bool {
        self.enabled && state.identity.is_none() && !state.is_system
    }

    /// Refuses a command that requires authentication on a connection without a user. Does not
    /// check privileges.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn check(&self, server: &Server, state: &ConnectionState, command: &Command) -> Result<()> {
        match command.without_auth || !self.is_stranger(state) || self.localhost_exception(server, state) {
            true => Ok(()),
            false => Err(unauthorized(command)),
        }
    }

    /// Returns true if the localhost exception applies: a local client may create the first user
    /// while no user or role exists.
    pub(crate) fn localhost_exception(&self, server: &Server, state: &ConnectionState) -> bool {
        let is_allowed = self.enabled && server.settings.localhost_exception;
        is_allowed && state.activity.client.ip().is_loopback() && !self.has_any(server)
    }

    /// Runs work that creates the first user, for an unauthenticated client.
    ///
    /// The exception is checked again here, since only one client may use it. The caller holds
    /// [`changing`](Self::changing). Servers with shared data coordinate by a claim document.
    /// Another server takes over an expired claim.
    ///
    /// Errors: Unauthorized if a user exists now or another server has the claim; errors of the
    /// work.
    pub(crate) fn make_first<T>(
        &self,
        server: &Server,
        state: &ConnectionState,
        command: &Command,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.is_stranger(state) {
            return make();
        }
        if !server.settings.shared {
            return self.check(server, state, command).and_then(|()| make());
        }
        if !store::claim_first(server)? {
            return Err(unauthorized(command));
        }
        *self.has_any.lock() = None;
        let made = self.check(server, state, command).and_then(|()| make());
        store::release_first(server)?;
        made
    }

    /// Returns true if a user or a user-defined role exists. Also true after a read error, so that
    /// a failing disk does not enable the localhost exception.
    pub(crate) fn has_any(&self, server: &Server) -> bool {
        let generation = self.generation(server);
        if let Some((at, since, found)) = *self.has_any.lock()
            && at == generation
            && !(server.settings.shared && since.elapsed() > SHARED_MEMORY)
        {
            return found;
        }
        let found = store::has_any(server, store::USERS)
            .and_then(|users| Ok(users || store::has_any(server, store::ROLES)?));
        match found {
            Ok(found) => *self.has_any.lock() = Some((generation, Instant::now(), found)),
            Err(ref error) => log::warn!(c = "ACCESS"; "reading users and roles: {error}"),
        }
        found.unwrap_or(true)
    }

    /// Returns a number that each write to users and roles raises. Data of an earlier generation is
    /// stale.
    pub(crate) fn generation(&self, server: &Server) -> u64 {
        server.database.access_generation()
    }
}

fn unauthorized(command: &Command) -> Error {
    err!(Unauthorized, "Command {} requires authentication", command.name)
}

#[cfg(test)]
mod tests;
