//! Requests of the web page with the privileges of its user: commands of the table, and the history of operation counts
//! and latencies.

use super::users::{self, HttpClient};
use super::{Answer, Exchange, Request, Response};
use crate::access::{Action, Resource};
use crate::auth;
use crate::call::HandlerStatus as Polled;
use crate::commands::table;
use crate::dispatch::request::Request as Command;
use crate::observe::counters::Counters;
use crate::protocol::names::UserName;
use crate::server::Server;
use crate::state::http::Counts;
use base::bson::extended_json::value_to_relaxed;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use wire::{message, secret};

/// Maximum number of operations in the reply.
const OPERATIONS_MAX: usize = 100;

/// Returns the user of the page and the user's privileges.
pub(super) fn session(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let server = exchange.server;
    let client = match users::client(exchange) {
        // No user yet: the page shows its login form.
        Err(Answer::Now(refused)) if refused.status == 401 => {
            let mut out = Builder::new();
            out.append(c"users", true);
            return Ok(json(out.finish().view()));
        }
        client => client?,
    };
    let may = |action| auth::is_authorized(&server.auth, &client.state, Resource::Cluster, action);
    let mut out = Builder::new();
    out.append(c"users", server.auth.enabled());
    if let Some(identity) = &client.state.identity {
        out.append(c"user", &identity.user.id());
    }
    out.append_optional(c"token", client.token.as_deref());
    if may(Action::ServerStatus) {
        let settings = &server.settings;
        out.append_optional(c"server", server.http.server.get().map(String::as_str));
        out.append_optional(c"set", settings.replica_set.as_deref());
        out.append_optional(
            c"data",
            settings.data.as_ref().map(|folder| folder.display().to_string()).as_deref(),
        );
    }
    out.append(c"mayKill", may(Action::Killop)).append(c"maySeeAll", may(Action::Inprog));
    Ok(json(out.finish().view()))
}

/// Returns the running operations: all, or the user's own without the privilege to see all.
pub(super) fn operations(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let mut client = users::client(exchange)?;
    let own_alone =
        !auth::is_authorized(&exchange.server.auth, &client.state, Resource::Cluster, Action::Inprog);
    let mut command = Builder::new();
    command.append(c"currentOp", 1).append(c"$ownOps", own_alone).append(c"$db", "admin");
    let reply = run(&mut client, command.finish().view())?;
    let list = reply.view().get("inprog").and_then(|list| list.as_array());
    let all = list.into_iter().flat_map(|list| list.iter());
    let mut out = Builder::new();
    let mut count = 0;
    out.begin_array(c"inprog");
    for operation in all {
        if count < OPERATIONS_MAX {
            out.push(operation);
        }
        count += 1;
    }
    out.end().append(c"more", count.saturating_sub(OPERATIONS_MAX) as i64);
    Ok(json(out.finish().view()))
}

/// Returns slow operations by shape.
pub(super) fn slow(exchange: Exchange<'_>) -> Result<Response, Answer> {
    run_json("vellumSlowQueries", exchange)
}

/// Returns estimated hit ratios of other cache sizes.
pub(super) fn working_set(exchange: Exchange<'_>) -> Result<Response, Answer> {
    run_json("vellumWorkingSet", exchange)
}

/// Returns the reply of a command without arguments.
fn run_json(name: &str, exchange: Exchange<'_>) -> Result<Response, Answer> {
    let mut client = users::client(exchange)?;
    let mut command = Builder::new();
    command.append(FieldName::trusted(name), 1).append(c"$db", "admin");
    Ok(json(run(&mut client, command.finish().view())?.view()))
}

/// Kills an operation.
pub(super) fn kill(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let mut client = users::client(exchange)?;
    check_change(&client, exchange.request)?;
    let Some(number) = exchange.request.parameter("op").and_then(|text| text.parse::<i64>().ok()) else {
        return Ok(Response::text(400, "op must be the number of an operation"));
    };
    let mut command = Builder::new();
    command.append(c"killOp", 1).append(c"op", number).append(c"$db", "admin");
    run(&mut client, command.finish().view())?;
    let who = client.state.identity.as_ref().map(|identity| identity.user.to_string());
    log::info!(
        c = "COMMAND", op = number, user = who.unwrap_or_default().as_str(),
        client = exchange.peer.client.to_string().as_str(); "Killing an operation over HTTP"
    );
    Ok(Response::text(200, "interrupted"))
}

/// Authenticates with the form's user name and password.
pub(super) fn log_in(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let Exchange { server, request, peer } = exchange;
    if !server.auth.enabled() {
        return Ok(Response::text(400, "access control is not enabled"));
    }
    check_own_page(request)?;
    users::check_secrecy(peer)?;
    let field = |name: &str| request.body_parameter(name);
    let (Some(name), Some(password)) = (field("user"), field("password")) else {
        return Ok(Response::text(400, "user and password are required"));
    };
    let database = field("authSource").unwrap_or_else(|| users::DATABASE.to_string());
    let client = HttpClient::new(server, peer);
    let client = users::log_in(client, &UserName::new(name, database), &password, request, peer)?;
    let Some(identity) = client.state.identity.clone() else {
        return Ok(Response::text(401, "not logged in"));
    };
    Ok(match server.http.sessions.begin(identity) {
        Ok(cookie) => Response::text(200, "logged in").with("Set-Cookie", &users::set_cookie(&cookie, peer)),
        Err(why) => Response::text(503, why),
    })
}

