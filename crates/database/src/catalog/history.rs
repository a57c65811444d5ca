//! Retained read views of earlier times (`atClusterTime`), and the limit of old versions.
//!
//! A session of snapshot reads gets the time of its first read and names it in later reads. The view of the first read
//! is retained for MongoDB's default period. It costs only the memory of versions replaced meanwhile. Other past times
//! cannot be read. A [`View`] is a consistent pair of catalog and data.
//!
//! A snapshot pins every version replaced since its creation. The versions replaced since the oldest snapshot are
//! therefore the entire history, independent of the number of snapshots. Each owner of a snapshot records the number of
//! bytes replaced before it (`replaced_at`). Beyond the limit of bytes replaced since, owners release their snapshots,
//! the oldest first. Owners are idle cursors, retained views and transactions. A new owner needs a function such as
//! [`History::release_before`] and a call of it in `Database::limit_history`.
//!
//! On disk, a snapshot also holds the changes in memory as of its creation, which a later checkpoint writes and frees.
//! [`WrittenChanges`] counts them by intervals of `replaced_at`.

use crate::catalog::Catalog;
use base::{Result, err};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use storage::Snapshot;
use storage::store::{Change, Expect, SideEffect};
use storage::time;

/// Default retention of a view (parameter minSnapshotHistoryWindowInSeconds).
const AGE_MAX: Duration = Duration::from_secs(300);

/// Maximum number of retained views. The oldest is evicted.
const VIEWS_MAX: usize = 256;

/// The retained views, oldest first.
pub(crate) struct History {
    views: Mutex<VecDeque<HistoryEntry>>,
    age_max: Mutex<Duration>,
}

impl Default for History {
    fn default() -> History {
        History { views: Mutex::default(), age_max: Mutex::new(AGE_MAX) }
    }
}

/// A retained view, with its cluster time and the start of its retention.
struct HistoryEntry {
    time: u64,
    view: View,
    since: Instant,
}

impl History {
    /// Retains a view for later reads at its time.
    pub(crate) fn add(&self, time: u64, view: &View) {
        let mut views = self.views.lock();
        if views.back().is_some_and(|last| last.time == time) {
            return;
        }
        if views.len() == VIEWS_MAX {
            views.pop_front();
        }
        views.push_back(HistoryEntry { time, view: view.clone(), since: time::now() });
        debug_assert!(views.len() <= VIEWS_MAX, "{} views", views.len());
    }

    /// Returns the view of a time.
    ///
    /// Errors: SnapshotTooOld if no view of this time is retained.
    pub(crate) fn at(&self, time: u64) -> Result<View> {
        self.expire_old();
        let views = self.views.lock();
        let view = views.iter().find(|entry| entry.time == time).map(|entry| entry.view.clone());
        view.ok_or_else(|| {
            err!(
                SnapshotTooOld,
                "Read timestamp Timestamp({}, {}) is older than the oldest available timestamp.",
                time >> 32,
                time & 0xFFFF_FFFF
            )
        })
    }

    /// Releases expired views.
    pub(crate) fn expire_old(&self) {
        let age_max = *self.age_max.lock();
        let mut views = self.views.lock();
        while views.front().is_some_and(|oldest| time::since(oldest.since) > age_max) {
            views.pop_front();
        }
    }

    /// Sets the retention of views.
    pub(crate) fn set_age_max(&self, age: Duration) {
        *self.age_max.lock() = age;
    }

    /// Releases views taken before `least` bytes had been replaced. Appends `replaced_at` of each remaining view.
    ///
    /// The views are in the order of their first reads. A view that was taken earlier may have been read later.
    pub(crate) fn release_before(&self, least: u64, remaining: &mut Vec<u64>) {
        let mut views = self.views.lock();
        let all = std::mem::take(&mut *views);
        let (released, rest): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|entry| entry.view.replaced_at < least);
        *views = rest;
        remaining.extend(views.iter().map(|entry| entry.view.replaced_at));
        // Trees are freed after the lock is released.
        drop(views);
        drop(released);
    }
}

/// A consistent view of the catalog and its data.
#[derive(Clone)]
pub struct View {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// The data.
    pub snapshot: Arc<dyn Snapshot>,
    /// Bytes replaced by commits before the view was taken.
    pub(crate) replaced_at: u64,
}

impl View {
    /// Checks that the catalog belongs to the snapshot, as [`RemoteHints::confirm`](storage::RemoteHints::confirm).
    ///
    /// Errors: CatalogChanged.
    pub(crate) fn confirm(&self) -> storage::Result<()> {
        self.snapshot.remote().map_or(Ok(()), |remote| remote.confirm())
    }
}

/// Approximate overhead of a replaced document in bytes.
const OVERHEAD: u64 = 128;

