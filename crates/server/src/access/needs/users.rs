//! Privileges for commands on users and roles.
//!
//! A grant requires a grant action in the database of the granted role, or in the database of the
//! privilege's resource.

use super::super::action::Action::{self, *};
use super::super::resource::{Pattern, Resource};
use super::{Asked, values};
use base::Result;
use base::bson::{Document, Value};

/// Returns the elements of all lists with this field name.
fn listed<'a>(document: Document<'a>, name: &str) -> Vec<Value<'a>> {
    let lists = values(document, name).filter_map(|list| list.as_array());
    lists.flat_map(|list| list.iter().collect::<Vec<_>>()).collect()
}

/// Returns the database of a role or user, given as `{role, db}` or as a name.
fn database_of<'a>(asked: &Asked<'a>, named: Value<'a>) -> Vec<&'a str> {
    match named {
        Value::Document(named) => values(named, "db").filter_map(|name| name.as_str()).collect(),
        _ => vec![asked.database],
    }
}

fn own_database<'a>(asked: &Asked<'a>) -> Resource<'a> {
    Resource::Database(asked.database)
}

/// Requires an action in the databases of all roles in the list `roles`.
fn on_roles(asked: &mut Asked<'_>, action: Action) -> Result<()> {
    for role in listed(asked.body, "roles") {
        for database in database_of(asked, role) {
            asked.need(Resource::Database(database), action)?;
        }
    }
    Ok(())
}

/// Requires an action in the databases of the resources in the list `privileges`. A resource in
/// more than one database requires it in `admin`.
fn on_privileges(asked: &mut Asked<'_>, action: Action) -> Result<()> {
    for privilege in listed(asked.body, "privileges") {
        let Some(privilege) = privilege.as_document() else { continue };
        for resource in values(privilege, "resource").filter_map(|resource| resource.as_document()) {
            match Pattern::parse(resource) {
                Ok(Pattern::Database(database) | Pattern::Collection(database, _)) => {
                    asked.need(Resource::Database(&database), action)?;
                }
                _ => asked.need(Resource::Database("admin"), action)?,
            }
        }
    }
    Ok(())
}

fn on_restrictions(asked: &mut Asked<'_>) -> Result<()> {
    match asked.body.find("authenticationRestrictions") {
        Some(_) => asked.need(own_database(asked), SetAuthenticationRestriction),
        None => Ok(()),
    }
}

/// `createUser`: also requires the rights to grant its roles and to set its restrictions.
pub(crate) fn create_user(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(own_database(asked), CreateUser)?;
    on_roles(asked, GrantRole)?;
    on_restrictions(asked)
}

/// `updateUser`: users may change their own password and data with separate actions. A change of
/// roles requires the right to revoke any role, since the revoked roles are unknown here.
pub(crate) fn update_user(asked: &mut Asked<'_>) -> Result<()> {
    let name = asked.value().and_then(|name| name.as_str());
    let is_own = asked.user().is_some_and(|own| Some(own.name.as_str()) == name && own.db == asked.database);
    for (field, others, own) in [
        ("pwd", ChangePassword, ChangeOwnPassword),
        // A change of mechanisms removes credentials, like a change of the password.
        ("mechanisms", ChangePassword, ChangeOwnPassword),
        ("customData", ChangeCustomData, ChangeOwnCustomData),
    ] {
        if asked.body.find(field).is_some() && !(is_own && asked.may(own_database(asked), own)) {
            asked.need(own_database(asked), others)?;
        }
    }
    if asked.body.find("roles").is_some() {
        asked.need(Resource::AnyNormal, RevokeRole)?;
        on_roles(asked, GrantRole)?;
    }
    on_restrictions(asked)
}

