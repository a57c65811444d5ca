//! A front's number, under a lease, and what it has known whenever it renewed that.

use crate::connection::Param;
use crate::failure::{Answer, Failure, lock};
use crate::pool::{Lent, Pool, ask};
use crate::schema::Statements;
use crate::times::Times;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A lease that was renewed longer ago than this is renewed before it is relied on; it lasts thirty seconds.
const RENEWED_LATE: Duration = Duration::from_secs(20);

/// A front's number, and until when it has it.
pub(crate) struct Lease {
    number: AtomicI64,
    /// Until when, as the server has noted it.
    until: Mutex<i64>,
    start: Instant,
    /// When it was renewed last, in milliseconds after the start.
    renewed: AtomicU64,
    ended: Mutex<bool>,
    wake: Condvar,
    /// The life that markers are of, and the latest of them, oldest first.
    markers: Mutex<(u64, VecDeque<Marker>)>,
    /// How old a state may be that is read on a standby, and for how long markers are kept.
    pub(crate) stale: Duration,
}

/// What was known when the lease was written: a standby that shows it has all of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker {
    /// Until when the lease lasts, as the server has noted it: no two are the same.
    until: i64,
    /// Everything up to this time had been committed.
    pub(crate) time: u64,
    /// When that was.
    pub(crate) at: Instant,
}

impl Lease {
    /// Takes a number.
    pub(crate) fn take(control: &Arc<Pool>, statements: &Statements, stale: Duration) -> Answer<Lease> {
        let at = Instant::now();
        let (number, until, life) = take_number(control, statements)?;
        let markers = Mutex::new((life, VecDeque::from([Marker { until, time: 0, at }])));
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

    /// The number.
    pub(crate) fn number(&self) -> i64 {
        self.number.load(Ordering::Acquire)
    }

    /// Until when it is this front's, as the server has noted it.
    pub(crate) fn until(&self) -> i64 {
        *self.until.lock()
    }

    /// Renews it; where somebody else has the number by now, takes another.
    pub(crate) fn renew(&self, control: &Arc<Pool>, statements: &Statements, times: &Times) -> Answer<()> {
        self.write(control, statements, times, &mut *lock(&self.until)?)
    }

    /// Makes sure that it has been written since a moment.
    pub(crate) fn mark(
        &self,
        control: &Arc<Pool>,
        statements: &Statements,
        times: &Times,
        since: Instant,
    ) -> Answer<()> {
        let mut until = lock(&self.until)?;
        if self.markers.lock().1.back().is_some_and(|latest| latest.at >= since) {
            return Ok(());
        }
        self.write(control, statements, times, &mut until)
    }

    fn write(
        &self,
        control: &Arc<Pool>,
        statements: &Statements,
        times: &Times,
        until: &mut i64,
    ) -> Answer<()> {
        let (at, time) = (Instant::now(), times.known());
        let params = [Param::Int(self.number()), Param::Int(*until)];
        let renewed = ask(control, &|lent| Ok((lent.one(&statements.renew, &params)?, lent.life)))?;
        let life = match renewed {
            (rows, life) if !rows.is_empty() => {
                *until = rows.first().map_or(0, |row| row.int(0));
                life
            }
            _ => {
                let (number, lasts, life) = take_number(control, statements)?;
                log::warn!("this front has lost its number {}, and goes on as {number}", self.number());
                *until = lasts;
                self.number.store(number, Ordering::Release);
                life
            }
        };
        self.renewed.store((at - self.start).as_millis() as u64, Ordering::Release);
        let mut markers = self.markers.lock();
        if markers.0 != life {
            // What was written in an earlier life may be on a standby that follows nobody any more.
            *markers = (life, VecDeque::new());
        }
        while markers.1.front().is_some_and(|oldest| oldest.at.elapsed() > self.stale) {
            markers.1.pop_front();
        }
        markers.1.push_back(Marker { until: *until, time, at });
        Ok(())
    }

    /// What was known when the lease said this, in this life.
    pub(crate) fn marker_of(&self, until: i64, life: u64) -> Option<Marker> {
        let markers = self.markers.lock();
        markers.1.iter().rev().find(|marker| marker.until == until && markers.0 == life).copied()
    }

    /// Whether it has to be renewed before it is relied on.
    pub(crate) fn is_stale(&self) -> bool {
        let age =
            (self.start.elapsed().as_millis() as u64).saturating_sub(self.renewed.load(Ordering::Acquire));
        age > RENEWED_LATE.as_millis() as u64
    }

    /// Says that the front is gone.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Waits so long; whether the front is gone.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let mut ended = self.ended.lock();
        if !*ended {
            self.wake.wait_for(&mut ended, pause);
        }
        *ended
    }
}

/// The number, until when it is this front's, and in which life.
fn take_number(control: &Arc<Pool>, statements: &Statements) -> Answer<(i64, i64, u64)> {
    // Somebody else may have taken the free one that was seen.
    for _ in 0..64 {
        let asked = |lent: &mut Lent| Ok((lent.one(&statements.front, &[])?, lent.life));
        let (rows, life) = ask(control, &asked)?;
        if let Some(row) = rows.first() {
            return Ok((row.int(0), row.int(1), life));
        }
    }
    Err(Failure::Lost("no number is free: there are 1,023 processes on this schema".to_string()))
}
