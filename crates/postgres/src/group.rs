//! Group commit: the small commits of several clients in one transaction of the server.
//!
//! A statement for eight commits takes less than twice the CPU of a statement for one commit. At most [`RUNNING_MAX`]
//! commits or groups run at a time. Further commits wait in a queue. At the end of a running commit, the thread of the
//! first queued commit runs all queued commits as the next group.
//!
//! The commits of a group change different keys, and each commit has its own log entry and time. The server applies the
//! whole group or refuses it. After a refusal, each commit runs alone. Two commits of one key run alone, because the
//! second one would probably be refused. A commit also runs alone while a row lock of a transaction delays commits of
//! its keys.

use crate::change::{Extras, Writes};
use crate::failure::{CHECK_INTERVAL, Failure, PgResult, should_continue};
use crate::times::{Entry, ShortEntry};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::Expect;

/// Maximum number of commits or groups that run at a time. A second one uses the time in which the server ends the
/// first.
const RUNNING_MAX: usize = 2;

/// Maximum number of commits in a group.
const GROUP_MAX: usize = 64;

/// Number of commits in full groups: the writes that a front runs at a time. Further writers would only wait.
pub const COMMITS_MAX: usize = RUNNING_MAX * GROUP_MAX;

/// Number of commits that run alone after a refused group.
const ALONE_AFTER_REFUSAL: usize = 32;

/// Time after a wait for a row lock during which commits of the same keys run alone.
const AVOIDED: Duration = Duration::from_secs(1);

/// Maximum number of keys with this time.
const AVOIDED_MAX: usize = 1024;

/// Maximum number of rows and of bytes in a commit of a group. A large commit would delay the others.
const ROWS_MAX: usize = 32;
const BYTES_MAX: usize = 16 * 1024;

/// Maximum number of bytes in the statement of a group: 64 commits of 4 KiB. The server copies and hashes each
/// parameter while all commits of the group wait.
const GROUP_BYTES_MAX: usize = 256 * 1024;

/// A successful commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Time of its log entry, if it has one.
    pub(crate) time: Option<u64>,
    /// Incarnation of the server in which the commit was made or found.
    pub(crate) incarnation: u64,
}

/// Result of a commit of a group: `None` if the group was refused.
pub(crate) type GroupResult = Result<Option<Done>, GroupFailure>;

/// Returns the number of bytes that a commit adds to the statement of its group.
pub(crate) fn bytes_of(writes: &Writes, entry: Option<&Entry<'_>>) -> usize {
    let rows =
        writes.iter().map(|((_, key), value)| key.len() + value.as_ref().map_or(0, |value| value.len()));
    let parts = entry.map_or(&[][..], |entry| entry.parts);
    rows.sum::<usize>() + parts.iter().map(|(_, value)| 8 + value.len()).sum::<usize>()
}

/// Failure of a group.
#[derive(Debug, Clone)]
pub(crate) enum GroupFailure {
    /// The group was not sent to the server.
    Unsent(Failure),
    /// The result is unknown.
    Unknown(Failure),
}

impl GroupFailure {
    /// Returns true if the connection has failed. Another failure concerns the group or its thread.
    pub(crate) fn ends_connection(&self) -> bool {
        let (GroupFailure::Unsent(failure) | GroupFailure::Unknown(failure)) = self;
        failure.ends_connection()
    }
}

/// A commit that can be part of a group.
pub(crate) struct GroupedCommit {
    pub(crate) writes: Writes,
    pub(crate) expect: Vec<Expect>,
    pub(crate) extras: Extras,
    pub(crate) entry: Option<ShortEntry>,
}

impl GroupedCommit {
    pub(crate) fn new(
        writes: &Writes,
        expect: &[Expect],
        extras: &Extras,
        entry: Option<&Entry<'_>>,
    ) -> GroupedCommit {
        let (writes, expect, extras) = (writes.clone(), expect.to_vec(), extras.clone());
        GroupedCommit { writes, expect, extras, entry: entry.map(Entry::to_short) }
    }

