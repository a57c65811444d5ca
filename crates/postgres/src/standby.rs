//! Reads from standbys: the choice of a standby, and the check that it has replayed enough.
//!
//! A front records a marker at each renewal of its lease. A standby that shows this lease has reached the moment of the
//! marker. The age follows from the front's own clock, and the history is the one that the front writes to. A standby
//! of an earlier primary cannot pass this test. A causal read that needs a later state has the lease renewed and
//! flushed, so that it is replicated. It then waits until the standby shows the lease.

use crate::connection::Param;
use crate::failure::{Failure, PgResult, should_continue};
use crate::front::Front;
use crate::members::{Member, Role};
use crate::pool::PooledConnection;
use crate::session::{PostgresSnapshot, Session, end};
use crate::times::unsigned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::{ReadView, StandbyRead};

/// Timeouts for a standby to catch up: if only standbys may serve, and if the primary may too.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
const CATCH_UP_TIMEOUT_WITH_PRIMARY: Duration = Duration::from_secs(1);

/// Period for which a slow standby is skipped.
const SKIPPED_FOR: Duration = Duration::from_secs(3);

/// Interval at which a standby is asked for its position.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// The position of a standby.
struct StandbyPosition {
    /// Generation of the standby's catalog.
    generation: u64,
    /// True if the standby's state is young enough.
    is_current: bool,
    /// True if the standby has reached the requested time.
    is_after: bool,
}

impl Front {
    /// Returns a snapshot of a standby that meets the request; `None` if no standby does.
    ///
    /// Errors: `Interrupted`.
    pub(crate) fn standby_read_view(&self, request: StandbyRead) -> PgResult<Option<ReadView>> {
        let since = Instant::now();
        if self.standbys.is_empty() {
            return Ok(None);
        }
        for round in 0..2 {
            for member in self.standbys.candidates(request.preference) {
                match self.read_from(member, request, since) {
                    Ok(Some(read_view)) => return Ok(Some(read_view)),
                    Ok(None) => {}
                    Err(failure @ Failure::Interrupted(_)) => return Err(failure),
                    Err(failure) => {
                        log::warn!("reads from a standby are off: {failure:?}");
                        member.set_role(Role::Unreachable);
                    }
                }
            }
            // The roles may be outdated. A read that the primary can serve does not wait for a survey.
            if round == 0 && !request.preference.allows_primary() {
                self.standbys.request_survey()?;
            } else {
                break;
            }
        }
        Ok(None)
    }

