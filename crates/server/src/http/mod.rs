//! What `--http` serves: figures for Prometheus, whether the server is up and takes operations, and a page that shows
//! what goes on.
//!
//! Nothing here knows a socket: `net::web` reads a request's bytes and sends the response's. Whatever a request reads or
//! changes is a command of the table, run with the rights of whoever asks, or a figure that `serverStatus` has, too.

mod commands;
mod exposition;
mod gate;
mod health;
mod history;
mod metrics;
mod page;
mod request;
mod response;
mod sessions;
mod users;

use crate::counter::Counter;
use crate::operations::Times;
use crate::places::Places;
use crate::server::Server;
pub(crate) use history::INTERVAL as HISTORY_INTERVAL;
pub(crate) use request::{Malformed, Request};
pub(crate) use response::Response;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where to serve HTTP, and by which names.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// The address and the port, 0 for a free one.
    pub address: SocketAddr,
    /// Names that this server is asked for by, besides addresses and `localhost`.
    pub names: Vec<String>,
}

/// The length of the request that these bytes begin with, as far as it is one that anything is answered to: for fuzzing.
pub fn request_length(bytes: &[u8]) -> Option<usize> {
    let (request, length) = Request::read(bytes).ok()??;
    let _ = (request.parameter("q"), request.body_parameter("q"));
    Some(length)
}

/// What HTTP remembers and counts.
#[derive(Default)]
pub(crate) struct Http {
    /// Where it is served, once it is.
    pub(crate) address: OnceLock<SocketAddr>,
    /// The address of MongoDB's protocol, as clients on this machine dial it.
    pub(crate) server: OnceLock<String>,
    /// Operations over time.
    pub(crate) history: history::History,
    /// The places for connections.
    pub(crate) places: Places,
    /// Connections refused for their number.
    pub(crate) rejected: Counter,
    /// What was asked for: as [`PATHS`] has it, then anything else.
    requests: [Answers; PATHS.len() + 1],
    /// What is shown by whoever may change something, where there are no users.
    token: OnceLock<String>,
    sessions: sessions::Sessions,
}

/// The answers to requests for one path.
#[derive(Default)]
struct Answers {
    /// By the hundreds of their status, from 200 on.
    by_class: [Counter; 4],
    times: Times,
}

/// What can be asked for.
const PATHS: [&str; 12] = [
    "/",
    "/healthz",
    "/history",
    "/kill",
    "/login",
    "/logout",
    "/metrics",
    "/operations",
    "/readyz",
    "/session",
    "/slow",
    "/working-set",
];

/// Who sent a request.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) client: SocketAddr,
    /// The address that the client dialled.
    pub(crate) local: SocketAddr,
    pub(crate) is_encrypted: bool,
    /// Whether the request has waited its turn already.
    pub(crate) has_waited: bool,
}

/// What becomes of a request.
pub(crate) enum Answer {
    /// It is answered.
    Now(Response),
    /// It is to be asked again after a while: its user has failed to log in too often.
    Later(Duration),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Answer {
        Answer::Now(response)
    }
}

/// Answers a request. A panic is an answer, too.
pub(crate) fn answer(server: &Server, request: &Request<'_>, peer: Peer) -> Answer {
    let began = Instant::now();
    let answer = catch_unwind(AssertUnwindSafe(|| route(server, request, peer))).unwrap_or_else(|_| {
        server.counters.panics.add(1);
        Response::text(500, "the server failed to answer this; its log says how").into()
    });
    if let Answer::Now(response) = &answer {
        server.http.count(request.path, response.status, began.elapsed());
    }
    answer
}

impl Http {
    /// Counts a response.
    pub(crate) fn count(&self, path: &str, status: u16, took: Duration) {
        let at = PATHS.iter().position(|known| *known == path).unwrap_or(PATHS.len());
        let Some(answers) = self.requests.get(at) else { return };
        answers.times.note(took);
        if let Some(count) = answers.by_class.get(usize::from(status / 100).saturating_sub(2)) {
            count.add(1);
        }
    }
}

fn route(server: &Server, request: &Request<'_>, peer: Peer) -> Answer {
    if !PATHS.contains(&request.path) {
        return Response::text(404, "there are /, /metrics, /healthz and /readyz").into();
    }
    let changes = matches!(request.path, "/kill" | "/login" | "/logout");
    let allowed = if changes { "POST" } else { "GET, HEAD" };
    if !allowed.split(", ").any(|method| method == request.method) {
        return Response::text(405, format!("only {allowed}")).with("Allow", allowed).into();
    }
    match request.path {
        // Whoever watches over processes asks by any name, and learns nothing but this.
        "/healthz" => return Response::text(200, "up").into(),
        "/readyz" => return health::ready(server).into(),
        _ => {}
    }
    let names = server.settings.http.as_ref().map_or(&[][..], |options| &options.names);
    if let Err(refused) = gate::check(request, names) {
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
        _ => match users::guest(server, request, peer) {
            Ok(guest) => metrics::answer(server, &guest).into(),
            Err(answer) => answer,
        },
    }
}

#[cfg(test)]
mod tests;
