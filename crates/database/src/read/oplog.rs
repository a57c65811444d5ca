//! `local.oplog.rs`: the log as a read-only capped collection.
//!
//! `config.transactions`: the latest committed transaction or retryable write of each session, in
//! MongoDB's format. The server reads it from its own records, which commits write ([`RETRIES`]).
//! Clients cannot write to it.

use crate::changes::retry_record::{StoredRetry, from_entry};
use crate::database::Database;
use crate::exec::RecordStream;
use crate::keys::RETRIES;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Result, bail};
use query::change::{Entry, oplog_documents};
use query::matcher::Matcher;
use query::{Context, Interrupt, Row};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::LogCursor;
use storage::{Cursor, Direction, Key, Range, Snapshot};

/// Most bytes of documents built ahead.
const AHEAD_MAX: usize = 1 << 20;

/// Range of times allowed by a filter's conditions on `ts`, as far as they are simple.
#[derive(Clone, Copy)]
struct Times {
    lower: Bound<u64>,
    upper: u64,
}

impl Times {
    fn of(filter: Document<'_>) -> Times {
        let mut times = Times { lower: Bound::Unbounded, upper: u64::MAX };
        times.narrow(filter);
        times
    }

    fn narrow(&mut self, filter: Document<'_>) {
        for part in filter {
            match (part.name(), part.value()) {
                ("ts", Value::Timestamp(time)) => {
                    self.at_least(time);
                    self.upper = self.upper.min(time);
                }
                ("ts", Value::Document(conditions)) => conditions.iter().for_each(|condition| {
                    if let Value::Timestamp(time) = condition.value() {
                        self.satisfy(condition.name(), time);
                    }
                }),
                ("$and", Value::Array(parts)) => {
                    parts.iter().filter_map(|part| part.as_document()).for_each(|part| self.narrow(part));
                }
                _ => {}
            }
        }
    }

    fn satisfy(&mut self, operator: &str, time: u64) {
        // An entry may become several documents and has the time of the last one. The lower bound
        // therefore includes the entry.
        if matches!(operator, "$gt" | "$gte" | "$eq") {
            self.at_least(time);
        }
        if matches!(operator, "$lt" | "$lte" | "$eq") {
            self.upper = self.upper.min(time);
        }
    }

    fn at_least(&mut self, time: u64) {
        match self.lower {
            Bound::Included(present) if present >= time => {}
            _ => self.lower = Bound::Included(time),
        }
    }
}

/// Direction of a scan of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the oldest entry to the latest entry at the start.
    Forward,
    /// From the latest entry to the oldest.
    Backward,
    /// From the oldest entry to the latest, and on with new entries.
    Tailing,
}

/// A scan of the log. A forward scan keeps only its position between two requests, no snapshot.
pub(crate) struct OplogScan {
    database: Arc<Database>,
    operation: Arc<Operation>,
    matcher: Arc<Matcher>,
    context: Arc<Context>,
    order: Order,
    times: Times,
    /// Time of the last entry read.
    last: Option<u64>,
    /// End of the log at the start of a scan that does not tail.
    end: Option<u64>,
    backward: Option<LogCursor>,
    queue: VecDeque<DocumentBuf>,
    done: bool,
    skip: u64,
    /// Number of documents still to return, if limited.
    left: Option<u64>,
}

impl OplogScan {
    pub(crate) fn new(
        database: &Arc<Database>,
        operation: &Arc<Operation>,
        matcher: Arc<Matcher>,
        filter: Document<'_>,
        order: Order,
        context: &Arc<Context>,
    ) -> Result<OplogScan> {
        matcher.refuse_text(&"")?;
        let times = Times::of(filter);
        let backward = match order {
            Order::Backward => Some(database.log_cursor_local(times.lower, Direction::Backward)?.0),
            _ => None,
        };
        Ok(OplogScan {
            database: database.clone(),
            operation: operation.clone(),
            matcher,
            context: context.clone(),
            order,
            times,
            last: None,
            end: None,
            backward,
            queue: VecDeque::new(),
            done: false,
            skip: 0,
            left: None,
        })
    }

    /// Returns the scan with `skip` and `limit`; a zero limit is unlimited.
    pub(crate) fn window(self, skip: u64, limit: u64) -> OplogScan {
        OplogScan { skip, left: (limit > 0).then_some(limit), ..self }
    }

