//! `--http`: the metrics for Prometheus, checked against the rules of their format and against serverStatus; slow and
//! broken clients.

use crate::client::Client;
use crate::print_line;
use crate::requests::code;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Document, DocumentBuf, Value};
use postgres::testing::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of a sample with its labels.
type Key = (String, BTreeMap<String, String>);

/// A parsed text of Prometheus' format.
#[derive(Default)]
struct Parsed {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<Key, f64>,
}

impl Parsed {
    /// Parses a text strictly: each family once, help and type before samples, no duplicate sample, counters ending in
    /// `_total`, consistent histograms.
    fn new(text: &str) -> Parsed {
        assert!(text.ends_with('\n'));
        let mut parsed = Parsed::default();
        let (mut helped, mut family) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                helped = help.split_once(' ').unwrap().0.to_string();
                continue;
            }
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped, "a type without its help");
                assert!(is_name(name) && name.starts_with("vellum_"), "{name}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
                assert!(parsed.kinds.insert(name.to_string(), kind.to_string()).is_none(), "{name} twice");
                family = name.to_string();
                continue;
            }
            let (key, value) = sample(line);
            let suffixes: &[&str] = match parsed.kinds[&family].as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.iter().any(|suffix| key.0 == format!("{family}{suffix}")), "{line} in {family}");
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(parsed.samples.insert(key, value).is_none(), "{line} twice");
        }
        parsed.check_histograms();
        parsed
    }

    fn check_histograms(&self) {
        let mut last: Option<(&BTreeMap<String, String>, f64, f64)> = None;
        let mut seen = 0;
        let mut buckets: Vec<(&String, BTreeMap<String, String>, f64, f64)> = Vec::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            assert_eq!(self.kinds[family], "histogram");
            let mut others = labels.clone();
            let bound = others.remove("le").unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            buckets.push((name, others, bound, *value));
        }
        buckets
            .sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)).then(one.2.total_cmp(&other.2)));
        for (name, labels, bound, value) in &buckets {
            if let Some((before, smaller, count)) = last
                && before == labels
                && smaller < *bound
            {
                assert!(count <= *value, "{name} {labels:?} goes down");
            }
            if bound.is_infinite() {
                let family = name.strip_suffix("_bucket").unwrap();
                assert_eq!(self.samples[&(format!("{family}_count"), labels.clone())], *value);
                assert!(self.samples.contains_key(&(format!("{family}_sum"), labels.clone())));
                seen += 1;
            }
            last = Some((labels, *bound, *value));
        }
        assert!(seen > 3, "{seen} histograms");
    }

    fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(name, of)| (name.to_string(), of.to_string())).collect();
        let key = (name.to_string(), labels);
        *self.samples.get(&key).unwrap_or_else(|| panic!("no {key:?}"))
    }

    /// Returns the sum over all samples of a name with this label.
    fn sum(&self, name: &str, label: (&str, &str)) -> f64 {
        let has = |labels: &BTreeMap<String, String>| labels.get(label.0).is_some_and(|of| of == label.1);
        self.samples
            .iter()
            .filter(|((of, labels), _)| of == name && has(labels))
            .map(|(_, value)| value)
            .sum()
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Parses a sample line.
fn sample(line: &str) -> (Key, f64) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    if let Some(inner) = rest.strip_prefix('{') {
        let mut chars = inner.char_indices();
        loop {
            let mut label = String::new();
            for (_, c) in chars.by_ref().take_while(|(_, c)| *c != '=') {
                label.push(c);
            }
            assert!(is_name(&label), "{line}");
            assert_eq!(chars.next().map(|(_, c)| c), Some('"'), "{line}");
            let mut value = String::new();
            loop {
                match chars.next().unwrap().1 {
                    '"' => break,
                    '\\' => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('"' | '\\') => c,
                        c => panic!("\\{c} in {line}"),
                    }),
                    c => value.push(c),
                }
            }
            assert!(labels.insert(label, value).is_none(), "{line}");
            match chars.next().unwrap() {
                (_, ',') => {}
                (at, '}') => {
                    rest = &inner[at + 1..];
                    break;
                }
                other => panic!("{other:?} in {line}"),
            }
        }
    }
    ((name.to_string(), labels), rest.strip_prefix(' ').unwrap().parse().unwrap())
}

