//! Notifications of changes, for tailable cursors and change streams.
//!
//! A commit of documents wakes the watchers of its collections and databases, and watchers of everything. Some watchers
//! see only durable commits. The sync wakes them once more, so the namespaces of unsynced commits are remembered.
//!
//! All watchers are also woken each time the log has grown by a small part of its limit. They then read on in the log.
//! A stream that waits long during many writes would fall behind the log's beginning if it were not woken.
//!
//! The module also holds the progress of a stream, for its cursor.

use base::Namespace;
use base::bson::DocumentBuf;
use parking_lot::Mutex;
use query::change::ResumeToken;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Waker;
use storage::{EventCount, Listener, Position};

/// The watched namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// One collection.
    Collection(Namespace),
    /// All collections of a database.
    Database(String),
    /// Every change.
    Everything,
}

/// A watcher, registered until it is dropped.
pub struct Watch {
    watchers: Arc<Watchers>,
    interest: Interest,
    number: u64,
    change: Listener,
}

impl Watch {
    /// Returns true after a commit that touches the watched namespace, and after the sync that makes such a commit
    /// durable. Otherwise registers the waker.
    pub fn has_happened(&mut self, waker: &Waker) -> bool {
        self.change.has_happened(waker)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.remove(&self.interest, self.number);
    }
}

/// The registered watchers.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Number of watchers, so that commits skip the lookup while it is zero.
    count: AtomicUsize,
    next: AtomicU64,
    /// Position of the log at the last wake-up of all watchers.
    steps: AtomicU64,
    lists: Mutex<Lists>,
    /// Namespaces changed by commits that may not be durable yet, with the latest position of each.
    unsynced: Mutex<HashMap<Namespace, Position>>,
    /// Watches that began after a commit that was not durable yet, with its position.
    late: Mutex<HashMap<u64, (Position, Arc<EventCount>)>>,
}

/// Counts of commits with the number of their watch.
type List = Vec<(u64, Arc<EventCount>)>;

/// The watches by what they watch.
#[derive(Default)]
struct Lists {
    collections: HashMap<Namespace, List>,
    databases: HashMap<String, List>,
    everything: List,
}

impl Watchers {
    /// Watches a namespace.
    pub(crate) fn watch(self: &Arc<Self>, interest: Interest) -> Watch {
        let commits = Arc::new(EventCount::default());
        let change = commits.listen(0);
        let number = self.next.fetch_add(1, Relaxed);
        self.count.fetch_add(1, Relaxed);
        let mut lists = self.lists.lock();
        let list = match &interest {
            Interest::Collection(namespace) => lists.collections.entry(namespace.clone()).or_default(),
            Interest::Database(name) => lists.databases.entry(name.clone()).or_default(),
            Interest::Everything => &mut lists.everything,
        };
        list.push((number, commits));
        drop(lists);
        Watch { watchers: self.clone(), interest, number, change }
    }

    /// Wakes a watch when the commit at a position is durable. Its owner may read before that.
    pub(crate) fn await_sync(&self, watch: &Watch, position: Position) {
        self.late.lock().insert(watch.number, (position, watch.change.events().clone()));
    }

