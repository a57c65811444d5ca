//! Privileges for commands about the server, its operations and whole databases.

use super::super::action::Action;
use super::super::resource::{Resource, is_normal};
use super::{Authorizer, values};
use base::bson::Value;
use base::{Namespace, Result};

/// `currentOp`: requires nothing for the user's own operations.
pub(crate) fn current_op(authorizer: &mut Authorizer<'_>) -> Result<()> {
    match authorizer.has("$ownOps") && authorizer.user().is_some() {
        true => Ok(()),
        false => authorizer.require(Resource::Cluster, Action::Inprog),
    }
}

/// `killOp`: requires nothing for the user's own operation.
pub(crate) fn kill_op(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let number = authorizer.body.get("op").and_then(|number| number.as_number());
    let number = number.and_then(|number| i32::try_from(number.to_i64_exact()?).ok());
    // The scan of all connections runs only for users without the privilege.
    let is_authorized = authorizer.is_authorized(Resource::Cluster, Action::Killop);
    match !is_authorized
        && number.is_some_and(|number| authorizer.activities.is_owned_by(number, authorizer.user()))
    {
        true => Ok(()),
        false => authorizer.require(Resource::Cluster, Action::Killop),
    }
}

/// `killCursors`: requires nothing for the user's own cursors.
pub(crate) fn kill_cursors(authorizer: &mut Authorizer<'_>) -> Result<()> {
    if authorizer.is_authorized(Resource::Cluster, Action::KillAnyCursor) {
        return Ok(());
    }
    let resource = authorizer.collection();
    let name = authorizer.value().and_then(|value| value.as_str()).unwrap_or_default();
    let Ok(namespace) = Namespace::new(authorizer.database, name) else { return Ok(()) };
    let lists: Vec<_> = values(authorizer.body, "cursors").filter_map(|list| list.as_array()).collect();
    for id in lists.into_iter().flat_map(|list| list.iter()).filter_map(|id| id.as_i64()) {
        let Some((of, owner)) = authorizer.store.cursors.tagged(id) else { continue };
        if !super::super::requirements::is_cursor_of(&owner, authorizer.user()) {
            let resource = if of == namespace { resource } else { Resource::Cluster };
            authorizer.require(resource, Action::KillAnyCursor)?;
        }
    }
    Ok(())
}

/// `killAllSessionsByPattern`: impersonation of other users requires a separate privilege.
pub(crate) fn kill_by_pattern(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(Resource::Cluster, Action::KillAnySession)?;
    let patterns = authorizer.value().and_then(|patterns| patterns.as_array());
    let mut patterns = patterns.into_iter().flat_map(|patterns| patterns.iter());
    let speaks_for_others = patterns.any(|pattern| {
        pattern.as_document().is_some_and(|pattern| pattern.find("users").or(pattern.find("roles")).is_some())
    });
    match speaks_for_others {
        true => authorizer.require(Resource::Cluster, Action::Impersonate),
        false => Ok(()),
    }
}

/// `listCollections`: names of the user's authorized collections require no privilege.
pub(crate) fn list_collections(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let only_own = authorizer.has("authorizedCollections") && authorizer.has("nameOnly");
    match only_own && authorizer.privileges.touches(authorizer.database) {
        true => Ok(()),
        false => authorizer.require(Resource::Database(authorizer.database), Action::ListCollections),
    }
}

/// `profile`: a query of the level requires find on the profile collection.
pub(crate) fn profile(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let looks =
        authorizer.value().and_then(|level| level.as_number()).is_some_and(|level| level.to_f64() == -1.0);
    let changes = ["filter", "sampleRate", "slowms"].iter().any(|name| authorizer.body.find(name).is_some());
    let only_looks = looks && !changes;
    let profiled = Resource::Collection(authorizer.database, "system.profile");
    if only_looks && authorizer.is_authorized(profiled, Action::Find) {
        return authorizer.require(profiled, Action::Find);
    }
    authorizer.require(Resource::Database(authorizer.database), Action::EnableProfiler)
}

/// `features`: a new machine id for ObjectIds requires a privilege.
pub(crate) fn features(authorizer: &mut Authorizer<'_>) -> Result<()> {
    match authorizer.has("oidReset") {
        true => authorizer.require(Resource::Cluster, Action::OidReset),
        false => Ok(()),
    }
}

/// `getDiagnosticData`: requires the actions of the commands with these statistics.
pub(crate) fn diagnostic_data(authorizer: &mut Authorizer<'_>) -> Result<()> {
    for action in [Action::ServerStatus, Action::ReplSetGetStatus, Action::ConnPoolStats] {
        authorizer.require(Resource::Cluster, action)?;
    }
    authorizer.require(Resource::Collection("local", "oplog.rs"), Action::CollStats)
}

/// `validateDBMetadata`: requires the action on the named collection or database, by default on all
/// databases.
pub(crate) fn validate_metadata(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let text = |name| values(authorizer.body, name).find_map(|value| value.as_str());
    let resource = match text("db") {
        Some(database) => Resource::named(database, text("collection")),
        None => Resource::AnyNormal,
    };
    authorizer.require(resource, Action::Validate)
}

/// `forkDatabase`: requires actions on the source and the target. A fork of `admin` contains users and their
/// credentials, so it also requires find on them.
pub(crate) fn fork_database(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let source = authorizer.named_database();
    authorizer.require(source, Action::VellumForkDatabase)?;
    if source == Resource::Database("admin") {
        authorizer.require(Resource::Collection("admin", "system.users"), Action::Find)?;
    }
    let targets: Vec<Value<'_>> = values(authorizer.body, "to").collect();
    targets
        .into_iter()
        .filter_map(|to| to.as_str())
        .try_for_each(|to| authorizer.require(Resource::Database(to), Action::VellumForkDatabase))
}

/// `vellumBackup`: requires read access to everything, including users and their credentials.
pub(crate) fn backup(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(Resource::AnyNormal, Action::Find)?;
    authorizer.require(Resource::Collection("admin", "system.users"), Action::Find)
}

/// `diffDatabase`: requires find on both compared databases and on their system collections, since the changes
/// contain documents of all collections.
pub(crate) fn diff_database(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let own = authorizer.value().and_then(|name| name.as_str()).unwrap_or(authorizer.database);
    let origins: Vec<&str> = values(authorizer.body, "origin").filter_map(|origin| origin.as_str()).collect();
    let catalog = authorizer.store.catalog();
    for database in std::iter::once(own).chain(origins) {
        authorizer.require(Resource::Database(database), Action::Find)?;
        let names = catalog.collections(database).map(|collection| collection.namespace.collection());
        for name in names.filter(|name| !is_normal(database, name)) {
            authorizer.require(Resource::Collection(database, name), Action::Find)?;
        }
    }
    Ok(())
}

/// `listSnapshots`: of one database or of all.
pub(crate) fn list_snapshots(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let resource = match authorizer.body.get("db").and_then(|name| name.as_str()) {
        Some(name) => Resource::Database(name),
        None => Resource::AnyNormal,
    };
    authorizer.require(resource, Action::VellumListSnapshots)
}
