//! Authentication: who is there.
//!
//! A user is a document in `admin.system.users`, in MongoDB's own form, and changed by ordinary writes, so that
//! journal, oplog and dumps know nothing of users. Whoever has logged in is an [`Identity`] on the connection; it is
//! read again as soon as anything has been written to users or roles ([`Auth::generation`]). What an identity may do is
//! the matter of `access`.

pub(crate) mod identity;
pub(crate) mod names;
pub(crate) mod store;

pub(crate) use identity::Identity;

use crate::command::Command;
use crate::connection::ConnectionState;
use crate::server::Server;
use base::{Result, err};
use parking_lot::Mutex;

/// What the server knows of authentication.
pub(crate) struct Auth {
    enabled: bool,
    /// At which generation it was last looked whether there is any user or role, and what was found.
    has_any: Mutex<(u64, bool)>,
}

/// What the localhost exception lets through, for `access` to look at.
fn is_excepted(command: &str, database: &str) -> bool {
    match command {
        "createUser" => matches!(database, "admin" | "$external"),
        "grantRolesToUser" => database == "admin",
        "replSetInitiate" | "replSetReconfig" | "replSetGetStatus" | "replSetGetConfig" => true,
        _ => false,
    }
}

impl Auth {
    /// Whether anything needs a user is what the options said.
    pub(crate) fn new(enabled: bool) -> Auth {
        Auth { enabled, has_any: Mutex::new((0, false)) }
    }

    /// Whether only users get in, and each may do what their roles allow.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Refuses a command that needs a user on a connection that has none. What the user may do is asked elsewhere.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn check(
        &self,
        server: &Server,
        state: &ConnectionState,
        command: &Command,
        database: &str,
    ) -> Result<()> {
        let is_free = !self.enabled || command.without_auth || state.is_system || state.identity.is_some();
        match is_free || self.localhost_exception(server, state) && is_excepted(command.name, database) {
            true => Ok(()),
            false => Err(err!(Unauthorized, "Command {} requires authentication", command.name)),
        }
    }

    /// Whether somebody on this machine may make the first user, as there is neither user nor role yet.
    pub(crate) fn localhost_exception(&self, server: &Server, state: &ConnectionState) -> bool {
        self.enabled && state.activity.client.ip().is_loopback() && !self.has_any(server)
    }

    /// Whether there is any user, or any role that isn't built in. What can't be read counts as there: nobody gets in
    /// by an exception because the disk fails.
    pub(crate) fn has_any(&self, server: &Server) -> bool {
        let generation = self.generation(server);
        let known = *self.has_any.lock();
        if known.0 == generation {
            return known.1;
        }
        let found = store::has_any(server, store::USERS)
            .and_then(|users| Ok(users || store::has_any(server, store::ROLES)?));
        match found {
            Ok(found) => *self.has_any.lock() = (generation, found),
            Err(ref error) => log::warn!(c = "ACCESS"; "reading users and roles: {error}"),
        }
        found.unwrap_or(true)
    }

    /// Raised by every write to users and roles, however it was made: what was read at another generation is old.
    pub(crate) fn generation(&self, server: &Server) -> u64 {
        server.database.access_generation()
    }
}