/// Sends bytes and reads to the end.
fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    // The server may have closed the connection.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    // A client that has sent more than was read may get a connection reset.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

fn get(address: &str, path: &str) -> String {
    exchange(
        address,
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )
}

fn metrics(address: &str) -> Parsed {
    let text = get(address, "/metrics");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    Parsed::new(body)
}

fn run(client: &mut Client, command: &str) -> DocumentBuf {
    let reply = client.command(&parse(command).unwrap()).unwrap();
    assert_eq!(number(reply.view(), "ok"), 1.0, "{command}: {}", reply.view());
    reply
}

fn number(document: Document<'_>, path: &str) -> f64 {
    let (names, last) = path.rsplit_once('.').map_or((None, path), |(names, last)| (Some(names), last));
    let inner = names.into_iter().flat_map(|names| names.split('.'));
    let inner = inner.fold(document, |document, name| document.get(name).unwrap().as_document().unwrap());
    match inner.get(last).unwrap_or_else(|| panic!("no {path} in {document}")) {
        Value::Int32(number) => f64::from(number),
        Value::Int64(number) => number as f64,
        Value::Double(number) => number,
        other => panic!("{path} is {other}"),
    }
}

/// Returns an address whose port was free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Starts a server with HTTP and returns its HTTP address; `None` if a different server is tested.
fn start(data: Option<&std::path::Path>, options: &[&str]) -> Option<(Server, String)> {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return None;
    }
    let free = free_address();
    let options = [&["--http", &free], options].concat();
    let server = match data {
        Some(data) => Server::start_on(data, &options),
        None => Server::start_with(&options),
    };
    server.map(|server| (server, free))
}

#[test]
fn metrics_equal_server_status() {
    let data =
        std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("http-{}", std::process::id()));
    let Some((server, address)) = start(Some(&data), &["--replset", "rs0", "--durability", "journaled"])
    else {
        return;
    };
    let mut client = server.connect().unwrap();
    for _ in 0..3 {
        run(&mut client, "{insert: 'c', documents: [{a: 1}, {a: 2}], $db: 'test'}");
    }
    run(&mut client, "{insert: 'we \"ird\\\\', documents: [{a: 1}], $db: 'other'}");
    run(&mut client, "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}], $db: 'test'}");
    run(&mut client, "{find: 'c', batchSize: 1, $db: 'test'}");
    run(&mut client, "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}, $db: 'test'}");
    run(&mut client, "{update: 'c', updates: [{q: {}, u: {$set: {b: 1}}, multi: true}], $db: 'test'}");
    assert!(client.command(&parse("{find: 'c', filter: {$what: 1}, $db: 'test'}").unwrap()).is_ok());
    let status = run(&mut client, "{serverStatus: 1, oplog: 1, $db: 'admin'}");
    let stats = run(&mut client, "{collStats: 'c', $db: 'test'}");
    let parsed = metrics(&address);
    let (status, stats) = (status.view(), stats.view());
    let count = |command: &str| parsed.sum("vellum_operation_duration_seconds_count", ("command", command));
    for command in ["insert", "find", "update", "aggregate", "createIndexes"] {
        assert_eq!(count(command), number(status, &format!("metrics.commands.{command}.total")), "{command}");
        let failed = parsed.sum("vellum_operations_failed_total", ("command", command));
        assert_eq!(failed, number(status, &format!("metrics.commands.{command}.failed")), "{command}");
    }
    let of = [("database", "test"), ("command", "insert")];
    assert_eq!(parsed.get("vellum_operation_duration_seconds_count", &of), 3.0);
    assert_eq!(
        parsed.get("vellum_operations_failed_total", &[("database", "test"), ("command", "find")]),
        1.0
    );
    let writes = ["insert", "update", "delete", "findAndModify", "bulkWrite"];
    let micros: f64 =
        writes.iter().map(|one| parsed.sum("vellum_operation_duration_seconds_sum", ("command", one))).sum();
    let reported = number(status, "opLatencies.writes.latency") / 1e6;
    assert!((micros - reported).abs() < 1e-5, "{micros} {reported}");
    for (name, labels, path) in [
        ("vellum_documents_total", &[("operation", "inserted")][..], "metrics.document.inserted"),
        ("vellum_documents_total", &[("operation", "updated")], "metrics.document.updated"),
        ("vellum_documents_total", &[("operation", "returned")], "metrics.document.returned"),
        ("vellum_cursors", &[], "metrics.cursor.open.total"),
        ("vellum_errors_total", &[], "asserts.user"),
        ("vellum_connections", &[], "connections.current"),
        ("vellum_checkpoints_total", &[], "vellum.journal.checkpoints"),
        ("vellum_commits_total", &[], "vellum.journal.commits"),
        ("vellum_data_bytes", &[], "vellum.dataBytes"),
        ("vellum_transactions", &[], "transactions.currentOpen"),
        ("vellum_collections", &[("kind", "ordinary")], "catalogStats.collections"),
    ] {
        // HTTP uses a connection during its request.
        let own = f64::from(u8::from(name == "vellum_connections"));
        assert_eq!(parsed.get(name, labels) - own, number(status, path), "{name}");
    }
    assert!(
        parsed.get("vellum_journal_sync_duration_seconds_count", &[])
            >= number(status, "vellum.journal.syncs")
    );
    assert!(parsed.get("vellum_journal_sync_duration_seconds_sum", &[]) > 0.0);
    assert_eq!(parsed.get("vellum_change_streams", &[]), 1.0);
    assert!(
        parsed.get("vellum_oplog_bytes", &[]) > 0.0
            && parsed.get("vellum_oplog_limit_bytes", &[]) == 67_108_864.0
    );
    let of = [("database", "test"), ("collection", "c")];
    assert_eq!(parsed.get("vellum_collection_documents", &of), 6.0);
    for (name, path) in [("data", "size"), ("storage", "storageSize"), ("index", "totalIndexSize")] {
        assert_eq!(
            parsed.get(&format!("vellum_collection_{name}_bytes"), &of),
            number(stats, path),
            "{name}"
        );
    }
    assert_eq!(
        parsed.get("vellum_collection_documents", &[("database", "other"), ("collection", "we \"ird\\")]),
        1.0
    );
    drop(client);
    drop(server);
    // Leftovers are in the target directory.
    let _ = std::fs::remove_dir_all(data);
}

