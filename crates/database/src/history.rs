//! Views that clients come back to: snapshot reads at the cluster time of an earlier one.
//!
//! A session of snapshot reads is told the time of its first read and names it in all later ones.
//! The view of that first read is kept for as long as MongoDB promises; it costs only what is
//! written over meanwhile. Other points of the past can't be read.

use crate::view::View;
use base::{Result, err};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a view is kept unless the parameter minSnapshotHistoryWindowInSeconds says otherwise.
const AGE_MAX: Duration = Duration::from_secs(300);

/// The most views kept; the oldest make room.
const VIEWS_MAX: usize = 256;

/// The views kept, oldest first.
pub(crate) struct History {
    kept: Mutex<VecDeque<Kept>>,
    age_max: Mutex<Duration>,
}

impl Default for History {
    fn default() -> History {
        History { kept: Mutex::default(), age_max: Mutex::new(AGE_MAX) }
    }
}

struct Kept {
    time: u64,
    view: View,
    since: Instant,
}

impl History {
    /// Keeps a view for whoever names its time later.
    pub(crate) fn keep(&self, time: u64, view: &View) {
        let mut kept = self.kept.lock();
        if kept.back().is_some_and(|last| last.time == time) {
            return;
        }
        if kept.len() == VIEWS_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { time, view: view.clone(), since: Instant::now() });
    }

    /// The view kept of a time.
    ///
    /// Errors: SnapshotTooOld where none is.
    pub(crate) fn at(&self, time: u64) -> Result<View> {
        self.forget_old();
        let kept = self.kept.lock();
        let view = kept.iter().find(|kept| kept.time == time).map(|kept| kept.view.clone());
        view.ok_or_else(|| {
            err!(
                SnapshotTooOld,
                "Read timestamp Timestamp({}, {}) is older than the oldest available timestamp.",
                time >> 32,
                time & 0xFFFF_FFFF
            )
        })
    }

    /// Lets go of the views that are too old.
    pub(crate) fn forget_old(&self) {
        let age_max = *self.age_max.lock();
        let mut kept = self.kept.lock();
        while kept.front().is_some_and(|oldest| oldest.since.elapsed() > age_max) {
            kept.pop_front();
        }
    }

    /// Sets how long a view is kept.
    pub(crate) fn set_age_max(&self, age: Duration) {
        *self.age_max.lock() = age;
    }

    /// Lets go of the views taken when fewer bytes had been replaced. Returns that number for the oldest view left.
    pub(crate) fn let_go_before(&self, least: u64) -> u64 {
        let mut kept = self.kept.lock();
        let old = kept.iter().take_while(|kept| kept.view.replaced_at < least).count();
        let gone: Vec<Kept> = kept.drain(..old).collect();
        let oldest = kept.front().map_or(u64::MAX, |kept| kept.view.replaced_at);
        // Trees are freed without the lock.
        drop(kept);
        drop(gone);
        oldest
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, SystemClock};
    use std::sync::Arc;
    use storage::memory::MemoryEngine;

    #[test]
    fn a_snapshot_is_found_again_by_its_time_and_no_other_past_is() {
        let database = Database::open(Arc::new(MemoryEngine::new()), Arc::new(SystemClock), 7).unwrap();
        let (time, view) = database.snapshot_at(None).unwrap();
        database.must_change_catalog(&query::context::Uninterrupted, |_| Ok(())).unwrap();
        let (again, same) = database.snapshot_at(Some(time)).unwrap();
        assert_eq!(again, time);
        assert!(Arc::ptr_eq(&view.snapshot, &same.snapshot));
        assert_eq!(database.snapshot_at(Some(time - 1)).err().unwrap().code().number(), 239);
        assert_eq!(database.snapshot_at(Some(u64::MAX)).err().unwrap().code().number(), 72);
    }
}
