//! Commands of MongoDB's that are known and not implemented: refused by their own names.

use crate::call::{Answer, Call};
use base::{Result, err};

/// Refuses the command. Errors: NotImplemented naming it.
pub(crate) fn not_implemented(call: &mut Call<'_>) -> Result<Answer> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}

/// Refuses whoever wants to log in, and says what to do: drivers show the error to people, who have no other sign of
/// what their connection string asks for.
///
/// Errors: AuthenticationFailed.
pub(crate) fn no_users(_: &mut Call<'_>) -> Result<Answer> {
    Err(err!(
        AuthenticationFailed,
        "Authentication failed: this server has no users yet. Connect without user and password: take USER:PASSWORD@ \
         and authSource out of the connection string"
    ))
}
