//! Two servers over one PostgreSQL schema behave as one, whichever a client uses.

use crate::client::Client;
use crate::print_line;
use crate::requests::until;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Document, DocumentBuf, Value};
use postgres::testing::Cluster;

/// Runs a command that must succeed, and returns the reply.
fn run(client: &mut Client, command: &str) -> DocumentBuf {
    let reply = client.command(&parse(command).unwrap()).unwrap();
    assert_eq!(number(reply.view(), "ok"), Some(1), "{command}: {}", reply.view());
    reply
}

/// Runs a command that fails, and returns the error code.
fn refused(client: &mut Client, command: &str) -> Option<i64> {
    let reply = client.command(&parse(command).unwrap()).unwrap();
    assert_eq!(number(reply.view(), "ok"), Some(0), "{command}: {}", reply.view());
    number(reply.view(), "code")
}

fn number(document: Document<'_>, name: &str) -> Option<i64> {
    document.get(name)?.as_i64()
}

/// Returns a number in nested documents of a reply.
fn within(reply: &DocumentBuf, path: &[&str]) -> Option<i64> {
    let (last, outer) = path.split_last()?;
    let document = outer.iter().try_fold(reply.view(), |document, name| document.get(name)?.as_document());
    number(document?, last)
}

fn time(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Timestamp(time) => Some(time),
        _ => None,
    }
}

/// Returns `lastWriteOpTime.ts` of the only document of `config.transactions`.
fn time_of_write(client: &mut Client) -> Option<u64> {
    let reply = run(client, "{find: 'transactions', $db: 'config'}");
    let batch = reply.view().get("cursor")?.as_document()?.get("firstBatch")?.as_array()?;
    let record = batch.iter().next()?.as_document()?;
    record.get("lastWriteOpTime")?.as_document()?.get("ts").and_then(time)
}

#[test]
fn both_fronts_return_equal_data() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("fronts over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "fronts");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());

    let hello = run(&mut b, "{hello: 1, $db: 'admin'}");
    assert_eq!(hello.view().get("msg").and_then(|msg| msg.as_str()), Some("isdbgrid"));
    assert!(hello.view().get("setName").is_none() && hello.view().get("hosts").is_none());

    // Backups of the PostgreSQL server contain the documents.
    assert_eq!(refused(&mut a, "{vellumBackup: 1, $db: 'admin'}"), Some(115));

    // A write repeated at another front gets its recorded answer and takes effect once.
    let session = "lsid: {id: UUID('01234567-89ab-cdef-0123-456789abcdef')}, $db: 'test'";
    run(&mut a, "{insert: 'c', documents: [{_id: 1, n: 0}], $db: 'test'}");
    let update = format!(
        "{{update: 'c', updates: [{{q: {{_id: 1, n: 0}}, u: {{$inc: {{n: 1}}}}}}], txnNumber: NumberLong(5), {session}}}"
    );
    let first_reply = run(&mut a, &update);
    assert_eq!(number(first_reply.view(), "n"), Some(1));
    assert_eq!(time_of_write(&mut b), first_reply.view().get("operationTime").and_then(time));
    let again = run(&mut b, &update);
    assert_eq!((number(again.view(), "n"), number(again.view(), "nModified")), (Some(1), Some(1)));
    assert!(again.view().get("retriedStmtIds").is_some(), "{}", again.view());
    assert_eq!(number(run(&mut b, "{count: 'c', query: {n: 1}, $db: 'test'}").view(), "n"), Some(1));
    let older = format!("{{insert: 'c', documents: [{{_id: 2}}], txnNumber: NumberLong(4), {session}}}");
    assert_eq!(refused(&mut b, &older), Some(225));

    // Cursors and transactions belong to their front.
    run(&mut a, "{insert: 'c', documents: [{_id: 3}, {_id: 4}, {_id: 5}], $db: 'test'}");
    let found = run(&mut a, "{find: 'c', batchSize: 1, $db: 'test'}");
    let cursor = within(&found, &["cursor", "id"]).unwrap();
    let more = format!("{{getMore: NumberLong('{cursor}'), collection: 'c', $db: 'test'}}");
    assert_eq!(refused(&mut b, &more), Some(43));
    assert_eq!(within(&run(&mut a, &more), &["cursor", "id"]), Some(0));
    let transaction = format!("autocommit: false, txnNumber: NumberLong(6), {session}");
    let begin = "insert: 'c', documents: [{_id: 6}], startTransaction: true";
    run(&mut a, &format!("{{{begin}, {transaction}}}"));
    assert_eq!(number(run(&mut b, "{count: 'c', $db: 'test'}").view(), "n"), Some(4));
    let commit = format!("{{commitTransaction: 1, {}}}", transaction.replace("'test'", "'admin'"));
    assert_eq!(refused(&mut b, &commit), Some(251));
    // The other front has already answered that it will never be committed.
    assert_eq!(refused(&mut a, &commit), Some(112));
    assert_eq!(number(run(&mut b, "{count: 'c', $db: 'test'}").view(), "n"), Some(4));
    let (transaction, commit) = (transaction.replace("(6)", "(7)"), commit.replace("(6)", "(7)"));
    run(&mut a, &format!("{{{begin}, {transaction}}}"));
    run(&mut a, &commit);
    // Repeated at the other front, as by a driver that has lost the first.
    run(&mut b, &commit);
    run(&mut a, &commit);
    assert_eq!(number(run(&mut b, "{count: 'c', $db: 'test'}").view(), "n"), Some(5));

    // The only member is the majority.
    let write = |w: &str| format!("{{insert: 'c', documents: [{{}}], writeConcern: {w}, $db: 'test'}}");
    let majority = run(&mut b, &write("{w: 'majority', j: true}"));
    assert!(majority.view().get("writeConcernError").is_none());
    let two = run(&mut b, &write("{w: 2, wtimeout: 1000}"));
    assert_eq!(within(&two, &["writeConcernError", "code"]), Some(100));
    assert_eq!(number(run(&mut a, "{count: 'c', $db: 'test'}").view(), "n"), Some(7));
    for client in [&mut a, &mut b] {
        let found = run(client, "{validate: 'c', $db: 'test'}");
        assert_eq!(
            found.view().get("valid").and_then(|valid| valid.as_bool()),
            Some(true),
            "{}",
            found.view()
        );
    }
}