    fn fill(&mut self) -> Result<()> {
        match self.backward.take() {
            Some(mut cursor) => {
                self.operation.check()?;
                match cursor.next_entry().map_err(storage_error)? {
                    Some(found) => {
                        let documents = oplog_documents(&Entry::read(found.time, &found.parts)?);
                        self.queue.extend(documents.into_iter().rev());
                        self.backward = Some(cursor);
                    }
                    None => self.done = true,
                }
                Ok(())
            }
            None => self.fill_forward(),
        }
    }

    /// Errors: CappedPositionLost if the log was trimmed beyond the scan's position.
    fn fill_forward(&mut self) -> Result<()> {
        let from = self.last.map_or(self.times.lower, Bound::Excluded);
        let (mut cursor, end) = self.database.log_cursor_local(from, Direction::Forward)?;
        if let (Some(last), Some(begin)) = (self.last, self.database.log_begin()?)
            && begin > last
        {
            bail!(
                CappedPositionLost,
                "CollectionScan died due to position in capped collection being deleted. Last seen record id: \
                 RecordId({last})"
            );
        }
        let end = *self.end.get_or_insert(end);
        let mut ahead = 0;
        while ahead < AHEAD_MAX {
            self.operation.check()?;
            let Some(found) = cursor.next_entry().map_err(storage_error)? else {
                self.done = self.order == Order::Forward;
                break;
            };
            let entry = Entry::read(found.time, &found.parts)?;
            let is_behind = entry.tick(0) > self.times.upper;
            if is_behind || (self.order == Order::Forward && found.time > end) {
                self.done = true;
                break;
            }
            for document in oplog_documents(&entry) {
                ahead += document.bytes().len();
                self.queue.push_back(document);
            }
            self.last = Some(found.time);
        }
        Ok(())
    }
}

impl RecordStream for OplogScan {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        loop {
            let Some(document) = self.queue.pop_front() else {
                if self.done {
                    return Ok(None);
                }
                self.fill()?;
                if self.queue.is_empty() && self.order == Order::Tailing {
                    return Ok(None);
                }
                continue;
            };
            if !self.matcher.matches(document.view(), &self.context)? {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            if let Some(left) = &mut self.left {
                *left -= 1;
            }
            let time = match document.view().get("ts") {
                Some(Value::Timestamp(time)) => time,
                _ => 0,
            };
            return Ok(Some(Row::stored(time, document)));
        }
    }
}

/// A scan of the sessions' records.
pub(crate) struct TransactionsScan {
    operation: Arc<Operation>,
    records: Box<dyn Cursor>,
    /// Times of the commits that wrote the records, for a store whose records have none.
    times: Vec<(Key, u64)>,
    /// The first record after the sessions in `ready`.
    next: Option<StoredRetry>,
    /// Sessions with the same UUID. Several users may use one UUID.
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
        let times = snapshot.remote().map_or(Ok(Vec::new()), |remote| remote.commit_times(RETRIES));
        let mut scan = TransactionsScan {
            operation: operation.clone(),
            records,
            times: times.map_err(storage_error)?,
            next: None,
            ready: VecDeque::new(),
            term: i64::from(database.term.load(Relaxed).max(1)),
            number: 0,
        };
        scan.next = scan.read()?;
        Ok(scan)
    }

    /// Returns the next record of an executed write or transaction.
    fn read(&mut self) -> Result<Option<StoredRetry>> {
        while let Some((key, value)) = self.records.next().map_err(storage_error)? {
            self.operation.check()?;
            let mut record = from_entry(key, &value)?;
            if record.time.is_none()
                && let Ok(at) = self.times.binary_search_by(|(other, _)| other[..].cmp(key))
            {
                record.time = self.times.get(at).map(|(_, time)| *time);
            }
            // Another process may have recorded that a transaction will never commit.
            if !record.key.is_commit() || record.answer.view().is_empty() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Reads the newest record of each session with the next UUID. Records are sorted by UUID.
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

/// Returns the sort key of a session's records.
fn rank(record: &StoredRetry) -> (i64, Option<u64>, i64) {
    (record.key.number, record.time, record.millis)
}

impl RecordStream for TransactionsScan {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        let Some(record) = self.ready.pop_front() else { return Ok(None) };
        self.number += 1;
        Ok(Some(Row::stored(self.number, self.document(&record))))
    }
}
