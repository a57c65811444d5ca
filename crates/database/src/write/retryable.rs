//! Records of retryable writes: the answer of a statement, stored with its changes.
//!
//! A driver whose connection broke sends its write again with the same session and number. The engine's batch has both
//! the record and the change, so after a crash either both exist or neither. A repeated write is answered from the
//! record and does not run twice. An in-memory engine needs no records, because the server has the answers in memory.
//!
//! Each session and statement number has one record, which the session's next write replaces. The size of their tree
//! therefore depends on the number of sessions, not of writes. [`Database::reap_retries`] removes the records of ended
//! sessions.
//!
//! Several processes may share a store, and a client may send a write again to another process. The records of a
//! session's statements are therefore read before its write begins. The commit expects them to be unchanged since the
//! read, so that only one process commits the statement. An insert of one document is not preceded by a read if this
//! process has read or written an earlier record of the session. After a failure it reads the record.

use super::{Insertion, UpdateOutcome};
use crate::changes::Changes;
use crate::changes::retry_record::{
    RetryKey, SessionId, StoredRetry, from_entry, run_answer, run_end, to_value,
};
use crate::database::Database;
use crate::keys::RETRIES;
use crate::storage_error;
use base::Result;
use base::bson::{Builder, Document, DocumentBuf, DocumentCow};
use storage::{Direction, Key, Range, Value, mark, mutant};

/// Maximum number of records read before a removal.
const REAP_BATCH_MAX: usize = 512;

/// Key and recorded answer of a statement.
type RetryRecord = (RetryKey, DocumentBuf);

/// Returns the record for a change to one document, from its versions before and after. Called
/// before the commit.
pub(crate) type RetryRecorder<'a> =
    dyn Fn(Option<&DocumentCow>, Option<&DocumentCow>) -> Result<Option<RetryRecord>> + 'a;

/// Records nothing.
pub(crate) fn no_record(_: Option<&DocumentCow>, _: Option<&DocumentCow>) -> Result<Option<RetryRecord>> {
    Ok(None)
}

impl Database {
    /// Adds the record of a statement's answer to the changes, if this database has records of retries.
    ///
    /// Errors: as [`Changes::set_statement`].
    pub(crate) fn record_retry(
        &self,
        changes: &mut Changes,
        record: Option<(RetryKey, Document<'_>)>,
    ) -> Result<()> {
        if let Some((key, _)) = record {
            changes.set_statement(key)?;
        }
        if let Some((key, answer)) = record
            && self.records_retries
            && !mutant!("retryable writes leave no record")
        {
            self.expect_first_run(changes, key);
            let value = to_value(key.number, self.now_millis(), answer);
            match self.shares_retries() {
                true => changes.put_retry(key, value),
                false => changes.stamp_retry(key.to_key(), value),
            }
        }
        Ok(())
    }

    /// Returns the statement's key if this database has records of retries or an oplog; otherwise `None`.
    pub(crate) fn recorded_key(&self, retry: Option<RetryKey>) -> Option<RetryKey> {
        retry.filter(|_| self.records_retries || self.logs())
    }

    /// Calls `visit` with the record of each statement, sorted by session.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    pub fn visit_retries(&self, visit: &mut dyn FnMut(StoredRetry)) -> Result<()> {
        if !self.records_retries {
            return Ok(());
        }
        let snapshot = self.engine().snapshot();
        let mut records = snapshot.scan(RETRIES, Range::all(), Direction::Forward).map_err(storage_error)?;
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            from_entry(key, &value)?.statements().for_each(&mut *visit);
        }
        Ok(())
    }

    /// Removes the records for which `is_live` returns false. Returns their number.
    ///
    /// Errors: storage errors.
    pub fn reap_retries(&self, is_live: &dyn Fn(&RetryKey) -> bool) -> Result<u64> {
        if !self.records_retries {
            return Ok(0);
        }
        self.forget_seen_retries(is_live);
        let snapshot = self.engine().snapshot();
        let mut records = snapshot.scan(RETRIES, Range::all(), Direction::Forward).map_err(storage_error)?;
        let (mut expired, mut reaped) = (Vec::new(), 0);
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            let record = from_entry(key, &value)?;
            if !is_live(&record.key) && !self.may_belong_elsewhere(&record) {
                expired.push((Key::from(key), value.to_value()));
            }
            if !expired.is_empty() {
                mark!("records of ended sessions are removed");
            }
            if expired.len() == REAP_BATCH_MAX {
                reaped += self.remove_retries(std::mem::take(&mut expired))?;
            }
        }
        Ok(reaped + self.remove_retries(expired)?)
    }

    /// Removes records that have not changed since they were read.
    fn remove_retries(&self, seen: Vec<(Key, Value)>) -> Result<u64> {
        let operation = self.operation(0);
        let mut removed = 0;
        for (key, value) in seen {
            let mut changes = Changes::default();
            changes.delete_retry(key, value);
            removed += u64::from(self.apply(&operation, &mut changes)?.is_some());
        }
        Ok(removed)
    }
}

