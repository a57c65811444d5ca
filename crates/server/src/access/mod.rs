//! Authorization: the privileges of users and the checks of commands.
//!
//! A role grants privileges. A privilege allows actions on the resources of a pattern. The identity
//! of a connection holds the union of the user's privileges ([`Privileges`]). Each row of the
//! command table declares the command's needs ([`Needs`]), and [`check`] compares both before the
//! handler runs. Without users, authorization costs one branch.

pub(crate) mod action;
pub(crate) mod builtin;
pub(crate) mod cursor;
mod grants;
pub(crate) mod needs;
pub(crate) mod privilege;
pub(crate) mod redact;
pub(crate) mod resource;
pub(crate) mod role;
pub(crate) mod session;
#[cfg(test)]
mod tests;

pub(crate) use action::Action;
pub(crate) use needs::Needs;
pub(crate) use privilege::Privileges;
pub(crate) use resource::Resource;

use crate::command::Command;
use crate::connection::ConnectionState;
use crate::server::Server;
use action::Actions;
use base::{ErrorCode, Result, err};
use needs::Asked;
use privilege::Privilege;
use resource::Pattern;
use std::sync::LazyLock;
use wire::request::Request;

/// Privileges without authentication.
static NOBODY: LazyLock<Privileges> = LazyLock::new(Privileges::default);

/// Privileges of the localhost exception: a local client, while no user exists.
static FIRST: LazyLock<Privileges> = LazyLock::new(|| {
    use Action::*;
    let granted: [(Pattern, &[Action]); 3] = [
        (Pattern::Database("admin".into()), &[CreateUser, GrantRole]),
        (Pattern::Database("$external".into()), &[CreateUser]),
        (Pattern::Cluster, &[AddShard, IssueDirectShardOperations, ReplSetConfigure, ReplSetGetStatus]),
    ];
    Privileges::new(granted.map(|(resource, actions)| Privilege { resource, actions: Actions::of(actions) }))
});

/// Returns true if access control applies to this connection.
pub(crate) fn is_asked(server: &Server, state: &ConnectionState) -> bool {
    server.auth.enabled() && !state.is_system
}

/// Returns the privileges of the connection's user. Only valid with access control.
pub(crate) fn privileges<'a>(server: &Server, state: &'a ConnectionState) -> &'a Privileges {
    match &state.identity {
        Some(identity) => &identity.privileges,
        None if server.auth.localhost_exception(server, state) => &FIRST,
        None => &NOBODY,
    }
}

/// Returns true if a connection may run an action. Always true without access control.
pub(crate) fn may(server: &Server, state: &ConnectionState, resource: Resource<'_>, action: Action) -> bool {
    !is_asked(server, state) || privileges(server, state).allows(resource, action)
}

/// Returns a request with the identity of its connection.
pub(crate) fn asked<'a>(
    server: &'a Server,
    state: &'a ConnectionState,
    request: &'a Request<'a>,
) -> Asked<'a> {
    Asked {
        privileges: privileges(server, state),
        identity: state.identity.as_deref(),
        body: request.body,
        database: request.database,
        sequences: &request.sequences,
        activities: &server.activities,
        store: &server.database,
        record: None,
    }
}

/// Checks that the connection's user may run a command.
///
/// Errors: Unauthorized with MongoDB's text.
pub(crate) fn check(
    server: &Server,
    state: &ConnectionState,
    request: &Request<'_>,
    command: &Command,
) -> Result<()> {
    if !is_asked(server, state) {
        return Ok(());
    }
    state.activity.belongs_to(state.identity.as_ref().map(|identity| &identity.user));
    asked(server, state, request).check(&command.needs).map_err(|error| match error.code() {
        ErrorCode::Unauthorized => {
            let shown = redact::shown(command, request.body);
            err!(Unauthorized, "not authorized on {} to execute command {shown}", request.database)
        }
        _ => error,
    })
}
