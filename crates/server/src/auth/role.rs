//! User-defined roles: documents in `admin.system.roles` in MongoDB's form, and their resolution.

use super::store::{self, ROLES};
use crate::access::action::{Action, Actions};
use crate::access::builtin;
use crate::access::privilege::{Privilege, Privileges, add};
use crate::access::resource::Pattern;
use crate::protocol::names::RoleName;
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value, ValueBuf};
use base::{Result, bail, err};
use database::Database;
use std::sync::Arc;

/// Effective content of roles, including inherited roles.
#[derive(Default)]
pub(crate) struct Resolved {
    /// Inherited roles without duplicates, in no defined order.
    pub(crate) inherited: Vec<RoleName>,
    /// Privileges of all these roles.
    pub(crate) privileges: Vec<Privilege>,
    /// Authentication restrictions of each role that has them.
    pub(crate) restrictions: Vec<ValueBuf>,
}

/// Returns the document of a user-defined role.
///
/// Errors: the store's errors.
pub(crate) fn document(database: &Arc<Database>, role: &RoleName) -> Result<Option<DocumentBuf>> {
    let mut filter = Builder::new();
    filter.append(c"_id", &role.id()).append(c"role", &role.role).append(c"db", &role.db);
    Ok(store::find(database, ROLES, filter.finish().view())?.into_iter().next())
}

/// Returns the roles in the document of a role or user.
pub(crate) fn named_in(document: Document<'_>) -> Vec<RoleName> {
    let listed = document.get("roles").and_then(|roles| roles.as_array());
    let name = |role: Value<'_>| {
        let role = role.as_document()?;
        Some(RoleName::new(role.get("role")?.as_str()?, role.get("db")?.as_str()?))
    };
    listed.into_iter().flat_map(|roles| roles.iter()).filter_map(name).collect()
}

/// Returns the privileges in a role's document. Unknown actions are ignored.
pub(crate) fn privileges_in(document: Document<'_>) -> Vec<Privilege> {
    let listed = document.get("privileges").and_then(|privileges| privileges.as_array());
    let mut privileges = Vec::new();
    for privilege in listed.into_iter().flat_map(|privileges| privileges.iter()) {
        if let Some(privilege) = privilege.as_document().and_then(stored) {
            add(&mut privileges, privilege);
        }
    }
    privileges
}

fn stored(privilege: Document<'_>) -> Option<Privilege> {
    let resource = Pattern::parse("resource", privilege.get("resource")?.as_document()?).ok()?;
    let names = privilege.get("actions")?.as_array()?;
    let mut actions = Actions::NONE;
    for action in names.iter().filter_map(|name| Action::of_name(name.as_str()?)) {
        actions = match action {
            Action::AnyAction => Actions::ALL,
            action => actions.and(Actions::one(action)),
        };
    }
    Some(Privilege { resource, actions })
}

/// Resolves roles. Missing roles grant nothing. Cycles are allowed.
///
/// Errors: the store's errors.
pub(crate) fn resolve(database: &Arc<Database>, roles: &[RoleName]) -> Result<Resolved> {
    let mut resolved = Resolved::default();
    let mut visited: Vec<RoleName> = Vec::new();
    let mut next: Vec<RoleName> = roles.to_vec();
    while let Some(role) = next.pop() {
        if visited.contains(&role) {
            continue;
        }
        match builtin::privileges(&role) {
            Some(privileges) => privileges.into_iter().for_each(|one| add(&mut resolved.privileges, one)),
            None => {
                if let Some(document) = document(database, &role)? {
                    let document = document.view();
                    for privilege in privileges_in(document) {
                        add(&mut resolved.privileges, privilege);
                    }
                    if let Some(Value::Array(restrictions)) = document.get("authenticationRestrictions")
                        && !restrictions.is_empty()
                    {
                        resolved.restrictions.push(Value::Array(restrictions).to_owned());
                    }
                    for inherited in named_in(document) {
                        if !resolved.inherited.contains(&inherited) {
                            resolved.inherited.push(inherited.clone());
                        }
                        next.push(inherited);
                    }
                }
            }
        }
        visited.push(role);
    }
    Ok(resolved)
}

/// Returns the privileges of a user with these roles, and the authentication restrictions of each
/// role.
///
/// Privileges and roles include inherited roles.
///
/// Errors: the store's errors.
pub(crate) fn privileges_of(
    database: &Arc<Database>,
    roles: &[RoleName],
) -> Result<(Arc<Privileges>, Vec<ValueBuf>)> {
    let resolved = resolve(database, roles)?;
    let mut all = roles.to_vec();
    all.extend(resolved.inherited.into_iter().filter(|role| !roles.contains(role)));
    Ok((Arc::new(Privileges::new(resolved.privileges).through(all)), resolved.restrictions))
}

