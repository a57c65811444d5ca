//! tests/fidelity.txt: the state of each place where other test suites had failed, and tests that scripts cannot
//! express.

use crate::requests::{code, run};
use crate::server::Server;
use crate::{print_line, root};
use base::bson::{Builder, Document};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Number of places of the first list.
const PLACES: u32 = 55;
/// Number of places of the second list, which have an `N` before the number.
const NEW_PLACES: u32 = 71;

#[test]
fn every_entry_of_the_list_names_its_test() {
    let list = std::fs::read_to_string(root().join("tests/fidelity.txt")).unwrap();
    let mut settled = BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("fidelity.txt: {line}"));
        let (number, how, file, text) = (word(), word(), word(), word());
        assert!(matches!(how, "mended" | "kept"), "fidelity.txt: {line}");
        let found = std::fs::read_to_string(root().join(file));
        assert!(
            found.is_ok_and(|found| found.contains(text)),
            "{file} doesn't have what fidelity.txt says: {line}"
        );
        settled.insert(number.to_string());
    }
    let old = (1..=PLACES).map(|number| number.to_string());
    assert_eq!(settled, old.chain((1..=NEW_PLACES).map(|number| format!("N{number}"))).collect());
}

#[test]
fn two_ids_in_a_document_are_refused() {
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let mut command = Builder::new();
    command.append(c"insert", "raw").begin_array(c"documents");
    command.push_document().append(c"_id", 1i32).append(c"_id", 2i32).end();
    command.end().append(c"$db", "fidelity");
    let reply = server.connect().unwrap().command(&command.finish()).unwrap();
    let text = reply.to_string();
    assert!(
        text.contains("code: 2") && text.contains("can't have multiple _id fields in one document"),
        "{text}"
    );
}

#[test]
fn a_connection_names_its_client_once() {
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    let named = "{hello: 1, client: {driver: {name: 'd', version: '1'}, os: {type: 'Linux'}}, $db: 'admin'}";
    assert!(run(&mut client, named).view().get("code").is_none());
    // The second document is refused before it is read. An empty one is accepted.
    let refused = run(&mut client, "{hello: 1, client: {driver: 1}, $db: 'admin'}");
    assert_eq!(refused.view().get("code").and_then(|code| code.as_i64()), Some(186), "{refused}");
    let mut other = server.connect().unwrap();
    assert!(run(&mut other, "{hello: 1, client: {}, $db: 'admin'}").view().get("code").is_none());
}

#[test]
fn the_log_counts_its_lines_in_the_shortest_type() {
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let log = run(&mut server.connect().unwrap(), "{getLog: 'global', $db: 'admin'}");
    let lines = log.view().get("totalLinesWritten").map(|lines| lines.kind().alias());
    assert_eq!(lines, Some("int"));
}

#[test]
fn cluster_times_far_ahead_are_refused() {
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else {
        return print_line("fidelity: skipped, no server yet");
    };
    let mut client = server.connect().unwrap();
    let refused = run(&mut client, FAR);
    assert_eq!(refused.view().get("code").and_then(|code| code.as_i64()), Some(205), "{refused}");
    let mut code_of =
        |time: &str| code(&run(&mut client, &format!("{{ping: 1, $clusterTime: {time}, $db: 'admin'}}")));
    let time = "clusterTime: {$timestamp: {t: 1, i: 1}}";
    let hash = "hash: {$binary: {base64: '', subType: '00'}}";
    // A signature may be missing. It is complete if it exists.
    assert_eq!(code_of(&format!("{{{time}}}")), 0);
    assert_eq!(code_of(&format!("{{{time}, signature: {{{hash}, keyId: 0}}}}")), 0);
    assert_eq!(code_of(&format!("{{{time}, signature: {{keyId: 0}}}}")), 40_414);
    assert_eq!(code_of(&format!("{{{time}, signature: 1}}")), 14);
    assert_eq!(code_of("1"), 14);
    // Without a login the time is ignored.
    let guarded = Server::start_with(&["--replset", "rs0", "--auth"]).unwrap();
    let mut admin = guarded.connect().unwrap();
    assert_eq!(code(&run(&mut admin, FAR)), 205, "the localhost exception");
    let user = "{createUser: 'u', pwd: 'p', roles: ['root'], $db: 'admin'}";
    assert_eq!(code(&run(&mut admin, user)), 0);
    let mut stranger = guarded.connect().unwrap();
    assert_eq!(code(&run(&mut stranger, FAR)), 0);
}

/// A command with a cluster time far ahead.
const FAR: &str =
    "{hello: 1, $clusterTime: {clusterTime: {$timestamp: {t: 4294967295, i: 1}}}, $db: 'admin'}";

#[test]
fn pipelines_nest_twenty_deep() {
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    let mut nested = |depth: usize| {
        let stage = (0..depth).fold("{$match: {}}".to_string(), |within, _| {
            format!("{{$lookup: {{from: 'c', as: 'x', pipeline: [{within}]}}}}")
        });
        run(&mut client, &format!("{{aggregate: 'c', pipeline: [{stage}], cursor: {{}}, $db: 'fidelity'}}"))
    };
    assert!(nested(20).view().get("code").is_none());
    let refused = nested(21);
    assert_eq!(refused.view().get("code").and_then(|code| code.as_i64()), Some(232));
    assert!(refused.to_string().contains("Maximum number of nested sub-pipelines exceeded. Limit is 20"));
}

#[test]
fn inserts_that_fail_are_counted() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return print_line("fidelity: skipped, others count too");
    }
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    // opcounters/insert
    let mut counted = || {
        let status = run(&mut client, "{serverStatus: 1, $db: 'admin'}");
        let counters = status.view().get("opcounters").and_then(|counters| counters.as_document()).unwrap();
        let inserted = counters.get("insert").and_then(|count| count.as_i64()).unwrap();
        run(&mut client, "{insert: 'c', documents: [{_id: 1}, {_id: 1}], ordered: false, $db: 'fidelity'}");
        inserted
    };
    let before = counted();
    assert_eq!(counted() - before, 2);
}

#[test]
fn many_values_are_found_and_explained_in_time() {
    let Some(server) = Server::start() else { return print_line("fidelity: skipped, no server yet") };
    let mut client = server.connect().unwrap();
    run(&mut client, "{createIndexes: 'many', indexes: [{key: {a: 1}, name: 'a_1'}], $db: 'fidelity'}");
    run(&mut client, "{insert: 'many', documents: [{a: 5}, {a: 99999}, {a: -1}], $db: 'fidelity'}");
    let mut values = Builder::new();
    values.begin_document(c"a").begin_array(c"$in");
    (0..100_000).for_each(|value: i32| {
        values.push(value);
    });
    values.end().end();
    let filter = values.finish();
    let find = |filter: Document<'_>| {
        let mut find = Builder::new();
        find.append(c"find", "many").append(c"filter", filter).append(c"$db", "fidelity");
        find.finish()
    };
    let begin = Instant::now();
    let found = client.command(&find(filter.view())).unwrap();
    let batch =
        found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch")?.as_array());
    assert_eq!(batch.map(|batch| batch.len()), Some(2), "{:.300}", found.to_string());
    let mut explain = Builder::new();
    explain
        .append(c"explain", &find(filter.view()))
        .append(c"verbosity", "queryPlanner")
        .append(c"$db", "fidelity");
    let plan = client.command(&explain.finish()).unwrap();
    assert!(plan.view().get("queryPlanner").is_some(), "{:.200}", plan.to_string());
    // Seconds in a debug build on a busy machine. Without an index on values it took minutes.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}
