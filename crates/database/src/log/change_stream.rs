//! Change streams: log entries as events, and resume points for clients.
//!
//! A stream prepares about a megabyte of events. It remembers its position in the log, also within the entry of a large
//! transaction, and continues there in the log's present state.

use crate::cursor::RESULT_MAX;
use crate::database::Database;
use crate::log::INITIATING;
use crate::operation::Operation;
use crate::plan::Read;
use crate::storage_error;
use crate::watch::{Progress, State};
use base::bson::{Builder, Document, DocumentCow};
use base::{Error, ErrorCode, Namespace, Result, bail};
use parking_lot::Mutex;
use query::change::{
    Action, ChangeStream, Entry, EntryPosition, Event, EventContext, ResumeToken, Scope, Spec, history_lost,
    id_modified, unreadable,
};
use query::matcher::Matcher;
use query::pipeline::from_fn;
use query::{Context, Interrupt, Pipeline, Row, Stage};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Direction;

/// Maximum bytes of events prepared in advance.
const AHEAD_MAX: usize = 1 << 20;

/// The events of a change stream, as the source of its pipeline.
struct Events {
    database: Arc<Database>,
    operation: Arc<Operation>,
    context: Arc<Context>,
    stream: ChangeStream,
    /// Events prepared and not yet requested.
    queue: VecDeque<Event>,
    /// Failure of the entry behind the queue.
    failed: Option<Error>,
    /// Position in the log: entries up to this time have been processed.
    read: u64,
    /// Position in the next entry, which may be a large transaction.
    position: EntryPosition,
    /// Time of the latest processed entry. Resume tokens name no later time: after a crash and a jump of the clock, new
    /// entries may be earlier than the present.
    processed: u64,
    progress: Progress,
}

impl Database {
    /// Opens a change stream. Returns its documents, and the progress for its cursor.
    ///
    /// Errors: errors of the specification on this namespace; CommandNotSupportedOnView; ChangeStreamHistoryLost if the
    /// log no longer contains the start.
    pub(crate) fn open_stream(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        pipeline: Pipeline,
        environment: &query::pipeline::Environment,
    ) -> Result<(Box<dyn Stage>, Progress)> {
        let described = pipeline.describe().next().cloned();
        let Some(stage) = described.as_ref().and_then(|stage| stage.view().first()) else {
            bail!(InternalError, "a change stream without its stage");
        };
        let spec = Spec::parse(&stage)?;
        spec.check(namespace)?;
        if !self.logs() {
            bail!(40573, "The $changeStream stage is only supported on replica sets");
        }
        if spec.expanded {
            self.counters.expanded_streams.fetch_add(1, Relaxed);
        }
        let splits = pipeline.splits_events();
        let now = self.log_now()?;
        let stream = ChangeStream::new(spec, Scope::of(namespace), now, splits)?;
        let state = State { reached: stream.reached().clone(), current: None, ended: false };
        let progress = Progress(Arc::new(Mutex::new(state)));
        let events = Events {
            database: self.clone(),
            operation: operation.clone(),
            context: environment.context.clone(),
            read: stream.start().saturating_sub(1),
            position: EntryPosition::BEGIN,
            processed: 0,
            stream,
            queue: VecDeque::new(),
            failed: None,
            progress: progress.clone(),
        };
        events.check_history()?;
        let source = pipeline.run(Box::new(events), environment)?;
        Ok((checked(self.clone(), source, splits, progress.clone()), progress))
    }

    /// Returns the document of a collection by document key, if the collection still has this UUID.
    fn look_up(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        context: &Arc<Context>,
        (namespace, uuid): (&str, &[u8; 16]),
        key: Document<'_>,
    ) -> Result<Option<DocumentCow>> {
        let namespace = Namespace::parse(namespace)?;
        let view = self.confirmed_view();
        let Some(collection) = view.catalog.get(&namespace).filter(|now| now.uuid == *uuid) else {
            return Ok(None);
        };
        let mut filter = Builder::new();
        for part in key {
            filter.begin_document(part.field_name()).append(c"$eq", part.value()).end();
        }
        let filter = filter.finish();
        let context = Arc::new(context.with_collation(collection.options.collation.clone()));
        let read = Read { limit: 1, ..Read::new(Arc::new(Matcher::parse(filter.view(), &context)?)) };
        let found = self.read(operation, &view, collection, read, &context)?.next()?;
        Ok(found.map(|record| record.document))
    }
}