    /// Returns true if a commit with these parts can be part of a group.
    pub(crate) fn fits(
        writes: &Writes,
        expect: &[Expect],
        extras: &Extras,
        entry: Option<&Entry<'_>>,
    ) -> bool {
        let is_simple = |expect: &Expect| match expect {
            Expect::Generation { .. } => true,
            Expect::Value { ident, key, .. } => writes.contains_key(&(*ident, key.clone())),
            Expect::NoneOr { .. } | Expect::NoneUnder { .. } => false,
        };
        let is_generation = |expect: &&Expect| matches!(expect, Expect::Generation { .. });
        (1..=ROWS_MAX).contains(&writes.len())
            && bytes_of(writes, entry) <= BYTES_MAX
            && extras.marks.is_empty()
            && extras.counts.len() <= 1
            && entry.is_none_or(Entry::is_short)
            && expect.iter().filter(is_generation).count() == 1
            && expect.iter().all(is_simple)
    }
}

/// The running and queued commits of a front.
pub(crate) struct Groups<C = GroupedCommit> {
    inner: Mutex<Inner<C>>,
    hasher: RandomState,
}

struct Inner<C> {
    /// Number of running commits and groups.
    running: usize,
    queue: VecDeque<Queued<C>>,
    /// Hashes of the keys that running and queued commits change.
    keys: HashSet<u64>,
    /// Keys whose commits have waited for a row lock, and the end of the time in which their commits run alone.
    avoided: HashMap<u64, Instant>,
    /// The last of these ends.
    avoided_until: Option<Instant>,
    /// Number of the next commits that run alone.
    alone: usize,
}

impl<C> Inner<C> {
    /// Removes the queued commits that change one of these keys. Returns their threads.
    fn remove_queued(&mut self, keys: &[u64]) -> Vec<Arc<Waiter<C>>> {
        let (removed, queue) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition::<VecDeque<_>, _>(|queued| queued.keys.iter().any(|key| keys.contains(key)));
        self.queue = queue;
        removed
            .into_iter()
            .map(|queued| {
                queued.keys.iter().for_each(|key| _ = self.keys.remove(key));
                queued.waiter
            })
            .collect()
    }

    /// Returns true if a commit has just waited for the row lock of one of these keys.
    fn avoids(&mut self, keys: &[u64]) -> bool {
        let Some(until) = self.avoided_until else { return false };
        let now = Instant::now();
        if until <= now {
            self.avoided.clear();
            self.avoided_until = None;
        }
        keys.iter().any(|key| self.avoided.get(key).is_some_and(|end| *end > now))
    }

    /// Removes the first queued commits that fit in one group.
    fn take_group(&mut self) -> Vec<Queued<C>> {
        let mut bytes = 0;
        let fits = |queued: &&Queued<C>| {
            bytes += queued.bytes;
            bytes <= GROUP_BYTES_MAX
        };
        let count = self.queue.iter().take(GROUP_MAX).take_while(fits).count();
        self.queue.drain(..count.max(1).min(self.queue.len())).collect()
    }
}

/// A commit in the queue or in a group.
struct Queued<C> {
    commit: C,
    keys: Vec<u64>,
    bytes: usize,
    waiter: Arc<Waiter<C>>,
}

/// The thread of a queued commit.
struct Waiter<C> {
    state: Mutex<State<C>>,
    changed: Condvar,
}

enum State<C> {
    Waiting,
    /// The thread runs this group. Its own commit is the first.
    Leads(Vec<Queued<C>>),
    /// Another thread has run the group.
    Ended(GroupResult),
}