/// A driver may repeat a write at another front while the first front still runs it. Both return the result of the run
/// that was committed.
#[test]
fn a_write_that_two_fronts_run_at_the_same_time() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("fronts over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "together");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut holder, mut a, mut b) =
        (first.connect().unwrap(), first.connect().unwrap(), second.connect().unwrap());
    let documents = "{_id: 1, n: 0}, {_id: 2}, {_id: 3}, {_id: 4, n: 0}, {_id: 5, n: 0}";
    run(&mut holder, &format!("{{insert: 'c', documents: [{documents}], $db: 'test'}}"));
    let bulk = |operation: &str| format!("bulkWrite: 1, ops: [{operation}], nsInfo: [{{ns: 'test.c'}}]");
    let increment = "u: {$inc: {n: 1}}";
    let writes = [
        (1, 1, format!("update: 'c', updates: [{{q: {{_id: 1}}, {increment}}}]")),
        (1, 1, "findAndModify: 'c', query: {_id: 1}, update: {$inc: {n: 1}}".into()),
        (1, 1, bulk("{update: 0, filter: {_id: 1}, updateMods: {$inc: {n: 1}}}")),
        // The slower one finds nothing to change.
        (1, 1, format!("update: 'c', updates: [{{q: {{_id: 1, n: 3}}, {increment}}}]")),
        (1, 1, "findAndModify: 'c', query: {_id: 1, n: 4}, update: {$inc: {n: 1}}".into()),
        (2, 1, "delete: 'c', deletes: [{q: {_id: 2}, limit: 1}]".into()),
        (3, 1, bulk("{delete: 0, filter: {_id: 3}}")),
        (
            4,
            2,
            format!(
                "update: 'c', updates: [{{q: {{_id: 4}}, {increment}}}, {{q: {{_id: 5, n: 0}}, {increment}}}]"
            ),
        ),
        (10, 1, "insert: 'c', documents: [{_id: 10}]".into()),
        (11, 2, "insert: 'c', documents: [{_id: 11}, {_id: 12}]".into()),
        (13, 1, "insert: 'c', documents: [{_id: 13}]".into()),
    ];
    for (number, (id, statements, write)) in (1..).zip(&writes) {
        let session = |uuid: u8| {
            format!(
                "lsid: {{id: UUID('01234567-89ab-cdef-0123-0000000000{uuid:02}')}}, txnNumber: NumberLong({number})"
            )
        };
        let own = format!("{}, autocommit: false", session(1));
        let upsert =
            format!("update: 'c', updates: [{{q: {{_id: {id}}}, u: {{$set: {{held: 1}}}}, upsert: true}}]");
        run(&mut holder, &format!("{{{upsert}, {own}, startTransaction: true, $db: 'test'}}"));
        let database = if write.starts_with("bulkWrite") { "admin" } else { "test" };
        let write = format!("{{{write}, {}, $db: '{database}'}}", session(2));
        let replies = std::thread::scope(|scope| {
            let both = [&mut a, &mut b].map(|client| scope.spawn(|| run(client, &write)));
            let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            until("both wait for the row lock", || cluster.run(&[waiting]).unwrap() == Some(2));
            run(&mut holder, &format!("{{abortTransaction: 1, {own}, $db: 'admin'}}"));
            both.map(|one| one.join().unwrap())
        });
        // Each statement has run at one front, and is answered from its record at the other.
        // findAndModify has one statement, and its reply one number.
        let single = replies.iter().filter_map(|reply| reply.view().get("retriedStmtId")?.as_i64());
        let lists = replies.iter().filter_map(|reply| reply.view().get("retriedStmtIds")?.as_array());
        let listed = lists.flat_map(|ids| ids.iter().filter_map(|id| id.as_i64()));
        let mut retried: Vec<i64> = single.chain(listed).collect();
        retried.sort_unstable();
        assert_eq!(retried, (0..*statements).collect::<Vec<_>>(), "{write}: {replies:?}");
        let [one, other] = replies.map(|reply| result(&reply));
        assert_eq!(one, other, "{write}");
    }
    for (id, n) in [(1, 5), (4, 1), (5, 1)] {
        let count = format!("{{count: 'c', query: {{_id: {id}, n: {n}}}, $db: 'test'}}");
        assert_eq!(number(run(&mut holder, &count).view(), "n"), Some(1), "{count}");
    }
    assert_eq!(number(run(&mut holder, "{count: 'c', $db: 'test'}").view(), "n"), Some(7));
}