    /// Removes a watcher.
    fn remove(&self, interest: &Interest, number: u64) {
        fn without(list: &mut List, number: u64) -> bool {
            let before = list.len();
            list.retain(|(known, _)| *known != number);
            debug_assert_eq!(list.len() + 1, before, "watcher {number} is not registered");
            list.is_empty()
        }
        let mut lists = self.lists.lock();
        match interest {
            Interest::Collection(namespace) => {
                if lists.collections.get_mut(namespace).is_some_and(|list| without(list, number)) {
                    lists.collections.remove(namespace);
                }
            }
            Interest::Database(name) => {
                if lists.databases.get_mut(name).is_some_and(|list| without(list, number)) {
                    lists.databases.remove(name);
                }
            }
            Interest::Everything => _ = without(&mut lists.everything, number),
        }
        drop(lists);
        self.late.lock().remove(&number);
        let before = self.count.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "more watchers are gone than came");
    }

    /// Returns true if any watcher is registered.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Returns true if the log has advanced by a step since the last call.
    pub(crate) fn is_behind(&self, steps: u64) -> bool {
        self.steps.load(Relaxed) != steps && self.steps.swap(steps, Relaxed) != steps
    }

    /// Wakes the watchers of these namespaces after a commit. `unsynced` is its position if it may not be durable yet.
    pub(crate) fn notify(&self, namespaces: &[Namespace], unsynced: Option<Position>) {
        if !self.any() {
            return;
        }
        // Recorded before the wake-up. A watcher that reads too early is woken again by the sync. After a sync that has
        // already finished, the watcher sees the commit at once.
        if let Some(position) = unsynced {
            let mut waiting = self.unsynced.lock();
            for namespace in namespaces {
                match waiting.get_mut(namespace) {
                    Some(latest) => *latest = position.max(*latest),
                    None => _ = waiting.insert(namespace.clone(), position),
                }
            }
        }
        self.wake(namespaces);
    }

    /// Wakes the watchers of commits up to a position that is now durable.
    pub(crate) fn synced(&self, durable: Position) {
        let mut ready = Vec::new();
        self.unsynced.lock().retain(|namespace, position| {
            let waits = *position > durable;
            if !waits {
                ready.push(namespace.clone());
            }
            waits
        });
        if !self.any() {
            return;
        }
        if !ready.is_empty() {
            self.wake(&ready);
        }
        let late: Vec<_> = self.late.lock().extract_if(|_, (position, _)| *position <= durable).collect();
        late.iter().for_each(|(_, (_, commits))| commits.advance());
    }

    /// Wakes the watchers of some namespaces, each once, after releasing the lock.
    fn wake(&self, namespaces: &[Namespace]) {
        let mut watched = Vec::new();
        let mut take = |list: &List| watched.extend(list.iter().map(|(_, commits)| commits.clone()));
        let lists = self.lists.lock();
        take(&lists.everything);
        for (at, namespace) in namespaces.iter().enumerate() {
            lists.collections.get(namespace).into_iter().for_each(&mut take);
            let database = namespace.database();
            let is_new = namespaces.iter().take(at).all(|earlier| earlier.database() != database);
            lists.databases.get(database).filter(|_| is_new).into_iter().for_each(&mut take);
        }
        drop(lists);
        watched.iter().for_each(|commits| commits.advance());
    }

    /// Wakes the watchers of a namespace without a commit.
    pub(crate) fn wake_interest(&self, interest: &Interest) {
        match interest {
            Interest::Collection(namespace) => self.wake(std::slice::from_ref(namespace)),
            Interest::Database(_) | Interest::Everything => self.notify_all_watchers(),
        }
    }

    /// Wakes all watchers, after a change of more than documents.
    pub(crate) fn notify_all_watchers(&self) {
        if !self.any() {
            return;
        }
        let lists = self.lists.lock();
        let all = lists.collections.values().chain(lists.databases.values()).flatten();
        let watched: Vec<_> = all.chain(&lists.everything).map(|(_, commits)| commits.clone()).collect();
        drop(lists);
        watched.iter().for_each(|commits| commits.advance());
    }
}

/// Progress of a stream, shared with its cursor.
#[derive(Clone)]
pub(crate) struct Progress(pub(crate) Arc<Mutex<State>>);

/// Position of a stream.
pub(crate) struct State {
    /// Position after all events prepared so far, and after all entries that the stream does not show.
    pub(crate) reached: ResumeToken,
    /// The event processed by later stages of the pipeline.
    pub(crate) current: Option<ResumeToken>,
    /// True once the stream has ended with an invalidation.
    pub(crate) ended: bool,
}

impl Progress {
    /// Returns the resume token after everything delivered so far.
    pub(crate) fn reached(&self) -> DocumentBuf {
        self.0.lock().reached.to_document()
    }

    /// Returns true if no more events will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, InsertRequest, ManualClock, Operation, Scope};
    use base::bson::Document;
    use query::Context;
    use storage::store::LogOptions;
    use storage::testing::FaultyFiles;
    use storage::{DiskEngine, DiskOptions};

    fn namespace(name: &str) -> Namespace {
        Namespace::parse(name).unwrap()
    }

