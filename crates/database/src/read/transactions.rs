//! `config.transactions`: the latest committed transaction or retryable write of each session, in MongoDB's format. The
//! server reads it from its own records, which commits write ([`RETRIES`]). Clients cannot write to it.

use crate::database::Database;
use crate::exec::{Record, RecordStream};
use crate::keys::{RETRIES, RecordId};
use crate::operation::Operation;
use crate::retry_record::{StoredRetry, from_entry};
use crate::storage_error;
use base::Result;
use base::bson::{Builder, DocumentBuf, DocumentCow, Value};
use query::Interrupt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Cursor, Direction, Range, Snapshot};

/// A scan of the sessions' records.
pub(crate) struct TransactionsScan {
    operation: Arc<Operation>,
    records: Box<dyn Cursor>,
    /// The first record behind the sessions in `ready`.
    next: Option<StoredRetry>,
    /// The sessions of one UUID, which users may share.
    ready: VecDeque<StoredRetry>,
    term: i64,
    number: u64,
}

impl TransactionsScan {
    pub(crate) fn new(
        database: &Database,
        operation: &Arc<Operation>,
        snapshot: &dyn Snapshot,
    ) -> Result<TransactionsScan> {
        let records = snapshot.scan(RETRIES, Range::all(), Direction::Forward).map_err(storage_error)?;
        let term = i64::from(database.term.load(Relaxed).max(1));
        let operation = operation.clone();
        let mut scan =
            TransactionsScan { operation, records, next: None, ready: VecDeque::new(), term, number: 0 };
        scan.next = scan.read()?;
        Ok(scan)
    }

    /// The next record that stands for something that was carried out.
    fn read(&mut self) -> Result<Option<StoredRetry>> {
        while let Some((key, value)) = self.records.next().map_err(storage_error)? {
            self.operation.check()?;
            let record = from_entry(key, &value)?;
            // Another process may have recorded that a transaction never will be committed.
            if !record.key.is_commit() || record.answer.view().is_empty() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Takes up the newest record of each session of the next UUID. Records are in the order of UUIDs.
    fn fill(&mut self) -> Result<()> {
        while let Some(record) = self.next.take() {
            if self.ready.front().is_some_and(|first| first.key.session.uuid != record.key.session.uuid) {
                self.next = Some(record);
                return Ok(());
            }
            match self.ready.iter_mut().find(|known| known.key.session == record.key.session) {
                Some(known) if rank(known) < rank(&record) => *known = record,
                Some(_) => {}
                None => self.ready.push_back(record),
            }
            self.next = self.read()?;
        }
        Ok(())
    }

    fn document(&self, record: &StoredRetry) -> DocumentBuf {
        let (session, mut out) = (&record.key.session, Builder::new());
        out.begin_document(c"_id").append(c"id", Value::Binary { subtype: 4, bytes: &session.uuid });
        out.append(c"uid", Value::Binary { subtype: 0, bytes: session.user() }).end();
        out.append(c"txnNum", record.key.number);
        if let Some(time) = record.time {
            out.begin_document(c"lastWriteOpTime").append(c"ts", Value::Timestamp(time));
            out.append(c"t", self.term).end();
        }
        out.append(c"lastWriteDate", Value::DateTime(record.millis));
        if record.key.is_commit() {
            out.append(c"state", "committed");
        }
        out.finish()
    }
}

/// What orders the records of one session.
fn rank(record: &StoredRetry) -> (i64, Option<u64>, i64) {
    (record.key.number, record.time, record.millis)
}

impl RecordStream for TransactionsScan {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        let Some(record) = self.ready.pop_front() else { return Ok(None) };
        self.number += 1;
        let document = DocumentCow::Owned(self.document(&record));
        Ok(Some(Record { id: RecordId(self.number), document, sort_key: None, meta: None }))
    }
}
