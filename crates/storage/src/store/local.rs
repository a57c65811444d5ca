//! The store of one process: an engine, and the lock under which commits are checked and applied.

use super::log::{Log, LogOptions, first_time};
use super::recent::{RecentWrites, WriteIntents};
use super::{
    Build, Change, ChangeLog, CommitError, CommitResult, Commits, Committed, Counters, Counts, Exclusive,
    Expect, IndexBuilds, Intents, ReadView, ReadViews, Replication, SideEffect, Store, TransactionId,
    WriteIntent,
};
use crate::cpu_slice::{self, CpuSlice};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLock};
use crate::{
    Durability, Engine, EventCount, Ident, Position, Result, Room, Snapshot, Value, mark, mutant, time,
};
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Returns the limit of a commit's CPU time under the lock.
fn max_time_under_lock(operations: usize) -> Duration {
    cpu_slice::UNDER_COMMIT_LOCK + cpu_slice::PER_OPERATION * u32::try_from(operations).unwrap_or(u32::MAX)
}

/// An engine that only this process uses.
pub struct Local {
    engine: Arc<dyn Engine>,
    /// The commit lock, and the state that only its holder changes.
    writer: Mutex<Writer>,
    /// Number of catalog changes. Locked for writing while a catalog change is applied, so that the
    /// parts of a view match.
    generation: RwLock<u64>,
    time: AtomicU64,
    position: AtomicU64,
    log_steps: AtomicU64,
    /// Number of locks by [`freeze`](Self::freeze) that delay commits.
    frozen: AtomicU64,
    /// Counts releases of write intents and of locks.
    releases: EventCount,
    next_ident: AtomicU64,
    next_owner: AtomicU64,
    pub(super) counts: Mutex<HashMap<Ident, Arc<Counts>>>,
    builds: Mutex<HashMap<Ident, Arc<Build>>>,
}

#[derive(Default)]
struct Writer {
    intents: WriteIntents,
    recent: RecentWrites,
    /// Generation of the latest catalog change of each collection, by tree.
    generations: HashMap<Ident, u64, foldhash::fast::RandomState>,
    log: Option<Log>,
    /// Commits whose log entries may not survive a crash, by position and time.
    unsynced: VecDeque<(Position, u64)>,
    /// Time of the latest log entry that would survive a crash.
    synced_time: u64,
}

/// The commit lock of a [`Local`].
struct CommitGuard<'a> {
    local: &'a Local,
    writer: MutexGuard<'a, Writer>,
    slice: CpuSlice,
}

impl Local {
    /// Returns a store over an engine, with or without a log. A log that is no longer written is
    /// removed, because it would be incomplete.
    ///
    /// Errors: storage errors.
    pub fn new(engine: Arc<dyn Engine>, log: Option<LogOptions>) -> Result<Local> {
        let log = match log {
            Some(options) => Some(Log::open(engine.as_ref(), options)?),
            None => {
                Log::remove(engine.as_ref())?;
                None
            }
        };
        Ok(Local {
            writer: Mutex::new(Writer { log, synced_time: engine.latest_time(), ..Writer::default() }),
            generation: RwLock::new(0),
            time: AtomicU64::new(engine.latest_time()),
            position: AtomicU64::new(0),
            log_steps: AtomicU64::new(0),
            frozen: AtomicU64::new(0),
            releases: EventCount::default(),
            next_ident: AtomicU64::new(1),
            next_owner: AtomicU64::new(1),
            counts: Mutex::default(),
            builds: Mutex::default(),
            engine,
        })
    }

    /// Waits until `is_over` returns true, or `should_continue` returns false.
    fn wait_until(&self, is_over: &dyn Fn() -> bool, should_continue: &mut dyn FnMut() -> bool) {
        loop {
            let next = self.releases.read() + 1;
            // No other thread of a simulation can end the wait.
            if is_over() || !should_continue() || time::is_simulated() {
                return;
            }
            self.releases.wait_briefly(next);
        }
    }