impl Events {
    /// Checks that the log still contains the stream's position.
    ///
    /// Errors: ChangeStreamHistoryLost.
    fn check_history(&self) -> Result<()> {
        match self.database.log_begin()? {
            Some(begin) if begin > self.read.saturating_add(1) && !self.database.log_is_complete()? => {
                Err(history_lost())
            }
            _ => Ok(()),
        }
    }

    /// Reads the log until an event is found, or its end.
    fn fill(&mut self) -> Result<()> {
        if self.database.log_end().is_some_and(|end| end <= self.read) {
            return Ok(());
        }
        let mut cursor = None;
        let (database, operation, context) = (&self.database, &self.operation, &self.context);
        let lookup = |namespace: &str, uuid: &[u8; 16], key: Document<'_>| {
            database.look_up(operation, context, (namespace, uuid), key)
        };
        let around = EventContext { lookup: &lookup, pre_images_since: database.pre_images_since() };
        let mut ahead = 0;
        while ahead < AHEAD_MAX && !self.stream.is_invalidated() {
            operation.check()?;
            let (entries, end) = match &mut cursor {
                Some(cursor) => cursor,
                None => {
                    let opened = self.database.log_cursor(Bound::Excluded(self.read))?;
                    self.check_history()?;
                    cursor.insert(opened)
                }
            };
            let found = entries.next_piece(self.position.value, AHEAD_MAX).map_err(|error| match error {
                // The log was trimmed between two pages.
                storage::Error::NoSuchIdent(_) => history_lost(),
                other => storage_error(other),
            });
            let Some(found) = found? else {
                self.read = self.read.max(*end);
                self.stream.pass(self.processed);
                break;
            };
            debug_assert!(found.time > self.read && found.time <= *end, "{} after {}", found.time, self.read);
            let entry = Entry::read_piece(found.time, &found.parts, self.position.value)?;
            // Each piece decodes the header again. Its events are at least as long, so all pieces take linear time.
            let bytes_max = found.parts.first().map_or(0, |(_, header)| header.len()).max(AHEAD_MAX);
            let before = self.queue.len();
            let piece = (self.position.operation, bytes_max);
            let next = match self.stream.take(&entry, piece, &around, &mut self.queue) {
                // The image of an event is missing for good. The events before it are returned first.
                Err(error) if error.code() == ErrorCode::NoMatchingDocument => {
                    self.failed = Some(error);
                    break;
                }
                next => next?,
            };
            ahead += self.queue.iter().skip(before).map(|event| event.document.bytes().len()).sum::<usize>();
            match next {
                Some(position) if position == self.position => return Err(unreadable(found.time)),
                Some(position) => {
                    (self.position, cursor) = (position, None);
                    self.read = found.time - 1;
                }
                None => {
                    self.position = EntryPosition::BEGIN;
                    (self.read, self.processed) = (found.time, found.time);
                }
            }
        }
        Ok(())
    }
}

impl Stage for Events {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.queue.is_empty() && self.failed.is_none() && !self.stream.is_invalidated() {
            self.fill()?;
        }
        if self.queue.is_empty()
            && let Some(error) = self.failed.take()
        {
            return Err(error);
        }
        let mut state = self.progress.0.lock();
        let Some(event) = self.queue.pop_front() else {
            state.reached = self.stream.reached().clone();
            state.ended = self.stream.is_invalidated();
            drop(state);
            // Commits are shown once they are durable.
            self.database.sync_soon();
            return Ok(None);
        };
        state.current = Some(event.token);
        Ok(Some(event.document.into()))
    }
}

/// Returns a stage that checks whether the pipeline keeps the `_id` of each event, or of its fragments if it splits
/// events. It counts large events.
///
/// Errors: ChangeStreamFatalError for a document without its event's `_id`.
fn checked(
    database: Arc<Database>,
    mut source: Box<dyn Stage>,
    splits: bool,
    progress: Progress,
) -> Box<dyn Stage> {
    let mut latest_split = None;
    from_fn(move || {
        let Some(row) = source.next()? else { return Ok(None) };
        if row.document.view().bytes().len() > RESULT_MAX {
            database.counters.events_too_large.fetch_add(1, Relaxed);
        }
        let state = progress.0.lock();
        let Some(current) = &state.current else { return Ok(Some(row)) };
        let document = row.document.view();
        let id = document.get("_id").and_then(|id| id.as_document());
        let is_same = id.is_some_and(|id| id.bytes() == current.to_document().bytes());
        let is_fragment = splits
            && id.is_some_and(|id| {
                ResumeToken::parse(id).is_ok_and(|fragment| fragment.is_fragment_of(current))
            });
        if is_fragment && latest_split.as_ref() != Some(current) {
            latest_split = Some(current.clone());
            database.counters.events_split.fetch_add(1, Relaxed);
        }
        if is_same || is_fragment { Ok(Some(row)) } else { Err(id_modified(current, document)) }
    })
}

