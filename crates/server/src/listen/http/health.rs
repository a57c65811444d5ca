//! Readiness of the server.

use super::response::Response;
use crate::dispatch::request;
use crate::server::Server;
use base::bson::Builder;

/// Timeout of the probe read, in milliseconds.
const MILLIS_MAX: i64 = 2000;

/// Returns 200 if a read succeeds, and 503 if it fails or the server shuts down. During recovery
/// the port is closed.
pub(super) fn ready(server: &Server) -> Response {
    if server.network.is_stopping() {
        return Response::text(503, "shutting down");
    }
    if server.awaits_initiation() {
        return Response::text(503, "the replica set is not initiated yet");
    }
    let mut read = Builder::new();
    read.append(c"find", "system.version").append(c"limit", 1).append(c"singleBatch", true);
    read.append(c"maxTimeMS", MILLIS_MAX).append(c"$db", "admin");
    read.begin_document(c"$readPreference").append(c"mode", "nearest").end();
    match request::command_of_server(server, read.finish().view()) {
        Ok(_) => Response::text(200, "ready"),
        Err(error) => {
            log::warn!("not ready: {error}");
            Response::text(503, format!("a read failed: {}", error.code().name()))
        }
    }
}