    /// Returns the first condition that prevents a change.
    fn refusal(&self, writer: &Writer, change: &Change) -> Result<Option<CommitError>> {
        if !mutant!("write intents are ignored")
            && let Some(owner) = writer.intents.conflicting_transaction(&change.batch, change.owner)
        {
            mark!("a commit meets a write intent");
            return Ok(Some(CommitError::IntentConflict(owner)));
        }
        for side_effect in &change.side_effects {
            if let SideEffect::Generation(ident, _) = side_effect
                && !mutant!("collections change under transactions")
                && let Some(owner) = writer.intents.transaction_relying_on(*ident, change.owner)
            {
                mark!("a catalog change meets a transaction");
                return Ok(Some(CommitError::IntentConflict(owner)));
            }
        }
        if change.expect.is_empty() {
            return Ok(None);
        }
        let snapshot = self.engine.snapshot();
        for (number, expect) in change.expect.iter().enumerate() {
            if let Expect::NoneUnder { ident, prefix } = expect
                && !mutant!("write intents on key strings are ignored")
                && let Some(owner) = writer.intents.holder((*ident, prefix))
                && Some(owner) != change.owner
            {
                mark!("a prepared unique key meets a write intent");
                return Ok(Some(CommitError::IntentConflict(owner)));
            }
            let holds = match expect {
                Expect::Generation { .. } if mutant!("generations are not checked") => true,
                Expect::Value { value: Some(_), .. } if mutant!("documents are not checked") => true,
                Expect::Generation { ident, generation } => writer.generations.get(ident) == Some(generation),
                expect => expect.holds(snapshot.as_ref())?,
            };
            if !holds {
                mark!("a commit meets a newer commit");
                return Ok(Some(CommitError::Expectation(number)));
            }
        }
        Ok(None)
    }

    /// Removes the commits that would now survive a crash.
    fn note_synced(&self, writer: &mut Writer) {
        let durable = self.engine.durable();
        while let Some((_, time)) = writer.unsynced.front().copied().filter(|(at, _)| *at <= durable) {
            debug_assert!(time >= writer.synced_time, "the end of the synced log goes back");
            writer.synced_time = time;
            writer.unsynced.pop_front();
        }
    }

    /// Applies a change whose conditions hold.
    fn apply(&self, writer: &mut Writer, change: &mut Change) -> Result<Committed> {
        let Change { batch, stamped, side_effects, log, ticks, earliest, owner, .. } = change;
        let (mut batch, earliest, ticks) = (mem::take(batch), *earliest, *ticks);
        let step = u64::from(!mutant!("commit times are assigned twice"));
        // Taken before the commit, so that a time requested from now on is later.
        let after = |latest: u64| (latest + step).max(earliest) + u64::from(ticks.saturating_sub(1));
        let previous =
            self.time.fetch_update(Ordering::AcqRel, Ordering::Acquire, |latest| Some(after(latest)));
        let time = after(previous.unwrap_or_else(|latest| latest));
        debug_assert!(time >= earliest && time >= u64::from(ticks), "{ticks} ticks up to {time}");
        for (ident, key, value) in stamped.drain(..) {
            batch.put(ident, key, Value::from([&value[..], &time.to_le_bytes()].concat()));
        }
        let logged = match &writer.log {
            Some(present) if !log.is_empty() => Some(present.extend(&mut batch, time, mem::take(log))),
            _ => None,
        };
        batch.set_time(time);
        let changed_keys = writer.recent.changed_keys(&batch);
        #[cfg(feature = "mutants")]
        {
            if mutant!("half of a batch is applied") {
                let (first, second) = crate::mutants::halves(&batch);
                self.engine.commit(first)?;
                batch = second;
            }
        }
        let position = self.engine.commit(batch)?;
        debug_assert!(position > self.latest_position(), "commits are out of order");
        debug_assert!(self.engine.latest_time() >= time, "a restart would give the time {time} again");
        writer.recent.note(changed_keys, time);
        if let (Some(extension), Some(present)) = (logged, &mut writer.log) {
            present.note(extension);
            self.log_steps.store(present.steps(), Ordering::Relaxed);
            // Without automatic syncs, the majority does not wait for a sync either.
            if self.engine.has_journal() && self.engine.durability() != Durability::None {
                self.note_synced(writer);
                let last = writer.unsynced.back().copied().unwrap_or((Position(0), writer.synced_time));
                debug_assert!(last.0 < position && last.1 <= time, "{last:?} before {position:?} at {time}");
                writer.unsynced.push_back((position, time));
            }
        }
        let mut dropped = Vec::new();
        for side_effect in side_effects.drain(..) {
            match side_effect {
                SideEffect::Count { .. }
                    if mutant!("counts of transactions are forgotten") && owner.is_some() => {}
                SideEffect::Mark(..) if mutant!("changed records are not marked") => {}
                SideEffect::Count { counts, records, bytes } => {
                    let before = counts.records.fetch_add(records, Ordering::Relaxed);
                    debug_assert!(before + records >= 0, "{before} documents and {records}");
                    let before = counts.bytes.fetch_add(bytes, Ordering::Relaxed);
                    debug_assert!(before + bytes >= 0, "{before} bytes and {bytes}");
                }
                SideEffect::Mark(build, record) => build.changed.add(record),
                SideEffect::MarkAll(build) => build.changed.fill(),
                SideEffect::Generation(ident, Some(generation)) => {
                    let before = writer.generations.insert(ident, generation);
                    debug_assert!(
                        before.is_none_or(|before| before <= generation),
                        "a collection goes back from {before:?} to {generation}"
                    );
                }
                SideEffect::Generation(ident, None) => {
                    writer.generations.remove(&ident);
                    dropped.push(ident);
                }
            }
        }
        // A renamed collection exists under its new name.
        dropped.retain(|ident| !writer.generations.contains_key(ident));
        if !dropped.is_empty() {
            let mut counts = self.counts.lock();
            dropped.iter().for_each(|ident| _ = counts.remove(ident));
        }
        if mutant!("a later known time is forgotten") {
            self.time.store(time, Ordering::Release);
        }
        self.position.fetch_max(position.0, Ordering::AcqRel);
        Ok(Committed { position, cluster_time: time })
    }
}

