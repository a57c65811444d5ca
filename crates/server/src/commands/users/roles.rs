//! Commands that create, change and drop roles: documents in `admin.system.roles`.

use crate::access::privilege::{self, Privilege};
use crate::access::{Action, Requirements, builtin, requirements};
use crate::auth::store::{ROLES, USERS};
use crate::auth::{restrictions, role};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::names::RoleName;
use base::bson::{Array, Builder, Document, Value};
use base::{Error, ErrorCode, Result, bail, err};
use database::Database;
use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

/// The row of `createRole`.
pub(crate) const CREATE: Row = Row::write("createRole", create, Requirements::By(requirements::create_role))
    .without_collection()
    .help("Creates a role.");

fn create(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let role = own_role(call, &mut fields)?;
    let privileges = privileges(call, &mut fields)?.ok_or_else(|| missing(call, "privileges"))?;
    let roles = roles(call, &mut fields)?.ok_or_else(|| missing(call, "roles"))?;
    let restrictions = fields.array("authenticationRestrictions")?;
    fields.finish()?;
    match role.db.as_str() {
        "local" => bail!(BadValue, "Cannot create roles in the local database"),
        "$external" => bail!(BadValue, "Cannot create roles in the $external database"),
        _ if builtin::is_builtin(&role) => {
            bail!(BadValue, "Cannot create roles with the same name as a built-in role");
        }
        _ => {}
    }
    let server = call.server;
    let changing = server.auth.changing.lock();
    check_grantable(&server.database, &role, &roles)?;
    check_within(&role, &privileges)?;
    let mut document = Builder::new();
    document.append(c"_id", &role.id()).append(c"role", &role.role).append(c"db", &role.db);
    role::append_privileges(&mut document, "privileges", &privileges);
    role::append_names(&mut document, "roles", &roles);
    append_restrictions(&mut document, "createRole", restrictions)?;
    let mut insert = Builder::new();
    insert.append(c"insert", ROLES).begin_array(c"documents").push(&document.finish()).end();
    insert.append(c"$db", "admin");
    match call.run_inner(insert.finish().view()) {
        Err(error) if error.code() == ErrorCode::DuplicateKey => {
            bail!(51002, "Role \"{role}\" already exists");
        }
        written => written?,
    };
    drop(changing);
    call.acknowledge(None)
}

/// The row of `updateRole`.
pub(crate) const UPDATE: Row = Row::write("updateRole", update, Requirements::By(requirements::update_role))
    .without_collection()
    .help("Changes a role.");

fn update(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let role = own_role(call, &mut fields)?;
    let privileges = privileges(call, &mut fields)?;
    let roles = roles(call, &mut fields)?;
    let restrictions = fields.array("authenticationRestrictions")?;
    fields.finish()?;
    if privileges.is_none() && roles.is_none() && restrictions.is_none() {
        bail!(BadValue, "Must specify at least one field to update in updateRole");
    }
    let changing = call.server.auth.changing.lock();
    // A built-in role exists here. It has no document, so the write below does not find it.
    role::check_exist(&call.server.database, slice::from_ref(&role))?;
    if let Some(roles) = &roles {
        check_grantable(&call.server.database, &role, roles)?;
    }
    let mut set = Builder::new();
    if let Some(privileges) = &privileges {
        check_within(&role, privileges)?;
        role::append_privileges(&mut set, "privileges", privileges);
    }
    if let Some(roles) = &roles {
        role::append_names(&mut set, "roles", roles);
    }
    append_restrictions(&mut set, "updateRole", restrictions)?;
    let lifts = restrictions.is_some_and(|restrictions| restrictions.is_empty());
    change(call, &role, set.finish().view(), lifts)?;
    drop(changing);
    call.acknowledge(None)
}

/// The row of `dropRole`.
pub(crate) const DROP: Row = Row::write("dropRole", drop_role, Requirements::Database(Action::DropRole))
    .without_collection()
    .help("Drops a role and revokes it from all users and roles.");

fn drop_role(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let role = own_role(call, &mut fields)?;
    fields.finish()?;
    check_not_builtin(&role)?;
    let changing = call.server.auth.changing.lock();
    role::check_exist(&call.server.database, slice::from_ref(&role))?;
    let mut granted = Builder::new();
    granted.append(c"role", &role.role).append(c"db", &role.db);
    remove(call, granted.finish().view())?;
    drop(changing);
    call.acknowledge(None)
}

/// The row of `dropAllRolesFromDatabase`.
pub(crate) const DROP_ALL: Row =
    Row::write("dropAllRolesFromDatabase", drop_all, Requirements::Database(Action::DropRole))
        .help("Drops all user-defined roles of a database.");

