//! Aggregation stages that only the server can answer.

use super::sessions::listed_users;
use crate::server::Server;
use base::bson::Document;
use base::err;
use database::Sources;
use std::sync::Arc;

/// Answers `$currentOp` and `$listLocalSessions` with the state of now.
pub(crate) fn for_server(server: &Server) -> Sources {
    let operations = super::current_op::documents(server);
    let sessions = server.sessions.clone();
    Arc::new(move |stage, specification| match stage {
        "$currentOp" => Ok(operations.clone()),
        "$listLocalSessions" => {
            let specification = specification.as_document().unwrap_or(Document::EMPTY);
            Ok(sessions.documents(listed_users(specification)?.as_deref()))
        }
        _ => Err(err!(NotImplemented, "{stage} is not implemented")),
    })
}
