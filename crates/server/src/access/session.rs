//! Whose a logical session is: that of the user on the connection that names it.

use super::{Action, Resource, is_asked, privileges};
use crate::connection::ConnectionState;
use crate::server::Server;
use crate::session_id::Named;
use base::{Result, err};
use database::{NOBODY, SessionId};

/// What tells the sessions of whoever is on a connection from those of others.
pub(crate) fn digest(server: &Server, state: &ConnectionState) -> [u8; 32] {
    match &state.identity {
        Some(identity) if is_asked(server, state) => identity.digest,
        _ => NOBODY,
    }
}

/// The session that a connection means; `None` where nobody is there whose it could be.
///
/// Errors: Unauthorized where it is said to be somebody else's, by one who may not speak for others.
pub(crate) fn own(server: &Server, state: &ConnectionState, named: Named) -> Result<Option<SessionId>> {
    own_or(server, state, named, Action::Impersonate)
}

/// The same where another action allows it, too.
///
/// Errors: as for [`own`].
pub(crate) fn own_or(
    server: &Server,
    state: &ConnectionState,
    named: Named,
    also: Action,
) -> Result<Option<SessionId>> {
    if !is_asked(server, state) {
        return Ok(Some(named.id));
    }
    let Some(identity) = &state.identity else { return Ok(None) };
    if !named.has_user {
        return Ok(Some(SessionId::new(named.id.uuid, identity.digest)));
    }
    let privileges = privileges(server, state);
    let speaks_for_others =
        [Action::Impersonate, also].iter().any(|action| privileges.allows(Resource::Cluster, *action));
    match speaks_for_others || *named.id.user() == identity.digest {
        true => Ok(Some(named.id)),
        false => Err(err!(Unauthorized, "Unauthorized to set user digest in LogicalSessionId")),
    }
}
