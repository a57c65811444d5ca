//! Commands of MongoDB's that are known and not implemented: refused by their own names.

use crate::call::{Answer, Call};
use base::{Result, err};

/// Refuses the command. Errors: NotImplemented naming it.
pub(crate) fn not_implemented(call: &mut Call<'_>) -> Result<Answer> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}
