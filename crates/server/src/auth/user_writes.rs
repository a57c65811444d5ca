//! Check of `setUserWriteBlockMode` before a write. Users with `bypassWriteBlockingMode` pass.

use super::is_authorized;
use crate::access::command::{Command, Kind};
use crate::access::{self, Action};
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use base::bson::{Document, Value};
use base::namespace::is_internal_database;
use base::{Result, err};
use database::language::{Requester, Resource, stages_of};
use wire::request::Request;

/// Refuses a command that writes to a user database, while such writes are blocked.
///
/// Errors: UserWritesBlocked.
pub(crate) fn check(
    auth: &Auth,
    state: &ConnectionState,
    command: &Command,
    request: &Request<'_>,
) -> Result<()> {
    if state.is_system || !writes_for_user(command, request) {
        return Ok(());
    }
    let bypasses = state.is_access_controlled(auth)
        && is_authorized(auth, state, access::Resource::Cluster, Action::BypassWriteBlockingMode);
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
        "renameCollection" => names_user(own) || names_user(request.body.get("to")),
        "applyOps" => documents(own).any(|operation| names_user(operation.get("ns"))),
        // Users and roles are stored in `admin`.
        name if name.contains("User") || name.contains("Role") => false,
        _ => command.kind == Kind::Write && command.takes_write_concern && is_of_user(request.database),
    }
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
    let mut targets = stage.rights(spec.value(), &requester).into_iter().filter_map(|right| match right.on {
        Resource::Target(target) => target.as_document()?.get("db")?.as_str(),
        _ => None,
    });
    Some(targets.next_back().unwrap_or(request.database))
}
