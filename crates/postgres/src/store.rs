//! The store: the operations of a document database over the functions of the schema.
//!
//! Includes the commit of multi-statement transactions with their write intents.

use crate::barrier::Barriers;
use crate::builds::Builds;
use crate::change::{Step, steps};
use crate::commit::{Attempt, SideEffectRows, failed, locked_by_another};
use crate::config::Config;
use crate::connection::{Param, Row};
use crate::engine::PostgresEngine;
use crate::exclusive::CatalogLock;
use crate::failure::PgResult;
use crate::front::{Front, Limits, Watchers};
use crate::incarnations::{incarnation_of, position};
use crate::keys::{index_key, stored_ident};
use crate::open_transactions::OpenTransactions;
use crate::session::end;
use crate::state::PostgresStore;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::store::{
    AcknowledgmentLevel, Build, Change, ChangeLog, CommitError, CommitResult, Commits, Counters, Counts,
    Exclusive, Expect, IndexBuilds, Intents, Member, ReadView, ReadViews, Replication, StandbyRead, Store,
    TransactionId, WriteConcernStatus, WriteIntent,
};
use storage::{Engine, Error, Ident, Position, Result, Room, Snapshot};

/// Pause before a retry after a lock conflict with an unknown owner.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of attempts of a refused commit whose expectations always hold on inspection.
const ATTEMPTS_MAX: usize = 64;

impl PostgresStore {
    /// Opens a store in a schema of a database, and creates the schema if it is missing.
    ///
    /// `log_bytes` is the size of the log; zero disables it, and `None` keeps the stored setting (one gigabyte by
    /// default). All processes that share the schema keep a log, or none does.
    ///
    /// Errors: `Unavailable` with the error text of the server.
    pub fn open(
        config: Config,
        schema: &str,
        limits: Limits,
        log_bytes: Option<u64>,
    ) -> Result<PostgresStore> {
        let front = Arc::new(Front::open(config, schema, limits, log_bytes).map_err(failed)?);
        let barriers = Arc::new(Barriers::new(&front));
        Ok(PostgresStore {
            engine: Arc::new(PostgresEngine::new(&front, &barriers)),
            barriers,
            front,
            counts: Mutex::default(),
            builds: Builds::default(),
            open_transactions: OpenTransactions::default(),
            owners: AtomicU64::new(1),
            position: AtomicU64::new(0),
            frozen: AtomicU64::new(0),
        })
    }

    /// Returns the number of round trips to the server since the store was opened.
    pub fn round_trips(&self) -> u64 {
        self.front.round_trips.load(Ordering::Relaxed)
    }
}

impl Store for PostgresStore {
    fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }
}

impl ReadViews for PostgresStore {
    fn read_view(&self) -> ReadView {
        let generation = self.front.known.load(Ordering::Acquire);
        ReadView { snapshot: Arc::new(self.front.snapshot_of(Some(generation))), generation }
    }

    fn generation(&self) -> u64 {
        self.front.latest_generation().unwrap_or_else(|failure| {
            log::warn!("PostgreSQL does not report whether the catalog has changed: {failure:?}");
            self.front.known.load(Ordering::Acquire)
        })
    }

    fn known_generation(&self) -> Option<u64> {
        Some(self.front.known.load(Ordering::Acquire))
    }

    fn read_view_with_time(&self, earliest: u64) -> (ReadView, u64) {
        let time = self.front.time(earliest);
        let snapshot = self.front.snapshot();
        // If the generation cannot be read, the next read reports the error.
        let generation = snapshot.session.generation().unwrap_or_default();
        (ReadView { snapshot: Arc::new(snapshot), generation }, time)
    }

    fn standby_read_view(&self, request: StandbyRead) -> Result<Option<ReadView>> {
        self.front.standby_read_view(request).map_err(failed)
    }
}

impl Commits for PostgresStore {
    fn commit(&self, change: &mut Change) -> Result<CommitResult> {
        debug_assert!(change.stamped.is_empty(), "the time of a commit is not known before it ends");
        if self.frozen() > 0 {
            return Ok(Err(CommitError::Frozen));
        }
        let planned_in = Some(self.front.confirmed_incarnation.load(Ordering::Acquire));
        self.builds.report_failures(&self.front).map_err(failed)?;
        let mut side_effect_rows = self.side_effect_rows(&change.side_effects);
        side_effect_rows.extras.planned_in = planned_in.filter(|_| !change.expect.is_empty());
        if let Some(owner) = change.owner {
            return self.commit_transaction(owner, change, side_effect_rows);
        }
        for attempt in 0..ATTEMPTS_MAX {
            let entry = self.front.entry(change);
            let attempt = self.front.commit_change(
                change.batch.clone(),
                (&change.expect, &side_effect_rows),
                entry.as_ref(),
                attempt == 0,
            );
            match attempt.map_err(failed)? {
                Attempt::Done(done) => return Ok(Ok(self.committed(change, done))),
                Attempt::Undone if self.front.is_outdated(&side_effect_rows.extras) => {
                    return Ok(Err(CommitError::Changed));
                }
                Attempt::Undone => {}
                Attempt::Locked => return Ok(Err(locked_by_another())),
                // Nothing is in the way any more: retry.
                Attempt::Refused => {
                    if let Some(refusal) = self.front.refusal(change)? {
                        if let CommitError::Expectation(number) = refusal
                            && matches!(change.expect.get(number), Some(Expect::Generation { .. }))
                        {
                            self.front.latest_generation().map_err(failed)?;
                        }
                        return Ok(Err(refusal));
                    }
                }
            }
        }
        Err(Error::WriteConflict)
    }