    /// Begins a snapshot on one standby. Waits until the standby has caught up, and skips it for a while after a
    /// timeout.
    fn read_from(&self, member: &Member, request: StandbyRead, since: Instant) -> PgResult<Option<ReadView>> {
        let timeout = if request.preference.allows_primary() {
            CATCH_UP_TIMEOUT_WITH_PRIMARY
        } else {
            CATCH_UP_TIMEOUT
        };
        let mut lease_renewed = false;
        loop {
            let mut conn = member.pool.take(&|| self.sessions.park_for_waiters())?;
            let position = match self.read_position(&mut conn, request.after, since) {
                Err(failure) if failure.ends_connection() && !conn.is_new => {
                    member.pool.clear();
                    continue;
                }
                position => position,
            };
            match position {
                Ok(Some(position)) if position.is_current && position.is_after => {
                    let session = Session::on_standby(&self.statements, conn, &member.pool, &self.sessions);
                    let snapshot = PostgresSnapshot { statements: self.statements.clone(), session };
                    let generation = position.generation;
                    return Ok(Some(ReadView { snapshot: Arc::new(snapshot), generation }));
                }
                Ok(position) => {
                    end(&mut conn, &self.statements.rollback);
                    if position.is_none() {
                        member.set_role(Role::Primary);
                        return Ok(None);
                    }
                }
                Err(failure) => {
                    end(&mut conn, &self.statements.rollback);
                    return Err(failure);
                }
            }
            drop(conn);
            if since.elapsed() >= timeout {
                *member.skipped_until.lock() = Some(Instant::now() + SKIPPED_FOR);
                return Ok(None);
            }
            if !lease_renewed {
                lease_renewed = true;
                match self.lease.mark(&self.control, &self.statements, &self.times, since) {
                    // Without a primary, the lease shown by the standby decides.
                    Err(failure) if !matches!(failure, Failure::Interrupted(_)) => {
                        log::debug!("the lease for standby reads was not renewed: {failure:?}");
                    }
                    marked => marked?,
                }
            }
            should_continue()?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Begins a snapshot on a standby and returns its position; `None` if the host is no standby any more.
    fn read_position(
        &self,
        conn: &mut PooledConnection,
        after: Option<u64>,
        since: Instant,
    ) -> PgResult<Option<StandbyPosition>> {
        conn.is_interruptible = true;
        conn.call(&self.statements.begin_read, &[])?;
        conn.call(&self.statements.standby_state, &[Param::Int(self.number())])?;
        conn.flush()?;
        let answers = match conn.results() {
            // The standby has not replayed the creation of the schema.
            Err(failure) if failure.is("42P01") || failure.is("3F000") => {
                return Ok(Some(StandbyPosition { generation: 0, is_current: false, is_after: false }));
            }
            answers => answers?,
        };
        let row = answers.last().and_then(|rows| rows.first()).cloned().unwrap_or_default();
        if row.int(0) == 0 {
            return Ok(None);
        }
        let marker = self.lease.marker_of(row.int(1), self.incarnations().current());
        let log_time = row.bytes(2).map(|_| unsigned(row.int(2)));
        let is_after = after.is_none_or(|after| {
            log_time.is_some_and(|log_time| log_time >= after)
                || marker.is_some_and(|marker| marker.time >= after || marker.at >= since)
        });
        let is_current = marker.is_some_and(|marker| marker.at.elapsed() < self.lease.stale);
        Ok(Some(StandbyPosition { generation: row.int(3) as u64, is_current, is_after }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::front::Limits;
    use crate::state::PostgresStore;
    use crate::testing::Cluster;
    use storage::store::{MemberPreference, ReadViews};

    /// A timeout longer than every step of the test.
    const SOON: Duration = Duration::from_secs(20);

    fn is_read(store: &PostgresStore) -> bool {
        let request = StandbyRead { after: None, preference: MemberPreference::SecondaryPreferred };
        store.standby_read_view(request).unwrap().is_some()
    }

    #[test]
    fn a_stalled_standby_is_read_until_it_is_too_old() {
        let Some(primary) = Cluster::start().unwrap() else { return };
        let standby = primary.start_standby().unwrap();
        let both = format!(
            "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres",
            primary.port(),
            standby.port()
        );
        let stale = Duration::from_secs(3);
        let config = Config::parse(&both, &|_| None).unwrap();
        let store =
            PostgresStore::open(config, "stale", Limits { stale, ..Limits::default() }, None).unwrap();
        let until_read = || {
            let begin = Instant::now();
            while !is_read(&store) {
                assert!(begin.elapsed() < SOON, "the standby is not read");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        until_read();
        standby.run(&["select count(pg_wal_replay_pause())"]).unwrap();
        let state = "select (pg_get_wal_replay_pause_state() = 'paused')::int4";
        while standby.run(&[state]).unwrap() != Some(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Everything it shows was written before now.
        let paused = Instant::now();
        assert!(is_read(&store), "it is not too old yet");
        while is_read(&store) {
            assert!(paused.elapsed() < stale + SOON, "it is read however old it is");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(stale.saturating_sub(paused.elapsed()));
        assert!(!is_read(&store), "it has not come any further");
        let others = StandbyRead { after: None, preference: MemberPreference::Secondary };
        assert!(store.standby_read_view(others).unwrap().is_none());
        standby.run(&["select count(pg_wal_replay_resume())"]).unwrap();
        until_read();
    }
}
