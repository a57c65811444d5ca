//! `rolesInfo`: roles and their effective privileges.

use crate::access::command::Kind;
use crate::access::{Requirements, builtin, requirements};
use crate::auth::role;
use crate::auth::store::{self, ROLES};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use crate::protocol::names::RoleName;
use base::bson::{Builder, Document, Value};
use base::{Result, bail, err};
use database::Database;
use std::sync::Arc;

/// Position in the command table.
pub(crate) const INFO: Row =
    Row::new("rolesInfo", Kind::Read, "Returns roles.", info, Requirements::By(requirements::roles_info));

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
