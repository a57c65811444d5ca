//! Whose an open cursor is, and what reading it takes.
//!
//! A cursor remembers who opened it and what that needed: others can't read it, and its owner no longer can once the
//! rights are gone.

use super::needs::{Asked, Needed};
use crate::call::Call;
use crate::names::UserName;
use base::{Result, err};
use database::{Cursor, CursorTag};
use std::sync::Arc;

/// What an open cursor remembers of who opened it.
struct Owner {
    user: Option<UserName>,
    needed: Vec<Needed>,
}

/// Whether a cursor was opened by this user.
pub(crate) fn is_of(tag: &CursorTag, user: Option<&UserName>) -> bool {
    tag.downcast_ref::<Owner>().is_some_and(|owner| owner.user.as_ref() == user)
}

/// Who opened a cursor.
pub(crate) fn user_of(tag: &CursorTag) -> Option<&UserName> {
    tag.downcast_ref::<Owner>()?.user.as_ref()
}

/// What a cursor is to remember that a command leaves open; nothing where nobody is asked.
pub(crate) fn tag(call: &Call<'_>) -> Option<CursorTag> {
    if !super::is_asked(call.server, call.connection) {
        return None;
    }
    let mut asked = super::asked(call.server, call.connection, call.request);
    asked.record = Some(Vec::new());
    // It was allowed just now; rights taken away since show at the next batch.
    let _ = asked.check(&call.command.needs);
    let user = asked.user().cloned();
    let Asked { record, .. } = asked;
    Some(Arc::new(Owner { user, needed: record.unwrap_or_default() }))
}

/// Whether the connection may go on reading a cursor.
///
/// Errors: Unauthorized.
pub(crate) fn check(call: &Call<'_>, id: i64, cursor: &Cursor) -> Result<()> {
    if !super::is_asked(call.server, call.connection) {
        return Ok(());
    }
    let asked = super::asked(call.server, call.connection, call.request);
    let Some(identity) = asked.identity else {
        return Err(err!(Unauthorized, "not authorized for getMore on {}", call.request.database));
    };
    let owner = cursor.tag.as_ref().and_then(|tag| tag.downcast_ref::<Owner>());
    let Some(owner) = owner.filter(|owner| owner.user.as_ref() == Some(&identity.user)) else {
        return Err(err!(Unauthorized, "cursor id {id} was not created by the authenticated user"));
    };
    let still = |needed: &Needed| asked.privileges.allows_all(needed.resource.view(), needed.actions);
    match owner.needed.iter().all(still) {
        true => Ok(()),
        false => Err(err!(Unauthorized, "not authorized for getMore with cursor id {id}")),
    }
}