/// Returns the recorded answer of a delete of `n` documents.
pub fn delete_answer(n: u64) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"n", n as i64);
    out.finish()
}

impl UpdateOutcome {
    /// Returns the recorded answer of a retryable update.
    pub fn to_answer(&self) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"n", self.matched as i64).append(c"nModified", self.modified as i64);
        out.append_optional(c"upserted", self.upserted.as_ref());
        out.finish()
    }

    /// Parses the output of [`to_answer`](Self::to_answer) or [`delete_answer`].
    pub fn from_answer(answer: Document<'_>) -> UpdateOutcome {
        let count = |name: &str| answer.get(name).and_then(|value| value.as_i64()).unwrap_or(0) as u64;
        UpdateOutcome {
            matched: count("n"),
            modified: count("nModified"),
            upserted: answer.get("upserted").map(|id| id.to_owned()),
            committed: None,
        }
    }
}

/// Retention of records without a session in this process, in milliseconds. The timeout of sessions, because the
/// session may be in use in another process.
const RETENTION_MILLIS: i64 = 30 * 60 * 1000;

impl Database {
    /// Returns the records of a session's statements `first` to `last` that other processes may
    /// have written. Returns none if the store is not shared. Must be called before a write of
    /// these statements begins.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    pub fn stored_retries(&self, session: SessionId, (first, last): (i32, i32)) -> Result<Vec<StoredRetry>> {
        if !self.shares_retries() {
            return Ok(Vec::new());
        }
        let snapshot = self.engine().snapshot();
        if let Some(remote) = snapshot.remote().filter(|_| (first, last) == (0, 0)) {
            let key = RetryKey { session, number: 0, statement: first }.to_key();
            let value = remote.get_alone(RETRIES, &key).map_err(storage_error)?;
            let found = value.as_ref().map(|value| from_entry(&key, value)).transpose()?;
            self.seen_retries.lock().insert(session, value.map(|value| (key, value)).into_iter().collect());
            return Ok(found.into_iter().flat_map(StoredRetry::statements).collect());
        }
        let key = |statement: i32| [&session.uuid[..], &statement.to_be_bytes()].concat();
        let range = match last.checked_add(1) {
            // The record of a run has the number of its first statement.
            Some(end) if first >= 0 => Range::half_open(key(0), key(end)),
            _ => Range::prefix(&session.uuid),
        };
        let mut records = snapshot.scan(RETRIES, range, Direction::Forward).map_err(storage_error)?;
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            let record = from_entry(key, &value)?;
            if record.key.session == session {
                seen.push((Key::from(key), value.to_value()));
                found.extend(record.statements());
            }
        }
        debug_assert!(seen.is_sorted_by(|(a, _), (b, _)| a < b), "a search needs records in key order");
        self.seen_retries.lock().insert(session, seen);
        Ok(found)
    }

    /// Adds the condition to a statement's commit that no other process has run the statement.
    pub(crate) fn expect_retry(&self, changes: &mut Changes, retry: RetryKey) {
        if !self.shares_retries() {
            return;
        }
        changes.expect_retry(retry.to_key(), self.seen_retry(&retry));
    }

    /// As [`expect_retry`](Self::expect_retry), for the only commit of a statement. The store refuses it if this
    /// process has seen the statement's own record.
    fn expect_first_run(&self, changes: &mut Changes, retry: RetryKey) {
        if !self.shares_retries() {
            return;
        }
        let seen = self.seen_retry(&retry).filter(|value| is_earlier(&retry, value));
        changes.expect_retry(retry.to_key(), seen);
    }

    /// Returns true if a write of this one statement need not read its record before: this process has read or
    /// written a record of an earlier write of the session. The commit expects that record. If another process has
    /// changed it, the commit is refused, and [`changed_retries`](Self::changed_retries) reads it.
    pub fn has_seen_retry(&self, retry: &RetryKey) -> bool {
        self.shares_retries() && self.seen_retry(retry).is_some_and(|value| is_earlier(retry, &value))
    }

    /// Reads the records of a session's statements `first` to `last` again after a failure. Returns `None` if they are
    /// as this process had seen them: the failure stands.
    ///
    /// Errors: as [`stored_retries`](Self::stored_retries).
    pub fn changed_retries(
        &self,
        session: SessionId,
        (first, last): (i32, i32),
    ) -> Result<Option<Vec<StoredRetry>>> {
        let seen = || self.seen_retries.lock().get(&session).cloned();
        let before = seen();
        let stored = self.stored_retries(session, (first, last))?;
        Ok((seen() != before).then_some(stored))
    }

    /// Returns the record of a statement as this process has read or written it.
    fn seen_retry(&self, retry: &RetryKey) -> Option<Value> {
        let key = retry.to_key();
        let seen = self.seen_retries.lock();
        let seen = seen.get(&retry.session)?;
        // The records are in key order.
        let at = seen.binary_search_by(|(at, _)| at[..].cmp(&key)).ok()?;
        seen.get(at).map(|(_, value)| value.clone())
    }

    /// Adds the records of consecutive statements of a write that inserts several documents.
    ///
    /// One record stands for all statements of a commit. Each commit also changes the record of the first statement
    /// of the write. If two processes run the write at the same time, one of them is refused.
    pub(crate) fn record_run(
        &self,
        changes: &mut Changes,
        write: RetryKey,
        run: &[Insertion<'_>],
    ) -> Result<()> {
        let statement = |insertion: Option<&Insertion<'_>>| Some(insertion?.record?.0.statement);
        let (Some(first), Some(last)) = (statement(run.first()), statement(run.last())) else {
            return Ok(());
        };
        let mut records = vec![(RetryKey { statement: first, ..write }, run_answer(last, first))];
        if first != write.statement {
            let seen =
                self.seen_retry(&write).map(|value| from_entry(&write.to_key(), &value)).transpose()?;
            let seen = seen.filter(|seen| seen.key.number == write.number);
            let last = seen.and_then(|seen| run_end(seen.answer.view()));
            records.push((write, run_answer(last.unwrap_or(write.statement.saturating_sub(1)), first)));
        }
        let millis = self.now_millis();
        for (retry, answer) in records {
            self.expect_retry(changes, retry);
            changes.put_retry(retry, to_value(retry.number, millis, answer.view()));
        }
        Ok(())
    }

    /// Returns true if a record without a session in this process may belong to another process.
    fn may_belong_elsewhere(&self, record: &StoredRetry) -> bool {
        self.shares_retries() && self.now_millis().saturating_sub(record.millis) < RETENTION_MILLIS
    }

    /// Discards the records read for ended sessions.
    fn forget_seen_retries(&self, is_live: &dyn Fn(&RetryKey) -> bool) {
        self.seen_retries.lock().retain(|_, seen| {
            let records = seen.iter().filter_map(|(key, value)| from_entry(key, value).ok());
            records.map(|record| record.key).any(|key| is_live(&key))
        });
    }
}

