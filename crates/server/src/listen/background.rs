//! Background work on two threads. One removes idle cursors, sessions, transactions and views, interrupts operations of
//! disconnected clients, and releases the memory of idle connections. The other deletes expired documents and old
//! records of retryable writes. Its deletions may wait for a transaction until the first one ends it.

use crate::process::memory::{self, MemoryUsage, PurgePolicy};
use crate::server::Server;
use crate::state::parameters::Setting;
use base::Namespace;
use base::namespace::is_internal_database;
use database::time;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// Interval between checks for due work.
const TICK: Duration = Duration::from_secs(1);

/// Minimum duration of an operation before its client's connection is checked.
const LONG: Duration = Duration::from_millis(500);

/// Interval between checks for idle cursors and sessions.
const IDLE_EVERY: Duration = Duration::from_secs(4);

/// Interval between removals of unused records of retryable writes.
const REAP_EVERY: Duration = Duration::from_secs(300);

/// Calls `tick` each second until the server is dropped. Needs a dedicated thread.
pub(crate) fn run(server: &Weak<Server>, mut tick: impl FnMut(&Server)) {
    loop {
        time::sleep(TICK);
        let Some(server) = server.upgrade() else { return };
        tick(&server);
    }
}

/// Times of the latest background work without deletions.
pub(crate) struct Background {
    purge_policy: PurgePolicy,
    closed: Instant,
}

impl Default for Background {
    fn default() -> Background {
        Background { purge_policy: PurgePolicy::default(), closed: time::now() }
    }
}

/// Times of the latest deletions.
pub(crate) struct Deletions {
    swept: Instant,
    reaped: Instant,
}

impl Default for Deletions {
    fn default() -> Deletions {
        Deletions { swept: time::now(), reaped: time::now() }
    }
}

impl Deletions {
    /// Deletes what is due. Called once a second.
    pub(crate) fn tick(&mut self, server: &Server) {
        let may_write = server.is_primary() && server.database.write_locks() == 0;
        if may_write && time::since(self.swept) >= server.ttl_pause() {
            self.swept = time::now();
            if server.parameters.get("ttlMonitorEnabled") == Some(Setting::Boolean(true)) {
                let deleted = server.database.sweep_ttl();
                log::debug!(c = "INDEX"; "TTL pass: {deleted} documents expired");
            }
        }
        if may_write && time::since(self.reaped) >= REAP_EVERY {
            self.reaped = time::now();
            if let Err(error) = server.database.reap_retries(&|key| server.sessions.needs_record(key)) {
                log::warn!("removing old records of retryable writes: {error}");
            }
        }
    }
}

impl Background {
    /// Does the work that is due. Called once a second.
    pub(crate) fn tick(&mut self, server: &Server) {
        let lifetime = server.parameters.transaction_lifetime();
        let sessions =
            if server.sessions.transactions.any_open() { server.sessions.all() } else { Vec::new() };
        for session in sessions {
            if session.expire_transaction(&server.database, &server.sessions.transactions, lifetime) {
                server.database.cursors.kill_transaction(&session.id);
            }
        }
        for activity in server.activities.all() {
            activity.interrupt_if_disconnected(LONG);
            activity.release_idle(TICK);
        }
        server.database.clean_up();
        server.database.limit_written_changes();
        // The check also reports the end of a stepDown to waiting clients.
        server.is_primary();
        if self.purge_policy.is_due(server.memory_usage()) {
            memory::purge();
            self.purge_policy.record_purge(server.memory_usage());
        }
        if time::since(self.closed) >= IDLE_EVERY {
            self.closed = time::now();
            server.database.cursors.close_idle(server.parameters.cursor_timeout());
            server.database.expire_old_views();
            server.remove_figures_of_dropped();
            let running =
                server.activities.all().into_iter().filter_map(|activity| activity.current()?.session);
            for session in server.sessions.remove_expired(&running.collect::<Vec<_>>()) {
                session.abort_any_transaction(&server.database, &server.sessions.transactions);
                server.database.cursors.kill_session(&session.id);
            }
        }
    }
}

impl Server {
    /// Removes dropped databases and collections from full tables of figures.
    fn remove_figures_of_dropped(&self) {
        let (operations, activities) = (&self.counters.operations, &self.activities);
        let (is_full, is_overfull) = (operations.is_full(), activities.is_usage_overfull());
        if !is_full && !is_overfull {
            return;
        }
        let catalog = self.database.catalog();
        if is_full {
            operations.remove_dropped(|name| {
                is_internal_database(name) || catalog.collections(name).next().is_some()
            });
        }
        if is_overfull {
            activities.remove_dropped_usage(|name| {
                Namespace::parse(name).is_ok_and(|namespace| {
                    is_internal_database(namespace.database()) || catalog.get(&namespace).is_some()
                })
            });
        }
    }