/// Ends the session of the page's user.
pub(super) fn log_out(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let Exchange { server, request, peer } = exchange;
    check_change(&users::client(exchange)?, request)?;
    if let Some(cookie) = users::cookie_of(request, peer) {
        server.http.sessions.keep(cookie, None);
    }
    Ok(Response::text(200, "logged out").with("Set-Cookie", &users::set_cookie("", peer)))
}

/// Refuses changes from foreign pages. A change requires an Origin header and a token that only the
/// server's own page knows.
fn check_change(client: &HttpClient<'_>, request: &Request<'_>) -> Result<(), Response> {
    check_own_page(request)?;
    let (given, expected) = (request.token.unwrap_or_default(), client.token.as_deref().unwrap_or_default());
    match !expected.is_empty() && secret::equal(given.as_bytes(), expected.as_bytes()) {
        true => Ok(()),
        false => Err(Response::text(403, "this requires the token that was printed when the server started")),
    }
}

fn check_own_page(request: &Request<'_>) -> Result<(), Response> {
    // The gate has already refused foreign origins. Browsers send Origin with every change.
    match request.origin.is_some() {
        true => Ok(()),
        false => Err(Response::text(403, "changes require the header Origin")),
    }
}

/// Runs a command that does not wait.
///
/// Errors: the response for the command's error.
fn run(client: &mut HttpClient<'_>, command: Document<'_>) -> Result<DocumentBuf, Response> {
    let mut reply = Vec::new();
    let frame = message::encode(1, 0, command);
    let started = Command::begin(&mut client.state, client.server, frame, &mut reply);
    let reply = message::document(&reply).filter(|_| matches!(started, Ok((Polled::Done, _))));
    let Some(reply) = reply else { return Err(Response::text(503, "the command does not return at once")) };
    if reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1) {
        return Ok(reply);
    }
    let why = reply.view().get("errmsg").and_then(|why| why.as_str()).unwrap_or_default();
    let is_forbidden = reply.view().get("codeName").and_then(|name| name.as_str()) == Some("Unauthorized");
    Err(Response::text(if is_forbidden { 403 } else { 500 }, why))
}

pub(super) fn json(document: Document<'_>) -> Response {
    Response::new(200, "application/json", value_to_relaxed(Value::Document(document)))
}

/// Commands of drivers and monitors. The page leaves them out, so that it does not show itself.
const MONITORING: [&str; 9] = [
    "hello",
    "isMaster",
    "ping",
    "serverStatus",
    "currentOp",
    "top",
    "replSetGetStatus",
    "vellumSlowQueries",
    "vellumWorkingSet",
];

/// Commands that count as writes.
const WRITES: [&str; 5] = ["insert", "update", "delete", "findAndModify", "bulkWrite"];

/// Takes a sample. The caller calls it once per [`INTERVAL`](crate::state::http::INTERVAL).
pub(crate) fn sample(server: &Server) {
    server.http.history.sample(operations_since_start(&server.counters));
}

/// Returns all operations since the start.
fn operations_since_start(counters: &Counters) -> Counts {
    let mut counts = Counts::default();
    for database in counters.operations.all() {
        for (at, one) in database.commands() {
            let name = table::name_at(at);
            if MONITORING.contains(&name) {
                continue;
            }
            let times = one.times.snapshot();
            counts.writes += if WRITES.contains(&name) { times.count() } else { 0 };
            counts.durations.iter_mut().zip(times.counts).for_each(|(sum, count)| *sum += count);
        }
    }
    counts
}

/// Returns all samples to a user with the serverStatus privilege.
pub(super) fn history(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let client = users::client(exchange)?;
    let server = exchange.server;
    if !auth::is_authorized(&server.auth, &client.state, Resource::Cluster, Action::ServerStatus) {
        return Ok(Response::text(403, "this requires the privilege serverStatus (role clusterMonitor)"));
    }
    let (seconds, samples) = server.http.history.samples();
    let mut out = Builder::new();
    out.append(c"seconds", seconds);
    type Column = fn(&Counts) -> Option<i64>;
    let columns: [(&str, Column); 4] = [
        ("operations", |counts| Some(counts.operations() as i64)),
        ("writes", |counts| Some(counts.writes as i64)),
        ("p50", |counts| counts.percentile(50)),
        ("p99", |counts| counts.percentile(99)),
    ];
    for (name, column) in columns {
        out.begin_array(base::bson::FieldName::literal(name));
        for counts in &samples {
            out.push(column(counts).map_or(Value::Null, Value::Int64));
        }
        out.end();
    }
    out.begin_array(c"monitoring");
    for name in MONITORING {
        out.push(name);
    }
    out.end();
    Ok(json(out.finish().view()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_exist() {
        for name in MONITORING.iter().chain(&WRITES) {
            assert!(table::find(name).is_some(), "{name}");
        }
    }
}
