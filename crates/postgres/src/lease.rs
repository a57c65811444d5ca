//! The lease of a front's number, and a marker of the known state for each renewal.

use crate::connection::Param;
use crate::failure::{Failure, PgResult, lock};
use crate::pool::{Pool, PooledConnection, run};
use crate::schema::Statements;
use crate::times::Times;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Age at which a lease is renewed before use. A lease lasts thirty seconds.
const RENEW_AFTER: Duration = Duration::from_secs(20);

/// A front's number and the end of its lease.
pub(crate) struct Lease {
    number: AtomicI64,
    /// End of the lease, as stored on the server.
    until: Mutex<i64>,
    /// Origin of `renewed`.
    start: Instant,
    /// Time of the last renewal, in milliseconds after the start.
    renewed: AtomicU64,
    /// True once the front is closed.
    ended: Mutex<bool>,
    wake: Condvar,
    /// The incarnation that the markers belong to, and the latest markers, oldest first.
    markers: Mutex<(u64, VecDeque<Marker>)>,
    /// Maximum age of a state read on a standby, and the retention of markers.
    pub(crate) stale: Duration,
}

/// The state known when the lease was written. A standby that shows this lease has all of that state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker {
    /// End of the lease as stored on the server. Unique for each renewal.
    until: i64,
    /// Everything up to this time was committed.
    pub(crate) time: u64,
    /// Moment of the renewal.
    pub(crate) at: Instant,
}

impl Lease {
    /// Takes a number.
    pub(crate) fn take(control: &Arc<Pool>, statements: &Statements, stale: Duration) -> PgResult<Lease> {
        let at = Instant::now();
        let (number, until, incarnation) = take_number(control, statements)?;
        let markers = Mutex::new((incarnation, VecDeque::from([Marker { until, time: 0, at }])));
        Ok(Lease {
            markers,
            stale,
            number: AtomicI64::new(number),
            until: Mutex::new(until),
            start: Instant::now(),
            renewed: AtomicU64::new(0),
            ended: Mutex::new(false),
            wake: Condvar::new(),
        })
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> i64 {
        self.number.load(Ordering::Acquire)
    }

    /// Returns the end of the lease, as stored on the server.
    pub(crate) fn until(&self) -> i64 {
        *self.until.lock()
    }

    /// Renews the lease. Takes another number if a different front owns this one by now.
    pub(crate) fn renew(&self, control: &Arc<Pool>, statements: &Statements, times: &Times) -> PgResult<()> {
        self.write(control, statements, times, &mut *lock(&self.until)?)
    }

    /// Ensures that the lease was written after a moment.
    pub(crate) fn mark(
        &self,
        control: &Arc<Pool>,
        statements: &Statements,
        times: &Times,
        since: Instant,
    ) -> PgResult<()> {
        let mut until = lock(&self.until)?;
        if self.markers.lock().1.back().is_some_and(|latest| latest.at >= since) {
            return Ok(());
        }
        self.write(control, statements, times, &mut until)
    }

    /// Writes the lease and adds a marker. If the number is lost, takes another one.
    fn write(
        &self,
        control: &Arc<Pool>,
        statements: &Statements,
        times: &Times,
        until: &mut i64,
    ) -> PgResult<()> {
        let (at, time) = (Instant::now(), times.known());
        let params = [Param::Int(self.number()), Param::Int(*until)];
        let renewed = run(control, &|conn| Ok((conn.query(&statements.renew, &params)?, conn.incarnation)))?;
        let incarnation = match renewed {
            (rows, incarnation) if !rows.is_empty() => {
                *until = rows.first().map_or(0, |row| row.int(0));
                incarnation
            }
            _ => {
                let (number, new_until, incarnation) = take_number(control, statements)?;
                log::warn!("this front has lost its number {} and continues as {number}", self.number());
                *until = new_until;
                self.number.store(number, Ordering::Release);
                incarnation
            }
        };
        self.renewed.store((at - self.start).as_millis() as u64, Ordering::Release);
        let mut markers = self.markers.lock();
        if markers.0 != incarnation {
            // Markers of an earlier incarnation may match a standby that follows no primary any more.
            *markers = (incarnation, VecDeque::new());
        }
        while markers.1.front().is_some_and(|oldest| oldest.at.elapsed() > self.stale) {
            markers.1.pop_front();
        }
        debug_assert!(
            markers.1.back().is_none_or(|latest| latest.at <= at && latest.time <= time),
            "a later marker has an earlier state"
        );
        markers.1.push_back(Marker { until: *until, time, at });
        Ok(())
    }

    /// Returns the marker of a lease end, in this incarnation.
    pub(crate) fn marker_of(&self, until: i64, incarnation: u64) -> Option<Marker> {
        let markers = self.markers.lock();
        markers.1.iter().rev().find(|marker| marker.until == until && markers.0 == incarnation).copied()
    }

    /// Returns true if the lease must be renewed before use.
    pub(crate) fn is_stale(&self) -> bool {
        let age =
            (self.start.elapsed().as_millis() as u64).saturating_sub(self.renewed.load(Ordering::Acquire));
        age > RENEW_AFTER.as_millis() as u64
    }

    /// Marks the front as closed.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Sleeps for `pause`. Returns true if the front is closed.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let mut ended = self.ended.lock();
        if !*ended {
            self.wake.wait_for(&mut ended, pause);
        }
        *ended
    }
}

/// Takes a free number. Returns it with the end of the lease and the incarnation.
fn take_number(control: &Arc<Pool>, statements: &Statements) -> PgResult<(i64, i64, u64)> {
    // Another front may take the free number first.
    for _ in 0..64 {
        let query = |conn: &mut PooledConnection| Ok((conn.query(&statements.front, &[])?, conn.incarnation));
        let (rows, incarnation) = run(control, &query)?;
        if let Some(row) = rows.first() {
            return Ok((row.int(0), row.int(1), incarnation));
        }
    }
    Err(Failure::Unavailable("no number is free: 1,023 processes use this schema".to_string()))
}
