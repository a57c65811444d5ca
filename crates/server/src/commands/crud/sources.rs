//! Aggregation stages whose input comes from the server.

use crate::auth::session;
use crate::commands::sessions::listed_users;
use crate::observe::usage::{CLASSES, CollectionUsage, Latency};
use crate::server::Server;
use crate::state::connection::ConnectionState;
use base::bson::{Array, Builder, DocumentBuf, FieldName};
use database::language::{CollStats, External};
use database::{ServerSource, Sources};
use std::sync::Arc;

/// Returns the current state for `$currentOp`, `$listLocalSessions` or the latencies of
/// `$collStats`, if the first stage of the pipeline needs it.
pub(crate) fn for_server(server: &Server, state: &ConnectionState, pipeline: Array<'_>) -> Sources {
    let first = External::first_of(pipeline);
    let operations = match &first {
        Some(External::CurrentOp(options)) => {
            crate::commands::diagnostics::current_op::documents(server, state, options.view())
        }
        _ => Vec::new(),
    };
    let latencies_asked = matches!(&first, Some(External::CollStats(CollStats { latencies: Some(_), .. })));
    let settings = match first {
        Some(External::QuerySettings { shows_shape }) => {
            server.set_settings.query_settings.documents(shows_shape)
        }
        _ => Vec::new(),
    };
    let usage = latencies_asked.then(|| server.activities.usage());
    let sessions = server.sessions.clone();
    let own = session::digest(&server.auth, state);
    Arc::new(move |source| match source {
        ServerSource::CurrentOp => Ok(operations.clone()),
        ServerSource::QuerySettings => Ok(settings.clone()),
        ServerSource::ListLocalSessions(options) => {
            Ok(sessions.documents(listed_users(options, own)?.as_deref()))
        }
        ServerSource::Latencies { namespace, histograms } => {
            Ok(vec![latencies(usage.as_ref().and_then(|usage| usage.of(namespace)), histograms)])
        }
    })
}

/// Returns the number of operations on a collection and their time in microseconds, optionally as a
/// histogram.
fn latencies(collection_usage: Option<&CollectionUsage>, with_histograms: bool) -> DocumentBuf {
    let collection_usage = collection_usage.cloned().unwrap_or_default();
    let transactions = ("transactions", Latency::default());
    let mut out = Builder::new();
    for (name, latency) in CLASSES.into_iter().zip(collection_usage.classes).chain([transactions]) {
        out.begin_document(FieldName::literal(name));
        if with_histograms {
            out.begin_array(c"histogram");
            for (micros, count) in latency.histogram.counts() {
                out.push_document().append(c"micros", micros).append(c"count", count).end();
            }
            out.end();
        }
        out.append(c"latency", latency.sum.micros).append(c"ops", latency.sum.count).end();
    }
    out.finish()
}
