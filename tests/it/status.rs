//! Fields for monitoring: mongostat, mongotop, Compass and exporters request them by name and type.

use crate::client::Client;
use crate::print_line;
use crate::requests::run;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{DocumentBuf, Type, Value};

/// Returns the value at a path of fields.
fn at<'a>(document: &'a DocumentBuf, path: &str) -> Option<Value<'a>> {
    let mut names = path.split('/');
    let mut value = document.view().get(names.next()?)?;
    for name in names {
        value = value.as_document()?.get(name)?;
    }
    Some(value)
}

fn number(document: &DocumentBuf, path: &str) -> f64 {
    let number = at(document, path).and_then(|value| value.as_number());
    number.unwrap_or_else(|| panic!("{path} is no number: {document:?}")).to_f64()
}

fn assert_types(document: &DocumentBuf, kind: Type, paths: &[&str]) {
    for path in paths {
        assert_eq!(at(document, path).map(|value| value.kind()), Some(kind), "{path}");
    }
}

/// Fields of serverStatus that mongostat, Compass and exporters read.
const LONGS: &[&str] = &[
    "opcounters/insert",
    "opcounters/query",
    "opcounters/update",
    "opcounters/delete",
    "opcounters/getmore",
    "opcounters/command",
    "opcountersRepl/insert",
    "opcountersRepl/command",
    "network/bytesIn",
    "network/bytesOut",
    "network/numRequests",
    "globalLock/totalTime",
    "opLatencies/reads/latency",
    "opLatencies/writes/ops",
    "metrics/document/inserted",
    "metrics/document/returned",
    "metrics/cursor/timedOut",
    "metrics/cursor/open/total",
    "metrics/queryExecutor/scanned",
    "metrics/queryExecutor/scannedObjects",
    "metrics/operation/scanAndOrder",
    "metrics/operation/writeConflicts",
    "metrics/ttl/passes",
    "metrics/commands/find/total",
    "transactions/totalStarted",
    "pid",
    "uptimeMillis",
];
const INTEGERS: &[&str] = &[
    "connections/current",
    "connections/available",
    "globalLock/currentQueue/readers",
    "globalLock/currentQueue/writers",
    "globalLock/currentQueue/total",
    "globalLock/activeClients/readers",
    "globalLock/activeClients/writers",
    "globalLock/activeClients/total",
    "mem/bits",
    "mem/resident",
    "mem/virtual",
    "asserts/warning",
];

