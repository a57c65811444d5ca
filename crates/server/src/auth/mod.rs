//! Authentication: who is there.
//!
//! A user is a document in `admin.system.users`, in MongoDB's own form, and changed by ordinary writes, so that
//! journal, oplog and dumps know nothing of users. Whoever has logged in is an [`Identity`] on the connection; it is
//! read again as soon as anything has been written to users or roles ([`Auth::generation`]). What an identity may do is
//! the matter of `access`.

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

/// How long what was read is believed on a store that others write to, who raise no generation here.
const SHARED_MEMORY: Duration = Duration::from_secs(1);

/// The database of users whose passwords, if they have any, are somebody else's matter.
pub(crate) const EXTERNAL: &str = "$external";

/// Logging in by a certificate.
pub(crate) const X509: &str = "MONGODB-X509";

/// What the server knows of authentication.
pub(crate) struct Auth {
    enabled: bool,
    /// The ways to log in that are switched on.
    mechanisms: Vec<String>,
    /// What salts of users that aren't there are made with.
    secret: OnceLock<[u8; 32]>,
    /// Who has to wait before the next try.
    pub(crate) delays: Delays,
    /// Held by whoever changes users or roles, which is read, changed and written back.
    pub(crate) changing: Mutex<()>,
    /// At which generation, and when, it was last looked whether there is any user or role, and what was found.
    has_any: Mutex<Option<(u64, Instant, bool)>>,
}

impl Auth {
    /// Whether anything needs a user, and how users may log in, is what the options said.
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

    /// Whether only users get in, and each may do what their roles allow.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Whether a way to log in is switched on.
    pub(crate) fn takes(&self, mechanism: &str) -> bool {
        self.mechanisms.iter().any(|known| known == mechanism)
    }

    /// The ways to log in that are switched on.
    pub(crate) fn mechanisms(&self) -> &[String] {
        &self.mechanisms
    }

    /// How a user can log in. One that isn't there could by any password.
    ///
    /// Errors: the store's.
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

    /// How often new passwords are hashed.
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

    /// What nobody else knows, drawn when it is first needed.
    fn secret(&self) -> std::result::Result<&[u8; 32], String> {
        if let Some(secret) = self.secret.get() {
            return Ok(secret);
        }
        let drawn = secret::random()?;
        Ok(self.secret.get_or_init(|| drawn))
    }

    /// Whether there is nobody to log in, and nobody has to: a server for tests, as most are.
    pub(crate) fn is_pointless(&self, server: &Server) -> bool {
        !self.enabled && !self.has_any(server)
    }

    /// Whether only users get in, and nobody has logged in on a connection.
    pub(crate) fn is_stranger(&self, state: &ConnectionState) -> bool {
        self.enabled && state.identity.is_none() && !state.is_system
    }

    /// Refuses a command that needs a user on a connection that has none. What the user may do is asked elsewhere.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn check(&self, server: &Server, state: &ConnectionState, command: &Command) -> Result<()> {
        match command.without_auth || !self.is_stranger(state) || self.localhost_exception(server, state) {
            true => Ok(()),
            false => Err(unauthorized(command)),
        }
    }

    /// Whether somebody on this machine may make the first user, as there is neither user nor role yet.
    pub(crate) fn localhost_exception(&self, server: &Server, state: &ConnectionState) -> bool {
        let is_allowed = self.enabled && server.settings.localhost_exception;
        is_allowed && state.activity.client.ip().is_loopback() && !self.has_any(server)
    }

    /// Carries out what may make the first user, for somebody who has not logged in. The localhost exception is looked
    /// at again here, since only one client may use it. Called while [`changing`](Self::changing) is locked. Servers
    /// that share the data agree by a document, which another server takes over if the first one has died.
    ///
    /// Errors: Unauthorized if there is a user by now, or another server is making one; those of the work.
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

    /// Whether there is any user, or any role that isn't built in. What can't be read counts as there: nobody gets in
    /// by an exception because the disk fails.
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

    /// Raised by every write to users and roles, however it was made: what was read at another generation is old.
    pub(crate) fn generation(&self, server: &Server) -> u64 {
        server.database.access_generation()
    }
}

fn unauthorized(command: &Command) -> Error {
    err!(Unauthorized, "Command {} requires authentication", command.name)
}

#[cfg(test)]
mod tests;
