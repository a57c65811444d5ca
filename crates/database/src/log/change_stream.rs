//! Change streams: log entries as events, and resume points for clients.
//!
//! A stream holds no data between two requests. It remembers its position in the log, and continues there in the log's
//! present state.

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
    Action, ChangeStream, Entry, Event, EventContext, ResumeToken, Scope, Spec, history_lost, id_modified,
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
        let (mut cursor, end) = self.database.log_cursor(Bound::Excluded(self.read))?;
        self.check_history()?;
        let (database, operation, context) = (&self.database, &self.operation, &self.context);
        let lookup = |namespace: &str, uuid: &[u8; 16], key: Document<'_>| {
            database.look_up(operation, context, (namespace, uuid), key)
        };
        let around = EventContext { lookup: &lookup, pre_images_since: database.pre_images_since() };
        let mut ahead = 0;
        while ahead < AHEAD_MAX && !self.stream.is_invalidated() {
            operation.check()?;
            let found = cursor.next_entry().map_err(|error| match error {
                // The log was trimmed between two pages.
                storage::Error::NoSuchIdent(_) => history_lost(),
                other => storage_error(other),
            });
            let Some(found) = found? else {
                self.read = self.read.max(end);
                self.stream.pass(self.processed);
                break;
            };
            debug_assert!(found.time > self.read && found.time <= end, "{} after {}", found.time, self.read);
            let entry = Entry::read(found.time, &found.parts)?;
            let before = self.queue.len();
            match self.stream.take(&entry, &around, &mut self.queue) {
                // The image of an event is missing for good. The events before it are returned first.
                Err(error) if error.code() == ErrorCode::NoMatchingDocument => {
                    self.failed = Some(error);
                    break;
                }
                other => other?,
            }
            ahead += self.queue.iter().skip(before).map(|event| event.document.bytes().len()).sum::<usize>();
            (self.read, self.processed) = (found.time, found.time);
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
