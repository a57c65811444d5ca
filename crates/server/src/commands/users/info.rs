//! `usersInfo` and `rolesInfo`: users, by default without credentials, and roles, with their effective privileges.

use crate::access::{Requirements, builtin, requirements};
use crate::auth::role;
use crate::auth::store::{self, ROLES};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::names::{RoleName, UserName};
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Result, bail, err};
use database::Database;
use std::sync::Arc;

/// Position in the command table.
pub(crate) const USERS_INFO: Row =
    Row::read("usersInfo", users_info, Requirements::By(requirements::users_info))
        .without_collection()
        .help("Returns users.");

/// The selected users.
enum SelectedUsers {
    /// Users of all databases.
    Everybody,
    /// Users of the command's database.
    OfDatabase,
    /// Named users.
    Named(Vec<UserName>),
}

/// Parsed fields of the command.
struct Parts<'a> {
    whom: SelectedUsers,
    credentials: bool,
    custom_data: bool,
    privileges: bool,
    restrictions: bool,
    filter: Option<Document<'a>>,
}

fn users_info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let requested = Parts::read(call)?;
    let users = match (&requested.whom, requested.privileges || requested.restrictions) {
        (SelectedUsers::Named(names), true) if requested.filter.is_none() => {
            one_by_one(call, names, &requested)?
        }
        (_, true) => {
            bail!(IllegalOperation, "Privilege or restriction details require exact-match usersInfo queries");
        }
        (_, false) => by_pipeline(call, &requested)?,
    };
    call.reply.begin_array(c"users");
    for user in &users {
        call.reply.push(user);
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

impl<'a> Parts<'a> {
    fn read(call: &Call<'a>) -> Result<Parts<'a>> {
        let mut fields = call.fields();
        let whom = SelectedUsers::read(fields.command_value(), call.request.database)?;
        let requested = Parts {
            whom,
            credentials: fields.flag("showCredentials")?.unwrap_or(false),
            custom_data: fields.flag("showCustomData")?.unwrap_or(true),
            privileges: fields.flag("showPrivileges")?.unwrap_or(false),
            restrictions: fields.flag("showAuthenticationRestrictions")?.unwrap_or(false),
            filter: fields.document("filter")?,
        };
        fields.finish()?;
        Ok(requested)
    }
}

impl SelectedUsers {
    fn read(value: Value<'_>, db: &str) -> Result<SelectedUsers> {
        match value {
            Value::Document(parts) if is_for_all(parts) => Ok(SelectedUsers::Everybody),
            Value::Array(names) => {
                let names = names.iter().map(|name| read_name(name, db)).collect::<Result<Vec<_>>>()?;
                match names.is_empty() {
                    true => Err(err!(BadValue, "$and/$or/$nor must be a nonempty array")),
                    false => Ok(SelectedUsers::Named(names)),
                }
            }
            other if other.as_number().is_some_and(|number| number.to_i64_clamped() == 1) => {
                Ok(SelectedUsers::OfDatabase)
            }
            other => Ok(SelectedUsers::Named(vec![read_name(other, db)?])),
        }
    }
}

fn is_for_all(parts: Document<'_>) -> bool {
    let mut parts = parts.iter();
    let first = parts.next().is_some_and(|part| part.name() == "forAllDBs" && part.value().is_truthy());
    first && parts.next().is_none()
}

/// Parses a user name: a string for the command's database, or `{user, db}`.
fn read_name(name: Value<'_>, db: &str) -> Result<UserName> {
    let parts = match name {
        Value::String(name) => return Ok(UserName::new(name, db)),
        Value::Document(parts) => parts,
        _ => bail!(BadValue, "UserName must be either a string or an object"),
    };
    if let Some(unknown) = parts.iter().find(|part| !["user", "db"].contains(&part.name())) {
        bail!(BadValue, "UserName contains an unknown field named: '{}", unknown.name());
    }
    let part = |name: &str| match parts.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(err!(
            BadValue,
            "UserName must contain a string field named: {name}. But, has type {}",
            other.kind().alias()
        )),
        None => Err(err!(BadValue, "UserName must contain a field named: {name}")),
    };
    Ok(UserName::new(part("user")?, part("db")?))
}

/// Reads named users one by one, with the details that are available only for named users.
fn one_by_one(call: &Call<'_>, names: &[UserName], requested: &Parts<'_>) -> Result<Vec<DocumentBuf>> {
    let mut users = Vec::new();
    for name in names {
        let Some(found) = store::user(&call.server.database, name)? else { continue };
        let mut user = Builder::new();
        user.append_all(shown(found.view(), requested).view());
        role::append_resolved(&call.server.database, &mut user, &role::named_in(found.view()), true)?;
        users.push(user.finish());
    }
    Ok(users)
}

/// Returns a user's document with the requested fields.
fn shown(user: Document<'_>, requested: &Parts<'_>) -> DocumentBuf {
    let mut shown = Builder::new();
    for element in user {
        match element.name() {
            "credentials" => {
                append_mechanisms(&mut shown, element.value());
                if requested.credentials {
                    shown.append_element(&element);
                }
            }
            "customData" if !requested.custom_data => {}
            "authenticationRestrictions" if !requested.restrictions => {}
            _ => _ = shown.append_element(&element),
        }
    }
    if requested.restrictions && user.get("authenticationRestrictions").is_none() {
        shown.begin_array(c"authenticationRestrictions").end();
    }
    shown.finish()
}

fn append_mechanisms(shown: &mut Builder, credentials: Value<'_>) {
    shown.begin_array(c"mechanisms");
    for credential in credentials.as_document().into_iter().flatten() {
        shown.push(credential.name());
    }
    shown.end();
}

/// Reads users by an aggregation, as MongoDB does, so that `filter` applies to the output.
fn by_pipeline(call: &Call<'_>, requested: &Parts<'_>) -> Result<Vec<DocumentBuf>> {
    let mut command = Builder::new();
    command.append(c"aggregate", store::USERS).begin_array(c"pipeline");
    match &requested.whom {
        SelectedUsers::Everybody => {}
        SelectedUsers::OfDatabase => {
            command
                .push_document()
                .begin_document(c"$match")
                .append(c"db", call.request.database)
                .end()
                .end();
        }
        SelectedUsers::Named(names) => {
            command.push_document().begin_document(c"$match").begin_array(c"$or");
            for UserName { name, db } in names {
                command.push_document().append(c"user", name).append(c"db", db).end();
            }
            command.end().end().end();
        }
    }
    command.push_document().begin_document(c"$sort").append(c"user", 1).append(c"db", 1).end().end();
    command.push_document().begin_document(c"$addFields").begin_document(c"mechanisms");
    command.begin_document(c"$map").begin_document(c"input").append(c"$objectToArray", "$credentials").end();
    command.append(c"as", "credential").append(c"in", "$$credential.k").end().end().end().end();
    command.push_document().begin_array(c"$unset").push("authenticationRestrictions");
    if !requested.credentials {
        command.push("credentials");
    }
    if !requested.custom_data {
        command.push("customData");
    }
    command.end().end();
    if let Some(filter) = requested.filter {
        command.push_document().append(c"$match", filter).end();
    }
    command.end().begin_document(c"cursor").append(c"batchSize", i32::MAX).end();
    command
        .begin_document(c"$readPreference")
        .append(c"mode", "primaryPreferred")
        .end()
        .append(c"$db", "admin");
    let reply = call.run_inner(command.finish().view())?;
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
    if cursor.and_then(|cursor| cursor.get("id")).and_then(|id| id.as_i64()) != Some(0) {
        bail!(BSONObjectTooLarge, "the users do not fit into one reply: request fewer users");
    }
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(|batch| batch.as_array());
    let users = batch.into_iter().flat_map(|batch| batch.iter());
    Ok(users.filter_map(|user| Some(user.as_document()?.to_owned())).collect())
}

/// Position in the command table.
pub(crate) const INFO: Row = Row::read("rolesInfo", info, Requirements::By(requirements::roles_info))
    .without_collection()
    .help("Returns roles.");

/// Optional parts of a role's description.
#[derive(Clone, Copy)]
struct RoleOptions {
    privileges: bool,
    restrictions: bool,
}

fn info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let argument = fields.command_value();
    let (privileges, as_fragment) = show_privileges(&mut fields)?;
    let builtin_too = fields.flag("showBuiltinRoles")?.unwrap_or(false);
    let restrictions = fields.flag("showAuthenticationRestrictions")?.unwrap_or(false);
    fields.finish()?;
    let shown = RoleOptions { privileges, restrictions };
    let database = call.request.database;
    let roles: Vec<RoleName> = match argument {
        Value::Array(names) => {
            names.iter().map(|name| role::read_name(name, database)).collect::<Result<_>>()?
        }
        name @ (Value::String(_) | Value::Document(_)) => vec![role::read_name(name, database)?],
        number if number.as_number().is_some_and(|number| number.to_f64() == 1.0) => {
            if as_fragment {
                bail!(IllegalOperation, "Cannot get user fragment for all roles in a database");
            }
            append_all(call, shown, builtin_too)?;
            return Ok(HandlerStatus::Done);
        }
        other => {
            bail!(
                BadValue,
                "UserName or RoleName must be either a string, an object, an array, or 1, but found {}",
                other.kind().alias()
            );
        }
    };
    if as_fragment {
        append_fragment(call, &roles, shown)?;
        return Ok(HandlerStatus::Done);
    }
    call.reply.begin_array(c"roles");
    for role in &roles {
        if let Some(document) = described(&call.server.database, role)? {
            append_role(&call.server.database, call.reply.push_document(), document.view(), role, shown)?;
            call.reply.end();
        }
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

/// Takes `showPrivileges`: true if they are shown, and true for the form of a user fragment.
fn show_privileges(fields: &mut Fields<'_>) -> Result<(bool, bool)> {
    match fields.any("showPrivileges")? {
        None | Some(Value::Null) => Ok((false, false)),
        Some(Value::String("asUserFragment")) => Ok((true, true)),
        Some(Value::String(other)) => Err(err!(
            FailedToParse,
            "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a boolean or the string \
             'asUserFragment', given: '{other}'"
        )),
        Some(Value::Boolean(shown)) => Ok((shown, false)),
        Some(value) => match value.as_number() {
            Some(number) => Ok((!number.is_zero(), false)),
            None => Err(err!(
                FailedToParse,
                "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a boolean or the string \
                 'asUserFragment'"
            )),
        },
    }
}

/// Returns the document of a role. The document of a built-in role is generated.
fn described(database: &Arc<Database>, role: &RoleName) -> Result<Option<base::bson::DocumentBuf>> {
    let Some(privileges) = builtin::privileges(role) else { return role::document(database, role) };
    let mut document = Builder::new();
    document.append(c"db", &role.db).append(c"role", &role.role);
    document.begin_array(c"roles").end();
    role::append_privileges(&mut document, "privileges", &privileges);
    Ok(Some(document.finish()))
}

/// Appends each role of the database, built-in roles first.
fn append_all(call: &mut Call<'_>, shown: RoleOptions, builtin_too: bool) -> Result<()> {
    let (server, database) = (call.server, call.request.database);
    call.reply.begin_array(c"roles");
    for name in if builtin_too { builtin::of_database(database) } else { Vec::new() } {
        let privileges = builtin::privileges(&name).unwrap_or_default();
        let out = call.reply.push_document();
        out.append(c"role", &name.role).append(c"db", &name.db).append(c"isBuiltin", true);
        out.begin_array(c"roles").end().begin_array(c"inheritedRoles").end();
        if shown.privileges {
            role::append_privileges(out, "privileges", &privileges);
            role::append_privileges(out, "inheritedPrivileges", &privileges);
        }
        if shown.restrictions {
            out.begin_array(c"authenticationRestrictions").end();
            out.begin_array(c"inheritedAuthenticationRestrictions").end();
        }
        out.end();
    }
    let mut filter = Builder::new();
    filter.append(c"db", database);
    for document in store::find(&server.database, ROLES, filter.finish().view())? {
        let document = document.view();
        let text = |field: &str| document.get(field).and_then(|value| value.as_str()).unwrap_or_default();
        let name = RoleName::new(text("role"), text("db"));
        append_role(&server.database, call.reply.push_document(), document, &name, shown)?;
        call.reply.end();
    }
    call.reply.end();
    Ok(())
}

fn append_role(
    database: &Arc<Database>,
    out: &mut Builder,
    document: Document<'_>,
    role: &RoleName,
    shown: RoleOptions,
) -> Result<()> {
    let mut restrictions = None;
    for element in document {
        match element.name() {
            "privileges" if !shown.privileges => {}
            "authenticationRestrictions" => restrictions = Some(element.value()),
            _ => _ = out.append_element(&element),
        }
    }
    let restrictions = restrictions.and_then(|list| list.as_array()).filter(|list| !list.is_empty());
    if shown.restrictions {
        out.begin_array(c"authenticationRestrictions");
        if let Some(list) = restrictions {
            out.push(Value::Array(list));
        }
        out.end();
    }
    let direct = role::named_in(document);
    let resolved = role::resolve(database, &direct)?;
    let mut inherited = direct.clone();
    inherited.extend(resolved.inherited.into_iter().filter(|role| !direct.contains(role)));
    role::append_names(out, "inheritedRoles", &inherited);
    if shown.privileges {
        let mut privileges = role::privileges_in(document);
        privileges.extend(resolved.privileges);
        role::append_privileges(out, "inheritedPrivileges", &privileges);
    }
    if shown.restrictions {
        out.begin_array(c"inheritedAuthenticationRestrictions");
        if let Some(list) = restrictions {
            out.push(Value::Array(list));
        }
        for list in &resolved.restrictions {
            out.push(list.view());
        }
        out.end();
    }
    out.append(c"isBuiltin", builtin::is_builtin(role));
    Ok(())
}

/// Appends a user fragment: the privileges of a user with these roles.
fn append_fragment(call: &mut Call<'_>, roles: &[RoleName], shown: RoleOptions) -> Result<()> {
    let out = call.reply.begin_document(c"userFragment");
    role::append_names(out, "roles", roles);
    role::append_resolved(&call.server.database, out, roles, shown.restrictions)?;
    out.end();
    Ok(())
}
