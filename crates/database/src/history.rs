//! Views that clients come back to: snapshot reads at the cluster time of an earlier one.
//!
//! A session of snapshot reads is told the time of its first read and names it in all later ones.
//! The view of that first read is kept for as long as MongoDB promises; it costs only what is
//! written over meanwhile. Other points of the past can't be read.

use crate::database::{Database, View};
use base::{Result, err};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a view is kept, as MongoDB's minSnapshotHistoryWindowInSeconds.
const AGE_MAX: Duration = Duration::from_secs(300);

/// The most views kept; the oldest make room.
const VIEWS_MAX: usize = 256;

/// The views kept, oldest first.
#[derive(Default)]
pub(crate) struct History {
    kept: Mutex<VecDeque<Kept>>,
}

struct Kept {
    time: u64,
    view: View,
    since: Instant,
}

impl History {
    fn keep(&self, time: u64, view: &View) {
        let mut kept = self.kept.lock();
        if kept.back().is_some_and(|last| last.time == time) {
            return;
        }
        if kept.len() == VIEWS_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { time, view: view.clone(), since: Instant::now() });
    }

    fn at(&self, time: u64) -> Option<View> {
        self.forget_old();
        let kept = self.kept.lock();
        kept.iter().find(|kept| kept.time == time).map(|kept| kept.view.clone())
    }

    /// Lets go of the views that are too old.
    pub(crate) fn forget_old(&self) {
        let mut kept = self.kept.lock();
        while kept.front().is_some_and(|oldest| oldest.since.elapsed() > AGE_MAX) {
            kept.pop_front();
        }
    }
}

impl Database {
    /// The view of a snapshot read and its cluster time: now, or as of the earlier time `at`.
    ///
    /// Errors: InvalidOptions for a time that hasn't come, SnapshotTooOld for one that no view is
    /// kept of.
    pub fn snapshot_at(&self, at: Option<u64>) -> Result<(u64, View)> {
        let now = self.view_with_time();
        match at {
            None => {
                self.history.keep(now.0, &now.1);
                Ok(now)
            }
            Some(at) if at > now.0 => {
                Err(err!(InvalidOptions, "readConcern atClusterTime must not be greater than clusterTime"))
            }
            Some(at) if at == now.0 => Ok(now),
            Some(at) => match self.history.at(at) {
                Some(view) => Ok((at, view)),
                None => Err(err!(
                    SnapshotTooOld,
                    "Read timestamp Timestamp({}, {}) is older than the oldest available timestamp.",
                    at >> 32,
                    at & 0xFFFF_FFFF
                )),
            },
        }
    }

    /// The latest view, and the time of the commit that it begins with.
    pub(crate) fn view_with_time(&self) -> (u64, View) {
        loop {
            let (sight, time) = self.store.sight_with_time(self.earliest_cluster_time());
            if let Ok(catalog) = self.catalog_at(&sight) {
                return (time, View { snapshot: sight.snapshot, catalog });
            }
        }
    }

    /// Lets go of views that snapshot reads may no longer name.
    pub fn forget_old_views(&self) {
        self.history.forget_old();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
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
