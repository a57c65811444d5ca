//! Check of a command's needs against the privileges of its connection. Without access control the
//! check costs one branch.

use super::{localhost_exception, redact};
use crate::access::action::Actions;
use crate::access::command::Command;
use crate::access::privilege::Privilege;
use crate::access::requirements::Authorizer;
use crate::access::resource::Pattern;
use crate::access::{Action, Privileges, Resource};
use crate::observe::activity::Activities;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use base::{ErrorCode, Result, err};
use std::sync::LazyLock;
use wire::request::Request;

/// Privileges without authentication.
static NO_PRIVILEGES: LazyLock<Privileges> = LazyLock::new(Privileges::default);

/// Privileges of the localhost exception: a local client, while no user exists.
static LOCALHOST_EXCEPTION: LazyLock<Privileges> = LazyLock::new(|| {
    use Action::*;
    let granted: [(Pattern, &[Action]); 3] = [
        (Pattern::Database("admin".into()), &[CreateUser, GrantRole]),
        (Pattern::Database("$external".into()), &[CreateUser]),
        (Pattern::Cluster, &[AddShard, IssueDirectShardOperations, ReplSetConfigure, ReplSetGetStatus]),
    ];
    Privileges::new(granted.map(|(resource, actions)| Privilege { resource, actions: Actions::of(actions) }))
});

/// Returns the privileges of the connection's user. Only valid with access control.
pub(crate) fn privileges<'a>(auth: &Auth, state: &'a ConnectionState) -> &'a Privileges {
    match &state.identity {
        Some(identity) => &identity.privileges,
        None if localhost_exception(auth, state) => &LOCALHOST_EXCEPTION,
        None => &NO_PRIVILEGES,
    }
}

/// Returns true if a connection may run an action. Always true without access control.
pub(crate) fn is_authorized(
    auth: &Auth,
    state: &ConnectionState,
    resource: Resource<'_>,
    action: Action,
) -> bool {
    !state.is_access_controlled(auth) || privileges(auth, state).allows(resource, action)
}

/// Returns a request with the identity of its connection; `None` without access control.
pub(crate) fn authorizer<'a>(
    auth: &'a Auth,
    activities: &'a Activities,
    state: &'a ConnectionState,
    request: &'a Request<'a>,
) -> Option<Authorizer<'a>> {
    state.is_access_controlled(auth).then(|| Authorizer {
        privileges: privileges(auth, state),
        identity: state.identity.as_deref(),
        body: request.body,
        database: request.database,
        sequences: &request.sequences,
        activities,
        store: &auth.database,
        requirements_of: auth.requirements_of,
        record: None,
    })
}

/// Checks that the connection's user may run a command.
///
/// Errors: Unauthorized with MongoDB's text.
pub(crate) fn authorize(
    auth: &Auth,
    activities: &Activities,
    state: &ConnectionState,
    request: &Request<'_>,
    command: &Command,
) -> Result<()> {
    let Some(mut authorizer) = authorizer(auth, activities, state, request) else { return Ok(()) };
    state.activity.set_user(state.identity.as_ref().map(|identity| &identity.user));
    authorizer.check(&command.requirements).map_err(|error| match error.code() {
        ErrorCode::Unauthorized => {
            let shown = redact::shown(command, request.body);
            err!(Unauthorized, "not authorized on {} to execute command {shown}", request.database)
        }
        _ => error,
    })
}
