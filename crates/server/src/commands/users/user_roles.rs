//! Commands that grant roles to users and revoke them.

use super::accounts::{change_user, named_roles, named_user, not_found};
use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::auth::user::{User, append_roles};
use crate::auth::{role, store};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use crate::protocol::names::RoleName;
use base::bson::Builder;
use base::{Result, bail};

/// The row of `grantRolesToUser`.
pub(crate) const GRANT: Row = Row::new(
    "grantRolesToUser",
    Kind::Write,
    "Grants roles to a user.",
    grant_roles,
    Requirements::By(requirements::grant_roles),
);

fn grant_roles(call: &mut Call<'_>) -> Result<HandlerStatus> {
    change_roles(call, |roles, named| {
        for role in named {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
    })
}

/// The row of `revokeRolesFromUser`.
pub(crate) const REVOKE: Row = Row::new(
    "revokeRolesFromUser",
    Kind::Write,
    "Revokes roles from a user.",
    revoke_roles,
    Requirements::By(requirements::revoke_roles),
);

fn revoke_roles(call: &mut Call<'_>) -> Result<HandlerStatus> {
    change_roles(call, |roles, named| roles.retain(|role| !named.contains(role)))
}

fn change_roles(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Vec<RoleName>, Vec<RoleName>),
) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let user = named_user(call, &mut fields)?;
    let named = fields.required("roles", Fields::array)?;
    fields.finish()?;
    if named.is_empty() {
        bail!(BadValue, "{} command requires a non-empty \"roles\" array", call.command.name);
    }
    let named = named_roles(named, &user.db)?;
    let _changing = call.server.auth.changing.lock();
    let document = store::user(&call.server.database, &user)?;
    let found = document.and_then(|document| User::read(document.view())).ok_or_else(|| not_found(&user))?;
    role::check_exist(&call.server.database, &named)?;
    let mut roles = found.roles;
    change(&mut roles, named);
    let mut set = Builder::new();
    append_roles(set.begin_document(c"$set"), &roles);
    set.end();
    change_user(call, &user, None, set.finish().view())
}