#[test]
fn metrics_of_a_front_read_no_collection() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "metrics over PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let free = free_address();
    let connection = format!("{} password=secret-word", cluster.connection_string());
    let Some(server) = Server::on_schema_with(&connection, "figures", &["--http", &free]) else { return };
    let mut client = server.connect().unwrap();
    let long = "x".repeat(100_000);
    run(&mut client, &format!("{{insert: 'c', documents: [{{_id: 1, long: '{long}'}}], $db: 'test'}}"));
    run(&mut client, "{insert: 'other', documents: [{}, {}, {}], $db: 'test'}");
    // From now on a read of the long document takes longer than the timeout of the test.
    let view = "create view figures.kv as select * from figures.kept where \
                case when octet_length(value) > 90000 then pg_sleep(300)::text is not null else true end";
    cluster.run(&["alter table figures.kv rename to kept", view]).unwrap();
    let parsed = metrics(&free);
    let of = |collection| [("database", "test"), ("collection", collection)];
    assert_eq!(parsed.get("vellum_collection_documents", &of("c")), 1.0);
    assert!(parsed.get("vellum_collection_data_bytes", &of("c")) > 100_000.0);
    assert_eq!(parsed.get("vellum_collection_documents", &of("other")), 3.0);
    for name in ["vellum_data_bytes", "vellum_collection_storage_bytes", "vellum_collection_index_bytes"] {
        assert!(!parsed.kinds.contains_key(name), "{name}");
    }
    assert_eq!(parsed.sum("vellum_info", ("durability", "store")), 1.0);
    let status = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let vellum = status.view().get("vellum").and_then(|vellum| vellum.as_document()).unwrap();
    assert_eq!(vellum.get("durability").and_then(|level| level.as_str()), Some("store"));
    assert!(number(vellum, "journal.syncs") > 0.0);
    let missing = ["dataBytes", "fileBytes", "cache"];
    assert!(
        vellum.get("members").is_some() && missing.iter().all(|name| vellum.get(name).is_none()),
        "{vellum}"
    );
    for command in ["collStats: 'c'", "dbStats: 1"] {
        let command = parse(&format!("{{{command}, maxTimeMS: 300, $db: 'test'}}")).unwrap();
        assert_eq!(code(&client.command(&command).unwrap()), 50, "{}", command.view());
    }
    let names = run(&mut client, "{listDatabases: 1, nameOnly: true, $db: 'admin'}");
    assert!(names.view().to_string().contains("test"), "{}", names.view());
    let options = run(&mut client, "{getCmdLineOpts: 1, $db: 'admin'}").view().to_string();
    assert!(options.contains("password=<password>") && !options.contains("secret-word"), "{options}");
}

