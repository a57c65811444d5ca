//! Connections and background work of a server without sockets and threads, for a simulation.
//!
//! The simulation owns one thread. It delivers bytes, continues the driver of a connection, and lets the background
//! work run, each when its seed says so.

use crate::listen::background::{Background, Deletions};
use crate::listen::driver::{Driver, DriverAction, ThreadKind};
use crate::observe::activity::Activity;
use crate::process::event::Event;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use database::time;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Instant;

/// Result of [`SimulatedConnection::advance`].
#[derive(Debug, PartialEq, Eq)]
pub enum Advance {
    /// The bytes of a reply.
    Reply(Vec<u8>),
    /// The server waits for bytes of the client.
    Idle,
    /// The request waits for an event.
    Waiting,
    /// The server closes the connection.
    Closed,
}

/// A client's connection.
pub struct SimulatedConnection {
    driver: Driver,
    activity: Arc<Activity>,
    woken: Arc<Woken>,
}

/// Records that the event of a request has happened.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimulatedConnection {
    /// Connects to a server.
    pub fn new(server: &Arc<Server>) -> SimulatedConnection {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 27017));
        let activity = server.activities.open(address);
        let driver = Driver::new(server.clone(), ConnectionState::new(activity.clone(), address));
        SimulatedConnection { driver, activity, woken: Arc::default() }
    }

    /// Connects as the server itself, without a user and with all privileges.
    pub fn of_server(server: &Arc<Server>) -> SimulatedConnection {
        let mut connection = SimulatedConnection::new(server);
        connection.driver.state.is_system = true;
        connection
    }

    /// Delivers bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.driver.input.extend_from_slice(bytes);
    }

    /// Continues as far as possible, up to a reply. As on a socket, a waiting request continues only after its waker
    /// was called or its deadline has passed.
    pub fn advance(&mut self) -> Advance {
        loop {
            match self.driver.advance(ThreadKind::Dedicated) {
                DriverAction::Read => return Advance::Idle,
                DriverAction::Send => {
                    let reply = self.driver.unsent().to_vec();
                    self.driver.count_sent(reply.len());
                    return Advance::Reply(reply);
                }
                DriverAction::Refuse(_) | DriverAction::Close => return Advance::Closed,
                DriverAction::Wait if self.has_happened() => self.driver.event = None,
                DriverAction::Wait => return Advance::Waiting,
            }
        }
    }

    /// Returns true if [`advance`](Self::advance) would continue a waiting request.
    pub fn can_advance(&self) -> bool {
        let Some(event) = &self.driver.event else { return true };
        self.woken.0.load(Ordering::Relaxed) || event.until().is_some_and(|until| time::now() >= until)
    }

    /// Returns the deadline of a waiting request.
    pub fn deadline(&self) -> Option<Instant> {
        self.driver.event.as_ref().and_then(Event::until)
    }

    /// Registers a waker at the event, on the first call and after a wake.
    fn has_happened(&mut self) -> bool {
        let Some(event) = &mut self.driver.event else { return true };
        self.woken = Arc::default();
        let waker = Waker::from(self.woken.clone());
        event.has_happened(&self.driver.server.database, &waker)
            || event.until().is_some_and(|until| time::now() >= until)
    }
}

impl Drop for SimulatedConnection {
    fn drop(&mut self) {
        self.driver.server.activities.close(&self.activity);
    }
}

/// The background work of a server.
#[derive(Default)]
pub struct SimulatedBackground(Background, Deletions);