fn drop_all(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let changing = call.server.auth.changing.lock();
    let mut granted = Builder::new();
    granted.append(c"db", call.request.database);
    let dropped = remove(call, granted.finish().view())?;
    drop(changing);
    call.reply.append_number(c"n", dropped);
    call.acknowledge(None)
}

/// The row of `grantPrivilegesToRole`.
pub(crate) const GRANT_PRIVILEGES: Row = Row::write(
    "grantPrivilegesToRole",
    |call| change_privileges(call, true),
    Requirements::Privileges(Action::GrantRole),
)
.without_collection()
.help("Adds privileges to a role.");

/// The row of `revokePrivilegesFromRole`.
pub(crate) const REVOKE_PRIVILEGES: Row = Row::write(
    "revokePrivilegesFromRole",
    |call| change_privileges(call, false),
    Requirements::Privileges(Action::RevokeRole),
)
.without_collection()
.help("Revokes privileges from a role.");

fn change_privileges(call: &mut Call<'_>, grants: bool) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let role = own_role(call, &mut fields)?;
    let given = privileges(call, &mut fields)?.ok_or_else(|| missing(call, "privileges"))?;
    fields.finish()?;
    check_not_empty(call, "privileges", given.is_empty())?;
    check_not_builtin(&role)?;
    let changing = call.server.auth.changing.lock();
    if grants {
        check_within(&role, &given)?;
    }
    let document = role::document(&call.server.database, &role)?.ok_or_else(|| not_found(&role))?;
    let mut privileges = role::privileges_in(document.view());
    if grants {
        given.into_iter().for_each(|one| privilege::add(&mut privileges, one));
    } else {
        for known in &mut privileges {
            let revoked = given.iter().find(|one| one.resource == known.resource);
            known.actions = revoked.map_or(known.actions, |revoked| known.actions.without(revoked.actions));
        }
        privileges.retain(|known| !known.actions.is_empty());
    }
    let mut set = Builder::new();
    role::append_privileges(&mut set, "privileges", &privileges);
    change(call, &role, set.finish().view(), false)?;
    drop(changing);
    call.acknowledge(None)
}

/// The row of `grantRolesToRole`.
pub(crate) const GRANT_ROLES: Row =
    Row::write("grantRolesToRole", |call| change_roles(call, true), Requirements::Roles(Action::GrantRole))
        .without_collection()
        .help("Grants roles to a role.");

/// The row of `revokeRolesFromRole`.
pub(crate) const REVOKE_ROLES: Row = Row::write(
    "revokeRolesFromRole",
    |call| change_roles(call, false),
    Requirements::Roles(Action::RevokeRole),
)
.without_collection()
.help("Revokes roles from a role.");

fn change_roles(call: &mut Call<'_>, grants: bool) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let role = own_role(call, &mut fields)?;
    let given = roles(call, &mut fields)?.ok_or_else(|| missing(call, "roles"))?;
    fields.finish()?;
    check_not_empty(call, "roles", given.is_empty())?;
    check_not_builtin(&role)?;
    let changing = call.server.auth.changing.lock();
    if grants {
        check_grantable(&call.server.database, &role, &given)?;
    }
    let document = role::document(&call.server.database, &role)?.ok_or_else(|| not_found(&role))?;
    let mut roles = role::named_in(document.view());
    role::grant_or_revoke(&mut roles, given, grants);
    let mut set = Builder::new();
    role::append_names(&mut set, "roles", &roles);
    change(call, &role, set.finish().view(), false)?;
    drop(changing);
    call.acknowledge(None)
}

