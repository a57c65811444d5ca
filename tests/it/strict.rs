//! `--strict`: reports by command, and on standard error when the server stops.

use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf, Value};

/// 1,001 documents: one more than a scan may read unreported.
fn insert() -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"insert", "c").begin_array(c"documents");
    for n in 0..1001 {
        out.push_document().append(c"_id", n).append(c"a", n).end();
    }
    out.end().append(c"$db", "test");
    out.finish()
}

#[test]
fn strict_reports_by_command_and_at_the_end() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(mut server) = Server::start_with(&["--strict"]) else { return };
    let mut client = server.connect().unwrap();
    let mut run = |command: &DocumentBuf| {
        let reply = client.command(command).unwrap();
        assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{reply}");
        reply
    };
    run(&insert());
    for command in [
        "{createIndexes: 'c', $db: 'test', indexes: [{key: {b: 1}, name: 'b_1'}, {key: {b: 1, c: 1}, name: 'bc'}]}",
        "{find: 'c', $db: 'test', filter: {a: 5}}",
        "{aggregate: 'c', $db: 'test', pipeline: [{$match: {a: 7}}], cursor: {}}",
        "{update: 'c', $db: 'test', updates: [{q: {a: 9}, u: {$set: {d: 1}}}]}",
        "{find: 'c', $db: 'test', filter: {b: 2}, sort: {d: -1}, batchSize: 0}",
    ] {
        run(&parse(command).unwrap());
    }
    let reply = run(&parse("{strictReport: 1, $db: 'admin', reset: true}").unwrap());
    let count = |reply: &DocumentBuf, name| {
        let findings = reply.view().get(name).and_then(|findings| findings.as_array()).unwrap();
        findings
            .iter()
            .map(|v| v.as_document().unwrap().get("count").map_or(1, |v| v.as_i64().unwrap()))
            .sum::<i64>()
    };
    let all = |reply: &DocumentBuf| {
        ["collectionScans", "inMemorySorts", "unusedIndexes", "duplicateIndexes"]
            .map(|name| count(reply, name))
    };
    assert_eq!(all(&reply), [3, 1, 1, 1], "{reply}");
    let reply = run(&parse("{strictReport: 1, $db: 'admin'}").unwrap());
    assert_eq!(all(&reply), [0, 0, 1, 1], "{reply}");
    assert!(matches!(reply.view().get("readsLeftOut"), Some(Value::Int64(0))));
    run(&parse("{find: 'c', $db: 'test', filter: {a: 'secret'}}").unwrap());
    let log = server.end();
    for line in [
        r#"strict: collection scan: { ns: "test.c", filter: { a: { $eq: "?" } }, count: 1, documents: 1001 }"#,
        r#"strict: duplicate index: { ns: "test.c", name: "b_1", key: { b: 1 }, coveredBy: "bc" }"#,
    ] {
        assert!(log.lines().any(|found| found == line), "{line}\nis not in\n{log}");
    }
    assert!(!log.contains("in-memory sort") && !log.contains("secret"), "{log}");
}