/// How a commit proceeds.
pub(crate) enum Admission<'a, C = GroupedCommit> {
    /// The commit runs alone. It holds its place among the running commits, if it has one.
    Alone(Option<Running<'a, C>>),
    /// The thread runs a group. Its own commit is the first.
    Leads(Running<'a, C>, Vec<C>),
    /// Another thread has run the commit.
    Ended(GroupResult),
}

impl<C> Default for Groups<C> {
    fn default() -> Groups<C> {
        let inner = Inner {
            running: 0,
            queue: VecDeque::new(),
            keys: HashSet::new(),
            avoided: HashMap::new(),
            avoided_until: None,
            alone: 0,
        };
        Groups { inner: Mutex::new(inner), hasher: RandomState::new() }
    }
}

impl<C> Groups<C> {
    /// Returns the hashes of keys.
    pub(crate) fn hashes<K: Hash>(&self, keys: impl Iterator<Item = K>) -> Vec<u64> {
        keys.map(|key| self.hasher.hash_one(key)).collect()
    }

    /// Lets the next commits of these keys run alone, because a commit has waited for their row locks.
    pub(crate) fn avoid(&self, keys: Vec<u64>) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if inner.avoided.len() >= AVOIDED_MAX {
            inner.avoided.retain(|_, end| *end > now);
        }
        if inner.avoided.len() < AVOIDED_MAX {
            inner.avoided.extend(keys.into_iter().map(|key| (key, now + AVOIDED)));
            inner.avoided_until = Some(now + AVOIDED);
        }
    }

    /// Admits a commit that changes the keys with these hashes, and waits while too many commits run. Calls `commit` if
    /// the commit must wait. It returns the commit and its number of bytes.
    ///
    /// Errors: `Interrupted` before the commit runs.
    pub(crate) fn admit(
        &self,
        keys: &[u64],
        commit: impl FnOnce() -> (C, usize),
    ) -> PgResult<Admission<'_, C>> {
        let keys = keys.to_vec();
        let mut inner = self.inner.lock();
        if inner.alone > 0 {
            inner.alone -= 1;
            return Ok(Admission::Alone(None));
        }
        if keys.iter().any(|key| inner.keys.contains(key)) {
            let waiters = inner.remove_queued(&keys);
            drop(inner);
            waiters.into_iter().for_each(|waiter| waiter.wake(State::Ended(Ok(None))));
            return Ok(Admission::Alone(None));
        }
        if inner.avoids(&keys) {
            return Ok(Admission::Alone(None));
        }
        inner.keys.extend(&keys);
        if inner.running < RUNNING_MAX {
            return Ok(Admission::Alone(Some(self.run(inner, keys))));
        }
        drop(inner);
        let (commit, bytes) = commit();
        let waiter = Arc::new(Waiter { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let mut inner = self.inner.lock();
        if inner.running < RUNNING_MAX {
            return Ok(Admission::Alone(Some(self.run(inner, keys))));
        }
        inner.queue.push_back(Queued { commit, keys, bytes, waiter: waiter.clone() });
        drop(inner);
        self.wait(&waiter)
    }

    /// Counts a running commit.
    fn run(&self, mut inner: MutexGuard<'_, Inner<C>>, keys: Vec<u64>) -> Running<'_, C> {
        inner.running += 1;
        debug_assert!(inner.running <= RUNNING_MAX, "{} commits run", inner.running);
        Running { groups: self, keys, followers: Vec::new(), results: Vec::new() }
    }

    /// Waits until the commit has run in a group of another thread, or until this thread runs a group.
    fn wait(&self, waiter: &Arc<Waiter<C>>) -> PgResult<Admission<'_, C>> {
        let mut state = waiter.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Waiting) {
                State::Waiting => {}
                State::Ended(result) => return Ok(Admission::Ended(result)),
                State::Leads(group) => return Ok(self.lead(group)),
            }
            if waiter.changed.wait_for(&mut state, CHECK_INTERVAL).timed_out()
                && let Err(failure) = should_continue()
            {
                drop(state);
                // A commit that runs is not interrupted.
                if self.leave(waiter) {
                    return Err(failure);
                }
                state = waiter.state.lock();
            }
        }
    }

    /// Removes a commit from the queue. Returns false if it is not in the queue.
    fn leave(&self, waiter: &Arc<Waiter<C>>) -> bool {
        let mut inner = self.inner.lock();
        let Some(at) = inner.queue.iter().position(|queued| Arc::ptr_eq(&queued.waiter, waiter)) else {
            return false;
        };
        if let Some(queued) = inner.queue.remove(at) {
            queued.keys.iter().for_each(|key| _ = inner.keys.remove(key));
        }
        true
    }

    /// Begins a group on the thread of its first commit. A single commit runs alone.
    fn lead(&self, group: Vec<Queued<C>>) -> Admission<'_, C> {
        let (mut keys, mut commits, mut followers) =
            (Vec::new(), Vec::with_capacity(group.len()), Vec::new());
        for (at, queued) in group.into_iter().enumerate() {
            keys.extend(queued.keys);
            commits.push(queued.commit);
            if at > 0 {
                followers.push(queued.waiter);
            }
        }
        let running = Running { groups: self, keys, followers, results: Vec::new() };
        match commits.len() {
            1 => Admission::Alone(Some(running)),
            _ => Admission::Leads(running, commits),
        }
    }
}