/// A server may end the connection that has a transaction's write intents while the commit waits for the catalog.
#[test]
fn a_commit_without_its_write_intents_fails() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("fronts over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "intents");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());
    let own = "txnNumber: NumberLong(1), autocommit: false, \
               lsid: {id: UUID('01234567-89ab-cdef-0123-456789abcdef')}";
    let update = |by: i32| format!("update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: {by}}}}}}}]");
    run(&mut a, "{insert: 'c', documents: [{_id: 1, n: 0}], $db: 'test'}");
    run(&mut a, &format!("{{{}, {own}, startTransaction: true, $db: 'test'}}", update(1)));
    run(&mut a, &format!("{{insert: 'new', documents: [{{_id: 1}}], {own}, $db: 'test'}}"));
    let commit = format!("{{commitTransaction: 1, {own}, $db: 'admin'}}");
    let fence = "('x' || left(encode(sha256('vellum fence \"intents\"'), 'hex'), 16))::bit(64)::int8";
    let hold = format!("select pg_advisory_xact_lock_shared({fence})::text, pg_sleep(300)::text");
    let count_of = |value: &str, which: &str| {
        cluster.run(&[&format!("select count({value}) from pg_stat_activity where {which}")]).unwrap()
    };
    let sessions = |which: &str| count_of("*", which);
    let end = |which: &str| count_of("pg_terminate_backend(pid, 5000)", which);
    std::thread::scope(|scope| {
        scope.spawn(|| cluster.run(&[&hold]).unwrap_err());
        until("the fence is held", || sessions("wait_event = 'PgSleep'") == Some(1));
        let refusal = scope.spawn(|| refused(&mut a, &commit));
        let waits = "wait_event = 'advisory' and query like '%idle_in_transaction_session_timeout%'";
        until("the commit waits for the fence", || sessions(waits) == Some(1));
        assert_eq!(end("state = 'idle in transaction' and backend_xid is not null"), Some(1));
        run(&mut b, &format!("{{{}, $db: 'test'}}", update(10)));
        assert_eq!(end("wait_event = 'PgSleep'"), Some(1));
        assert_eq!(refusal.join().unwrap(), Some(112));
    });
    for client in [&mut a, &mut b] {
        let count = |client: &mut Client, of: &str| number(run(client, of).view(), "n");
        assert_eq!(count(client, "{count: 'c', query: {n: 10}, $db: 'test'}"), Some(1));
        assert_eq!(count(client, "{count: 'new', $db: 'test'}"), Some(0));
        // Neither front has a record of the commit.
        assert_eq!(refused(client, &commit), Some(251));
    }
}

