//! What a connection may do: the privileges of its user, the logical sessions that it may name, and its writes while
//! `setUserWriteBlockMode` blocks those of users.
//!
//! Without access control the check of privileges costs one branch.

use super::{localhost_exception, redact};
use crate::access::action::Actions;
use crate::access::privilege::Privilege;
use crate::access::requirements::Authorizer;
use crate::access::resource::Pattern;
use crate::access::{Action, Command, Kind, Privileges, Resource};
use crate::observe::activity::Activities;
use crate::protocol::session_id::Named;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use base::bson::{Document, Value};
use base::namespace::is_internal_database;
use base::{ErrorCode, Result, err};
use database::language::{self, Requester, stages_of};
use database::{NO_USER, SessionId};
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
        compatible_with: auth.compatible_with,
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

/// Refuses a command that writes to a user database, while such writes are blocked.
///
/// Errors: UserWritesBlocked.
pub(crate) fn check_user_writes(
    auth: &Auth,
    state: &ConnectionState,
    command: &Command,
    request: &Request<'_>,
) -> Result<()> {
    if state.is_system || !writes_for_user(command, request) {
        return Ok(());
    }
    let bypasses = state.is_access_controlled(auth)
        && is_authorized(auth, state, Resource::Cluster, Action::BypassWriteBlockingMode);
    match bypasses {
        true => Ok(()),
        false => Err(err!(UserWritesBlocked, "User writes blocked")),
    }
}

/// Returns true if a command writes to a user database.
fn writes_for_user(command: &Command, request: &Request<'_>) -> bool {
    let own = request.body.first().map(|first| first.value());
    match command.name {
        "aggregate" => output(request).is_some_and(is_of_user),
        "bulkWrite" => {
            let listed = request.sequences.iter().flat_map(|sequence| sequence.documents.iter());
            documents(request.body.get("nsInfo")).chain(listed).any(|info| names_user(info.get("ns")))
        }
        "renameCollection" | "forkDatabase" | "resetDatabase" | "restoreDatabase" => {
            names_user(own) || names_user(request.body.get("to"))
        }
        "applyOps" => documents(own).any(writes_entry_for_user),
        // Users and roles are stored in `admin`.
        name if name.contains("User") || name.contains("Role") => false,
        _ => command.kind == Kind::Write && command.takes_write_concern && is_of_user(request.database),
    }
}

/// Returns true if an operation of applyOps writes to a user database. The nesting limit of messages bounds the
/// recursion.
fn writes_entry_for_user(operation: Document<'_>) -> bool {
    let is_command = operation.get("op").and_then(|kind| kind.as_str()) == Some("c");
    let change = operation.get("o").filter(|_| is_command).and_then(|change| change.as_document());
    let change = change.unwrap_or(Document::EMPTY);
    let names = ["renameCollection", "to"].map(|name| change.get(name));
    names_user(operation.get("ns"))
        || names.into_iter().any(names_user)
        || documents(change.get("applyOps")).any(writes_entry_for_user)
}

fn is_of_user(database: &str) -> bool {
    !is_internal_database(database)
}

/// Returns true if a namespace is in a user database.
fn names_user(namespace: Option<Value<'_>>) -> bool {
    let database = namespace.and_then(|namespace| namespace.as_str()?.split('.').next());
    database.is_some_and(is_of_user)
}

fn documents(array: Option<Value<'_>>) -> impl Iterator<Item = Document<'_>> {
    let array = array.and_then(|array| array.as_array());
    array.into_iter().flat_map(|array| array.iter()).filter_map(|value| value.as_document())
}

/// Returns the target database of a pipeline's last stage.
fn output<'a>(request: &Request<'a>) -> Option<&'a str> {
    let pipeline = request.body.get("pipeline")?.as_array()?;
    let (stage, spec) = stages_of(pipeline).last().filter(|(stage, _)| stage.writes())?;
    let requester = Requester { database: request.database, collection: None, is: &|_| false };
    let targets = stage.rights(spec.value(), &requester).into_iter().filter_map(|right| match right.on {
        language::Resource::Target(target) => target.as_document(),
        _ => None,
    });
    let databases = targets.flat_map(|target| target.iter()).filter(|field| field.name() == "db");
    let named = databases.filter_map(|field| field.value().as_str()).filter(|name| !name.is_empty());
    Some(named.last().unwrap_or(request.database))
}

/// Identifies the user of a session, so that users cannot reach each other's sessions.
pub(crate) fn session_digest(auth: &Auth, state: &ConnectionState) -> [u8; 32] {
    match &state.identity {
        Some(identity) if state.is_access_controlled(auth) => identity.digest,
        _ => NO_USER,
    }
}

/// Returns the session that a connection names; `None` without an authenticated user.
///
/// Errors: Unauthorized if the session names another user and this user may not impersonate.
pub(crate) fn own_session(auth: &Auth, state: &ConnectionState, named: Named) -> Result<Option<SessionId>> {
    own_session_or(auth, state, named, Action::Impersonate)
}

/// Does the work of [`own_session`] if another action also allows it.
///
/// Errors: as [`own_session`].
pub(crate) fn own_session_or(
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
