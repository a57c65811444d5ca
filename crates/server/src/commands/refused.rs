//! Commands of MongoDB's that are known and not implemented: refused by their own names.

use super::login;
use crate::call::{Answer, Call};
use base::{Result, err};

/// Refuses the command. Errors: NotImplemented naming it.
pub(crate) fn not_implemented(call: &mut Call<'_>) -> Result<Answer> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}

/// Refuses to log somebody in by other means than a conversation of SASL.
///
/// Errors: MechanismUnavailable; AuthenticationFailed where there are no users.
pub(crate) fn login(call: &mut Call<'_>) -> Result<Answer> {
    if call.server.auth.is_pointless(call.server) {
        return Err(login::no_users());
    }
    let mut fields = call.fields();
    let mechanism = fields.string("mechanism")?.unwrap_or("MONGODB-X509");
    Err(err!(MechanismUnavailable, "Received authentication for mechanism {mechanism} which is not enabled"))
}