/// A place among the running commits. Its end starts the next group and returns the results to the other threads of the
/// group.
pub(crate) struct Running<'a, C = GroupedCommit> {
    groups: &'a Groups<C>,
    keys: Vec<u64>,
    /// The other threads of the group.
    followers: Vec<Arc<Waiter<C>>>,
    /// Their results. A missing result is unknown.
    results: Vec<GroupResult>,
}

impl<C> Running<'_, C> {
    /// Ends a group with the results of its commits. `is_refused` is true if a condition of one of them did not hold.
    /// Returns the first result.
    pub(crate) fn end(mut self, results: Vec<GroupResult>, is_refused: bool) -> GroupResult {
        debug_assert_eq!(results.len(), 1 + self.followers.len(), "a commit has no result");
        if is_refused {
            self.groups.inner.lock().alone = ALONE_AFTER_REFUSAL;
        }
        let mut results = results.into_iter();
        let first = results.next().unwrap_or_else(unknown);
        self.results = results.collect();
        first
    }
}

impl<C> Drop for Running<'_, C> {
    fn drop(&mut self) {
        let mut inner = self.groups.inner.lock();
        self.keys.iter().for_each(|key| _ = inner.keys.remove(key));
        let next = inner.take_group();
        if next.is_empty() {
            inner.running -= 1;
        }
        drop(inner);
        if let Some(first) = next.first().map(|queued| queued.waiter.clone()) {
            first.wake(State::Leads(next));
        }
        let mut results = std::mem::take(&mut self.results).into_iter();
        for follower in self.followers.drain(..) {
            follower.wake(State::Ended(results.next().unwrap_or_else(unknown)));
        }
    }
}