impl Database {
    /// Returns true if the log was never trimmed: its first entry is then the initiation of the set.
    fn log_is_complete(&self) -> Result<bool> {
        let (mut cursor, _) = self.log_cursor_local(Bound::Unbounded, Direction::Forward)?;
        let Some(first) = cursor.next_entry().map_err(storage_error)? else { return Ok(false) };
        let entry = Entry::read(first.time, &first.parts)?;
        let initiating = |action: &Action<'_>| match action {
            Action::Noop(note) => note.get("msg").and_then(|text| text.as_str()) == Some(INITIATING),
            _ => false,
        };
        Ok(entry.operations.first().is_some_and(|operation| initiating(&operation.action)))
    }

    /// Sets the retention of pre-images in seconds; `None` keeps them as long as their log entries.
    pub fn keep_images_for(&self, seconds: Option<i64>) {
        self.pre_image_seconds.store(seconds.unwrap_or(0), Relaxed);
    }

    /// Returns the wall clock time, in milliseconds since 1970, before which pre-images are expired. Their bytes are
    /// removed with their log entries.
    fn pre_images_since(&self) -> i64 {
        match self.pre_image_seconds.load(Relaxed) {
            0 => i64::MIN,
            seconds => self.now_millis().saturating_sub(seconds.saturating_mul(1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::read::AggregateRequest;
    use crate::{Database, InsertRequest, ManualClock, Operation, Scope};
    use base::Namespace;
    use base::bson::extended_json::parse;
    use query::Context;
    use std::sync::Arc;
    use storage::MemoryEngine;
    use storage::store::LogOptions;

    #[test]
    fn a_stream_holds_a_part_of_a_large_transaction() {
        const BYTES: usize = 200_000;
        let log = Some(LogOptions { bytes: 64 << 20 });
        let engine = Arc::new(MemoryEngine::new());
        let database = Database::open_with(engine, Arc::new(ManualClock::new(0)), 7, log).unwrap();
        let namespace = Namespace::parse("test.c").unwrap();
        let mut context = Context::for_tests();
        context.cluster_time = Some(1);
        let context = Arc::new(context);
        let insert = |operation: &Arc<Operation>, ids: std::ops::Range<i32>| {
            for id in ids {
                let document = parse(&format!("{{_id: {id}, text: '{}'}}", "x".repeat(BYTES))).unwrap();
                let request = InsertRequest { document: document.view(), bypass_validation: false };
                database.insert(&Scope::new(operation, &namespace, &context), request).unwrap();
            }
        };
        let watching = Arc::new(database.operation(1));
        let pipeline = parse("{p: [{$changeStream: {}}, {$project: {fullDocument: 1}}]}").unwrap();
        let pipeline = pipeline.view().get("p").and_then(|stages| stages.as_array()).unwrap();
        let scope = Scope::new(&watching, &namespace, &context);
        let stream = database.aggregate(&scope, &AggregateRequest::new(pipeline)).unwrap();
        let mut stream = stream.into_source();
        insert(&Arc::new(database.operation(1)), 0..2);
        let operation = database.operation(2);
        operation.set_transaction(database.begin_transaction(None, None).unwrap());
        let operation = Arc::new(operation);
        insert(&operation, 2..98);
        database.commit_transaction(&operation, operation.transaction().unwrap()).unwrap();
        insert(&Arc::new(database.operation(1)), 98..100);
        let begun = base::memory::allocated();
        for id in 0..100 {
            let event = stream.next().unwrap().unwrap().document;
            let found = event.view().get("fullDocument").and_then(|found| found.as_document()?.get("_id"));
            assert_eq!(found.and_then(|found| found.as_i64()), Some(id));
            let held = base::memory::allocated() - begun;
            assert!(held < 16 * BYTES as i64, "{held} bytes after event {id}");
        }
        assert!(stream.next().unwrap().is_none());
    }
}
