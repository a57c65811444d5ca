//! Privileges for commands about the server, its operations and whole databases.

use super::super::action::Action;
use super::super::resource::Resource;
use super::data::full;
use super::{Asked, values};
use base::bson::{Document, Value};
use base::{Namespace, Result};

/// `currentOp`: requires nothing for the user's own operations.
pub(crate) fn current_op(asked: &mut Asked<'_>) -> Result<()> {
    match asked.has("$ownOps") && asked.user().is_some() {
        true => Ok(()),
        false => asked.need(Resource::Cluster, Action::Inprog),
    }
}

/// `killOp`: requires nothing for the user's own operation.
pub(crate) fn kill_op(asked: &mut Asked<'_>) -> Result<()> {
    let number = asked.body.get("op").and_then(|number| number.as_number());
    let number = number.and_then(|number| u64::try_from(number.to_i64_clamped()).ok());
    // The scan of all connections runs only for users without the privilege.
    let may = asked.may(Resource::Cluster, Action::Killop);
    match !may && number.is_some_and(|number| asked.activities.is_of(number, asked.user())) {
        true => Ok(()),
        false => asked.need(Resource::Cluster, Action::Killop),
    }
}

/// `killCursors`: requires nothing for the user's own cursors.
pub(crate) fn kill_cursors(asked: &mut Asked<'_>) -> Result<()> {
    if asked.may(Resource::Cluster, Action::KillAnyCursor) {
        return Ok(());
    }
    let resource = asked.collection();
    let name = asked.value().and_then(|value| value.as_str()).unwrap_or_default();
    let Ok(namespace) = Namespace::new(asked.database, name) else { return Ok(()) };
    let lists: Vec<_> = values(asked.body, "cursors").filter_map(|list| list.as_array()).collect();
    for id in lists.into_iter().flat_map(|list| list.iter()).filter_map(|id| id.as_i64()) {
        let owner = asked.store.cursors.tag(id, &namespace);
        if !owner.is_none_or(|owner| super::super::cursor::is_of(&owner, asked.user())) {
            asked.need(resource, Action::KillAnyCursor)?;
        }
    }
    Ok(())
}

/// `killAllSessionsByPattern`: impersonation of other users requires a separate privilege.
pub(crate) fn kill_by_pattern(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(Resource::Cluster, Action::KillAnySession)?;
    let patterns = asked.value().and_then(|patterns| patterns.as_array());
    let mut patterns = patterns.into_iter().flat_map(|patterns| patterns.iter());
    let speaks_for_others = patterns.any(|pattern| {
        pattern.as_document().is_some_and(|pattern| pattern.find("users").or(pattern.find("roles")).is_some())
    });
    match speaks_for_others {
        true => asked.need(Resource::Cluster, Action::Impersonate),
        false => Ok(()),
    }
}

/// `listCollections`: names of the user's authorized collections require no privilege.
pub(crate) fn list_collections(asked: &mut Asked<'_>) -> Result<()> {
    let only_own = asked.has("authorizedCollections") && asked.has("nameOnly");
    match only_own && asked.privileges.touches(asked.database) {
        true => Ok(()),
        false => asked.need(Resource::Database(asked.database), Action::ListCollections),
    }
}

/// `profile`: a query of the level requires find on the profile collection.
pub(crate) fn profile(asked: &mut Asked<'_>) -> Result<()> {
    let looks = asked.value().and_then(|level| level.as_number()).is_some_and(|level| level.to_f64() == -1.0);
    let changes = ["filter", "sampleRate", "slowms"].iter().any(|name| asked.body.find(name).is_some());
    let only_looks = looks && !changes;
    let profiled = Resource::Collection(asked.database, "system.profile");
    if only_looks && asked.may(profiled, Action::Find) {
        return asked.need(profiled, Action::Find);
    }
    asked.need(Resource::Database(asked.database), Action::EnableProfiler)
}

/// `features`: a new machine id for ObjectIds requires a privilege.
pub(crate) fn features(asked: &mut Asked<'_>) -> Result<()> {
    match asked.has("oidReset") {
        true => asked.need(Resource::Cluster, Action::OidReset),
        false => Ok(()),
    }
}

/// `getDiagnosticData`: requires the actions of the commands with these statistics.
pub(crate) fn diagnostic_data(asked: &mut Asked<'_>) -> Result<()> {
    for action in [Action::ServerStatus, Action::ReplSetGetStatus, Action::ConnPoolStats] {
        asked.need(Resource::Cluster, action)?;
    }
    asked.need(Resource::Collection("local", "oplog.rs"), Action::CollStats)
}

