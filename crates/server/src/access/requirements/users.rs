//! Privileges for commands on users and roles.
//!
//! A grant requires a grant action in the database of the granted role, or in the database of the
//! privilege's resource.

use super::super::action::Action::{self, *};
use super::super::resource::{Pattern, Resource};
use super::{Authorizer, values};
use base::Result;
use base::bson::{Document, Value};

/// Returns the elements of all lists with this field name.
fn listed<'a>(document: Document<'a>, name: &str) -> Vec<Value<'a>> {
    let lists = values(document, name).filter_map(|list| list.as_array());
    lists.flat_map(|list| list.iter().collect::<Vec<_>>()).collect()
}

/// Returns the database of a role or user, given as `{role, db}` or as a name.
fn database_of<'a>(authorizer: &Authorizer<'a>, named: Value<'a>) -> Vec<&'a str> {
    match named {
        Value::Document(named) => values(named, "db").filter_map(|name| name.as_str()).collect(),
        _ => vec![authorizer.database],
    }
}

fn own_database<'a>(authorizer: &Authorizer<'a>) -> Resource<'a> {
    Resource::Database(authorizer.database)
}

/// Requires an action in the databases of all roles in the list `roles`.
pub(super) fn on_roles(authorizer: &mut Authorizer<'_>, action: Action) -> Result<()> {
    for role in listed(authorizer.body, "roles") {
        for database in database_of(authorizer, role) {
            authorizer.require(Resource::Database(database), action)?;
        }
    }
    Ok(())
}

/// Requires an action in the databases of the resources in the list `privileges`. A resource in
/// more than one database requires it in `admin`.
pub(super) fn on_privileges(authorizer: &mut Authorizer<'_>, action: Action) -> Result<()> {
    for privilege in listed(authorizer.body, "privileges") {
        let Some(privilege) = privilege.as_document() else { continue };
        for resource in values(privilege, "resource").filter_map(|resource| resource.as_document()) {
            match Pattern::parse("resource", resource) {
                Ok(Pattern::Database(database) | Pattern::Collection(database, _)) => {
                    authorizer.require(Resource::Database(&database), action)?;
                }
                _ => authorizer.require(Resource::Database("admin"), action)?,
            }
        }
    }
    Ok(())
}

fn on_restrictions(authorizer: &mut Authorizer<'_>) -> Result<()> {
    match authorizer.body.find("authenticationRestrictions") {
        Some(_) => authorizer.require(own_database(authorizer), SetAuthenticationRestriction),
        None => Ok(()),
    }
}

/// `createUser`: also requires the rights to grant its roles and to set its restrictions.
pub(crate) fn create_user(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(own_database(authorizer), CreateUser)?;
    on_roles(authorizer, GrantRole)?;
    on_restrictions(authorizer)
}

/// `updateUser`: users may change their own password and data with separate actions. A change of
/// roles requires the right to revoke any role, since the revoked roles are unknown here.
pub(crate) fn update_user(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let name = authorizer.value().and_then(|name| name.as_str());
    let is_own =
        authorizer.user().is_some_and(|own| Some(own.name.as_str()) == name && own.db == authorizer.database);
    for (field, others, own) in [
        ("pwd", ChangePassword, ChangeOwnPassword),
        // A change of mechanisms removes credentials, like a change of the password.
        ("mechanisms", ChangePassword, ChangeOwnPassword),
        ("customData", ChangeCustomData, ChangeOwnCustomData),
    ] {
        if authorizer.body.find(field).is_some()
            && !(is_own && authorizer.is_authorized(own_database(authorizer), own))
        {
            authorizer.require(own_database(authorizer), others)?;
        }
    }
    if authorizer.body.find("roles").is_some() {
        authorizer.require(Resource::AnyNormal, RevokeRole)?;
        on_roles(authorizer, GrantRole)?;
    }
    on_restrictions(authorizer)
}

/// `_mergeAuthzCollections`: requires the rights to create all users and roles, and to read the
/// dump's collections.
pub(crate) fn merge_users(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let made = [CreateUser, CreateRole, GrantRole, RevokeRole];
    let dropped = [DropUser, DropRole];
    let dropped = dropped.iter().filter(|_| authorizer.has("drop"));
    for action in made.iter().chain(dropped).copied().collect::<Vec<_>>() {
        authorizer.require(Resource::AnyNormal, action)?;
    }
    for name in ["tempUsersCollection", "tempRolesCollection"] {
        for from in values(authorizer.body, name).filter_map(|from| from.as_str()).collect::<Vec<_>>() {
            let (database, collection) = from.split_once('.').unwrap_or((from, ""));
            authorizer.require(Resource::named(database, Some(collection)), Find)?;
        }
    }
    Ok(())
}

/// `createRole`: also requires the rights to grant its roles and privileges, and to set its
/// restrictions.
pub(crate) fn create_role(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(own_database(authorizer), CreateRole)?;
    on_roles(authorizer, GrantRole)?;
    on_privileges(authorizer, GrantRole)?;
    on_restrictions(authorizer)
}

/// `updateRole`: requires the right to revoke any role, since the revoked roles and privileges are
/// unknown here.
pub(crate) fn update_role(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(Resource::AnyNormal, RevokeRole)?;
    on_roles(authorizer, GrantRole)?;
    on_privileges(authorizer, GrantRole)?;
    on_restrictions(authorizer)
}

/// `usersInfo`: users may always read their own document.
pub(crate) fn users_info(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let Some(requested) = authorizer.value() else { return Ok(()) };
    if let Value::Document(requested) = requested
        && requested.find("forAllDBs").is_some()
    {
        return authorizer.require(Resource::Cluster, ViewUser);
    }
    for user in names_in(requested) {
        let is_own = authorizer
            .user()
            .is_some_and(|own| is_named(user, "user", &own.name, &own.db, authorizer.database));
        if !is_own {
            on_named(authorizer, user, ViewUser)?;
        }
    }
    Ok(())
}

/// `rolesInfo`: users may always read their own roles.
pub(crate) fn roles_info(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let Some(requested) = authorizer.value() else { return Ok(()) };
    for role in names_in(requested) {
        let mut user_roles = authorizer.identity.into_iter().flat_map(|identity| &identity.roles);
        if !user_roles.any(|known| is_named(role, "role", &known.role, &known.db, authorizer.database)) {
            on_named(authorizer, role, ViewRole)?;
        }
    }
    Ok(())
}

/// Returns the requested names: one name or the elements of a list.
fn names_in(requested: Value<'_>) -> Vec<Value<'_>> {
    match requested {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    }
}

fn on_named(authorizer: &mut Authorizer<'_>, named: Value<'_>, action: Action) -> Result<()> {
    let databases = database_of(authorizer, named);
    if databases.is_empty() {
        return authorizer.require(own_database(authorizer), action);
    }
    databases.into_iter().try_for_each(|database| authorizer.require(Resource::Database(database), action))
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
