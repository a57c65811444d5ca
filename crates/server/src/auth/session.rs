//! Owner of a logical session: the user of the connection that names it.

use super::privileges;
use crate::access::{Action, Resource};
use crate::protocol::session_id::Named;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use base::{Result, err};
use database::{NO_USER, SessionId};

/// Identifies the user of a session, so that users cannot reach each other's sessions.
pub(crate) fn digest(auth: &Auth, state: &ConnectionState) -> [u8; 32] {
    match &state.identity {
        Some(identity) if state.is_access_controlled(auth) => identity.digest,
        _ => NO_USER,
    }
}

/// Returns the session that a connection names; `None` without an authenticated user.
///
/// Errors: Unauthorized if the session names another user and this user may not impersonate.
pub(crate) fn own(auth: &Auth, state: &ConnectionState, named: Named) -> Result<Option<SessionId>> {
    own_or(auth, state, named, Action::Impersonate)
}

/// Does the work of [`own`] if another action also allows it.
///
/// Errors: as [`own`].
pub(crate) fn own_or(
    auth: &Auth,
    state: &ConnectionState,
    named: Named,
    also: Action,
) -> Result<Option<SessionId>> {
    if !state.is_access_controlled(auth) {
        return Ok(Some(named.id));
    }
    let Some(identity) = &state.identity else { return Ok(None) };
    if !named.has_user {
        return Ok(Some(SessionId::new(named.id.uuid, identity.digest)));
    }
    let privileges = privileges(auth, state);
    let speaks_for_others =
        [Action::Impersonate, also].iter().any(|action| privileges.allows(Resource::Cluster, *action));
    match speaks_for_others || *named.id.user() == identity.digest {
        true => Ok(Some(named.id)),
        false => Err(err!(Unauthorized, "Unauthorized to set user digest in LogicalSessionId")),
    }
}