/// `_mergeAuthzCollections`: requires the rights to create all users and roles, and to read the
/// dump's collections.
pub(crate) fn merge_users(asked: &mut Asked<'_>) -> Result<()> {
    let made = [CreateUser, CreateRole, GrantRole, RevokeRole];
    let dropped = [DropUser, DropRole];
    let dropped = dropped.iter().filter(|_| asked.has("drop"));
    for action in made.iter().chain(dropped).copied().collect::<Vec<_>>() {
        asked.need(Resource::AnyNormal, action)?;
    }
    for name in ["tempUsersCollection", "tempRolesCollection"] {
        for from in values(asked.body, name).filter_map(|from| from.as_str()).collect::<Vec<_>>() {
            let (database, collection) = from.split_once('.').unwrap_or((from, ""));
            asked.need(Resource::named(database, Some(collection)), Find)?;
        }
    }
    Ok(())
}

/// `grantRolesToUser` and `grantRolesToRole`: require grantRole in the databases of the roles.
pub(crate) fn grant_roles(asked: &mut Asked<'_>) -> Result<()> {
    on_roles(asked, GrantRole)
}

/// `revokeRolesFromUser` and `revokeRolesFromRole`: require revokeRole in the databases of the
/// roles.
pub(crate) fn revoke_roles(asked: &mut Asked<'_>) -> Result<()> {
    on_roles(asked, RevokeRole)
}

/// `grantPrivilegesToRole`: requires grantRole in the databases of the privileges.
pub(crate) fn grant_privileges(asked: &mut Asked<'_>) -> Result<()> {
    on_privileges(asked, GrantRole)
}

/// `revokePrivilegesFromRole`: requires revokeRole in the databases of the privileges.
pub(crate) fn revoke_privileges(asked: &mut Asked<'_>) -> Result<()> {
    on_privileges(asked, RevokeRole)
}

/// `createRole`: also requires the rights to grant its roles and privileges, and to set its
/// restrictions.
pub(crate) fn create_role(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(own_database(asked), CreateRole)?;
    on_roles(asked, GrantRole)?;
    on_privileges(asked, GrantRole)?;
    on_restrictions(asked)
}

/// `updateRole`: requires the right to revoke any role, since the revoked roles and privileges are
/// unknown here.
pub(crate) fn update_role(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(Resource::AnyNormal, RevokeRole)?;
    on_roles(asked, GrantRole)?;
    on_privileges(asked, GrantRole)?;
    on_restrictions(asked)
}

/// `usersInfo`: users may always read their own document.
pub(crate) fn users_info(asked: &mut Asked<'_>) -> Result<()> {
    let Some(wanted) = asked.value() else { return Ok(()) };
    if let Value::Document(wanted) = wanted
        && wanted.find("forAllDBs").is_some()
    {
        return asked.need(Resource::Cluster, ViewUser);
    }
    for user in each(wanted) {
        let is_own =
            asked.user().is_some_and(|own| is_named(user, "user", &own.name, &own.db, asked.database));
        if !is_own {
            on_named(asked, user, ViewUser)?;
        }
    }
    Ok(())
}

/// `rolesInfo`: users may always read their own roles.
pub(crate) fn roles_info(asked: &mut Asked<'_>) -> Result<()> {
    let Some(wanted) = asked.value() else { return Ok(()) };
    for role in each(wanted) {
        let mut own = asked.identity.into_iter().flat_map(|identity| &identity.roles);
        if !own.any(|own| is_named(role, "role", &own.role, &own.db, asked.database)) {
            on_named(asked, role, ViewRole)?;
        }
    }
    Ok(())
}

/// Returns the requested names: one name or the elements of a list.
fn each(wanted: Value<'_>) -> Vec<Value<'_>> {
    match wanted {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    }
}

fn on_named(asked: &mut Asked<'_>, named: Value<'_>, action: Action) -> Result<()> {
    let databases = database_of(asked, named);
    if databases.is_empty() {
        return asked.need(own_database(asked), action);
    }
    databases.into_iter().try_for_each(|database| asked.need(Resource::Database(database), action))
}

/// Returns true if the value names exactly this user or role of a database.
fn is_named(named: Value<'_>, field: &str, name: &str, database: &str, current: &str) -> bool {
    match named {
        Value::String(text) => text == name && database == current,
        Value::Document(named) => {
            let all = |field: &str, expected: &str| {
                values(named, field).all(|value| value.as_str() == Some(expected))
                    && named.find(field).is_some()
            };
            all(field, name) && all("db", database)
        }
        _ => false,
    }
}
