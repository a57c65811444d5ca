//! Aggregation stages that only the server can answer.

use super::sessions::listed_users;
use crate::access::session;
use crate::connection::ConnectionState;
use crate::server::Server;
use crate::usage::{CLASSES, Latency, Spent};
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName};
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
    let asked = argument.get("latencyStats").filter(|_| name == "$collStats");
    let with_spans = asked.and_then(|asked| asked.as_document()?.get("histograms"));
    let with_spans = with_spans.is_some_and(|wanted| wanted.is_truthy());
    let usage = asked.map(|_| server.activities.usage());
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
            Ok(vec![latencies(usage.as_ref().and_then(|usage| usage.of(namespace)), with_spans)])
        }
        _ => Err(err!(NotImplemented, "{stage} is not implemented")),
    })
}

/// How many operations there were on a collection, and the microseconds that they took; with the spans, how many took
/// how long.
fn latencies(spent: Option<&Spent>, with_spans: bool) -> DocumentBuf {
    let spent = spent.cloned().unwrap_or_default();
    let transactions = ("transactions", Latency::default());
    let mut out = Builder::new();
    for (name, latency) in CLASSES.into_iter().zip(spent.classes).chain([transactions]) {
        out.begin_document(FieldName::literal(name));
        if with_spans {
            out.begin_array(c"histogram");
            for (micros, count) in latency.spans.counts() {
                out.push_document().append(c"micros", micros).append(c"count", count).end();
            }
            out.end();
        }
        out.append(c"latency", latency.sum.micros).append(c"ops", latency.sum.count).end();
    }
    out.finish()
}
