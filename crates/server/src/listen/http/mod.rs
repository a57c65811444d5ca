//! Endpoints of `--http`: metrics for Prometheus, health checks, and a status page.
//!
//! This module does not use sockets: `net::web` reads requests and sends responses. Data comes from
//! commands of the table, run with the user's privileges, or from counters that `serverStatus` also
//! returns.

mod commands;
mod exposition;
mod metrics;
mod request;
mod response;
mod users;

pub(crate) use commands::sample;
pub(crate) use request::{Malformed, Request};
pub(crate) use response::Response;

use crate::server::Server;
use crate::state::http::PATHS;
use base::bson::Builder;
use database::within_report;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Returns the length of the request at the start of these bytes, if it is valid. Only for fuzzing.
pub fn request_length(bytes: &[u8]) -> Option<usize> {
    let (request, length) = Request::read(bytes).ok()??;
    let _ = (request.parameter("q"), request.body_parameter("q"));
    Some(length)
}

/// Connection of a request.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) client: SocketAddr,
    /// Server address that the client connected to.
    pub(crate) local: SocketAddr,
    pub(crate) is_encrypted: bool,
    /// True if the request has already waited for the login delay.
    pub(crate) has_waited: bool,
}

/// A request and the server that handles it.
#[derive(Clone, Copy)]
struct Exchange<'a> {
    server: &'a Server,
    request: &'a Request<'a>,
    peer: Peer,
}

/// Result of a request.
pub(crate) enum Answer {
    /// The response.
    Now(Response),
    /// The request must be repeated after a delay, because its user has too many failed logins.
    Later(Duration),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Answer {
        Answer::Now(response)
    }
}

/// Handles a request. A panic becomes a 500 response.
pub(crate) fn answer(server: &Server, request: &Request<'_>, peer: Peer) -> Answer {
    let began = Instant::now();
    let answer = catch_unwind(AssertUnwindSafe(|| route(Exchange { server, request, peer })));
    let answer = match answer {
        Ok(Ok(response)) => Answer::Now(response),
        Ok(Err(answer)) => answer,
        Err(_) => {
            server.counters.panics.add(1);
            Response::text(500, "the server failed to handle this request; see its log").into()
        }
    };
    if let Answer::Now(response) = &answer {
        server.http.count(request.path, response.status, began.elapsed());
    }
    answer
}

/// Returns the response.
///
/// Errors: the answer that refuses or delays the request.
fn route(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let Exchange { server, request, .. } = exchange;
    if !PATHS.contains(&request.path) {
        return Ok(Response::text(404, "not found: use /, /metrics, /healthz or /readyz"));
    }
    let changes = matches!(request.path, "/kill" | "/login" | "/logout");
    let allowed = if changes { "POST" } else { "GET, HEAD" };
    if !allowed.split(", ").any(|method| method == request.method) {
        return Ok(Response::text(405, format!("only {allowed}")).with("Allow", allowed));
    }
    match request.path {
        // Process supervisors use any host name. These responses reveal only the health.
        "/healthz" => return Ok(Response::text(200, "up")),
        "/readyz" => return Ok(ready(server)),
        _ => {}
    }
    let names = server.settings.http.as_ref().map_or(&[][..], |options| &options.names);
    request::check_origin(request, names)?;
    match request.path {
        "/" => Ok(response::page()),
        "/history" => commands::history(exchange),
        "/kill" => commands::kill(exchange),
        "/login" => commands::log_in(exchange),
        "/logout" => commands::log_out(exchange),
        "/operations" => commands::operations(exchange),
        "/session" => commands::session(exchange),
        "/slow" => commands::slow(exchange),
        "/working-set" => commands::working_set(exchange),
        _ => users::client(exchange).map(|client| within_report(|| metrics::answer(server, &client))),
    }
}

/// Timeout of the probe read, in milliseconds.
const MILLIS_MAX: i64 = 2000;

/// Returns 200 if a read succeeds, and 503 if it fails or the server shuts down. During recovery
/// the port is closed.
fn ready(server: &Server) -> Response {
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
    match crate::dispatch::request::command_of_server(server, read.finish().view()) {
        Ok(_) => Response::text(200, "ready"),
        Err(error) => {
            log::warn!("not ready: {error}");
            Response::text(503, format!("a read failed: {}", error.code().name()))
        }
    }
}

#[cfg(test)]
mod tests;
