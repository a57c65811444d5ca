//! MongoDB commands that are known but not implemented. The error names the command.

use crate::call::{Call, HandlerStatus};
use base::{Result, err};

/// Refuses the command.
///
/// Errors: NotImplemented with its name.
pub(crate) fn not_implemented(call: &mut Call<'_>) -> Result<HandlerStatus> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}
