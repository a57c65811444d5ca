//! Background work: TTL deletion, removal of idle cursors, sessions and views, interruption of operations of
//! disconnected clients, and release of the memory of idle connections.

use crate::process::memory::{self, MemoryUsage, PurgePolicy};
use crate::server::Server;
use crate::state::parameters::Setting;
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

/// Runs until the server is dropped. Needs a dedicated thread.
pub(crate) fn run(server: &Weak<Server>) {
    let mut background = Background::default();
    loop {
        time::sleep(TICK);
        let Some(server) = server.upgrade() else { return };
        background.tick(&server);
    }
}

/// Times of the latest background work.
pub(crate) struct Background {
    purge_policy: PurgePolicy,
    swept: Instant,
    closed: Instant,
    reaped: Instant,
}

impl Default for Background {
    fn default() -> Background {
        let now = time::now();
        Background { purge_policy: PurgePolicy::default(), swept: now, closed: now, reaped: now }
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
        // The check each second also reports the end of a stepDown to waiting clients.
        let may_write = server.is_primary() && server.database.write_locks() == 0;
        if may_write && time::since(self.swept) >= server.ttl_pause() {
            self.swept = time::now();
            if server.parameters.get("ttlMonitorEnabled") == Some(Setting::Boolean(true)) {
                let deleted = server.database.sweep_ttl();
                log::debug!(c = "INDEX"; "TTL pass: {deleted} documents expired");
            }
        }
        if self.purge_policy.is_due(server.memory_usage()) {
            memory::purge();
            self.purge_policy.record_purge(server.memory_usage());
        }
        if time::since(self.closed) >= IDLE_EVERY {
            self.closed = time::now();
            server.database.cursors.close_idle(server.parameters.cursor_timeout());
            server.database.expire_old_views();
            for session in server.sessions.remove_expired() {
                session.abort_any_transaction(&server.database, &server.sessions.transactions);
                server.database.cursors.kill_session(&session.id);
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

impl Server {
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
