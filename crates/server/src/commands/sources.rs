//! Aggregation stages that only the server can answer.

use crate::server::Server;
use base::err;
use database::Sources;
use std::sync::Arc;

/// Answers `$currentOp` and `$listLocalSessions` with the state of now.
pub(crate) fn for_server(server: &Server) -> Sources {
    let operations = super::current_op::documents(server);
    let sessions = server.sessions.documents();
    Arc::new(move |stage, _spec| match stage {
        "$currentOp" => Ok(operations.clone()),
        "$listLocalSessions" => Ok(sessions.clone()),
        _ => Err(err!(NotImplemented, "{stage} is not implemented")),
    })
}
