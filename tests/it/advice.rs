//! `vellum advise`, and the command `vellumWorkingSet` behind it: reads of a data directory, and estimates for other
//! cache sizes. crates/storage/tests/working_set.rs tests the estimates.

use crate::requests::run_on;
use crate::server::{Scratch, Server};
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::process::Command;

/// Returns the output of `vellum advise`, and whether it succeeded.
fn advise(server: &Server, more: &[&str]) -> (bool, String) {
    let uri = format!("mongodb://{}/", server.address());
    let output =
        Command::new(env!("CARGO_BIN_EXE_vellum")).args(["advise", &uri]).args(more).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn advice_is_given_for_a_data_directory() {
    let scratch = Scratch::new("advice");
    let Some(server) = Server::start_on(&scratch.join("data"), &["--cache-size", "16M"]) else { return };
    let (good, printed) = advise(&server, &[]);
    assert!(
        good && printed.contains("--cache-size 16M") && printed.contains("then run this command again"),
        "{printed}"
    );
    for thousand in 0..4 {
        let ids =
            (0..1000).map(|at| format!("{{_id: {}, text: '{}'}}", thousand * 1000 + at, "x".repeat(900)));
        let documents: Vec<String> = ids.collect();
        run_on(&server, &format!("{{insert: 'c', documents: [{}], $db: 'test'}}", documents.join(", ")));
    }
    // From memory into the files, since the cache holds pages of the files.
    run_on(&server, "{fsync: 1, $db: 'admin'}");
    for _ in 0..3 {
        let all =
            run_on(&server, "{aggregate: 'c', pipeline: [{$match: {text: /y/}}], cursor: {}, $db: 'test'}");
        assert!(all.view().get("cursor").is_some());
    }
    for id in 0..300 {
        run_on(&server, &format!("{{find: 'c', filter: {{_id: {}}}, $db: 'test'}}", id * 7));
    }
    let reply = run_on(&server, "{vellumWorkingSet: 1, $db: 'admin'}");
    let status = run_on(&server, "{serverStatus: 1, $db: 'admin'}");
    let at = |document: &DocumentBuf, path: &[&str]| {
        let mut found = Some(base::bson::Value::Document(document.view()));
        let mut all = path.iter();
        while let (Some(value), Some(name)) = (found, all.next()) {
            found = value.as_document().and_then(|inner| inner.get(name));
        }
        found.and_then(|value| value.as_i64()).unwrap_or_else(|| panic!("{path:?} in {document:?}"))
    };
    let reads = at(&reply, &["hour", "reads"]);
    // About five hundred pages three times, and for each find a page of the index and a page of documents.
    assert!((1800..3000).contains(&reads), "{reads}");
    assert_eq!(reads, at(&status, &["vellum", "cache", "entryReads"]));
    assert_eq!(at(&reply, &["hour", "misses"]), at(&status, &["vellum", "cache", "entryMisses"]));
    let (good, printed) = advise(&server, &[]);
    assert!(good && printed.contains(&format!(" {reads} ")), "{printed}");
    for part in ["last ", "test.c ", "test.c, index _id_", " 4M ", " 64M ", " 99 %", "enough"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let (good, printed) = advise(&server, &["--json"]);
    let json = parse(&printed).unwrap();
    assert!(good && json.view().get("collections").is_some(), "{printed}");
    assert_eq!(at(&json, &["hour", "reads"]), reads);
}

#[test]
fn a_server_without_a_cache_returns_an_error() {
    let Some(server) = Server::start() else { return };
    let (good, printed) = advise(&server, &[]);
    assert!(good && printed.contains("all data is in memory"), "{printed}");
    let reply = run_on(&server, "{vellumWorkingSet: 1, $db: 'admin'}");
    assert_eq!(reply.view().get("bounded").and_then(|bounded| bounded.as_bool()), Some(false));
    assert!(reply.view().get("hour").is_none());
}

#[test]
fn advice_requires_the_privilege_for_statistics() {
    let Some(server) = Server::start_with(&["--auth"]) else { return };
    let (good, printed) = advise(&server, &[]);
    assert!(!good && printed.contains("not authorized"), "{printed}");
}