impl SimulatedBackground {
    /// Does the work that is due. The simulation calls it once a second of its clock.
    pub fn tick(&mut self, server: &Server) {
        self.0.tick(server);
        self.1.tick(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::settings::Settings;
    use base::bson::{DocumentBuf, extended_json};
    use database::{Database, SystemClock};
    use storage::store::LogOptions;

    fn replica_set() -> Arc<Server> {
        let engine = Arc::new(storage::MemoryEngine::new());
        let log = Some(LogOptions { bytes: 1 << 20 });
        let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
        let settings = Settings { replica_set: Some("rs0".to_string()), ..Settings::default() };
        Arc::new(Server::new(settings, database).unwrap())
    }

    fn send(connection: &mut SimulatedConnection, command: &str) -> Advance {
        let command = extended_json::parse(command).unwrap();
        connection.receive(&wire::message::encode(1, 0, command.view()));
        connection.advance()
    }

    /// Time limit in milliseconds. A busy machine begins the wait of a command before it ends.
    const MAX_TIME: u32 = 1000;

    /// Advances a connection until its request no longer waits.
    fn end_of_wait(connection: &mut SimulatedConnection) -> Advance {
        loop {
            match connection.advance() {
                Advance::Waiting => std::thread::sleep(std::time::Duration::from_millis(20)),
                ended => return ended,
            }
        }
    }

    fn reply(advance: Advance) -> DocumentBuf {
        match advance {
            Advance::Reply(bytes) => wire::message::document(&bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn number(reply: &DocumentBuf, field: &str) -> Option<i64> {
        reply.view().get(field).and_then(|value| value.as_i64())
    }

    #[test]
    fn a_write_waits_for_a_transaction_without_a_thread() {
        const LSID: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}";
        let server = replica_set();
        let [mut one, mut other] = std::array::from_fn(|_| SimulatedConnection::new(&server));
        let inserted = send(&mut one, "{insert: 'c', $db: 'd', documents: [{_id: 1, n: 1}]}");
        assert_eq!(number(&reply(inserted), "n"), Some(1));
        let transaction = format!("$db: 'd', {LSID}, txnNumber: {{$numberLong: '1'}}, autocommit: false");
        let update = "update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}]";
        let first = send(&mut one, &format!("{{{update}, {transaction}, startTransaction: true}}"));
        assert_eq!(number(&reply(first), "nModified"), Some(1));
        let update = format!("{{{update}, $db: 'd'}}");
        assert_eq!(send(&mut other, &update), Advance::Waiting);
        assert!(!other.can_advance() && other.advance() == Advance::Waiting);
        let commit = transaction.replace("'d'", "'admin'");
        let committed = reply(send(&mut one, &format!("{{commitTransaction: 1, {commit}}}")));
        assert_eq!(number(&committed, "ok"), Some(1));
        assert!(other.can_advance());
        assert_eq!(number(&reply(other.advance()), "nModified"), Some(1));
        let found = reply(send(&mut one, "{find: 'c', $db: 'd', filter: {n: 3}, singleBatch: true}"));
        let batch = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
        assert_eq!(batch.and_then(|batch| batch.as_array()).map(|batch| batch.iter().count()), Some(1));
    }

    #[test]
    fn the_wait_of_a_write_ends_at_max_time() {
        const LSID: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000002'}}";
        let server = replica_set();
        let [mut one, mut other] = std::array::from_fn(|_| SimulatedConnection::new(&server));
        reply(send(&mut one, "{create: 'c', $db: 'd'}"));
        let insert = "insert: 'c', $db: 'd', documents: [{_id: 1}]";
        let transaction =
            format!("{LSID}, txnNumber: {{$numberLong: '1'}}, autocommit: false, startTransaction: true");
        assert_eq!(number(&reply(send(&mut one, &format!("{{{insert}, {transaction}}}"))), "n"), Some(1));
        assert_eq!(send(&mut other, &format!("{{{insert}, maxTimeMS: {MAX_TIME}}}")), Advance::Waiting);
        assert_eq!(number(&reply(end_of_wait(&mut other)), "code"), Some(50));
    }

    /// A server with the documents 1 to 5 of `d.c` and an open transaction that has changed document 3.
    fn blocked() -> (Arc<Server>, SimulatedConnection) {
        let server = replica_set();
        let mut holder = SimulatedConnection::new(&server);
        let index = "{key: {u: 1}, name: 'u', unique: true}";
        reply(send(&mut holder, &format!("{{createIndexes: 'c', $db: 'd', indexes: [{index}]}}")));
        let documents: Vec<String> = (1..=5).map(|id| format!("{{_id: {id}, u: {id}, n: 0}}")).collect();
        let insert = format!("{{insert: 'c', $db: 'd', documents: [{}]}}", documents.join(","));
        assert_eq!(number(&reply(send(&mut holder, &insert)), "n"), Some(5));
        let statement = "update: 'c', $db: 'd', updates: [{q: {_id: 3}, u: {$set: {u: 30, by: 1}}}]";
        let first = format!("{{{statement}, {HOLDER}, startTransaction: true}}");
        assert_eq!(number(&reply(send(&mut holder, &first)), "nModified"), Some(1));
        (server, holder)
    }

    const HOLDER: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000003'}}, \
                          txnNumber: {$numberLong: '1'}, autocommit: false";

    fn commit(holder: &mut SimulatedConnection) {
        let committed = reply(send(holder, &format!("{{commitTransaction: 1, $db: 'admin', {HOLDER}}}")));
        assert_eq!(number(&committed, "ok"), Some(1), "{committed}");
    }

    /// Runs a command that waits in its middle. Returns its reply after the end of the transaction.
    fn after_wait(command: &str) -> (DocumentBuf, SimulatedConnection) {
        let (server, mut holder) = blocked();
        let mut other = SimulatedConnection::new(&server);
        assert_eq!(send(&mut other, command), Advance::Waiting, "{command}");
        assert!(!other.can_advance(), "{command}");
        commit(&mut holder);
        (reply(other.advance()), other)
    }

    /// Returns the ids of the documents that match a filter.
    fn ids(connection: &mut SimulatedConnection, filter: &str) -> Vec<i64> {
        let find = format!("{{find: 'c', $db: 'd', filter: {filter}, sort: {{_id: 1}}, singleBatch: true}}");
        let found = reply(send(connection, &find));
        let batch = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
        let documents = batch.and_then(|batch| batch.as_array()).unwrap();
        documents.iter().filter_map(|document| document.as_document()?.get("_id")?.as_i64()).collect()
    }

    #[test]
    fn an_update_of_many_documents_continues_after_its_wait() {
        let update = "{update: 'c', $db: 'd', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}";
        let (updated, mut other) = after_wait(update);
        assert_eq!((number(&updated, "n"), number(&updated, "nModified")), (Some(5), Some(5)), "{updated}");
        assert_eq!(ids(&mut other, "{n: 1}"), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&mut other, "{by: 1}"), [3]);
    }

    #[test]
    fn a_delete_of_many_documents_continues_after_its_wait() {
        let (deleted, mut other) =
            after_wait("{delete: 'c', $db: 'd', deletes: [{q: {_id: {$gt: 1}, by: null}, limit: 0}]}");
        // The transaction has changed a document so that it does not match.
        assert_eq!(number(&deleted, "n"), Some(3), "{deleted}");
        assert_eq!(ids(&mut other, "{}"), [1, 3]);
    }

    #[test]
    fn lists_of_statements_continue_after_their_waits() {
        let inc = |id: i32| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}");
        let updates: Vec<String> = [1, 3, 1, 5].map(inc).to_vec();
        let (updated, mut other) =
            after_wait(&format!("{{update: 'c', $db: 'd', updates: [{}]}}", updates.join(",")));
        assert_eq!((number(&updated, "n"), number(&updated, "nModified")), (Some(4), Some(4)), "{updated}");
        assert_eq!((ids(&mut other, "{n: 1}"), ids(&mut other, "{n: 2}")), (vec![3, 5], vec![1]));
        let delete = |id: i32| format!("{{q: {{_id: {id}}}, limit: 1}}");
        let deletes: Vec<String> = [1, 3, 9, 5].map(delete).to_vec();
        let (deleted, mut other) =
            after_wait(&format!("{{delete: 'c', $db: 'd', deletes: [{}]}}", deletes.join(",")));
        assert_eq!(number(&deleted, "n"), Some(3), "{deleted}");
        assert_eq!(ids(&mut other, "{}"), [2, 4]);
    }

    #[test]
    fn an_insert_of_many_documents_continues_after_its_wait() {
        // More documents than one commit takes. The key 30 belongs to the transaction.
        let document = |id: i32| format!("{{_id: {id}, u: {}}}", if id == 500 { 30 } else { id });
        let documents: Vec<String> = (10..600).filter(|id| *id != 30).map(document).collect();
        let insert = format!("insert: 'c', $db: 'd', documents: [{}]", documents.join(","));
        let (inserted, mut other) = after_wait(&format!("{{{insert}, ordered: false}}"));
        assert_eq!(number(&inserted, "n"), Some(588), "{inserted}");
        let errors = inserted.view().get("writeErrors").and_then(|errors| errors.as_array()).unwrap();
        let error = errors.iter().next().and_then(|error| error.as_document()).unwrap();
        assert_eq!(error.get("code").and_then(|code| code.as_i64()), Some(11000), "{inserted}");
        assert_eq!(error.get("index").and_then(|index| index.as_i64()), Some(489), "{inserted}");
        let count = "{count: 'c', $db: 'd', query: {_id: {$gte: 10}}}";
        assert_eq!(number(&reply(send(&mut other, count)), "n"), Some(588));
    }

    #[test]
    fn operations_of_a_bulk_write_continue_after_their_waits() {
        let bulk = "{bulkWrite: 1, $db: 'admin', nsInfo: [{ns: 'd.c'}], ops: [\
                    {insert: 0, document: {_id: 6, u: 6, n: 0}}, \
                    {update: 0, filter: {}, updateMods: {$inc: {n: 1}}, multi: true}, \
                    {delete: 0, filter: {_id: 1}}]}";
        let (done, mut other) = after_wait(bulk);
        let counts = ["nInserted", "nModified", "nDeleted", "nErrors"].map(|name| number(&done, name));
        assert_eq!(counts, [Some(1), Some(6), Some(1), Some(0)], "{done}");
        assert_eq!(ids(&mut other, "{n: 1}"), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_retryable_command_that_waits_in_its_middle_runs_once() {
        let write =
            "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000004'}}, txnNumber: {$numberLong: '1'}";
        let inc = |id: i32| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}");
        let updates: Vec<String> = [1, 3, 5].map(inc).to_vec();
        let update = format!("{{update: 'c', $db: 'd', updates: [{}], {write}}}", updates.join(","));
        let (updated, mut other) = after_wait(&update);
        assert_eq!(number(&updated, "nModified"), Some(3), "{updated}");
        assert!(updated.view().find("retriedStmtIds").is_none(), "{updated}");
        let repeated = reply(send(&mut other, &update));
        assert_eq!(number(&repeated, "nModified"), Some(3), "{repeated}");
        assert!(repeated.view().find("retriedStmtIds").is_some(), "{repeated}");
        assert_eq!(ids(&mut other, "{n: 1}"), [1, 3, 5]);
    }

    #[test]
    fn a_client_that_leaves_during_a_wait_can_repeat_its_command() {
        let (server, mut holder) = blocked();
        let write =
            "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000005'}}, txnNumber: {$numberLong: '1'}";
        let inc = |id: i32| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}");
        let updates: Vec<String> = [1, 3, 5].map(inc).to_vec();
        let update = format!("{{update: 'c', $db: 'd', updates: [{}], {write}}}", updates.join(","));
        let mut leaving = SimulatedConnection::new(&server);
        assert_eq!(send(&mut leaving, &update), Advance::Waiting);
        drop(leaving);
        commit(&mut holder);
        let repeated = reply(send(&mut holder, &update));
        assert_eq!(number(&repeated, "nModified"), Some(3), "{repeated}");
        assert_eq!(ids(&mut holder, "{n: 1}"), [1, 3, 5]);
    }

    #[test]
    fn the_wait_after_the_first_change_ends_at_max_time_and_by_kill_op() {
        let (server, mut holder) = blocked();
        let update = "update: 'c', $db: 'd', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]";
        let mut other = SimulatedConnection::new(&server);
        assert_eq!(send(&mut other, &format!("{{{update}, maxTimeMS: {MAX_TIME}}}")), Advance::Waiting);
        assert_eq!(number(&reply(end_of_wait(&mut other)), "code"), Some(50));
        assert_eq!(send(&mut other, &format!("{{{update}}}")), Advance::Waiting);
        let operation = other.activity.current().unwrap().operation_id;
        let kill = format!("{{killOp: 1, op: {operation}, $db: 'admin'}}");
        assert_eq!(number(&reply(send(&mut holder, &kill)), "ok"), Some(1));
        assert_eq!(number(&reply(other.advance()), "code"), Some(11601));
        assert_eq!((ids(&mut other, "{n: 2}"), ids(&mut other, "{n: 0}")), (vec![1, 2], vec![3, 4, 5]));
    }

    #[test]
    fn changes_of_the_catalog_wait_without_a_thread() {
        let changes = [
            "{drop: 'c', $db: 'd'}",
            "{dropDatabase: 1, $db: 'd'}",
            "{renameCollection: 'd.c', to: 'd.e', $db: 'admin'}",
            "{collMod: 'c', validator: {n: {$gte: 0}}, $db: 'd'}",
            "{collMod: 'c', index: {name: 'u', hidden: true}, $db: 'd'}",
            "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}], $db: 'd'}",
            "{dropIndexes: 'c', index: 'u', $db: 'd'}",
            "{convertToCapped: 'c', size: 100000, $db: 'd'}",
        ];
        for change in changes {
            let (done, _) = after_wait(change);
            assert_eq!(number(&done, "ok"), Some(1), "{change}: {done}");
        }
    }

    #[test]
    fn the_profiler_gets_all_statements_of_a_command_that_waits_in_its_middle() {
        let (server, mut holder) = blocked();
        let mut other = SimulatedConnection::new(&server);
        assert_eq!(number(&reply(send(&mut other, "{profile: 2, $db: 'd'}")), "ok"), Some(1));
        let inc = |id: i32| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}");
        let updates: Vec<String> = [1, 3, 5].map(inc).to_vec();
        let update = format!("{{update: 'c', $db: 'd', updates: [{}]}}", updates.join(","));
        assert_eq!(send(&mut other, &update), Advance::Waiting);
        commit(&mut holder);
        assert_eq!(number(&reply(other.advance()), "nModified"), Some(3));
        let count = "{count: 'system.profile', query: {op: 'update', nModified: 1}, $db: 'd'}";
        assert_eq!(number(&reply(send(&mut other, count)), "n"), Some(3));
    }
}
