//! Aggregation stages that only the server can answer.

use super::sessions::listed_users;
use crate::access::session;
use crate::connection::ConnectionState;
use crate::server::Server;
use base::bson::{Array, Builder, Document, DocumentBuf};
use base::err;
use database::Sources;
use std::sync::Arc;

/// Answers `$currentOp`, `$listLocalSessions` and the latencies of `$collStats` with the state of now, as far
/// as a pipeline's first stage asks for it.
pub(crate) fn for_server(server: &Server, state: &ConnectionState, pipeline: Array<'_>) -> Sources {
    let first = pipeline.iter().next().and_then(|stage| stage.as_document()?.first());
    let name = first.map_or("", |stage| stage.name());
    let argument = first.and_then(|stage| stage.value().as_document()).unwrap_or(Document::EMPTY);
    let operations = match name {
        "$currentOp" => super::current_op::documents(server, state, argument),
        _ => Vec::new(),
    };
    let usage =
        (name == "$collStats" && argument.find("latencyStats").is_some()).then(|| server.activities.usage());
    let sessions = server.sessions.clone();
    let own = session::digest(server, state);
    Arc::new(move |stage, specification| match stage {
        "$currentOp" => Ok(operations.clone()),
        "$listLocalSessions" => {
            let specification = specification.as_document().unwrap_or(Document::EMPTY);
            Ok(sessions.documents(listed_users(specification, own)?.as_deref()))
        }
        "latencyStats" => {
            let namespace = specification.as_str().unwrap_or_default();
            Ok(vec![latencies(usage.as_ref().and_then(|usage| usage.of(namespace)))])
        }
        _ => Err(err!(NotImplemented, "{stage} is not implemented")),
    })
}

/// How many operations there were on a collection, and the microseconds that they took.
fn latencies(spent: Option<&crate::usage::Spent>) -> DocumentBuf {
    let spent = spent.copied().unwrap_or_default();
    let mut out = Builder::new();
    for (name, sum) in [("reads", spent.reads), ("writes", spent.writes)] {
        out.begin_document(name).append("latency", sum.micros).append("ops", sum.count).end();
    }
    for name in ["commands", "transactions"] {
        out.begin_document(name).append("latency", 0i64).append("ops", 0i64).end();
    }
    out.finish()
}