impl Exclusive for CommitGuard<'_> {
    fn read_view(&self) -> ReadView {
        self.local.read_view()
    }

    fn transaction_relying_on(&self, ident: Ident, except: Option<TransactionId>) -> Option<TransactionId> {
        self.writer.intents.transaction_relying_on(ident, except)
    }

    fn set_generation(&mut self, ident: Option<Ident>, generation: u64) {
        if let Some(ident) = ident {
            self.writer.generations.insert(ident, generation);
        }
        let mut latest = self.local.generation.write();
        *latest = generation.max(*latest);
    }

    fn reserve(&mut self, next: Ident) {
        self.local.next_ident.fetch_max(next.0, Ordering::Relaxed);
    }

    fn commit(
        mut self: Box<Self>,
        mut change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<CommitResult> {
        if let Some(refusal) = self.local.refusal(&self.writer, &change)? {
            return Ok(Err(refusal));
        }
        let limit = max_time_under_lock(change.batch.len() + change.expect.len());
        let committed = if changes_catalog {
            let mut generation = self.local.generation.write();
            debug_assert!(is_made_for(&change, *generation + 1), "the change is of another generation");
            let committed = self.local.apply(&mut self.writer, &mut change)?;
            *generation += 1;
            applied(*generation);
            committed
        } else {
            let committed = self.local.apply(&mut self.writer, &mut change)?;
            applied(*self.local.generation.read());
            committed
        };
        self.slice.assert_within(limit, "under the commit lock, for a change of the catalog");
        Ok(Ok(committed))
    }
}

/// Returns true if a change of the catalog sets no later generation than the one that it makes.
fn is_made_for(change: &Change, generation: u64) -> bool {
    change.side_effects.iter().all(|side_effect| match side_effect {
        SideEffect::Generation(_, Some(set)) => *set <= generation,
        _ => true,
    })
}

impl Store for Local {
    fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }
}

impl ReadViews for Local {
    fn read_view(&self) -> ReadView {
        let generation = self.generation.read();
        ReadView { snapshot: self.engine.snapshot(), generation: *generation }
    }

    fn generation(&self) -> u64 {
        *self.generation.read()
    }

    fn read_view_with_time(&self, earliest: u64) -> (ReadView, u64) {
        let _writer = self.writer.lock();
        (self.read_view(), self.time(earliest))
    }
}

