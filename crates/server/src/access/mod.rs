//! Authorisation: what somebody may do.
//!
//! A role grants privileges, each the right to some actions on what a resource pattern fits; those of a user's roles, put
//! together as [`Privileges`], lie on the connection's identity. Each row of the command table says what the command
//! needs ([`Needs`]), and [`check`] holds the one against the other before the handler runs. Where there are no users
//! all of this is one branch.

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

/// What somebody may do who hasn't logged in.
static NOBODY: LazyLock<Privileges> = LazyLock::new(Privileges::default);

/// What somebody may do who hasn't logged in, at the machine itself and before there is any user.
static FIRST: LazyLock<Privileges> = LazyLock::new(|| {
    use Action::*;
    let granted: [(Pattern, &[Action]); 3] = [
        (Pattern::Database("admin".into()), &[CreateUser, GrantRole]),
        (Pattern::Database("$external".into()), &[CreateUser]),
        (Pattern::Cluster, &[AddShard, IssueDirectShardOperations, ReplSetConfigure, ReplSetGetStatus]),
    ];
    Privileges::new(granted.map(|(resource, actions)| Privilege { resource, actions: Actions::of(actions) }))
});

/// Whether anybody is asked what they may do on this connection.
pub(crate) fn is_asked(server: &Server, state: &ConnectionState) -> bool {
    server.auth.enabled() && !state.is_system
}

/// What whoever is on a connection may do. Only where they are asked.
pub(crate) fn privileges<'a>(server: &Server, state: &'a ConnectionState) -> &'a Privileges {
    match &state.identity {
        Some(identity) => &identity.privileges,
        None if server.auth.localhost_exception(server, state) => &FIRST,
        None => &NOBODY,
    }
}

/// Whether a connection may do something: always, where nobody is asked.
pub(crate) fn may(server: &Server, state: &ConnectionState, resource: Resource<'_>, action: Action) -> bool {
    !is_asked(server, state) || privileges(server, state).allows(resource, action)
}

/// A request and who asks.
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

/// Refuses a command that whoever is on the connection may not run.
///
/// Errors: Unauthorized as MongoDB words it.
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