/// `validateDBMetadata`: requires the action on the named collection or database, by default on all
/// databases.
pub(crate) fn validate_metadata(asked: &mut Asked<'_>) -> Result<()> {
    let text = |name| values(asked.body, name).find_map(|value| value.as_str());
    let resource = match text("db") {
        Some(database) => Resource::named(database, text("collection")),
        None => Resource::AnyNormal,
    };
    asked.need(resource, Action::Validate)
}

/// `applyOps`: requires its own action, and for each operation the privileges of the matching
/// command.
pub(crate) fn apply_ops(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(Resource::Cluster, Action::ApplyOps)?;
    let operations = asked.value().and_then(|operations| operations.as_array());
    for operation in operations.into_iter().flat_map(|operations| operations.iter()) {
        let Some(operation) = operation.as_document() else { continue };
        let kinds: Vec<&str> = values(operation, "op").filter_map(|kind| kind.as_str()).collect();
        let names: Vec<&str> = values(operation, "ns").filter_map(|name| name.as_str()).collect();
        for (kind, name) in kinds.iter().flat_map(|kind| names.iter().map(move |name| (*kind, *name))) {
            applied(asked, kind, name, operation)?;
        }
    }
    Ok(())
}

fn applied(asked: &mut Asked<'_>, kind: &str, name: &str, operation: Document<'_>) -> Result<()> {
    // A UUID may refer to any collection.
    if operation.find("ui").is_some() {
        asked.need(Resource::Cluster, Action::UseUUID)?;
    }
    match kind {
        "n" => Ok(()),
        "i" => {
            // An insert replaces an existing document.
            asked.need(full(name), Action::Insert)?;
            asked.need(full(name), Action::Update)
        }
        "u" => {
            asked.need(full(name), Action::Update)?;
            asked.need(full(name), Action::Insert)
        }
        "d" => asked.need(full(name), Action::Remove),
        "c" => {
            let database = name.split_once('.').map_or(name, |parts| parts.0);
            let command = operation.get("o").and_then(|command| command.as_document());
            let command = command.unwrap_or(Document::EMPTY);
            match command.first().map_or("", |first| first.name()) {
                // createIndexes derives the same privilege from its request. Here the entry names
                // the collection.
                "startIndexBuild" | "commitIndexBuild" | "abortIndexBuild" => {
                    let collection = command.first().and_then(|first| first.value().as_str());
                    asked.need(Resource::named(database, collection), Action::CreateIndex)
                }
                "dropIndex" | "deleteIndex" => {
                    let collection = command.first().and_then(|first| first.value().as_str());
                    asked.need(Resource::named(database, collection), Action::DropIndex)
                }
                name if (asked.needs_of)(name).is_none() => asked.need(Resource::Cluster, Action::Internal),
                _ => asked.check_other(database, command),
            }
        }
        _ => asked.need(Resource::Cluster, Action::Internal),
    }
}

/// `resetDatabase`.
pub(crate) fn reset_database(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.named_database(), Action::VellumResetDatabase)
}

/// `snapshotDatabase` and `dropSnapshot`.
pub(crate) fn snapshot_database(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.named_database(), Action::VellumSnapshotDatabase)
}

/// `restoreDatabase`.
pub(crate) fn restore_database(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.named_database(), Action::VellumRestoreDatabase)
}

/// `forkDatabase`: requires actions on the source and the target.
pub(crate) fn fork_database(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.named_database(), Action::VellumForkDatabase)?;
    let targets: Vec<Value<'_>> = values(asked.body, "to").collect();
    targets
        .into_iter()
        .filter_map(|to| to.as_str())
        .try_for_each(|to| asked.need(Resource::Database(to), Action::VellumForkDatabase))
}

/// `vellumBackup`: requires read access to everything, including users and their credentials.
pub(crate) fn backup(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(Resource::AnyNormal, Action::Find)?;
    asked.need(Resource::Collection("admin", "system.users"), Action::Find)
}

/// `diffDatabase`: requires find on both compared databases.
pub(crate) fn diff_database(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.named_database(), Action::Find)?;
    let origins: Vec<Value<'_>> = values(asked.body, "origin").collect();
    origins
        .into_iter()
        .filter_map(|origin| origin.as_str())
        .try_for_each(|origin| asked.need(Resource::Database(origin), Action::Find))
}

/// `listSnapshots`: of one database or of all.
pub(crate) fn list_snapshots(asked: &mut Asked<'_>) -> Result<()> {
    let resource = match asked.body.get("db").and_then(|name| name.as_str()) {
        Some(name) => Resource::Database(name),
        None => Resource::AnyNormal,
    };
    asked.need(resource, Action::VellumListSnapshots)
}
