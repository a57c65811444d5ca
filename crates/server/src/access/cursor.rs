//! Owner of an open cursor, and the privileges that reads of it require.
//!
//! A cursor stores the user and the privileges of the command that opened it. Other users cannot
//! read it. Its owner cannot read it after losing these privileges.

use super::requirements::{Authorizer, RequiredPrivilege, Requirements};
use crate::protocol::names::UserName;
use base::{Result, bail, err};
use database::{Cursor, CursorTag};
use std::sync::Arc;

/// User and privileges of the command that opened a cursor.
struct Owner {
    user: Option<UserName>,
    needed: Vec<RequiredPrivilege>,
}

/// Returns true if this user opened the cursor.
pub(crate) fn is_of(tag: &CursorTag, user: Option<&UserName>) -> bool {
    tag.downcast_ref::<Owner>().is_some_and(|owner| owner.user.as_ref() == user)
}

/// Returns the user that opened a cursor.
pub(crate) fn user_of(tag: &CursorTag) -> Option<&UserName> {
    tag.downcast_ref::<Owner>()?.user.as_ref()
}

/// Returns the tag for a cursor that a command with these needs leaves open.
pub(crate) fn tag(mut authorizer: Authorizer<'_>, requirements: &Requirements) -> CursorTag {
    authorizer.record = Some(Vec::new());
    // The check passed before the handler. The next batch detects privileges revoked since.
    let _ = authorizer.check(requirements);
    let user = authorizer.user().cloned();
    let Authorizer { record, .. } = authorizer;
    Arc::new(Owner { user, needed: record.unwrap_or_default() })
}

/// Checks that the connection may read a cursor.
///
/// Errors: Unauthorized.
pub(crate) fn check(authorizer: &Authorizer<'_>, id: i64, cursor: &Cursor) -> Result<()> {
    let Some(identity) = authorizer.identity else {
        bail!(Unauthorized, "not authorized for getMore on {}", authorizer.database);
    };
    let owner = cursor.tag.as_ref().and_then(|tag| tag.downcast_ref::<Owner>());
    let Some(owner) = owner.filter(|owner| owner.user.as_ref() == Some(&identity.user)) else {
        bail!(Unauthorized, "cursor id {id} was not created by the authenticated user");
    };
    let still =
        |needed: &RequiredPrivilege| authorizer.privileges.allows_all(needed.resource.view(), needed.actions);
    match owner.needed.iter().all(still) {
        true => Ok(()),
        false => Err(err!(Unauthorized, "not authorized for getMore with cursor id {id}")),
    }
}