impl Commits for Local {
    fn commit(&self, change: &mut Change) -> Result<CommitResult> {
        let operations = change.batch.len() + change.expect.len();
        let mut writer = self.writer.lock();
        let slice = CpuSlice::begin();
        if self.frozen() > 0 && !mutant!("commits go on while they are held up") {
            mark!("a commit meets locked writes");
            return Ok(Err(CommitError::Frozen));
        }
        let outcome = match self.refusal(&writer, change)? {
            Some(refusal) => Err(refusal),
            None => Ok(self.apply(&mut writer, change)?),
        };
        slice.assert_within(max_time_under_lock(operations), "under the commit lock");
        Ok(outcome)
    }

    fn lock<'a>(
        &'a self,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Box<dyn Exclusive + 'a>>> {
        loop {
            self.wait_until(&|| self.frozen() == 0, should_continue);
            let writer = self.writer.lock();
            if self.frozen() == 0 {
                return Ok(Some(Box::new(CommitGuard { local: self, writer, slice: CpuSlice::begin() })));
            }
            drop(writer);
            if !should_continue() {
                return Ok(None);
            }
        }
    }

    fn room(&self) -> Result<Room> {
        match self.frozen() {
            0 => self.engine.room(),
            _ => Ok(Room::Frozen),
        }
    }

    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> Result<()> {
        if self.frozen() > 0 {
            self.wait_until(&|| self.frozen() == 0, should_continue);
        }
        self.engine.wait_for_space(should_continue)
    }

    fn freeze(&self) -> u64 {
        let _writer = self.writer.lock();
        self.frozen.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn thaw(&self) -> Option<u64> {
        let writer = self.writer.lock();
        let left = self.frozen().checked_sub(1)?;
        self.frozen.store(left, Ordering::Release);
        drop(writer);
        self.releases.advance();
        Some(left)
    }

    fn frozen(&self) -> u64 {
        self.frozen.load(Ordering::Acquire)
    }
}

impl Intents for Local {
    fn begin(&self, earliest: u64) -> (TransactionId, ReadView, u64) {
        let owner = TransactionId(self.next_owner.fetch_add(1, Ordering::Relaxed));
        let mut writer = self.writer.lock();
        debug_assert!(!writer.intents.has(owner), "{owner:?} began before");
        let time = self.time(earliest);
        writer.recent.begin(owner, time);
        if mutant!("transactions get the time of another state") {
            return (owner, self.read_view(), time - 1);
        }
        (owner, self.read_view(), time)
    }

    fn acquire_intents(
        &self,
        owner: TransactionId,
        keys: &[WriteIntent],
        collections: &[(Ident, u64)],
        read_view: &dyn Snapshot,
    ) -> Result<std::result::Result<(), CommitError>> {
        let mut writer = self.writer.lock();
        for (number, (ident, generation)) in collections.iter().enumerate() {
            if mutant!("transactions overlook changed collections") {
                break;
            }
            if writer.generations.get(ident) != Some(generation) {
                mark!("a transaction meets a changed collection");
                return Ok(Err(CommitError::Expectation(number)));
            }
        }
        let snapshot = self.engine.snapshot();
        for key in keys {
            match writer.intents.holder(key.tree_and_key()) {
                Some(holder) if holder == owner => continue,
                Some(_) if mutant!("transactions steal each other's write intents") => {}
                Some(holder) => {
                    mark!("a transaction meets a write intent");
                    return Ok(Err(CommitError::IntentConflict(holder)));
                }
                None => {}
            }
            if mutant!("write intents are not compared with the read view") {
                continue;
            }
            let (was_there, is_same) = key.compare(read_view, snapshot.as_ref())?;
            if mutant!("values that return count as unchanged") && is_same {
                continue;
            }
            if !is_same || writer.recent.has_changed(owner, key, was_there) {
                mark!("a transaction meets a newer commit");
                if is_same {
                    mark!("a transaction meets a value that has returned");
                }
                return Ok(Err(CommitError::Changed));
            }
        }
        keys.iter().for_each(|key| writer.intents.acquire(owner, key));
        collections.iter().for_each(|(ident, _)| writer.intents.rely_on(owner, *ident));
        debug_assert!(
            keys.iter().all(|key| writer.intents.holder(key.tree_and_key()) == Some(owner)),
            "an intent is missing"
        );
        Ok(Ok(()))
    }

