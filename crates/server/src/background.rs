//! Work that no client asks for: sweeping TTL indexes, closing cursors, sessions and
//! views nobody uses, ending what runs for clients who have gone.

use crate::heap::{self, Held, Keeper};
use crate::parameters::Setting;
use crate::server::Server;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// How often the thread looks whether something is due.
const TICK: Duration = Duration::from_secs(1);

/// What has run for less isn't looked at whether its client is still there.
const LONG: Duration = Duration::from_millis(500);

/// How often idle cursors and sessions are looked for.
const IDLE_EVERY: Duration = Duration::from_secs(4);

/// How often the records of retryable writes that nobody remembers are removed.
const REAP_EVERY: Duration = Duration::from_secs(300);

/// Runs until the server is dropped; start it on a thread of its own.
pub(crate) fn run(server: &Weak<Server>) {
    let mut keeper = Keeper::default();
    let (mut swept, mut closed, mut reaped) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        std::thread::sleep(TICK);
        let Some(server) = server.upgrade() else { return };
        let lifetime = server.transaction_lifetime();
        let sessions = if server.transactions.any_open() { server.sessions.all() } else { Vec::new() };
        for session in sessions {
            if session.expire_transaction(&server, lifetime) {
                server.database.cursors.kill_transaction(&session.id);
            }
        }
        for activity in server.activities.all() {
            activity.end_if_gone(LONG);
        }
        // Asked once a second, so that clients who wait for news hear of the end of a stepDown.
        let may_write = server.is_primary() && server.database.write_locks() == 0;
        if may_write && swept.elapsed() >= server.ttl_pause() {
            swept = Instant::now();
            if server.parameters.get("ttlMonitorEnabled") == Some(Setting::Boolean(true)) {
                let deleted = server.database.sweep_ttl();
                log::debug!(c = "INDEX"; "TTL pass: {deleted} documents expired");
            }
        }
        if keeper.is_due(server.held()) {
            heap::give_back();
            keeper.given_back(server.held());
        }
        if closed.elapsed() >= IDLE_EVERY {
            closed = Instant::now();
            server.database.cursors.close_idle(server.parameters.cursor_timeout());
            server.database.forget_old_views();
            for session in server.sessions.sweep() {
                session.abort_any_transaction(&server.database, &server.transactions);
                server.database.cursors.kill_session(&session.id);
            }
        }
        if may_write && reaped.elapsed() >= REAP_EVERY {
            reaped = Instant::now();
            if let Err(error) = server.database.reap_retries(&|key| server.sessions.remembers(key)) {
                log::warn!("removing old records of retryable writes: {error}");
            }
        }
    }
}

impl Server {
    /// How much memory is in use.
    fn held(&self) -> Held {
        let counted = self.database.engine().statistics();
        let engine =
            if self.settings.ephemeral { counted.bytes } else { counted.cache_bytes + counted.changed_bytes };
        Held { engine, resident: heap::process_bytes().map_or(0, |(_, resident)| resident) }
    }

    /// The time between two TTL passes, as the parameter ttlMonitorSleepSecs says now.
    fn ttl_pause(&self) -> Duration {
        match self.parameters.get("ttlMonitorSleepSecs") {
            Some(Setting::Integer(seconds)) => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => Duration::from_secs(60),
        }
    }
}