/// Default limit of the history in bytes.
const BYTES_MAX: u64 = 512 << 20;

/// The limit of the history, and the time of the next check.
pub(crate) struct SnapshotWindow {
    pub(crate) bytes_max: AtomicU64,
    /// Total of replaced bytes at which the next check is due. Before it no holder can exceed the limit.
    pub(crate) next_check: AtomicU64,
    /// Locked by the thread that runs the check.
    pub(crate) written: Mutex<WrittenChanges>,
}

impl Default for SnapshotWindow {
    fn default() -> SnapshotWindow {
        let (bytes_max, next_check) = (AtomicU64::new(BYTES_MAX), AtomicU64::new(BYTES_MAX));
        SnapshotWindow { bytes_max, next_check, written: Mutex::default() }
    }
}

/// Number of intervals above which those without a snapshot are removed.
const INTERVALS_MAX: usize = 256;

/// The changes in memory that checkpoints have written. Only older snapshots hold them.
#[derive(Default)]
pub(crate) struct WrittenChanges {
    /// Total as the engine reported it.
    total: u64,
    /// Intervals of `replaced_at`, each by its end, with the bytes that checkpoints wrote at that end.
    intervals: VecDeque<(u64, u64)>,
}

impl WrittenChanges {
    /// Records the total of written bytes. Returns true if it has grown. `end` then returns the greatest `replaced_at`
    /// of any snapshot so far.
    pub(crate) fn record(&mut self, total: u64, end: impl FnOnce() -> u64) -> bool {
        let grown = total.saturating_sub(self.total);
        self.total = total;
        if grown > 0 {
            self.intervals.push_back((end(), grown));
        }
        grown > 0
    }

    /// Returns the least `replaced_at` with which the snapshots hold at most `bytes_max`. The snapshots of the newest
    /// interval may always hold their changes.
    pub(crate) fn least(&mut self, mut snapshots: Vec<u64>, bytes_max: u64) -> u64 {
        snapshots.sort_unstable();
        let until = |end: u64| snapshots.partition_point(|at| *at <= end);
        let (mut before, mut is_held) = (0, Vec::with_capacity(self.intervals.len()));
        for (end, _) in &self.intervals {
            is_held.push(until(*end) > before);
            before = until(*end);
        }
        let mut held = 0;
        let newest_first = self.intervals.iter().zip(&is_held).rev().filter(|(_, is_held)| **is_held);
        let least = newest_first.enumerate().find_map(|(at, ((end, bytes), _))| {
            held += bytes;
            (at > 0 && held > bytes_max).then_some(end + 1)
        });
        if self.intervals.len() > INTERVALS_MAX {
            let mut is_held = is_held.into_iter();
            self.intervals.retain(|_| is_held.next() == Some(true));
        }
        least.unwrap_or(0)
    }
}

/// Returns the approximate number of document bytes that a change replaces or removes.
pub(crate) fn replaced_by(change: &Change) -> u64 {
    let replaced = change.expect.iter().map(|expect| match expect {
        Expect::Value { value: Some(before), .. } => before.len() as u64 + OVERHEAD,
        _ => 0,
    });
    // Collections emptied as a whole.
    let emptied = change.side_effects.iter().map(|side_effect| match side_effect {
        SideEffect::Count { bytes, .. } => bytes.min(&0).unsigned_abs(),
        _ => 0,
    });
    replaced.sum::<u64>().max(emptied.sum())
}

#[cfg(test)]
mod tests {
    use super::{History, INTERVALS_MAX, View, WrittenChanges};
    use crate::{Database, SystemClock};
    use std::sync::Arc;
    use storage::memory::MemoryEngine;

    #[test]
    fn an_old_view_is_released_although_it_was_read_last() {
        let database = Database::open(Arc::new(MemoryEngine::new()), Arc::new(SystemClock), 7).unwrap();
        let (history, view) = (History::default(), database.view());
        for (time, replaced_at) in [(1, 20), (2, 10), (3, 30)] {
            history.add(time, &View { replaced_at, ..view.clone() });
        }
        let mut remaining = Vec::new();
        history.release_before(15, &mut remaining);
        assert_eq!(remaining, [20, 30]);
        assert_eq!([1, 2, 3].map(|time| history.at(time).is_ok()), [true, false, true]);
    }