    fn lock<'a>(
        &'a self,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Box<dyn Exclusive + 'a>>> {
        while self.frozen() > 0 {
            if !should_continue() {
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
        let lock = CatalogLock::take(self, should_continue).map_err(failed)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn Exclusive + 'a>))
    }

    fn room(&self) -> Result<Room> {
        Ok(if self.frozen() > 0 { Room::Frozen } else { Room::Free })
    }

    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> Result<()> {
        while self.frozen() > 0 && should_continue() {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn clears_in_constant_time(&self) -> bool {
        false
    }

    fn freeze(&self) -> u64 {
        self.frozen.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn thaw(&self) -> Option<u64> {
        let thawed =
            self.frozen.fetch_update(Ordering::AcqRel, Ordering::Acquire, |times| times.checked_sub(1));
        thawed.ok().map(|before| before - 1)
    }

    fn frozen(&self) -> u64 {
        self.frozen.load(Ordering::Acquire)
    }
}

impl Intents for PostgresStore {
    fn begin(&self, earliest: u64) -> (TransactionId, ReadView, u64) {
        let owner = TransactionId(self.owners.fetch_add(1, Ordering::Relaxed));
        let time = self.front.time(earliest);
        (owner, self.open_transactions.begin(&self.front, owner), time)
    }

    fn acquire_intents(
        &self,
        owner: TransactionId,
        keys: &[WriteIntent],
        generations: &[(Ident, u64)],
        read_view: &dyn Snapshot,
    ) -> Result<std::result::Result<(), CommitError>> {
        self.open_transactions.acquire_intents(&self.front, owner, keys, generations, read_view)
    }

    fn release(&self, owner: TransactionId) {
        self.open_transactions.release(owner);
    }

    fn wait_released(&self, _: TransactionId, should_continue: &mut dyn FnMut() -> bool) {
        // The owner of the lock is unknown: retry after a pause.
        if should_continue() {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Replication for PostgresStore {
    fn latest_position(&self) -> Position {
        position(self.front.incarnations().current(), self.position.load(Ordering::Acquire))
    }

    fn time(&self, earliest: u64) -> u64 {
        self.front.time(earliest)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.engine.wait_journaled(position)
    }

    fn wait_acknowledged(
        &self,
        position: Position,
        by: AcknowledgmentLevel,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<WriteConcernStatus> {
        let (front, barriers, incarnation) = (&self.front, &self.barriers, incarnation_of(position));
        let waited = match by {
            AcknowledgmentLevel::Journal => barriers.wait_local(incarnation, should_continue),
            AcknowledgmentLevel::Majority => barriers.wait_standbys(front, incarnation, should_continue),
            AcknowledgmentLevel::Members(members) => {
                barriers.wait_members(front, (incarnation, members), should_continue)
            }
        };
        waited.map_err(failed)
    }

    fn members(&self) -> Result<usize> {
        let rows = self.front.run(|conn| conn.query(&self.front.statements.members, &[])).map_err(failed)?;
        Ok(rows.first().map_or(1, |row| row.int(0) as usize))
    }

    fn list_members(&self) -> Result<Vec<Member>> {
        let rows =
            self.front.run(|conn| conn.query(&self.front.statements.list_members, &[])).map_err(failed)?;
        let text = |row: &Row, at| String::from_utf8_lossy(row.bytes(at).unwrap_or_default()).to_string();
        let member = |row: &Row| Member {
            name: text(row, 0),
            is_primary: row.int(1) != 0,
            state: text(row, 2),
            counts_as: text(row, 3),
            on_disk: row.int(4) as u64,
            applied: row.int(5) as u64,
            lag_micros: row.bytes(6).map(|_| row.int(6)),
        };
        Ok(rows.iter().map(member).collect())
    }
}

impl Counters for PostgresStore {
    fn new_ident(&self) -> Ident {
        // An unusable number: a change that uses it fails with the server's error.
        self.front.new_ident().unwrap_or_else(|failure| {
            log::error!("PostgreSQL returned no number for a new tree: {failure:?}");
            Ident(u64::MAX - 1)
        })
    }

    fn new_record(&self, _: &Counts) -> u64 {
        self.front.new_record()
    }

    fn greatest_record(&self, _: &Counts) -> u64 {
        i64::MAX as u64
    }

    fn counts(&self, ident: Ident, _: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>> {
        if let Some(counts) = self.counts.lock().get(ident) {
            return Ok(counts.clone());
        }
        let counts = Arc::new(Counts::default());
        self.refresh_counts(ident, &counts)?;
        let mut known = self.counts.lock();
        known.tidy();
        Ok(known.or_insert(ident, counts).clone())
    }

    fn prefetch_counts(&self, idents: &[Ident], snapshot: &dyn Snapshot) -> Result<()> {
        let unknown: Vec<Ident> = {
            let mut known = self.counts.lock();
            known.tidy();
            idents.iter().copied().filter(|ident| known.get(*ident).is_none()).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        // Without a primary, the snapshot is a standby's.
        let Some(remote) = snapshot.remote() else { return Ok(()) };
        let counts = remote.counts(&unknown)?;
        let mut known = self.counts.lock();
        for (ident, records, bytes) in counts {
            let counts = known.or_insert(ident, Arc::default());
            counts.records.store(records, Ordering::Relaxed);
            counts.bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    fn refresh_counts(&self, ident: Ident, counts: &Counts) -> Result<()> {
        let read = self
            .front
            .run(|conn| conn.query(&self.front.statements.counts, &[Param::Int(stored_ident(ident))]));
        let rows = read.map_err(Error::from)?;
        let (records, bytes) = rows.first().map_or((0, 0), |row| (row.int(0), row.int(1)));
        counts.records.store(records, Ordering::Relaxed);
        counts.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl IndexBuilds for PostgresStore {
    fn build(&self, ident: Ident) -> Option<Arc<Build>> {
        self.builds.get(&self.front, ident)
    }

    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build> {
        self.builds.begin(&self.front, ident, greatest)
    }

    fn end_build(&self, ident: Ident) {
        self.builds.end(&self.front, ident);
    }
}

impl ChangeLog for PostgresStore {
    fn log_read_view(&self, earliest: u64) -> (ReadView, u64) {
        let end = self.front.times.durable();
        let (read_view, now) = self.read_view_with_time(earliest);
        (read_view, if self.front.times.has_log() { end } else { now })
    }

    fn log_end(&self) -> Option<u64> {
        self.front.times.has_log().then(|| self.front.times.durable())
    }

    fn log_now(&self, earliest: u64) -> Result<u64> {
        match self.front.times.has_log() {
            true => self.front.tick(earliest).map_err(failed),
            false => Ok(self.front.time(earliest)),
        }
    }

    fn follow_log(
        &self,
        has_watchers: Arc<dyn Fn() -> bool + Send + Sync>,
        grown: Arc<dyn Fn() + Send + Sync>,
    ) {
        if self.front.times.has_log() {
            let watchers = Watchers { any: has_watchers, wake: grown };
            self.front.follower.start(&self.front, &self.barriers, watchers);
        }
    }

    fn log_begin(&self) -> Result<Option<u64>> {
        match self.front.times.has_log() {
            true => self.front.log_first().map_err(failed),
            false => Ok(None),
        }
    }

    fn log_limit(&self) -> Option<u64> {
        Some(self.front.times.limit.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    fn log_bytes(&self) -> Option<u64> {
        self.front.times.has_log().then(|| self.front.times.log_size.load(Ordering::Relaxed))
    }
}

impl PostgresStore {
    /// Commits a transaction together with its write intents.
    pub(crate) fn commit_transaction(
        &self,
        owner: TransactionId,
        change: &Change,
        mut side_effect_rows: SideEffectRows,
    ) -> Result<CommitResult> {
        let Some(open) = self.open_transactions.get(owner) else {
            return Ok(Err(CommitError::Changed));
        };
        // The server refuses to update a row that a commit has changed since the transaction's snapshot.
        side_effect_rows.extras.slot = self.front.new_record() as i64;
        let committed = open.session.with(|conn| {
            let front = &self.front;
            let intents = open.intents.lock();
            let mut applied: PgResult<()> = conn.call(&front.statements.wait_longer, &[]);
            let mut written = HashSet::new();
            let steps = steps(change.batch.clone());
            for step in &steps {
                if let Step::Writes(writes) = step {
                    written
                        .extend(writes.iter().filter(|(_, value)| value.is_some()).map(|(at, _)| at.clone()));
                }
            }
            applied = applied.and_then(|()| front.apply_steps(conn, steps, &[], &side_effect_rows, true));
            let remaining: Vec<_> = intents.keys.iter().filter(|at| !written.contains(*at)).collect();
            if !remaining.is_empty() && applied.is_ok() {
                let idents: Vec<i64> = remaining.iter().map(|(tree, _)| stored_ident(*tree)).collect();
                let keys: Vec<_> = remaining.iter().map(|(_, key)| index_key(key)).collect();
                let keys: Vec<Option<&[u8]>> = keys.iter().map(|key| Some(&**key)).collect();
                applied = conn
                    .query(&front.statements.unclaimed, &[Param::Ints(&idents), Param::Many(&keys)])
                    .map(drop);
            }
            let finished = front.finish(conn, applied, front.entry(change).as_ref());
            if finished.is_err() {
                end(conn, &front.statements.rollback);
            }
            finished
        });
        match committed {
            None => Ok(Err(CommitError::Changed)),
            Some(Err(failure)) => Err(failed(failure)),
            Some(Ok(Attempt::Done(done))) => {
                self.front.transaction_counts.lock().extend(side_effect_rows.extras.counts.keys());
                Ok(Ok(self.committed(change, done)))
            }
            // A retry is impossible: its locks are released.
            Some(Ok(Attempt::Undone)) => Err(Error::WriteConflict),
            Some(Ok(_)) => Ok(Err(locked_by_another())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::{Limits, merge_counts};
    use crate::testing::Cluster;
    use storage::store::SideEffect;
    use storage::{Direction, Range, Value};

    #[test]
    fn a_scan_continues_behind_long_keys() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let config = cluster.config().unwrap();
        let store = PostgresStore::open(config, "long", Limits::default(), None).unwrap();
        let (tree, mut batch) = (store.new_ident(), storage::Batch::new());
        batch.create(tree);
        let mut keys = Vec::new();
        for (byte, last) in [(1, 1), (1, 2), (2, 1), (2, 2), (255, 1)] {
            keys.extend([vec![byte; 5], [&[byte; 3000][..], &[last][..]].concat()]);
        }
        keys.sort();
        keys.dedup();
        keys.iter().for_each(|key| batch.put(tree, &key[..], Value::from(&b""[..])));
        store.engine().commit(batch).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let snapshot = store.engine().snapshot();
            let mut entries = snapshot.scan(tree, Range::all(), direction).unwrap();
            let mut found = Vec::new();
            while let Some((key, _)) = entries.next().unwrap() {
                found.push(key.to_vec());
                assert!(found.len() <= keys.len(), "the scan repeats keys");
            }
            assert!(found == keys, "{direction:?}");
            keys.reverse();
        }
    }

    #[test]
    fn the_store_keeps_the_contract() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        for (schema, log) in [("contract", None), ("contract_without_log", Some(0))] {
            let config = cluster.config().unwrap();
            let store = PostgresStore::open(config, schema, Limits::default(), log).unwrap();
            storage::testing::check_store(&store);
        }
    }

    #[test]
    fn a_transaction_has_its_own_row_of_a_count_until_rows_are_merged() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let config = cluster.config().unwrap();
        let store = PostgresStore::open(config, "counted", Limits::default(), None).unwrap();
        let tree = Ident(64);
        let counts = store.counts(tree, &mut |_| Ok(())).unwrap();
        let commit = |owner| {
            let counts = counts.clone();
            let side_effects = [SideEffect::Count { counts, records: 1, bytes: 10 }].into_iter().collect();
            store.commit(&mut Change { owner, side_effects, ..Change::default() }).unwrap()
        };
        let rows = || cluster.run(&["select count(*) from counted.counts"]).unwrap();
        let front = &store.front;
        for round in 1..3 {
            let owners = [0; 3].map(|_| store.begin(0).0);
            // Each row of the count changes.
            (0..8).for_each(|_| _ = commit(None).unwrap());
            owners.iter().for_each(|owner| _ = commit(Some(*owner)).unwrap());
            owners.iter().for_each(|owner| store.release(*owner));
            // The lease thread may have merged some rows already.
            let merged = || merge_counts(&front.transaction_counts, &front.statements, &front.background);
            while rows() != Some(9) {
                merged();
            }
            store.refresh_counts(tree, &counts).unwrap();
            assert_eq!(counts.records.load(Ordering::Relaxed), 11 * round);
            assert_eq!(counts.bytes.load(Ordering::Relaxed), 110 * round);
        }
        cluster.run(&["insert into counted.trees values (64)"]).unwrap();
        let mut fork = Change::default();
        fork.batch.fork(tree, Ident(65));
        store.commit(&mut fork).unwrap().unwrap();
        assert_eq!(rows(), Some(10));
    }
}
