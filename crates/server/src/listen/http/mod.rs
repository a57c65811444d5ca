//! Endpoints of `--http`: metrics for Prometheus, health checks, and a status page.
//!
//! This module does not use sockets: `net::web` reads requests and sends responses. Data comes from
//! commands of the table, run with the user's privileges, or from counters that `serverStatus` also
//! returns.

mod commands;
mod cookies;
mod exposition;
mod health;
mod history;
mod metrics;
mod origin_check;
mod page;
mod request;
mod response;
mod users;

use crate::state::http::PATHS;
use crate::state::server::Server;
pub(crate) use history::sample;
pub(crate) use request::{Malformed, Request};
pub(crate) use response::Response;
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
    let answer = catch_unwind(AssertUnwindSafe(|| route(server, request, peer))).unwrap_or_else(|_| {
        server.counters.panics.add(1);
        Response::text(500, "the server failed to handle this request; see its log").into()
    });
    if let Answer::Now(response) = &answer {
        server.http.count(request.path, response.status, began.elapsed());
    }
    answer
}

fn route(server: &Server, request: &Request<'_>, peer: Peer) -> Answer {
    if !PATHS.contains(&request.path) {
        return Response::text(404, "not found: use /, /metrics, /healthz or /readyz").into();
    }
    let changes = matches!(request.path, "/kill" | "/login" | "/logout");
    let allowed = if changes { "POST" } else { "GET, HEAD" };
    if !allowed.split(", ").any(|method| method == request.method) {
        return Response::text(405, format!("only {allowed}")).with("Allow", allowed).into();
    }
    match request.path {
        // Process supervisors use any host name. These responses reveal only the health.
        "/healthz" => return Response::text(200, "up").into(),
        "/readyz" => return health::ready(server).into(),
        _ => {}
    }
    let names = server.settings.http.as_ref().map_or(&[][..], |options| &options.names);
    if let Err(refused) = origin_check::check(request, names) {
        return refused.into();
    }
    match request.path {
        "/" => page::answer().into(),
        "/history" => history::answer(server, request, peer),
        "/kill" => commands::kill(server, request, peer),
        "/login" => commands::log_in(server, request, peer),
        "/logout" => commands::log_out(server, request, peer),
        "/operations" => commands::operations(server, request, peer),
        "/session" => commands::session(server, request, peer),
        "/slow" => commands::slow(server, request, peer),
        "/working-set" => commands::working_set(server, request, peer),
        _ => match users::client(server, request, peer) {
            Ok(client) => metrics::answer(server, &client).into(),
            Err(answer) => answer,
        },
    }
}

#[cfg(test)]
mod tests;
