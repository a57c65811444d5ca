//! Authentication and authorization: users, logins, and the check of privileges.
//!
//! A user is a document in `admin.system.users` in MongoDB's form. Ordinary writes change it, so
//! journal, oplog and dumps need no special case. An authenticated connection has an
//! [`Identity`](crate::access::Identity). It is read again after any write to users or roles
//! (`Database::access_generation`).

mod authorize;
mod conversation;
pub(crate) mod login;
pub(crate) mod redact;
pub(crate) mod restrictions;
pub(crate) mod role;
pub(crate) mod store;
pub(crate) mod user;

pub(crate) use authorize::{
    authorize, authorizer, check_user_writes, is_authorized, own_session, own_session_or, privileges,
    session_digest,
};
pub(crate) use conversation::ClientFirst;

use crate::access::Command;
use crate::protocol::names::UserName;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use crate::state::parameters::{Parameters, Setting};
use base::{Error, Result, err};
use database::{mutant, time};
use std::time::Duration;
use user::User;
use wire::scram::Mechanism;

/// Lifetime of a cached identity on a shared store, where writes of other servers do not raise the
/// generation.
const SHARED_MEMORY: Duration = Duration::from_secs(1);

/// Database of users that are authenticated outside of this server.
pub(crate) const EXTERNAL: &str = "$external";

/// Mechanism for client certificates.
pub(crate) const X509: &str = "MONGODB-X509";

/// Returns the mechanisms of a user. An unknown user has all password mechanisms.
///
/// Errors: the store's errors.
pub(crate) fn mechanisms_of(auth: &Auth, user: &UserName) -> Result<Vec<&'static str>> {
    let found = store::user(&auth.database, user)?.and_then(|found| User::read(found.view()));
    let has = |mechanism: Mechanism| match &found {
        Some(user) => user.credential(mechanism).is_some(),
        None => user.db != EXTERNAL,
    };
    let is_external = found.as_ref().is_some_and(|user| user.is_external) && user.db == EXTERNAL;
    let by_password = Mechanism::ALL.into_iter().filter(|mechanism| has(*mechanism)).map(Mechanism::name);
    let by_certificate = is_external.then_some(X509);
    Ok(by_password.chain(by_certificate).filter(|name| auth.takes(name)).collect())
}

/// Returns the iteration count for new passwords.
pub(crate) fn iterations(parameters: &Parameters, mechanism: Mechanism) -> u32 {
    let (name, otherwise) = match mechanism {
        Mechanism::Sha1 => ("scramIterationCount", 10_000),
        Mechanism::Sha256 => ("scramSHA256IterationCount", 15_000),
    };
    match parameters.get(name) {
        Some(Setting::Integer(count)) => u32::try_from(count).unwrap_or(otherwise),
        _ => otherwise,
    }
}

/// Returns true if access control is disabled and no user exists, as on most test servers.
pub(crate) fn is_pointless(auth: &Auth) -> bool {
    !auth.enabled() && !has_any(auth)
}

/// Refuses a command on a connection without a user. Does not check privileges.
///
/// Errors: Unauthorized.
pub(crate) fn check(auth: &Auth, state: &ConnectionState, command: &Command) -> Result<()> {
    match !state.is_unauthenticated(auth) || localhost_exception(auth, state) {
        true => Ok(()),
        false => Err(unauthorized(command)),
    }
}

/// Returns true if the localhost exception applies: a local client may create the first user
/// while no user or role exists.
pub(crate) fn localhost_exception(auth: &Auth, state: &ConnectionState) -> bool {
    let is_allowed = auth.enabled() && auth.localhost_exception;
    is_allowed && state.activity.client.ip().is_loopback() && !has_any(auth)
}

/// Runs work that creates the first user, for an unauthenticated client.
///
/// The exception is checked again here, since only one client may use it. The caller holds the lock
/// `changing` of [`Auth`](crate::state::auth::Auth). Servers with shared data coordinate by a lease
/// document. Another server takes over an expired lease.
///
/// Errors: Unauthorized if a user exists now or another server has the lease; errors of the work.
pub(crate) fn create_first_user<T>(
    auth: &Auth,
    state: &ConnectionState,
    command: &Command,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !state.is_unauthenticated(auth) || mutant!("the localhost exception makes several users") {
        return make();
    }
    if !auth.is_shared {
        return check(auth, state, command).and_then(|()| make());
    }
    if !store::lease_first_user(&auth.database)? {
        return Err(unauthorized(command));
    }
    *auth.has_any.lock() = None;
    let made = check(auth, state, command).and_then(|()| make());
    store::release_first_user(&auth.database)?;
    made
}

/// Returns true if a user or a user-defined role exists. Also true after a read error, so that
/// a failing disk does not enable the localhost exception.
pub(crate) fn has_any(auth: &Auth) -> bool {
    let generation = auth.database.access_generation();
    if let Some((at, since, found)) = *auth.has_any.lock()
        && at == generation
        && !(auth.is_shared && time::since(since) > SHARED_MEMORY)
    {
        return found;
    }
    let found = store::has_any(&auth.database, store::USERS)
        .and_then(|users| Ok(users || store::has_any(&auth.database, store::ROLES)?));
    match found {
        Ok(found) => *auth.has_any.lock() = Some((generation, time::now(), found)),
        Err(ref error) => log::warn!(c = "ACCESS"; "reading users and roles: {error}"),
    }
    found.unwrap_or(true)
}

fn unauthorized(command: &Command) -> Error {
    err!(Unauthorized, "Command {} requires authentication", command.name)
}