/// Returns true if a record is that of an earlier write of the session.
fn is_earlier(retry: &RetryKey, record: &Value) -> bool {
    from_entry(&retry.to_key(), record).is_ok_and(|seen| seen.key.number < retry.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Scope;
    use crate::{InsertRequest, ManualClock, NO_USER, Operation, SessionId};
    use base::Namespace;
    use query::Context;
    use query::context::Uninterrupted;
    use std::sync::Arc;
    use storage::testing::{FaultyFiles, Loss};
    use storage::{DiskEngine, DiskOptions, Engine, MemoryEngine};

    fn open_at(engine: Arc<dyn Engine>) -> Arc<Database> {
        Database::open(engine, Arc::new(ManualClock::new(5_000)), 7).unwrap()
    }

    fn anonymous(session: u8) -> SessionId {
        SessionId::without_user([session; 16])
    }

    fn insert(database: &Database, key: RetryKey) {
        let namespace = Namespace::parse("test.c").unwrap();
        let context = Arc::new(Context::new(0, 1, Arc::new(Uninterrupted)));
        let request = InsertRequest { document: Document::EMPTY, bypass_validation: false };
        let record = Some((key, Document::EMPTY));
        database
            .insert_retryable(
                &Scope::new(&Arc::new(Operation::new(0)), &namespace, &context),
                request,
                record,
            )
            .unwrap();
    }

    fn retries(database: &Database) -> Vec<StoredRetry> {
        let mut found = Vec::new();
        database.visit_retries(&mut |record| found.push(record)).unwrap();
        found
    }

    fn disk(files: &FaultyFiles) -> Arc<dyn Engine> {
        Arc::new(DiskEngine::open_on(Arc::new(files.clone()), &DiskOptions::new("/data")).unwrap())
    }

    #[test]
    fn retry_records_survive_restarts_until_they_are_removed() {
        let files = FaultyFiles::new();
        let database = open_at(disk(&files));
        let key = |session, number, statement| RetryKey { session: anonymous(session), number, statement };
        for key in [key(1, 1, 0), key(1, 1, 1), key(1, 2, 0), key(2, 1, 0)] {
            insert(&database, key);
        }
        let files = files.restart(Loss::Nothing);
        drop(database);
        let database = open_at(disk(&files));
        let found = retries(&database);
        assert_eq!(
            found.iter().map(|f| f.key).collect::<Vec<_>>(),
            [key(1, 2, 0), key(1, 1, 1), key(2, 1, 0)]
        );
        assert!(found.iter().all(|found| found.millis == 5_000 && found.answer == DocumentBuf::empty()));
        assert!(found.iter().all(|found| found.time.is_some_and(|time| time >> 32 == 5)));
        assert_eq!(database.reap_retries(&|key| key.session == anonymous(1) && key.number == 2).unwrap(), 2);
        drop(database);
        let database = open_at(disk(&files));
        assert_eq!(retries(&database).len(), 1);
    }

    #[test]
    fn a_visit_holds_one_record() {
        const BYTES: i64 = 1 << 20;
        let files = FaultyFiles::new();
        let database = open_at(disk(&files));
        let mut answer = Builder::new();
        answer.append(c"text", &"x".repeat(BYTES as usize));
        let answer = answer.finish();
        for session in 0..16 {
            let key = RetryKey { session: anonymous(session), number: 1, statement: 0 };
            let mut changes = Changes::default();
            database.record_retry(&mut changes, Some((key, answer.view()))).unwrap();
            database.apply(&database.operation(0), &mut changes).unwrap();
        }
        let (begun, mut visited) = (base::memory::allocated(), 0);
        database
            .visit_retries(&mut |record| {
                assert_eq!(record.answer, answer);
                let held = base::memory::allocated() - begun;
                assert!((BYTES..4 * BYTES).contains(&held), "{held} bytes");
                visited += 1;
            })
            .unwrap();
        assert_eq!(visited, 16);
    }

    #[test]
    fn an_engine_in_memory_keeps_none() {
        let database = open_at(Arc::new(MemoryEngine::new()));
        insert(&database, RetryKey { session: anonymous(1), number: 1, statement: 0 });
        assert!(!database.engine().snapshot().contains(RETRIES).unwrap());
        assert_eq!(database.reap_retries(&|_| false).unwrap(), 0);
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        let of_user = SessionId::new([7; 16], [9; 32]);
        assert_eq!(SessionId::new([7; 16], NO_USER), anonymous(7));
        for (session, length) in [(anonymous(7), 20), (of_user, 52)] {
            let key = RetryKey { session, number: -3, statement: 258 };
            assert_eq!(key.to_key().len(), length);
            for answer in [DocumentBuf::empty(), delete_answer(1)] {
                let (stored, value) = (key.to_key(), to_value(key.number, 12, answer.view()));
                assert_eq!(
                    from_entry(&stored, &value).unwrap(),
                    StoredRetry { key, millis: 12, answer, time: None }
                );
                let stamped = [&value[..], &7u64.to_le_bytes()].concat();
                assert_eq!(from_entry(&stored, &stamped).unwrap().time, Some(7));
            }
        }
        for (key, value) in [(19, 16), (21, 16), (51, 16), (53, 16), (20, 15), (20, 20)] {
            assert!(from_entry(&[0; 53][..key], &[0; 24][..value]).is_err());
        }
    }
}