/// Takes the role in the command's own field.
///
/// Errors: BadValue for an empty name; TypeMismatch.
fn own_role(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<RoleName> {
    match fields.command_value() {
        Value::String("") => Err(err!(BadValue, "Role name must be non-empty")),
        Value::String(name) if name.contains('\0') => {
            Err(err!(BadValue, "Role name cannot contain NULL characters"))
        }
        Value::String(name) => Ok(RoleName::new(name, call.request.database)),
        other => Err(fields.wrong_type(call.command.name, other.kind(), "string")),
    }
}

fn missing(call: &Call<'_>, field: &str) -> Error {
    Error::missing_field(format_args!("{}.{field}", call.command.name))
}

fn check_not_empty(call: &Call<'_>, field: &str, is_empty: bool) -> Result<()> {
    match is_empty {
        true => Err(err!(BadValue, "{} command requires a non-empty \"{field}\" array", call.command.name)),
        false => Ok(()),
    }
}

/// Takes `privileges` and merges privileges on equal resources.
///
/// Errors: MongoDB's errors for wrong shapes; BadValue with all unknown actions.
fn privileges(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<Option<Vec<Privilege>>> {
    let Some(list) = fields.documents("privileges")? else { return Ok(None) };
    let path = format!("{}.privileges", call.command.name);
    let (mut privileges, mut unknown) = (Vec::new(), BTreeSet::new());
    for document in list.iter() {
        privilege::add(&mut privileges, Privilege::parse(&path, document, &mut unknown)?);
    }
    let names: Vec<String> = unknown.iter().map(|name| format!("'{name}'")).collect();
    match names.len() {
        0 => Ok(Some(privileges)),
        1 => Err(err!(BadValue, "Unknown action type in privilege set: {}", names.join(", "))),
        _ => Err(err!(BadValue, "Unknown action types in privilege set: {}", names.join(", "))),
    }
}

/// Takes `roles` without duplicates.
///
/// Errors: an invalid role name.
fn roles(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<Option<Vec<RoleName>>> {
    let Some(list) = fields.array("roles")? else { return Ok(None) };
    role::read_names(list, call.request.database).map(Some)
}

fn append_restrictions(out: &mut Builder, path: &str, restrictions: Option<Array<'_>>) -> Result<()> {
    match restrictions {
        Some(restrictions) if !restrictions.is_empty() => {
            restrictions::append_checked(out, path, restrictions)
        }
        _ => Ok(()),
    }
}

fn check_not_builtin(role: &RoleName) -> Result<()> {
    match builtin::is_builtin(role) {
        true => Err(err!(BadValue, "{role} is a built-in role and cannot be modified")),
        false => Ok(()),
    }
}

fn not_found(role: &RoleName) -> Error {
    err!(RoleNotFound, "Role {role} not found")
}

/// Refuses roles that a role cannot inherit.
///
/// These are unknown roles, roles of another database unless the role is in `admin`, and roles that
/// inherit this role.
fn check_grantable(database: &Arc<Database>, role: &RoleName, given: &[RoleName]) -> Result<()> {
    if given.contains(role) {
        bail!(InvalidRoleModification, "Cannot grant role {role} to itself.");
    }
    if role.db != "admin" && given.iter().any(|other| other.db != role.db) {
        bail!(
            InvalidRoleModification,
            "Roles on the '{}' database cannot be granted roles from other databases",
            role.db
        );
    }
    let context = |error: Error| {
        Error::new(error.code(), format!("Cannot grant roles to '{role}': {}", error.message()))
    };
    role::check_exist(database, given).map_err(context)?;
    match role::resolve(database, given).map_err(context)?.inherited.contains(role) {
        true => Err(err!(
            InvalidRoleModification,
            "Granting roles to {role} would introduce a cycle in the role graph"
        )),
        false => Ok(()),
    }
}

/// Refuses privileges outside of the role's database, unless the role is in `admin`.
fn check_within(role: &RoleName, privileges: &[Privilege]) -> Result<()> {
    match role.db == "admin" || privileges.iter().all(|privilege| privilege.resource.is_within(&role.db)) {
        true => Ok(()),
        false => Err(err!(
            InvalidRoleModification,
            "Roles on the '{}' database cannot be granted privileges that target other databases or the cluster",
            role.db
        )),
    }
}

/// Sets fields of a role's document. `lifts` removes its authentication restrictions.
fn change(call: &Call<'_>, role: &RoleName, set: Document<'_>, lifts: bool) -> Result<()> {
    let mut update = Builder::new();
    update.append(c"update", ROLES).begin_array(c"updates").push_document();
    update.begin_document(c"q").append(c"_id", &role.id()).end().begin_document(c"u");
    if !set.is_empty() {
        update.append(c"$set", set);
    }
    if lifts {
        update.begin_document(c"$unset").append(c"authenticationRestrictions", "").end();
    }
    update.end().end().end().append(c"$db", "admin");
    let written = call.run_inner(update.finish().view())?;
    match count(written.view()) {
        0 => Err(not_found(role)),
        _ => Ok(()),
    }
}

/// Revokes roles from all users and roles, and drops them. Returns the number of dropped roles.
fn remove(call: &Call<'_>, granted: Document<'_>) -> Result<i64> {
    for collection in [USERS, ROLES] {
        let mut update = Builder::new();
        update.append(c"update", collection).begin_array(c"updates").push_document();
        update.begin_document(c"q").begin_document(c"roles").append(c"$elemMatch", granted).end().end();
        update.begin_document(c"u").begin_document(c"$pull").append(c"roles", granted).end().end();
        update.append(c"multi", true).end().end().append(c"$db", "admin");
        call.run_inner(update.finish().view())?;
    }
    let mut delete = Builder::new();
    delete.append(c"delete", ROLES).begin_array(c"deletes").push_document();
    delete.append(c"q", granted).append(c"limit", 0).end().end().append(c"$db", "admin");
    let written = call.run_inner(delete.finish().view())?;
    Ok(count(written.view()))
}

fn count(reply: Document<'_>) -> i64 {
    reply.get("n").and_then(|n| n.as_i64()).unwrap_or_default()
}