    fn release(&self, owner: TransactionId) {
        if mutant!("write intents are never released") {
            return;
        }
        let mut writer = self.writer.lock();
        writer.intents.release(owner);
        let forgotten = writer.recent.end(owner);
        debug_assert!(!writer.intents.has(owner), "intents of {owner:?} stay");
        drop(writer);
        drop(forgotten);
        if !mutant!("released write intents wake no waiter") {
            self.releases.advance();
        }
    }

    fn wait_released(&self, owner: TransactionId, should_continue: &mut dyn FnMut() -> bool) {
        self.wait_until(&|| !self.writer.lock().intents.has(owner), should_continue);
    }

    fn has_released(&self, owner: TransactionId, waker: &Waker) -> Option<bool> {
        loop {
            let next = self.releases.read() + 1;
            if !self.writer.lock().intents.has(owner) {
                return Some(true);
            }
            if !self.releases.has_reached(next, waker) {
                return Some(false);
            }
        }
    }
}

impl Replication for Local {
    fn latest_position(&self) -> Position {
        Position(self.position.load(Ordering::Acquire))
    }

    /// A commit takes its time before a snapshot contains it, and records its position afterwards,
    /// both under the lock.
    fn visible_position(&self) -> Position {
        if mutant!("majority reads do not wait for the journal") {
            return self.engine.durable();
        }
        let _writer = self.writer.lock();
        self.latest_position()
    }

    fn time(&self, earliest: u64) -> u64 {
        self.time.fetch_max(earliest, Ordering::AcqRel).max(earliest)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        if mutant!("commits are acknowledged before the journal has them") {
            return Ok(());
        }
        self.engine.wait_journaled(position)
    }
}

impl Counters for Local {
    fn new_ident(&self) -> Ident {
        Ident(self.next_ident.fetch_add(1, Ordering::Relaxed))
    }

    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>> {
        let mut all = self.counts.lock();
        if let Some(counts) = all.get(&ident) {
            return Ok(counts.clone());
        }
        if all.len() == all.capacity() {
            // Counts without another owner belong to collections that were never committed.
            all.retain(|_, known| Arc::strong_count(known) > 1);
            let kept = all.len();
            all.reserve(kept);
        }
        let counts = Arc::new(Counts::default());
        read(&counts)?;
        all.insert(ident, counts.clone());
        Ok(counts)
    }
}

impl IndexBuilds for Local {
    fn build(&self, ident: Ident) -> Option<Arc<Build>> {
        self.builds.lock().get(&ident).cloned()
    }

    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build> {
        let build = Arc::new(Build::new(greatest));
        let before = self.builds.lock().insert(ident, build.clone());
        debug_assert!(before.is_none(), "two builds in {ident:?}");
        build
    }

    fn end_build(&self, ident: Ident) {
        self.builds.lock().remove(&ident);
    }
}

impl ChangeLog for Local {
    fn log_read_view(&self, earliest: u64) -> (ReadView, u64) {
        let mut writer = self.writer.lock();
        self.note_synced(&mut writer);
        let is_durable = writer.unsynced.is_empty() || mutant!("the log shows commits that are not durable");
        let end = match is_durable {
            true => self.time(earliest),
            false => writer.synced_time,
        };
        debug_assert!(end <= self.time(0), "the log ends in the future");
        (self.read_view(), end)
    }

    fn log_begin(&self) -> Result<Option<u64>> {
        first_time(&self.engine.snapshot())
    }

    fn log_limit(&self) -> Option<u64> {
        self.writer.lock().log.as_ref().map(Log::limit)
    }

    fn set_log_limit(&self, bytes: u64) -> bool {
        let mut writer = self.writer.lock();
        writer.log.as_mut().map(|log| log.set_limit(bytes)).is_some()
    }

    fn log_steps(&self) -> u64 {
        self.log_steps.load(Ordering::Relaxed)
    }

    fn log_bytes(&self) -> Option<u64> {
        self.writer.lock().log.as_ref().map(Log::bytes)
    }
}