/// Returns the fields of a write's reply that hold its result.
fn result(reply: &DocumentBuf) -> String {
    let fields =
        ["n", "nModified", "value", "lastErrorObject", "nMatched", "nDeleted", "nErrors", "writeErrors"];
    fields.map(|name| format!("{name}: {:?}", reply.view().get(name))).join(", ")
}

/// A front does not read the record of an insert's session again while it has seen it. Another front may have changed
/// the record meanwhile.
#[test]
fn an_insert_through_a_front_with_an_older_retry_record() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("fronts over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "seen");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());
    let insert = |write: i64, document: &str| {
        format!(
            "{{insert: 'c', documents: [{document}], txnNumber: NumberLong({write}), \
             lsid: {{id: UUID('01234567-89ab-cdef-0123-456789abcdef')}}, $db: 'test'}}"
        )
    };
    let count = |client: &mut Client| number(run(client, "{count: 'c', $db: 'test'}").view(), "n");
    let is_retried = |reply: &DocumentBuf| {
        assert_eq!(number(reply.view(), "n"), Some(1), "{reply:?}");
        assert!(reply.view().get("writeErrors").is_none(), "{reply:?}");
        reply.view().get("retriedStmtIds").is_some()
    };
    for write in 1..4 {
        assert!(!is_retried(&run(&mut a, &insert(write, &format!("{{_id: {write}}}")))));
    }
    // The commit of a repeated write is refused, by its key or by the record.
    for (write, document) in [(4, "{_id: 4}"), (5, "{}")] {
        assert!(!is_retried(&run(&mut b, &insert(write, document))));
        assert!(is_retried(&run(&mut a, &insert(write, document))));
        assert!(is_retried(&run(&mut b, &insert(write, document))));
    }
    assert_eq!(count(&mut a), Some(5));
    // A write after one of the other front.
    assert!(!is_retried(&run(&mut b, &insert(6, "{_id: 6}"))));
    assert!(!is_retried(&run(&mut a, &insert(7, "{_id: 7}"))));
    assert!(!is_retried(&run(&mut a, &insert(8, "{_id: 8}"))));
    assert_eq!(count(&mut b), Some(8));
    // A duplicate is still refused, and an older write too.
    let duplicate = run(&mut a, &insert(9, "{_id: 1}"));
    assert_eq!(duplicate.view().get("writeErrors").and_then(|all| all.as_array()).unwrap().iter().count(), 1);
    assert!(!is_retried(&run(&mut b, &insert(11, "{_id: 11}"))));
    assert_eq!(refused(&mut a, &insert(10, "{_id: 10}")), Some(225));
    assert_eq!(count(&mut a), Some(9));
}

/// Drivers behind a balancer continue a transaction and a cursor on one connection only, so mongos ends both with it.
#[test]
fn a_closed_load_balanced_connection_ends_its_transaction_and_its_cursor() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("fronts over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "balanced");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let mut other = second.connect().unwrap();
    run(&mut other, "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}], $db: 'test'}");
    let balanced = || {
        let mut client = first.connect().unwrap();
        let hello = run(&mut client, "{hello: 1, loadBalanced: true, $db: 'admin'}");
        assert!(hello.view().get("serviceId").is_some());
        client
    };

    let session = "lsid: {id: UUID('01234567-89ab-cdef-0123-456789abcdef')}";
    let (mut idle, mut client) = (balanced(), balanced());
    run(&mut idle, &format!("{{ping: 1, {session}, $db: 'admin'}}"));
    let transaction = format!("txnNumber: NumberLong(1), autocommit: false, {session}");
    let begin = "insert: 'c', documents: [{_id: 4}], startTransaction: true";
    run(&mut client, &format!("{{{begin}, {transaction}, $db: 'test'}}"));
    // An earlier connection of the session does not end the transaction.
    drop(idle);
    run(&mut client, &format!("{{insert: 'c', documents: [{{_id: 5}}], {transaction}, $db: 'test'}}"));
    drop(client);
    // The drop would wait for the transaction.
    run(&mut other, "{drop: 'c', maxTimeMS: 20000, $db: 'test'}");
    let commit = format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}");
    assert_eq!(refused(&mut balanced(), &commit), Some(251));

    run(&mut other, "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}], $db: 'test'}");
    let mut client = balanced();
    run(&mut client, "{find: 'c', batchSize: 1, $db: 'test'}");
    drop(client);
    let open = || {
        let status = run(&mut first.connect().unwrap(), "{serverStatus: 1, $db: 'admin'}");
        within(&status, &["metrics", "cursor", "open", "total"])
    };
    until("the cursor is closed", || open() == Some(0));
}