#[test]
fn server_status_has_the_fields_of_tools_with_correct_counts() {
    let started = Server::start_with(&["--replset", "rs0"]);
    let Some(server) = started else { return print_line("status: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    run(
        &mut client,
        "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}], $db: 'status'}",
    );
    run(&mut client, "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}], $db: 'status'}");
    conflict(&mut client);
    let before = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    assert_types(&before, Type::Int64, LONGS);
    assert_types(&before, Type::Int32, INTEGERS);
    assert_types(&before, Type::Double, &["uptime"]);
    assert_types(&before, Type::Boolean, &["mem/supported"]);
    run(&mut client, "{find: 'c', filter: {a: {$gt: 1}}, $db: 'status'}");
    run(&mut client, "{find: 'c', sort: {b: 1}, $db: 'status'}");
    run(&mut client, "{aggregate: 'empty', pipeline: [], cursor: {}, $db: 'status'}");
    run(&mut client, "{unheard: 1, $db: 'status'}");
    let after = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let grown = |path: &str| number(&after, path) - number(&before, path);
    // Only an own server has no other clients that change these values.
    if std::env::var_os("VELLUM_SERVER").is_none() {
        assert_eq!(grown("opcounters/query"), 3.0);
        assert_eq!(grown("metrics/commands/<UNKNOWN>"), 1.0);
        assert_eq!(grown("metrics/queryExecutor/scanned"), 2.0);
        assert_eq!(grown("metrics/queryExecutor/scannedObjects"), 5.0);
        assert_eq!(grown("metrics/operation/scanAndOrder"), 1.0);
        assert_eq!(number(&after, "metrics/operation/writeConflicts"), 1.0);
        // serverStatus itself reads no data.
        assert_eq!(number(&after, "globalLock/activeClients/total"), 0.0);
        assert_eq!(grown("metrics/document/returned"), 5.0);
    }
}

/// Lets two transactions update one document.
fn conflict(client: &mut Client) {
    let mut update = |session: u8| {
        let of = format!(
            "lsid: {{id: UUID('00000000-0000-0000-0000-00000000000{session}')}}, txnNumber: NumberLong(1)"
        );
        let updates = "updates: [{q: {_id: 1}, u: {$inc: {a: 1}}}]";
        let rest = "autocommit: false, startTransaction: true, $db: 'status'";
        client.command(&parse(&format!("{{update: 'c', {updates}, {of}, {rest}}}")).unwrap()).unwrap()
    };
    assert_eq!(number(&update(1), "ok"), 1.0);
    assert_eq!(number(&update(2), "code"), 112.0);
}

#[test]
fn updates_by_pipelines_and_array_filters_are_counted() {
    let Some(server) = Server::start() else { return print_line("status: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    run(&mut client, "{insert: 'c', documents: [{_id: 1, a: [5, 10]}], $db: 'counted'}");
    let before = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let plain = "{$set: {b: 1}}";
    let pipeline = "[{$set: {b: 2}}]";
    let filtered = "{$set: {'a.$[x]': 7}}, arrayFilters: [{x: {$gt: 6}}]";
    for update in [plain, pipeline, filtered, "[{$set: {b: {$divide: [1, 0]}}}]"] {
        run(&mut client, &format!("{{update: 'c', updates: [{{q: {{}}, u: {update}}}], $db: 'counted'}}"));
    }
    for update in [plain, pipeline, filtered] {
        run(&mut client, &format!("{{findAndModify: 'c', update: {update}, $db: 'counted'}}"));
    }
    let operation = |update| format!("{{update: 0, filter: {{}}, updateMods: {update}}}");
    let operations = [plain, pipeline, pipeline, filtered].map(operation).join(", ");
    let names = "nsInfo: [{ns: 'counted.c'}], $db: 'admin'";
    run(&mut client, &format!("{{bulkWrite: 1, ops: [{operations}], {names}}}"));
    let after = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let grown = |command: &str| {
        ["pipeline", "arrayFilters"].map(|name| {
            let path = format!("metrics/commands/{command}/{name}");
            number(&after, &path) - number(&before, &path)
        })
    };
    // Only an own server has no other clients that change these values.
    if std::env::var_os("VELLUM_SERVER").is_none() {
        assert_eq!(grown("update"), [2.0, 1.0]);
        assert_eq!(grown("findAndModify"), [1.0, 1.0]);
        assert_eq!(grown("bulkWrite"), [2.0, 1.0]);
    }
}

#[test]
fn sizes_are_those_of_the_disk() {
    let Some(server) = Server::start() else { return print_line("status: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    let sizes = run(&mut client, "{dbStats: 1, $db: 'status'}");
    let (used, all) = (number(&sizes, "fsUsedSize"), number(&sizes, "fsTotalSize"));
    assert!(used > 0.0 && used <= all, "{used} of {all}");
    let scaled = run(&mut client, "{dbStats: 1, scale: 1024, $db: 'status'}");
    assert_eq!(number(&scaled, "fsTotalSize"), all / 1024.0);
}

#[test]
fn the_machine_and_the_pools_have_their_types() {
    let Some(server) = Server::start() else { return print_line("status: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    let host = run(&mut client, "{hostInfo: 1, $db: 'admin'}");
    assert_types(&host, Type::DateTime, &["system/currentTime"]);
    assert_types(
        &host,
        Type::Int32,
        &["system/cpuAddrSize", "system/numCores", "system/numPhysicalCores", "system/numNumaNodes"],
    );
    assert_types(
        &host,
        Type::String,
        &["system/hostname", "system/cpuArch", "os/type", "os/name", "os/version"],
    );
    assert!(number(&host, "system/memSizeMB") > 0.0);
    let pools = run(&mut client, "{connPoolStats: 1, $db: 'admin'}");
    assert_types(
        &pools,
        Type::Int32,
        &["numClientConnections", "totalInUse", "totalAvailable", "totalCreated"],
    );
    assert_types(&pools, Type::Document, &["pools", "hosts", "replicaSets"]);
}

#[test]
fn statistics_name_the_server_as_its_status_does() {
    let Some(server) = Server::start() else { return print_line("status: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    run(&mut client, "{insert: 'named', documents: [{}], $db: 'status'}");
    let status = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let indexes =
        run(&mut client, "{aggregate: 'named', pipeline: [{$indexStats: {}}], cursor: {}, $db: 'status'}");
    let batch = at(&indexes, "cursor/firstBatch").and_then(|batch| batch.as_array()).unwrap();
    let first = batch.get(0).and_then(|first| first.as_document()).unwrap();
    assert_eq!(
        first.get("host").and_then(|host| host.as_str()),
        at(&status, "host").and_then(|host| host.as_str())
    );
}
