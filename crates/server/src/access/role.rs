//! Roles that somebody made: documents in `admin.system.roles` in MongoDB's form, and what comes of them.

use super::action::{Action, Actions};
use super::builtin;
use super::privilege::{Privilege, Privileges, add};
use super::resource::Pattern;
use crate::auth::store::{self, ROLES};
use crate::names::RoleName;
use crate::server::Server;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value, ValueBuf};
use base::{Result, err};
use std::sync::Arc;

/// What some roles come to, those that they inherit included.
#[derive(Default)]
pub(crate) struct Resolved {
    /// The roles that were inherited, in no order that matters, each once.
    pub(crate) inherited: Vec<RoleName>,
    /// What all of them grant.
    pub(crate) privileges: Vec<Privilege>,
    /// The list of authentication restrictions of each role that has any.
    pub(crate) restrictions: Vec<ValueBuf>,
}

/// The document of a role that somebody made, if there is one.
///
/// Errors: the store's.
pub(crate) fn document(server: &Server, role: &RoleName) -> Result<Option<DocumentBuf>> {
    let mut filter = Builder::new();
    filter.append(c"_id", &role.id()).append(c"role", &role.role).append(c"db", &role.db);
    Ok(store::find(server, ROLES, filter.finish().view())?.into_iter().next())
}

/// The roles that a document of a role, or of a user, names.
pub(crate) fn named_in(document: Document<'_>) -> Vec<RoleName> {
    let listed = document.get("roles").and_then(|roles| roles.as_array());
    let name = |role: Value<'_>| {
        let role = role.as_document()?;
        Some(RoleName::new(role.get("role")?.as_str()?, role.get("db")?.as_str()?))
    };
    listed.into_iter().flat_map(|roles| roles.iter()).filter_map(name).collect()
}

/// The privileges that a role's document grants. Actions that this server doesn't know grant nothing.
pub(crate) fn privileges_in(document: Document<'_>) -> Vec<Privilege> {
    let listed = document.get("privileges").and_then(|privileges| privileges.as_array());
    let mut found = Vec::new();
    for privilege in listed.into_iter().flat_map(|privileges| privileges.iter()) {
        if let Some(privilege) = privilege.as_document().and_then(stored) {
            add(&mut found, privilege);
        }
    }
    found
}

fn stored(privilege: Document<'_>) -> Option<Privilege> {
    let resource = Pattern::parse(privilege.get("resource")?.as_document()?).ok()?;
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

/// What these roles come to. Roles that aren't there any more grant nothing, and a circle ends where it began.
///
/// Errors: the store's.
pub(crate) fn resolve(server: &Server, roles: &[RoleName]) -> Result<Resolved> {
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
                if let Some(document) = document(server, &role)? {
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

/// All that somebody with these roles may do, and every role that they have, inherited ones included; and the list of
/// authentication restrictions of each role that has any.
///
/// Errors: the store's.
pub(crate) fn privileges_of(server: &Server, roles: &[RoleName]) -> Result<(Arc<Privileges>, Vec<ValueBuf>)> {
    let resolved = resolve(server, roles)?;
    let mut all = roles.to_vec();
    all.extend(resolved.inherited.into_iter().filter(|role| !roles.contains(role)));
    Ok((Arc::new(Privileges::new(resolved.privileges).through(all)), resolved.restrictions))
}

/// Refuses roles that there aren't.
///
/// Errors: RoleNotFound naming them.
pub(crate) fn check_exist(server: &Server, roles: &[RoleName]) -> Result<()> {
    let mut unknown: Vec<String> = Vec::new();
    for role in roles {
        if !builtin::is_builtin(role) && document(server, role)?.is_none() {
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

/// Reads a role's name, given as `{role, db}` or as text for one of the current database.
///
/// Errors: BadValue for what names no role.
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
        return Err(err!(BadValue, "RoleName contains an unknown field named: '{}", unknown.name()));
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

/// Appends what somebody with these roles has by them: `inheritedRoles`, which are these and theirs,
/// `inheritedPrivileges` and `inheritedAuthenticationRestrictions`.
///
/// Errors: the store's.
pub(crate) fn append_resolved(
    server: &Server,
    out: &mut Builder,
    roles: &[RoleName],
    restrictions: bool,
) -> Result<()> {
    let resolved = resolve(server, roles)?;
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

/// Appends `{role, db}` for each role to an array.
pub(crate) fn append_names(out: &mut Builder, field: &str, roles: &[RoleName]) {
    out.begin_array(FieldName::known(field));
    for role in roles {
        out.push_document().append(c"role", &role.role).append(c"db", &role.db).end();
    }
    out.end();
}

/// Appends privileges as an array.
pub(crate) fn append_privileges(out: &mut Builder, field: &str, privileges: &[Privilege]) {
    out.begin_array(FieldName::known(field));
    for privilege in privileges {
        privilege.append(out.push_document());
        out.end();
    }
    out.end();
}
