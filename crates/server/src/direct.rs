//! Commands that the server gives itself: what it keeps in collections of its own is written and read as
//! clients would.

use crate::connection::ConnectionState;
use crate::request;
use crate::server::Server;
use base::bson::{Document, DocumentBuf};
use base::{Error, ErrorCode, Result, err};
use std::net::{Ipv4Addr, SocketAddr};

/// Runs a command, `$db` included, and returns its reply.
///
/// Errors: the command's, or that of its first statement.
pub(crate) fn run(server: &Server, command: Document<'_>) -> Result<DocumentBuf> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.settings.port));
    let activity = server.activities.open(address);
    let mut state = ConnectionState::new(activity.clone(), address);
    state.is_system = true;
    let reply = request::command(&mut state, server, command);
    server.activities.close(&activity);
    let unanswered = || err!(InternalError, "the server did not answer itself");
    let reply = reply.ok_or_else(unanswered)?;
    match failure(reply.view()) {
        Some(error) => Err(error),
        None => Ok(reply),
    }
}

/// What a reply says went wrong.
fn failure(reply: Document<'_>) -> Option<Error> {
    let statements = reply.get("writeErrors").and_then(|errors| errors.as_array());
    let statement = statements.and_then(|errors| errors.iter().next()).and_then(|error| error.as_document());
    let failed = statement.or((reply.get("ok")?.as_i64() != Some(1)).then_some(reply))?;
    let code = failed.get("code").and_then(|code| code.as_i64()).and_then(|code| i32::try_from(code).ok());
    let message = failed.get("errmsg").and_then(|message| message.as_str()).unwrap_or_default();
    Some(Error::new(ErrorCode::from_number(code.unwrap_or_default()), message))
}