#[test]
fn labels_are_bounded() {
    let Some((server, address)) = start(None, &[]) else { return };
    let mut client = server.connect().unwrap();
    for number in 0..120 {
        run(&mut client, &format!("{{insert: 'c{number}', documents: [{{}}], $db: 'd{number}'}}"));
        run(&mut client, &format!("{{find: 'c', $db: 'nowhere{number}'}}"));
    }
    let parsed = metrics(&address);
    let of =
        |(name, labels): &Key| (name == "vellum_operations_failed_total").then(|| labels["database"].clone());
    let databases: BTreeSet<_> = parsed.samples.keys().filter_map(of).collect();
    assert!(databases.len() <= 65 && databases.contains("all others"), "{databases:?}");
    assert!(!databases.iter().any(|name| name.starts_with("nowhere")), "{databases:?}");
    assert_eq!(parsed.sum("vellum_operation_duration_seconds_count", ("command", "insert")), 120.0);
    let reported = parsed.samples.keys().filter(|(name, _)| name == "vellum_collection_documents").count();
    let left_out = parsed.get("vellum_collections_left_out", &[]);
    assert!(reported == 100 && left_out >= 20.0, "{reported} {left_out}");
}

#[test]
fn health_and_invalid_requests_get_responses() {
    let Some((_server, address)) = start(None, &[]) else { return };
    for path in ["/healthz", "/readyz"] {
        assert!(get(&address, path).starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
    }
    let long = "x".repeat(9000);
    for (status, request) in [
        ("400", "nonsense\r\n\r\n".to_string()),
        ("400", "GET /metrics HTTP/1.1\r\n\r\n".to_string()),
        ("421", "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_string()),
        ("431", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        ("413", format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{long}")),
        ("501", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_string()),
    ] {
        let answer = exchange(&address, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    // Two requests at once are answered in sequence.
    let both = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /readyz HTTP/1.0\r\n\r\n";
    assert_eq!(exchange(&address, both.as_bytes()).matches("HTTP/1.1 200 OK").count(), 2);
}

#[test]
fn slow_clients_do_not_block_other_connections() {
    let Some((_server, address)) = start(None, &[]) else { return };
    // More clients than slots. All begin a request and do not finish it.
    let slow: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            let _ = stream.write_all(b"GET / HT");
            stream
        })
        .collect();
    for _ in 0..20 {
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    }
    drop(slow);
}

#[test]
fn failed_logins_do_not_block_other_connections() {
    const USERS: usize = 15;
    let Some((server, address)) = start(None, &["--auth"]) else { return };
    let root = "{createUser: 'root', pwd: 'secret', roles: ['root'], $db: 'admin'}";
    run(&mut server.connect().unwrap(), root);
    let request = |user: usize| {
        // The user names are `a` to `o`, and the password is `x`.
        let login = [
            "YTp4", "Yjp4", "Yzp4", "ZDp4", "ZTp4", "Zjp4", "Zzp4", "aDp4", "aTp4", "ajp4", "azp4", "bDp4",
            "bTp4", "bjp4", "bzp4",
        ][user];
        format!(
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
        )
    };
    // After ten failures of a user, each further attempt waits for two seconds.
    std::thread::scope(|scope| {
        for user in 0..USERS {
            let (request, address) = (request(user), &address);
            scope.spawn(move || (0..10).for_each(|_| _ = exchange(address, request.as_bytes())));
        }
    });
    // More waiting logins than slots. Ended ones are replaced.
    let is_over = AtomicBool::new(false);
    let healthy = std::thread::scope(|scope| {
        for number in 0..7 * USERS {
            let (request, address, is_over) = (request(number % USERS), &address, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    exchange(address, request.as_bytes());
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        let healthy = (0..20).filter(|_| {
            std::thread::sleep(Duration::from_millis(50));
            get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n")
        });
        let healthy = healthy.count();
        is_over.store(true, Ordering::Relaxed);
        healthy
    });
    // The slots may be full of new connections for a moment.
    assert!(healthy >= 10, "{healthy} of 20");
}
