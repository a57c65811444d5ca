//! MongoDB commands that are known but not implemented. The error names the command.

use crate::call::{Answer, Call};
use base::{Result, err};

/// Refuses the command.
///
/// Errors: NotImplemented with its name.
pub(crate) fn not_implemented(call: &mut Call<'_>) -> Result<Answer> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}