/// Checks that all roles exist.
///
/// Errors: RoleNotFound with the missing names.
pub(crate) fn check_exist(database: &Arc<Database>, roles: &[RoleName]) -> Result<()> {
    let mut unknown: Vec<String> = Vec::new();
    for role in roles {
        if !builtin::is_builtin(role) && document(database, role)?.is_none() {
            let name = role.to_string();
            if !unknown.contains(&name) {
                unknown.push(name);
            }
        }
    }
    match unknown.as_slice() {
        [] => Ok(()),
        [one] => Err(err!(RoleNotFound, "Could not find role: {one}")),
        several => Err(err!(RoleNotFound, "Could not find roles: {}", several.join(", "))),
    }
}

/// Parses a list of role names and removes duplicates.
///
/// Errors: BadValue for a value that is not a role name.
pub(crate) fn read_names(names: Array<'_>, current: &str) -> Result<Vec<RoleName>> {
    let mut roles = Vec::new();
    for name in names.iter() {
        add_name(&mut roles, read_name(name, current)?);
    }
    Ok(roles)
}

/// Adds roles to a list, or removes them.
pub(crate) fn grant_or_revoke(roles: &mut Vec<RoleName>, given: Vec<RoleName>, grants: bool) {
    match grants {
        true => given.into_iter().for_each(|role| add_name(roles, role)),
        false => roles.retain(|known| !given.contains(known)),
    }
}

/// Adds a role that is not in the list yet.
fn add_name(roles: &mut Vec<RoleName>, role: RoleName) {
    if !roles.contains(&role) {
        roles.push(role);
    }
}

/// Parses a role name: `{role, db}`, or a string for the current database.
///
/// Errors: BadValue if the value is not a role name.
pub(crate) fn read_name(value: Value<'_>, current: &str) -> Result<RoleName> {
    match value {
        Value::String("") => Err(err!(BadValue, "Role name must be non-empty")),
        Value::String(name) => Ok(RoleName::new(name, current)),
        Value::Document(parts) => Ok(RoleName::new(part(parts, "role")?, part(parts, "db")?)),
        _ => Err(err!(BadValue, "Role name must be either a document or string")),
    }
}

fn part<'a>(parts: Document<'a>, name: &str) -> Result<&'a str> {
    if let Some(unknown) = parts.iter().find(|part| !["role", "db"].contains(&part.name())) {
        bail!(BadValue, "RoleName contains an unknown field named: '{}", unknown.name());
    }
    match parts.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(err!(
            BadValue,
            "RoleName must contain a string field named: {name}. But, has type {}",
            other.kind().alias()
        )),
        None => Err(err!(BadValue, "RoleName must contain a field named: {name}")),
    }
}

/// Appends `inheritedRoles`, `inheritedPrivileges` and `inheritedAuthenticationRestrictions`. The
/// inherited roles include the given roles.
///
/// Errors: the store's errors.
pub(crate) fn append_resolved(
    database: &Arc<Database>,
    out: &mut Builder,
    roles: &[RoleName],
    restrictions: bool,
) -> Result<()> {
    let resolved = resolve(database, roles)?;
    let mut inherited = roles.to_vec();
    inherited.extend(resolved.inherited.into_iter().filter(|role| !roles.contains(role)));
    append_names(out, "inheritedRoles", &inherited);
    append_privileges(out, "inheritedPrivileges", &resolved.privileges);
    if restrictions {
        out.begin_array(c"inheritedAuthenticationRestrictions");
        for restrictions in &resolved.restrictions {
            out.push(restrictions.view());
        }
        out.end();
    }
    Ok(())
}

/// Appends an array with `{role, db}` for each role.
pub(crate) fn append_names(out: &mut Builder, field: &str, roles: &[RoleName]) {
    out.begin_array(FieldName::trusted(field));
    for role in roles {
        out.push_document().append(c"role", &role.role).append(c"db", &role.db).end();
    }
    out.end();
}

/// Appends privileges as an array.
pub(crate) fn append_privileges(out: &mut Builder, field: &str, privileges: &[Privilege]) {
    out.begin_array(FieldName::trusted(field));
    for privilege in privileges {
        privilege.append(out.push_document());
        out.end();
    }
    out.end();
}
