//! Requests without a socket: paths, methods, users.

use super::*;
use crate::local::LocalConnection;
use crate::server::Settings;
use base::bson::extended_json::parse;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use database::{Database, SystemClock};
use std::sync::Arc;

const HERE: &str = "127.0.0.1:5000";
const ELSEWHERE: &str = "10.1.2.3:5000";

fn server_of(settings: Settings) -> Arc<Server> {
    let engine = Arc::new(storage::MemoryEngine::new());
    let database = Database::open(engine, Arc::new(SystemClock), 1).unwrap();
    let options =
        HttpOptions { address: ([127, 0, 0, 1], 0).into(), names: vec!["metrics.example".to_string()] };
    Arc::new(Server::new(Settings { http: Some(options), ..settings }, database))
}

/// A server that lets users in alone, with one who may watch and one who may not.
fn guarded() -> Arc<Server> {
    let server = server_of(Settings { auth: true, ..Settings::default() });
    let mut system = LocalConnection::of_server(&server);
    for (user, db, role) in [("watcher", "admin", "clusterMonitor"), ("reader", "shop", "read")] {
        let command = format!("{{createUser: '{user}', pwd: 'secret', roles: ['{role}'], $db: '{db}'}}");
        let reply = system.command(parse(&command).unwrap().view()).unwrap();
        assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{}", reply.view());
    }
    server
}

fn peer(client: &str) -> Peer {
    Peer {
        client: client.parse().unwrap(),
        local: ([127, 0, 0, 1], 9216).into(),
        is_encrypted: false,
        has_waited: false,
    }
}

/// The status of the answer to a request, and its text.
fn ask(server: &Server, client: &str, request: &str) -> (u16, String) {
    let bytes = format!("{request}\r\n\r\n");
    let (request, _) = Request::read(bytes.as_bytes()).unwrap().unwrap();
    let Answer::Now(response) = answer(server, &request, peer(client)) else { panic!("it waits") };
    (response.status, String::from_utf8(response.bytes(request.method == "HEAD", true)).unwrap())
}

fn get(server: &Server, path: &str) -> (u16, String) {
    ask(server, HERE, &format!("GET {path} HTTP/1.1\r\nHost: localhost"))
}

fn with_user(server: &Server, client: &str, path: &str, user: &str) -> (u16, String) {
    let encoded = BASE64_STANDARD.encode(user);
    ask(server, client, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {encoded}"))
}

#[test]
fn paths_and_methods() {
    let server = server_of(Settings::default());
    for (status, request) in [
        (200, "GET /healthz HTTP/1.1\r\nHost: anything"),
        (200, "GET /readyz HTTP/1.0"),
        (200, "HEAD /metrics HTTP/1.1\r\nHost: Metrics.example:80"),
        (200, "GET /metrics HTTP/1.1\r\nHost: [::1]:9216"),
        (404, "GET /metric HTTP/1.1\r\nHost: localhost"),
        (404, "DELETE /collections HTTP/1.1\r\nHost: localhost"),
        (405, "POST /metrics HTTP/1.1\r\nHost: localhost"),
        (421, "GET /metrics HTTP/1.1\r\nHost: evil.example"),
        (421, "GET / HTTP/1.1\r\nHost: evil.example"),
        (403, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example"),
    ] {
        assert_eq!(ask(&server, ELSEWHERE, request).0, status, "{request}");
    }
    let (_, text) = get(&server, "/metrics");
    assert!(text.contains("\nvellum_http_requests_total{path=\"/metrics\",code=\"4xx\"} 3\n"), "{text}");
    assert!(text.contains("\nvellum_http_requests_total{path=\"other\",code=\"4xx\"} 3\n"), "{text}");
    assert!(text.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let server = server_of(Settings::default());
    assert_eq!(get(&server, "/readyz").0, 200);
    server.stopping.store(true, std::sync::atomic::Ordering::Release);
    assert_eq!((get(&server, "/readyz").0, get(&server, "/healthz").0), (503, 200));
    let set =
        Settings { replica_set: Some("rs0".to_string()), awaits_initiation: true, ..Settings::default() };
    assert_eq!(get(&server_of(set), "/readyz").0, 503);
}

#[test]
fn users_are_asked_for_where_there_are_users() {
    let server = guarded();
    assert_eq!((get(&server, "/healthz").0, get(&server, "/readyz").0), (200, 200));
    let (status, text) = get(&server, "/metrics");
    assert!(status == 401 && text.contains("\r\nWWW-Authenticate: Basic realm=\"vellum\""), "{text}");
    for (status, client, path, user) in [
        (200, HERE, "/metrics", "watcher:secret"),
        (401, HERE, "/metrics", "watcher:wrong"),
        (401, HERE, "/metrics", "nobody:secret"),
        (401, HERE, "/metrics?authSource=shop", "watcher:secret"),
        (403, HERE, "/metrics?authSource=shop", "reader:secret"),
        (403, ELSEWHERE, "/metrics", "watcher:secret"),
    ] {
        assert_eq!(with_user(&server, client, path, user).0, status, "{client} {path} {user}");
    }
    let (_, text) = with_user(&server, HERE, "/metrics", "watcher:secret");
    let logins = "\nvellum_logins_total{mechanism=\"SCRAM-SHA-256\",result=";
    assert!(
        text.contains(&format!("{logins}\"tried\"}} 6\n"))
            && text.contains(&format!("{logins}\"succeeded\"}} 3\n"))
    );
}

#[test]
fn who_guesses_waits() {
    let server = guarded();
    for _ in 0..5 {
        assert_eq!(with_user(&server, HERE, "/metrics", "watcher:wrong").0, 401);
    }
    let encoded = BASE64_STANDARD.encode("watcher:secret");
    let text = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {encoded}\r\n\r\n");
    let (request, _) = Request::read(text.as_bytes()).unwrap().unwrap();
    assert!(matches!(answer(&server, &request, peer(HERE)), Answer::Later(wait) if !wait.is_zero()));
    let waited = Peer { has_waited: true, ..peer(HERE) };
    assert!(matches!(answer(&server, &request, waited), Answer::Now(response) if response.status == 200));
}