    struct Counted {
        commits: Arc<EventCount>,
        counted: u64,
        _watch: Watch,
    }

    fn watch(watchers: &Arc<Watchers>, interest: Interest) -> Counted {
        let watch = watchers.watch(interest);
        Counted { commits: watch.change.events().clone(), counted: 0, _watch: watch }
    }

    fn counts(watched: &mut [Counted]) -> Vec<u64> {
        let new = |watched: &mut Counted| {
            let before = std::mem::replace(&mut watched.counted, watched.commits.read());
            watched.counted - before
        };
        watched.iter_mut().map(new).collect()
    }

    #[test]
    fn a_commit_wakes_only_its_waiters() {
        let watchers: Arc<Watchers> = Arc::default();
        watchers.notify(&[namespace("d.c")], Some(Position(1)));
        assert!(!watchers.any() && watchers.unsynced.lock().is_empty(), "nobody waits");
        let mut watched = vec![
            watch(&watchers, Interest::Collection(namespace("d.c"))),
            watch(&watchers, Interest::Collection(namespace("d.other"))),
            watch(&watchers, Interest::Database("d".to_string())),
            watch(&watchers, Interest::Database("e".to_string())),
            watch(&watchers, Interest::Everything),
        ];
        watchers.notify(&[namespace("d.c")], None);
        assert_eq!(counts(&mut watched), [1, 0, 1, 0, 1]);
        watchers.notify(&[namespace("d.c"), namespace("d.other"), namespace("e.c")], None);
        assert_eq!(counts(&mut watched), [1, 1, 1, 1, 1]);
        watchers.notify_all_watchers();
        assert_eq!(counts(&mut watched), [1, 1, 1, 1, 1]);
        watched.truncate(1);
        watchers.notify(&[namespace("d.other")], None);
        assert_eq!(counts(&mut watched), [0]);
        drop(watched);
        let lists = watchers.lists.lock();
        assert!(!watchers.any() && lists.collections.is_empty() && lists.databases.is_empty());
    }

    #[test]
    fn a_sync_wakes_for_the_commits_that_it_covers() {
        let watchers: Arc<Watchers> = Arc::default();
        let mut watched = [
            watch(&watchers, Interest::Collection(namespace("d.c"))),
            watch(&watchers, Interest::Collection(namespace("d.e"))),
        ];
        watchers.notify(&[namespace("d.c")], Some(Position(4)));
        watchers.notify(&[namespace("d.e")], Some(Position(5)));
        watchers.notify(&[namespace("d.c")], Some(Position(6)));
        assert_eq!(counts(&mut watched), [2, 1]);
        watchers.synced(Position(5));
        assert_eq!(counts(&mut watched), [0, 1]);
        watchers.synced(Position(6));
        assert_eq!(counts(&mut watched), [1, 0]);
        watchers.synced(Position(9));
        assert_eq!(counts(&mut watched), [0, 0]);
    }

    #[test]
    fn a_sync_wakes_a_watch_that_began_after_the_commit() {
        let options = DiskOptions::new("/data");
        let engine = Arc::new(DiskEngine::open_stepped(Arc::new(FaultyFiles::new()), &options).unwrap());
        let log = Some(LogOptions { bytes: 1 << 20 });
        let database =
            Database::open_with(engine.clone(), Arc::new(ManualClock::new(5_000)), 7, log).unwrap();
        let context = Arc::new(Context::for_tests());
        let scope = Scope::new(&Arc::new(Operation::new(0)), &namespace("d.c"), &context);
        let request = InsertRequest { document: Document::EMPTY, bypass_validation: false };
        database.insert(&scope, request).unwrap();
        assert!(!database.is_journaled(database.latest_position()));
        let mut before = database.watch(Interest::Collection(namespace("d.c")));
        assert!(!before.has_happened(Waker::noop()), "a stream cannot read the commit yet");
        engine.step_flush(true);
        assert!(database.is_journaled(database.latest_position()));
        assert!(before.has_happened(Waker::noop()), "the sync does not wake the stream");
        let mut after = database.watch(Interest::Collection(namespace("d.c")));
        engine.step_flush(true);
        assert!(!after.has_happened(Waker::noop()), "the stream wakes without a change");
    }
}