    #[test]
    fn snapshots_hold_the_changes_of_their_interval_once() {
        let mut written = WrittenChanges::default();
        for (total, end) in [(100, 5), (100, 6), (300, 9), (600, 9), (700, 12)] {
            assert_eq!(written.record(total, || end), end != 6);
        }
        assert_eq!(written.least(vec![13, 20], 0), 0, "no checkpoint followed");
        assert_eq!(written.least(vec![3, 1, 1], 0), 0, "the newest interval with a snapshot");
        assert_eq!(written.least(vec![10, 7, 1], 299), 10);
        assert_eq!(written.least(vec![10, 7, 8, 1], 300), 6);
        assert_eq!(written.least(vec![10, 7, 8, 1], 400), 0);
        for more in 1..=INTERVALS_MAX as u64 {
            written.record(700 + more, || 12 + more);
        }
        assert_eq!(written.least(vec![10, 100], 1 << 20), 0);
        assert_eq!(written.intervals, [(12, 100), (100, 1)]);
    }

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

#[cfg(test)]
mod snapshot_window_tests {
    use crate::{Database, FindRequest, InsertRequest, ManualClock, Operation, Scope, UpdateRequest};
    use base::bson::extended_json::parse;
    use base::random::Random;
    use base::{ErrorCode, Namespace};
    use query::{Context, Matcher, Update};
    use std::sync::Arc;
    use storage::MemoryEngine;

    /// Approximate size of a document in bytes.
    const SIZE: u64 = 10_000;

    #[test]
    fn the_oldest_snapshots_are_given_up_first_and_no_more_than_must_be() {
        let database =
            Database::open(Arc::new(MemoryEngine::new()), Arc::new(ManualClock::new(0)), 7).unwrap();
        let namespace = Namespace::parse("test.c").unwrap();
        let context = Arc::new(Context::for_tests());
        let scope = |operation| Scope::new(&Arc::new(operation), &namespace, &context);
        let text = "x".repeat(SIZE as usize);
        for id in 0..5 {
            let document = parse(&format!("{{_id: {id}, text: '{text}'}}")).unwrap();
            let request = InsertRequest { document: document.view(), bypass_validation: false };
            database.insert(&scope(Operation::new(0)), request).unwrap();
        }
        database.set_history_bytes(20 * SIZE);
        let random = Random::new(3);
        let (mut cursors, mut transactions, mut views) = (Vec::new(), Vec::new(), Vec::new());
        let mut lost = 0;
        for turn in 0..300 {
            match random.draw() % 8 {
                0 => {
                    let operation = Arc::new(database.operation(1));
                    let filter = parse("{}").unwrap();
                    let request = FindRequest::new(filter.view());
                    let cursor =
                        database.find(&Scope::new(&operation, &namespace, &context), &request).unwrap();
                    cursors.push((database.replaced(), database.register_cursor(cursor)));
                }
                1 => {
                    transactions.push((database.replaced(), database.begin_transaction(None, None).unwrap()))
                }
                2 => views.push((database.replaced(), database.snapshot_at(None).unwrap().0)),
                _ => {
                    let update = parse(&format!("{{$set: {{n: {turn}}}}}")).unwrap();
                    let request = UpdateRequest {
                        matcher: Arc::new(
                            Matcher::parse(parse("{_id: 1}").unwrap().view(), &context).unwrap(),
                        ),
                        update: Update::parse(update.view().into(), &[], &context).unwrap().into(),
                        multi: false,
                        upsert: false,
                        sort: None,
                        hint: None,
                        bypass_validation: false,
                    };
                    let operation = Arc::new(database.operation(2));
                    database.update(&Scope::new(&operation, &namespace, &context), &request).unwrap();
                }
            }
            let now = database.replaced();
            let is_kept = |at: &u64| now - at <= 20 * SIZE;
            cursors.retain(|(at, id)| {
                let cursor = database.cursors.take(*id, &namespace).unwrap();
                let checked = database.check_cursor(&cursor).map_err(|error| error.code());
                assert_eq!(checked, if is_kept(at) { Ok(()) } else { Err(ErrorCode::QueryPlanKilled) });
                // As a getMore does.
                match checked {
                    Ok(()) => database.cursors.put_back(*id, cursor, storage::time::now()),
                    Err(_) => database.cursors.close(*id),
                }
                lost += u64::from(checked.is_err());
                checked.is_ok()
            });
            for (at, transaction) in &transactions {
                assert_eq!(transaction.has_lost_snapshot(), !is_kept(at), "{turn}");
                let commits = is_kept(at) || {
                    let outcome = database.commit_transaction(&Operation::new(0), transaction);
                    outcome.is_err_and(|error| error.code() == ErrorCode::SnapshotTooOld)
                };
                assert!(commits, "a transaction that lost its snapshot committed");
            }
            for (at, time) in &views {
                let found = database.history.at(*time).map(drop).map_err(|error| error.code());
                assert_eq!(
                    found,
                    if is_kept(at) { Ok(()) } else { Err(ErrorCode::SnapshotTooOld) },
                    "{turn}"
                );
            }
        }
        assert!(lost > 10 && transactions.len() > 10 && views.len() > 10);
    }
}