    /// Returns the memory in use.
    fn memory_usage(&self) -> MemoryUsage {
        let counted = self.database.engine().statistics();
        let engine =
            if self.settings.ephemeral { counted.bytes } else { counted.cache_bytes + counted.changed_bytes };
        MemoryUsage { engine, resident: memory::process_bytes().map_or(0, |(_, resident)| resident) }
    }

    /// Returns the time between two TTL passes: the present value of ttlMonitorSleepSecs.
    fn ttl_pause(&self) -> Duration {
        match self.parameters.get("ttlMonitorSleepSecs") {
            Some(Setting::Integer(seconds)) => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::simulated::{Advance, SimulatedConnection};
    use crate::state::settings::Settings;
    use base::bson::extended_json;
    use database::{Database, SystemClock};
    use std::sync::Arc;
    use storage::store::LogOptions;

    /// Runs a command and returns a number of its reply.
    fn run(connection: &mut SimulatedConnection, command: &str, field: &str) -> Option<i64> {
        let command = extended_json::parse(command).unwrap();
        connection.receive(&wire::message::encode(1, 0, command.view()));
        let Advance::Reply(bytes) = connection.advance() else { panic!("no reply") };
        wire::message::document(&bytes).unwrap().view().get(field).and_then(|value| value.as_i64())
    }

    #[test]
    fn dropped_databases_make_room_for_the_figures_of_others() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let database = Database::open(engine, Arc::new(SystemClock), 1).unwrap();
        let server = Arc::new(Server::new(Settings::default(), database).unwrap());
        let mut connection = SimulatedConnection::new(&server);
        let insert = |name: &str| format!("{{insert: 'c', $db: '{name}', documents: [{{}}]}}");
        for number in 0.. {
            let name = format!("d{number}");
            assert_eq!(run(&mut connection, &insert(&name), "n"), Some(1));
            if server.counters.operations.is_full() {
                break;
            }
            run(&mut connection, &format!("{{dropDatabase: 1, $db: '{name}'}}"), "ok");
        }
        let mut background = Background { closed: time::now() - IDLE_EVERY, ..Background::default() };
        background.tick(&server);
        assert_eq!(run(&mut connection, &insert("new"), "n"), Some(1));
        let all = server.counters.operations.all();
        let names: Vec<&str> = all.iter().map(|database| database.name.as_str()).collect();
        assert!(matches!(names[..], [_, "new", ""]), "{names:?}");
    }

    #[test]
    fn a_ttl_pass_waits_for_a_transaction_until_it_expires() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let log = Some(LogOptions { bytes: 1 << 20 });
        let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
        let settings = Settings { replica_set: Some("rs0".to_string()), ..Settings::default() };
        let server = Arc::new(Server::new(settings, database).unwrap());
        let mut connection = SimulatedConnection::new(&server);
        let mut number = |command: &str, field: &str| run(&mut connection, command, field);
        let index = "{key: {t: 1}, name: 't', expireAfterSeconds: 0}";
        number(&format!("{{createIndexes: 'c', $db: 'd', indexes: [{index}]}}"), "ok").unwrap();
        let expired = "{_id: 1, t: {$date: 1600000000000}}";
        assert_eq!(number(&format!("{{insert: 'c', $db: 'd', documents: [{expired}]}}"), "n"), Some(1));
        let limit = "{setParameter: 1, $db: 'admin', transactionLifetimeLimitSeconds: 1}";
        assert_eq!(number(limit, "ok"), Some(1));
        let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                           txnNumber: {$numberLong: '1'}, autocommit: false, startTransaction: true";
        let update = "update: 'c', $db: 'd', updates: [{q: {_id: 1}, u: {$set: {n: 1}}}]";
        assert_eq!(number(&format!("{{{update}, {transaction}}}"), "nModified"), Some(1));
        let mut deletions =
            Deletions { swept: time::now() - Duration::from_secs(60), ..Deletions::default() };
        let mut background = Background::default();
        std::thread::scope(|scope| {
            let pass = scope.spawn(|| deletions.tick(&server));
            while !pass.is_finished() {
                background.tick(&server);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(number("{count: 'c', $db: 'd'}", "n"), Some(0));
    }
}