impl<C> Waiter<C> {
    fn wake(&self, state: State<C>) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// Returns the result of a group whose thread has ended without a result.
fn unknown() -> GroupResult {
    let why = "the thread of a group commit has ended".to_string();
    Err(GroupFailure::Unknown(Failure::Unavailable(why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Statement;
    use crate::front::Limits;
    use crate::state::PostgresStore;
    use crate::testing::Cluster;
    use std::thread::{scope, sleep};
    use std::time::Duration;
    use storage::store::{Change, CommitError, Commits, Committed, Counters, SideEffect, Store};
    use storage::{Ident, Key, Value, cancellation};

    const TREE: Ident = Ident(64);

    /// Starts as many commits as may run.
    fn occupy<C>(groups: &Groups<C>) -> Vec<Running<'_, C>> {
        let running = |_| match groups.admit(&[], || panic!("it waits")).unwrap() {
            Admission::Alone(Some(running)) => running,
            _ => panic!("all runners are busy"),
        };
        (0..RUNNING_MAX).map(running).collect()
    }

    /// Waits until the queue has this length.
    fn wait_for_queue<C>(groups: &Groups<C>, length: usize) {
        while groups.inner.lock().queue.len() != length {
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn queued_commits_form_a_group() {
        let groups = Groups::<u8>::default();
        let done = |number: u8| Done { time: Some(number.into()), incarnation: 1 };
        let run = |number: u8| match groups.admit(&[number.into()], || (number, 1)).unwrap() {
            Admission::Leads(running, commits) => {
                running.end(commits.into_iter().map(|number| Ok(Some(done(number)))).collect(), false)
            }
            Admission::Ended(result) => result,
            Admission::Alone(_) => Ok(None),
        };
        let mut running = occupy(&groups);
        scope(|scope| {
            let threads: Vec<_> = (1..=8).map(|number| (number, scope.spawn(move || run(number)))).collect();
            wait_for_queue(&groups, 8);
            assert!(run(3).unwrap().is_none(), "a commit waits for a queued commit of the same key");
            wait_for_queue(&groups, 7);
            groups.avoid(vec![10]);
            assert!(run(10).unwrap().is_none(), "a commit waits although its key is locked");
            let killed = cancellation::within(|| Some(1), || groups.admit(&[9], || (9, 1)));
            assert!(matches!(killed, Err(Failure::Interrupted(1))));
            running.pop();
            for (number, thread) in threads {
                let result = thread.join().unwrap().unwrap();
                assert_eq!(result, Some(done(number)).filter(|_| number != 3));
            }
        });
        drop(running);
        let inner = groups.inner.lock();
        assert!(inner.running == 0 && inner.keys.is_empty() && inner.queue.is_empty());
    }

    #[test]
    fn a_lost_thread_and_a_refusal_are_results() {
        let groups = Groups::<u8>::default();
        // The thread is lost, it fails, and the group is refused.
        for (ends, is_refused) in [(false, false), (true, false), (true, true)] {
            let run = |number: u8| match groups.admit(&[number.into()], || (number, 1)).unwrap() {
                Admission::Leads(running, commits) if ends => {
                    running.end(commits.iter().map(|_| Ok(None)).collect(), is_refused)
                }
                Admission::Leads(..) => Ok(None),
                Admission::Ended(result) => result,
                Admission::Alone(_) => panic!("it does not wait"),
            };
            let mut running = occupy(&groups);
            let results = scope(|scope| {
                let threads: Vec<_> = (1..=2).map(|number| scope.spawn(move || run(number))).collect();
                wait_for_queue(&groups, 2);
                running.pop();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let lost = results.iter().filter(|result| result.is_err()).count();
            assert_eq!(lost, usize::from(!ends), "{results:?}");
        }
        for _ in 0..ALONE_AFTER_REFUSAL {
            assert!(matches!(groups.admit(&[1], || (1, 1)), Ok(Admission::Alone(None))));
        }
        assert!(matches!(groups.admit(&[1], || (1, 1)), Ok(Admission::Alone(Some(_)))));
    }

    #[test]
    fn a_group_has_limits() {
        let (groups, commits) = (Groups::<usize>::default(), GROUP_MAX + 1);
        let queue = |bytes: &dyn Fn(usize) -> usize| {
            let mut inner = groups.inner.lock();
            inner.queue.extend((0..commits).map(|commit| {
                let waiter = Arc::new(Waiter { state: Mutex::new(State::Waiting), changed: Condvar::new() });
                Queued { commit, keys: Vec::new(), bytes: bytes(commit), waiter }
            }));
            let counts: Vec<usize> = std::iter::from_fn(|| Some(inner.take_group().len()))
                .take_while(|count| *count > 0)
                .collect();
            counts
        };
        assert_eq!(queue(&|_| 1), [GROUP_MAX, 1]);
        assert_eq!(queue(&|_| GROUP_BYTES_MAX / 32), [32, 32, 1]);
        assert_eq!(queue(&|commit| if commit == 1 { 2 * GROUP_BYTES_MAX } else { 0 }), [1, 1, commits - 2]);
    }

    #[test]
    fn commits_behind_a_row_lock_run_alone_for_some_time() {
        let groups = Groups::<u8>::default();
        let is_admitted = |key| match groups.admit(&[0, key], || panic!("it waits")).unwrap() {
            Admission::Alone(running) => running.is_some(),
            _ => panic!("it waits"),
        };
        groups.avoid((0..AVOIDED_MAX as u64).map(|key| key + 1).collect());
        // Further keys do not fit.
        groups.avoid(vec![5000]);
        assert!(!is_admitted(1) && !is_admitted(AVOIDED_MAX as u64) && is_admitted(5000));
        let expire = |is_expired: &dyn Fn(u64) -> bool| {
            let (mut inner, now) = (groups.inner.lock(), Instant::now());
            inner.avoided.iter_mut().filter(|(key, _)| is_expired(**key)).for_each(|(_, end)| *end = now);
        };
        expire(&|key| key == 1);
        assert!(is_admitted(1) && !is_admitted(2));
        // There is room for one key again.
        groups.avoid(vec![5000]);
        assert!(!is_admitted(5000) && !is_admitted(2));
        expire(&|_| true);
        groups.inner.lock().avoided_until = Some(Instant::now());
        assert!(is_admitted(2) && is_admitted(5000));
        assert!(groups.inner.lock().avoided.is_empty());
    }

    #[test]
    fn a_group_is_one_transaction_and_a_refusal_concerns_one_commit() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        for log in [None, Some(0)] {
            let schema = if log.is_none() { "grouped" } else { "grouped_unlogged" };
            let config = cluster.config().unwrap();
            let store = PostgresStore::open(config, schema, Limits::default(), log).unwrap();
            cluster.run(&[&format!("insert into {schema}.generations values (64, 1)")]).unwrap();
            let counts = store.counts(TREE, &mut |_| Ok(())).unwrap();
            let change = |number: u8, before: Option<&[u8]>, after: Option<&[u8]>| {
                let mut change = Change { log: vec![(0, Value::from(&[number][..]))], ..Change::default() };
                let key = Key::from([number]);
                change.expect.push(Expect::Generation { ident: TREE, generation: 1 });
                let value = before.map(Value::from);
                change.expect.push(Expect::Value { ident: TREE, key: key.clone(), value });
                match after {
                    Some(after) => change.batch.put(TREE, key, Value::from(after)),
                    None => change.batch.delete(TREE, key),
                }
                let counts = counts.clone();
                change.side_effects.push(SideEffect::Count { counts, records: 1, bytes: 10 });
                change
            };
            let commit_all = |changes: Vec<Change>| -> Vec<Result<Committed, CommitError>> {
                let mut running = occupy(&store.front.groups);
                scope(|scope| {
                    let commit = |mut change| store.commit(&mut change).unwrap();
                    let count = changes.len();
                    let threads: Vec<_> =
                        changes.into_iter().map(|change| scope.spawn(move || commit(change))).collect();
                    wait_for_queue(&store.front.groups, count);
                    running.pop();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                })
            };
            let before = store.round_trips();
            let inserted = commit_all((0..8).map(|number| change(number, None, Some(b"old"))).collect());
            assert_eq!(store.round_trips() - before, 1);
            assert!(inserted.iter().all(Result::is_ok));
            let logged = Statement::new("logged", format!("select count(*) from {schema}.log_order"));
            let rows = store.front.run(|conn| conn.query(&logged, &[])).unwrap();
            assert_eq!(rows[0].int(0), if log.is_none() { 8 } else { 0 });
            // The value of 3 is another one, and 8 is new.
            let mut changes: Vec<_> = (0..6)
                .map(|number| change(number, Some(if number == 3 { b"no" } else { b"old" }), Some(b"new")))
                .collect();
            changes.extend([change(6, Some(b"old"), None), change(8, None, Some(b"new"))]);
            let changed = commit_all(changes);
            for (number, result) in changed.iter().enumerate() {
                match number {
                    3 => assert_eq!(*result.as_ref().unwrap_err(), CommitError::Expectation(1)),
                    _ => assert!(result.is_ok(), "{number}: {result:?}"),
                }
            }
            let snapshot = store.engine().snapshot();
            let value = |number: u8| snapshot.get(TREE, &[number]).unwrap().map(|value| value.to_vec());
            assert_eq!(
                [0, 3, 6, 8].map(value),
                [Some(b"new".to_vec()), Some(b"old".to_vec()), None, Some(b"new".to_vec())]
            );
            store.refresh_counts(TREE, &counts).unwrap();
            assert_eq!(counts.records.load(std::sync::atomic::Ordering::Relaxed), 15);
        }
    }
}
