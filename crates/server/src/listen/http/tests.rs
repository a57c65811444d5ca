//! Tests of requests without a socket: paths, methods, users.

use super::*;
use crate::dispatch::local::LocalConnection;
use crate::state::http::HttpOptions;
use crate::state::settings::Settings;
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
    Arc::new(Server::new(Settings { http: Some(options), ..settings }, database).unwrap())
}

/// Returns a server with access control and two users, one with monitoring privileges.
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

/// Returns status and text of the response to a request.
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
        (200, "GET / HTTP/1.1\r\nHost: localhost"),
        (421, "GET / HTTP/1.1\r\nHost: evil.example"),
        (405, "GET /kill?op=1 HTTP/1.1\r\nHost: localhost"),
        (405, "OPTIONS /kill?op=1 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example"),
        (403, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example"),
    ] {
        assert_eq!(ask(&server, ELSEWHERE, request).0, status, "{request}");
    }
    let (_, text) = get(&server, "/metrics");
    assert!(text.contains("\nvellum_http_requests_total{path=\"/metrics\",code=\"4xx\"} 3\n"), "{text}");
    assert!(text.contains("\nvellum_http_requests_total{path=\"other\",code=\"4xx\"} 2\n"), "{text}");
    assert!(text.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let server = server_of(Settings::default());
    assert_eq!(get(&server, "/readyz").0, 200);
    server.network.refuse_requests();
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
fn failed_logins_are_delayed() {
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

/// Sends a change as the server's own page does.
fn post(server: &Server, target: &str, fields: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let text = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    );
    let (request, _) = Request::read(text.as_bytes()).unwrap().unwrap();
    let Answer::Now(response) = answer(server, &request, peer(HERE)) else { panic!("it waits") };
    (response.status, String::from_utf8(response.bytes(false, true)).unwrap())
}

#[test]
fn changes_take_the_token_and_a_page_of_ours() {
    let server = server_of(Settings::default());
    let token = format!("X-Vellum-Token: {}\r\n", server.http_token().unwrap());
    assert_eq!(post(&server, "/kill?op=12", &token, "").0, 200);
    for (status, target, fields) in [
        (400, "/kill", token.as_str()),
        (400, "/kill?op=x", &token),
        (400, "/login", &token),
        (403, "/kill?op=12", ""),
        (403, "/kill?op=12", "X-Vellum-Token: \r\n"),
        (403, "/kill?op=12", "X-Vellum-Token: 00000000000000000000000000000000\r\n"),
        (400, "/kill?op=12", &token.repeat(2)),
    ] {
        let text =
            format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n{fields}\r\n");
        let found = match Request::read(text.as_bytes()) {
            Err(malformed) => malformed.0,
            Ok(_) => post(&server, target, fields, "").0,
        };
        assert_eq!(found, status, "{target} {fields}");
    }
    for origin in
        ["", "Origin: http://evil.example\r\n", "Origin: null\r\n", "Origin: http://localhost:1\r\n"]
    {
        let request = format!("POST /kill?op=12 HTTP/1.1\r\nHost: localhost\r\n{origin}{}", token.trim_end());
        assert_eq!(ask(&server, HERE, &request).0, 403, "{origin}");
    }
    let (_, text) = get(&server, "/session");
    assert!(text.contains("\"users\":false") && text.contains("\"mayKill\":true"), "{text}");
}

#[test]
fn users_log_in_with_their_roles_and_log_out() {
    let server = guarded();
    assert_eq!(
        (get(&server, "/").0, get(&server, "/operations").0, get(&server, "/slow").0),
        (200, 401, 401)
    );
    assert!(get(&server, "/session").1.ends_with("{\"users\":true}"), "{}", get(&server, "/session").1);
    assert_eq!(post(&server, "/login", "", "user=watcher&password=wrong&authSource=admin").0, 401);
    assert_eq!(post(&server, "/login", "", "user=watcher").0, 400);
    let log_in = |body: &str| {
        let (status, text) = post(&server, "/login", "", body);
        assert_eq!(status, 200, "{text}");
        let cookie = text.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap().to_string();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = format!("Cookie: other=1; {}\r\n", cookie.split(';').next().unwrap());
        let requested = format!("GET /session HTTP/1.1\r\nHost: localhost\r\n{}", cookie.trim_end());
        let (_, session) = ask(&server, HERE, &requested);
        let token =
            session.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_string();
        (cookie, format!("X-Vellum-Token: {token}\r\n"), session)
    };
    let with = |path: &str, cookie: &str| {
        ask(&server, HERE, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{}", cookie.trim_end())).0
    };
    let (watcher, watchers_token, session) = log_in("user=watcher&password=secret");
    assert!(
        session.contains("\"user\":\"admin.watcher\"") && session.contains("\"mayKill\":false"),
        "{session}"
    );
    for path in ["/metrics", "/operations", "/slow", "/working-set"] {
        assert_eq!(with(path, &watcher), 200, "{path}");
    }
    let (reader, _, session) = log_in("user=reader&password=secret&authSource=shop");
    assert!(session.contains("\"maySeeAll\":false"), "{session}");
    assert_eq!(
        ["/metrics", "/operations", "/slow", "/working-set"].map(|path| with(path, &reader)),
        [403, 200, 403, 403]
    );
    // Neither a token of another session nor a missing privilege is accepted.
    assert_eq!(post(&server, "/kill?op=1", &format!("{reader}{watchers_token}"), "").0, 403);
    let (status, text) = post(&server, "/kill?op=1", &format!("{watcher}{watchers_token}"), "");
    assert!(status == 403 && text.contains("not authorized"), "{text}");
    // A dropped user is logged out, and so is a user after a logout.
    let drop = parse("{dropUser: 'reader', $db: 'shop'}").unwrap();
    LocalConnection::of_server(&server).command(drop.view()).unwrap();
    assert_eq!(with("/operations", &reader), 401);
    assert_eq!(post(&server, "/logout", &watcher, "").0, 403);
    let (status, text) = post(&server, "/logout", &format!("{watcher}{watchers_token}"), "");
    assert!(status == 200 && text.contains("Max-Age=0"), "{text}");
    assert_eq!(with("/metrics", &watcher), 401);
}

#[test]
fn slow_queries_are_grouped_by_shape_with_an_index() {
    let server = server_of(Settings::default());
    let mut client = LocalConnection::new(&server);
    let mut run = |command: &str| client.command(parse(command).unwrap().view()).unwrap();
    run("{insert: 'c', documents: [{a: 1}, {a: 2}, {a: 3}], $db: 'd'}");
    // Every operation counts as slow.
    run("{profile: 0, slowms: -1, $db: 'd'}");
    for number in 0..3 {
        run(&format!("{{find: 'c', filter: {{a: {number}}}, sort: {{b: -1}}, $db: 'd'}}"));
    }
    let reported = |text: &str| {
        let shapes: Vec<_> = text
            .split("{\"ns\":")
            .filter(|part| part.contains("\"command\":\"find\""))
            .map(str::to_string)
            .collect();
        assert_eq!(shapes.len(), 1, "{text}");
        shapes[0].clone()
    };
    let shape = reported(&get(&server, "/slow").1);
    for part in [
        "\"filter\":{\"a\":\"?\"}",
        "\"count\":3",
        "\"docsExamined\":9",
        "\"planSummary\":\"COLLSCAN\"",
        "\"index\":{\"a\":1,\"b\":-1}",
    ] {
        assert!(shape.contains(part), "{part}: {shape}");
    }
    run("{createIndexes: 'c', indexes: [{key: {a: -1, b: 1, c: 1}, name: 'i'}], $db: 'd'}");
    assert!(!reported(&get(&server, "/slow").1).contains("\"index\""));
}

#[test]
fn statements_beside_their_command_have_a_shape() {
    let server = server_of(Settings::default());
    let mut client = LocalConnection::new(&server);
    let mut run = |command: &str| client.command(parse(command).unwrap().view()).unwrap();
    run("{insert: 'c', documents: [{a: 1}, {a: 2}, {a: 3}], $db: 'd'}");
    // Every operation counts as slow, and the database d has no profiler setting.
    run("{profile: 0, slowms: -1, $db: 'other'}");
    for (name, list, statement) in [
        ("update", "updates", "{q: {a: 1}, u: {b: 'secret'}}"),
        ("delete", "deletes", "{q: {a: 1}, limit: 0}"),
    ] {
        let body = parse(&format!("{{{name}: 'c', $db: 'd'}}")).unwrap();
        let (other, statement, name_and_zero) = (statement, parse(statement).unwrap(), format!("{list}\0"));
        // Two statements, of which the first counts.
        let other = parse(&other.replace('a', "z")).unwrap();
        let documents = [statement.view().bytes(), other.view().bytes()].concat();
        let length = ((4 + name_and_zero.len() + documents.len()) as i32).to_le_bytes();
        let list = [&length, name_and_zero.as_bytes(), &documents].concat();
        let sections: [&[u8]; 4] = [&[0], body.view().bytes(), &[1], &list];
        let mut out = Vec::new();
        assert!(client.frame(&wire::message::encode_sections(1, 0, &sections), &mut out));
        let reply = wire::message::document(&out).unwrap();
        assert!(reply.view().get("writeErrors").is_none(), "{}", reply.view());
    }
    let (_, text) = get(&server, "/slow");
    for name in ["update", "delete"] {
        let expected =
            format!("\"command\":\"{name}\",\"shape\":{{\"filter\":{{\"a\":\"?\"}}}},\"count\":1,");
        let shape = text.split("{\"ns\":\"d.c\",").find(|shape| shape.starts_with(&expected));
        assert!(shape.is_some_and(|shape| shape.contains("\"index\":{\"a\":1}")), "{name}: {text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn mutated_requests_are_harmless() {
    let server = guarded();
    let random = base::random::Random::new(7);
    let seeds: [&[u8]; 4] = [
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic dTpw\r\n\r\n",
        b"POST /kill?op=7 HTTP/1.1\r\nHost: [::1]:9\r\nOrigin: http://[::1]:9\r\nCookie: vellum-9216=a; b=c\r\nX-Vellum-Token: t\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 21\r\n\r\nuser=u%41&password=%zz",
        b"GET /session?authSource=%00 HTTP/1.0\r\nConnection: close\r\n\r\n",
    ];
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let draw = |below: usize| (random.draw() >> 11) as usize % below;
        let mut bytes = seeds[draw(seeds.len())].to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes[at] = draw(256) as u8,
                1 => bytes.insert(at, b" \r\n:/%=;?\0\xff"[draw(11)]),
                2 => _ = bytes.drain(at..(at + draw(9)).min(bytes.len())),
                _ => bytes.extend_from_within(at..),
            }
            if bytes.is_empty() {
                bytes.push(b'G');
            }
        }
        match Request::read(&bytes) {
            Ok(None) => {}
            Err(malformed) => {
                refused += 1;
                assert!((400..=505).contains(&malformed.0));
            }
            // The password check of an unknown user takes its full time.
            Ok(Some((request, _))) if request.path == "/login" || request.authorization.is_some() => {
                answered += 1
            }
            Ok(Some((request, length))) => {
                answered += 1;
                assert!(length <= bytes.len());
                if let Answer::Now(response) = answer(&server, &request, peer(HERE)) {
                    assert!((200..=505).contains(&response.status) && response.status != 500, "{request:?}");
                }
            }
        }
    }
    assert!(answered > 1000 && refused > 1000, "{answered} {refused}");
}
