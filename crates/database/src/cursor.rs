//! Open cursors: streams of documents that clients fetch batch by batch.
//!
//! A [`Cursor`] produces batches; [`Cursors`] is the registry with timeouts and kills. A cursor in use is outside of
//! the registry, and its [`Slot`] remains. A new property of cursors is a field of [`Cursor`], and of [`Slot`] if it is
//! needed while the cursor is in use.

use crate::catalog::Catalog;
use crate::changes::retry_record::SessionId;
use crate::operation::Operation;
use crate::watch::{Interest, Progress};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow};
use base::random::Random;
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use parking_lot::Mutex;
use query::Stage;
use query::change::Scope;
use query::pipeline::from_fn;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use storage::time;

/// Maximum size of the documents of a batch in bytes, because a reply must be a valid document.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Size in bytes at which a batch ends if memory is scarce.
const BATCH_BYTES_SCARCE: usize = 64 * 1024;
/// Maximum size of a returned document in bytes, with MongoDB's allowance for fields added by servers.
pub(crate) const RESULT_MAX: usize = BATCH_BYTES_MAX + 16 * 1024;
/// Maximum number of registered cursors with released contents. Their next getMore returns the reason. Older cursors
/// are unknown (CursorNotFound).
const RELEASED_MAX: usize = 256;
/// Default number of documents in the first batch of a find.
pub const FIRST_BATCH: u64 = 101;

/// The command that opened a cursor, for error messages about its documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opener {
    /// A command such as listCollections, whose stream has no errors.
    List,
    /// A find on a collection.
    Find,
    /// An aggregate, or a find on a view.
    Aggregate,
}

/// Data that the owner of cursors attaches to a cursor, such as its user.
pub type CursorTag = Arc<dyn Any + Send + Sync>;

/// A cursor of one client.
pub struct Cursor {
    /// Namespace, for the reply and for killCursors.
    pub namespace: Namespace,
    /// UUID of the collection at the time of opening. The cursor ends if the collection is dropped.
    pub uuid: Option<[u8; 16]>,
    /// Data attached by the owner.
    pub tag: Option<CursorTag>,
    /// The session.
    pub session: Option<SessionId>,
    /// The transaction's number.
    pub transaction: Option<i64>,
    /// Stays open at the end and waits for more documents.
    pub tailable: bool,
    /// Lets getMore wait for more documents before it returns an empty batch.
    pub await_data: bool,
    /// True if the cursor has no idle timeout.
    pub no_timeout: bool,
    /// True if batches may only contain durable data.
    pub durable: bool,
    /// The operation, which can interrupt the stream.
    pub operation: Arc<Operation>,
    /// True if the end is detected by looking one document ahead, so that no client receives a
    /// cursor without further documents. MongoDB detects it only if it knows the end beforehand.
    pub looks_ahead: bool,
    /// True if a batch may have fewer documents than requested, because more batches follow.
    pub may_end_early: bool,
    /// True if the collection does not exist, so that no documents will come.
    pub missing: bool,
    /// Commits that may bring more documents while the cursor waits.
    pub interest: Interest,
    /// True if the stream writes ($out, $merge) and returns no documents.
    pub writes: bool,
    /// Data that the owner attaches to a cursor that writes: the write concern of its command.
    pub write_concern: Option<CursorTag>,
    /// The command that opened the cursor.
    pub(crate) opener: Opener,
    /// Number of batches requested, and of documents in them.
    batches: u64,
    documents: u64,
    created: Instant,
    /// Number of documents still to return; `None` is unlimited.
    pub(crate) remaining_limit: Option<u64>,
    /// Rest of maxTimeMS between requests; `None` is unlimited.
    remaining_time: Option<Duration>,
    /// Progress of a change stream, and the resume token after the delivered events.
    stream: Option<(Progress, DocumentBuf)>,
    source: Box<dyn Stage>,
    /// A document that did not fit into the last batch.
    pending: Option<DocumentCow>,
    /// Reason for which its contents were freed.
    pub(crate) released: Option<Release>,
}

/// Reason for which the contents of a cursor were freed. Its next getMore fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// Its collection was dropped, renamed or replaced.
    Collection,
    /// Its snapshot pinned too many old versions.
    Snapshot,
}

impl Cursor {
    /// Returns a cursor over a stream.
    pub fn new(namespace: Namespace, source: Box<dyn Stage>, operation: Arc<Operation>) -> Cursor {
        Cursor {
            interest: Interest::Collection(namespace.clone()),
            namespace,
            uuid: None,
            tag: None,
            session: None,
            transaction: None,
            tailable: false,
            durable: false,
            await_data: false,
            no_timeout: false,
            operation,
            looks_ahead: false,
            may_end_early: false,
            missing: false,
            writes: false,
            write_concern: None,
            opener: Opener::List,
            batches: 0,
            documents: 0,
            created: time::now(),
            remaining_limit: None,
            remaining_time: None,
            stream: None,
            source,
            pending: None,
            released: None,
        }
    }

    /// Makes the cursor a change stream.
    pub(crate) fn set_change_stream(&mut self, progress: Progress) {
        let reached = progress.reached();
        self.stream = Some((progress, reached));
        self.tailable = true;
        self.await_data = true;
        self.interest = match Scope::of(&self.namespace) {
            Scope::Collection(namespace) => Interest::Collection(namespace),
            Scope::Database(name) => Interest::Database(name),
            Scope::Deployment => Interest::Everything,
        };
    }

    /// Returns the resume token after all batches delivered so far: a change stream's
    /// `postBatchResumeToken`.
    pub fn resume_token(&self) -> Option<Document<'_>> {
        self.stream.as_ref().map(|(_, token)| token.view())
    }

    /// Returns true if the cursor stays open at the end of its documents, because more may follow.
    pub fn stays_open(&self) -> bool {
        self.tailable && !self.stream.as_ref().is_some_and(|(progress, _)| progress.has_ended())
    }

    /// Returns the cursor's stream.
    pub(crate) fn into_source(self) -> Box<dyn Stage> {
        self.source
    }

    /// Appends the next documents to the open array of `out`: at most `count`, and no more than fit
    /// into a reply. Returns their number, and whether the stream has ended.
    ///
    /// Errors: errors of the plan, with MongoDB's prefix.
    pub fn next_batch(&mut self, count: u64, out: &mut Builder) -> Result<(u64, bool)> {
        let operation = self.operation.clone();
        let capacity = out.capacity();
        let batch = operation.run(|| self.pull(count, out)).map_err(|error| self.prefix_error(error));
        // The reply does not belong to the operation. Its connection counts unread replies.
        operation.transfer_memory(out.capacity().saturating_sub(capacity));
        debug_assert!(
            batch.as_ref().map_or(true, |(found, _)| *found <= count),
            "more than {count} documents"
        );
        let (count, ended) = batch?;
        self.batches += 1;
        self.documents += count;
        Ok((count, ended))
    }

    /// Returns true if the batch should end before the next document: memory is scarce, and more
    /// batches can follow.
    fn ends_early(&self, out: &Builder, length: usize) -> bool {
        self.may_end_early && !self.operation.reserve_memory(growth(out, length))
    }

    fn prefix_error(&self, error: Error) -> Error {
        match self.opener {
            // Errors of the request, found during execution. MongoDB finds them before it, without a prefix.
            _ if matches!(
                error.code(),
                ErrorCode::InvalidNamespace | ErrorCode::OptionNotSupportedOnView
            ) =>
            {
                error
            }
            Opener::List => error,
            _ if self.batches > 0 => error.context("Executor error during getMore"),
            Opener::Find => error.context(&format!("Executor error during find command: {}", self.namespace)),
            Opener::Aggregate => error.context("PlanExecutor error during aggregation"),
        }
    }

    fn pull(&mut self, count: u64, out: &mut Builder) -> Result<(u64, bool)> {
        let start = out.len();
        let mut appended = 0;
        while appended < count {
            // A tailable cursor stays open after its limit.
            if self.remaining_limit == Some(0) {
                return Ok((appended, true));
            }
            let next = match self.pending.take() {
                Some(document) => Some(document),
                None => self.source.next()?.map(|row| row.document),
            };
            let Some(document) = next else {
                if let Some((progress, token)) = &mut self.stream {
                    *token = progress.reached();
                }
                return Ok((appended, true));
            };
            let length = document.view().bytes().len();
            check_size(length)?;
            let size = out.len() - start + length;
            // A batch stays small if unread replies use much memory.
            let ends = || size > BATCH_BYTES_SCARCE && self.ends_early(out, length);
            if appended > 0 && (size > BATCH_BYTES_MAX || ends()) {
                self.pending = Some(document);
                return Ok((appended, false));
            }
            if appended == 0
                && let Err(error) = self.operation.reserve_required(growth(out, length))
            {
                self.pending = Some(document);
                return Err(error);
            }
            out.push(document.view());
            if let Some((_, token)) = &mut self.stream
                && let Some(id) = document.view().get("_id").and_then(|id| id.as_document())
            {
                *token = id.to_owned();
            }
            appended += 1;
            if let Some(remaining) = &mut self.remaining_limit {
                *remaining = remaining.saturating_sub(1);
                if *remaining == 0 {
                    return Ok((appended, true));
                }
            }
        }
        if self.looks_ahead && self.pending.is_none() {
            self.pending = self.source.next()?.map(|row| row.document);
            return Ok((appended, self.pending.is_none()));
        }
        Ok((appended, false))
    }

    /// Returns true if the stream has ended. Looks one document ahead, so that a client does not
    /// receive a cursor without further documents.
    pub fn is_exhausted(&mut self) -> Result<bool> {
        if self.pending.is_none() {
            let next = self.source.next().map_err(|error| self.prefix_error(error))?;
            self.pending = next.map(|row| row.document);
        }
        Ok(self.pending.is_none())
    }
}

/// Returns the bytes by which a buffer grows for a document of this length. A full buffer doubles its size.
fn growth(out: &Builder, length: usize) -> usize {
    if out.len() + length > out.capacity() { out.capacity().max(length) } else { 0 }
}

/// All open cursors.
pub struct Cursors {
    open: Mutex<HashMap<i64, Slot>>,
    /// Cursors with released contents, oldest first, locked together with `open`. Some may be closed.
    released: Mutex<VecDeque<i64>>,
    random: Random,
    timed_out: AtomicU64,
}

/// Contents of a cursor, freed outside of the locks because it takes time.
type CursorResources = (Box<dyn Stage>, Option<DocumentCow>, Arc<Operation>);

/// Returns true if a cursor's collection was dropped or replaced.
fn is_dropped(catalog: &Catalog, namespace: &Namespace, uuid: Option<&[u8; 16]>) -> bool {
    uuid.is_some_and(|uuid| catalog.get(namespace).is_none_or(|now| now.uuid != *uuid))
}

/// An open cursor without a running getMore.
#[derive(Debug)]
pub struct IdleCursor {
    /// The cursor id.
    pub id: i64,
    /// The namespace.
    pub namespace: Namespace,
    /// Data attached by the owner.
    pub tag: Option<CursorTag>,
    /// The session.
    pub session: Option<SessionId>,
    /// Time since it was opened.
    pub age: Duration,
    /// Time since its last batch.
    pub idle: Duration,
    /// Number of delivered batches.
    pub batches: u64,
    /// Number of documents in them.
    pub documents: u64,
    /// True if it has no idle timeout.
    pub no_timeout: bool,
    /// True if it stays open at its end.
    pub tailable: bool,
    /// True if getMore waits at the end.
    pub await_data: bool,
    /// The command that opened it.
    pub originating_command: Option<Arc<DocumentBuf>>,
    /// Its plans, in the format of MongoDB's `planSummary`.
    pub plan_summary: Option<String>,
}

/// An idle cursor, or the entry of a cursor in use.
struct Slot {
    cursor: Option<Box<Cursor>>,
    namespace: Namespace,
    tag: Option<CursorTag>,
    session: Option<SessionId>,
    /// True if a transaction opened it.
    in_transaction: bool,
    uuid: Option<[u8; 16]>,
    /// The namespace that a waiting getMore watches.
    interest: Interest,
    no_timeout: bool,
    is_stream: bool,
    operation: Arc<Operation>,
    last_used: Instant,
    /// True if it was killed while in use. It is then not put back.
    killed: bool,
    /// Reason for which its contents are freed, at the latest when it is put back.
    released: Option<Release>,
    /// Bytes replaced by commits when its snapshot was taken, if it keeps one.
    replaced_at: Option<u64>,
}

impl Cursors {
    /// Returns an empty set. `seed` starts the ids, so that cursor ids of an earlier process are
    /// unknown.
    pub(crate) fn new(seed: u64) -> Cursors {
        Cursors {
            open: Mutex::default(),
            released: Mutex::default(),
            random: Random::new(seed.rotate_left(17)),
            timed_out: AtomicU64::new(0),
        }
    }

    /// Stores a cursor for later batches and returns its id.
    pub(crate) fn add(&self, mut cursor: Cursor) -> i64 {
        cursor.remaining_time = cursor.operation.remaining_time();
        cursor.operation.no_restart();
        cursor.operation.leave_place();
        cursor.operation.pause_memory();
        let mut open = self.open.lock();
        let id = loop {
            let id = (self.random.draw() >> 1) as i64;
            if id != 0 && !open.contains_key(&id) {
                break id;
            }
        };
        open.insert(id, Slot::new(cursor));
        id
    }

    /// Frees a cursor's contents if its collection is not in this catalog.
    pub(crate) fn release_if_dropped(&self, id: i64, catalog: &Catalog) {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id).filter(|slot| is_dropped(catalog, &slot.namespace, slot.uuid.as_ref()));
        let resources = slot.and_then(|slot| slot.release(Release::Collection));
        if resources.is_some() {
            self.add_released(&mut open, [id]);
        }
        drop(open);
        drop(resources);
    }

    /// Adds cursors with released contents. Removes the oldest beyond [`RELEASED_MAX`].
    fn add_released(&self, open: &mut HashMap<i64, Slot>, ids: impl IntoIterator<Item = i64>) {
        let mut released = self.released.lock();
        released.extend(ids);
        while released.len() > RELEASED_MAX {
            let oldest = released.pop_front();
            if let Some(id) = oldest.filter(|id| open.get(id).is_some_and(|slot| slot.cursor.is_some())) {
                open.remove(&id);
            }
        }
        debug_assert!(released.len() <= RELEASED_MAX, "{} released cursors", released.len());
    }

    /// Takes a cursor for reading; [`put_back`](Self::put_back) returns it.
    ///
    /// Errors: CursorNotFound, CursorInUse, Unauthorized for a cursor of another session or
    /// namespace.
    pub fn take(&self, id: i64, namespace: &Namespace) -> Result<Box<Cursor>> {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id).ok_or_else(|| not_found(id))?;
        if slot.namespace != *namespace {
            bail!(
                Unauthorized,
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                slot.namespace
            );
        }
        slot.last_used = time::now();
        let cursor =
            slot.cursor.take().ok_or_else(|| err!(CursorInUse, "cursor id {id} is already in use"))?;
        cursor.operation.set_remaining_time(cursor.remaining_time);
        cursor.operation.resume_memory();
        Ok(cursor)
    }

    /// Returns a cursor that is not exhausted. Its idle time begins at `used_until`: the end of the wait if a getMore
    /// waits without the cursor.
    pub fn put_back(&self, id: i64, mut cursor: Box<Cursor>, used_until: Instant) {
        cursor.remaining_time = cursor.operation.remaining_time();
        cursor.operation.pause_memory();
        let mut resources = None;
        let mut open = self.open.lock();
        if let Some(slot) = open.get_mut(&id) {
            debug_assert!(slot.cursor.is_none(), "two getMores read cursor {id}");
            if slot.killed {
                open.remove(&id);
            } else {
                slot.last_used = used_until;
                slot.cursor = Some(cursor);
                if let Some(reason) = slot.released {
                    resources = slot.release(reason);
                    self.add_released(&mut open, [id]);
                }
            }
        }
        drop(open);
        drop(resources);
    }

    /// Lets the idle time of a cursor begin now, because its waiting getMore ends early.
    pub fn end_wait(&self, id: i64) {
        if let Some(slot) = self.open.lock().get_mut(&id) {
            slot.last_used = slot.last_used.min(time::now());
        }
    }

    /// Frees the contents of cursors whose collections are not in this catalog. Their next getMore
    /// fails. A cursor in use is freed when it is put back.
    pub(crate) fn release_dropped(&self, catalog: &Catalog) {
        let mut open = self.open.lock();
        let dropped = open.iter_mut().filter(|(_, slot)| {
            slot.released.is_none() && is_dropped(catalog, &slot.namespace, slot.uuid.as_ref())
        });
        let (ids, resources): (Vec<i64>, Vec<CursorResources>) =
            dropped.filter_map(|(id, slot)| Some((*id, slot.release(Release::Collection)?))).unzip();
        self.add_released(&mut open, ids);
        // Dropped without the lock: freeing views and buffers takes time.
        drop(open);
        drop(resources);
    }

    /// Frees the contents of cursors whose snapshots were taken with fewer replaced bytes than
    /// `least`. Appends the number of replaced bytes of each remaining snapshot. A cursor in use is
    /// freed when it is put back.
    pub(crate) fn release_before(&self, least: u64, remaining: &mut Vec<u64>) {
        let mut open = self.open.lock();
        let (mut ids, mut resources) = (Vec::new(), Vec::new());
        for (id, slot) in open.iter_mut().filter(|(_, slot)| slot.released.is_none()) {
            match slot.replaced_at {
                Some(at) if at < least => {
                    if let Some(contents) = slot.release(Release::Snapshot) {
                        ids.push(*id);
                        resources.push(contents);
                    }
                }
                at => remaining.extend(at),
            }
        }
        self.add_released(&mut open, ids);
        drop(open);
        drop(resources);
    }

    /// Removes a cursor that was taken and has ended.
    pub fn close(&self, id: i64) {
        let closed = self.open.lock().remove(&id);
        debug_assert!(closed.is_none_or(|slot| slot.cursor.is_none()), "cursor {id} was not taken");
    }

    /// Returns the attached data of a cursor on this namespace.
    pub fn tag(&self, id: i64, namespace: &Namespace) -> Option<CursorTag> {
        let open = self.open.lock();
        open.get(&id).filter(|slot| slot.namespace == *namespace)?.tag.clone()
    }

    /// Returns the namespace and the attached data of a cursor.
    pub fn tagged(&self, id: i64) -> Option<(Namespace, CursorTag)> {
        let open = self.open.lock();
        let slot = open.get(&id)?;
        Some((slot.namespace.clone(), slot.tag.clone()?))
    }

    /// Ends a cursor, even in use. Returns its interest if it existed.
    pub(crate) fn kill(&self, id: i64) -> Option<Interest> {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id)?;
        let interest = slot.interest.clone();
        slot.operation.kill();
        slot.killed = true;
        let ended = slot.cursor.is_some().then(|| open.remove(&id));
        // The contents are freed without the lock.
        drop(open);
        drop(ended);
        Some(interest)
    }

    /// Ends every cursor of a session.
    pub fn kill_session(&self, session: &SessionId) {
        self.kill_sessions(|other| other == session);
    }

    /// Ends every cursor of the selected sessions.
    pub fn kill_sessions(&self, goes: impl Fn(&SessionId) -> bool) {
        self.kill_all(|slot| slot.session.as_ref().is_some_and(&goes));
    }

    /// Ends the cursors opened by the transactions of a session.
    pub fn kill_transaction(&self, session: &SessionId) {
        self.kill_all(|slot| slot.in_transaction && slot.session.as_ref() == Some(session));
    }

    /// Ends every cursor.
    pub fn end_all(&self) {
        self.kill_all(|_| true);
    }

    /// Ends cursors, even in use.
    fn kill_all(&self, goes: impl Fn(&Slot) -> bool) {
        self.remove(|slot| {
            if !goes(slot) {
                return false;
            }
            slot.operation.kill();
            slot.killed = true;
            slot.cursor.is_some()
        });
    }

    /// Removes cursors, and frees their contents without the lock. Returns their number.
    fn remove(&self, mut goes: impl FnMut(&mut Slot) -> bool) -> u64 {
        let removed: Vec<(i64, Slot)> = self.open.lock().extract_if(|_, slot| goes(slot)).collect();
        removed.len() as u64
    }

    /// Closes cursors that were idle for this time. Returns their number.
    pub fn close_idle(&self, after: Duration) -> u64 {
        let closed = self
            .remove(|slot| slot.cursor.is_some() && !slot.no_timeout && time::since(slot.last_used) >= after);
        self.timed_out.fetch_add(closed, Relaxed);
        closed
    }

    /// Returns the number of open cursors, and of cursors without a timeout.
    pub fn count(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.values().filter(|slot| slot.no_timeout).count())
    }

    /// Ends the idle cursor with the most memory, if it holds at least this number of bytes.
    /// Returns its namespace and its size.
    pub fn end_largest(&self, least: u64) -> Option<(Namespace, u64)> {
        let mut open = self.open.lock();
        let idle = open.iter().filter(|(_, slot)| slot.cursor.is_some());
        let (bytes, id) = idle.map(|(id, slot)| (slot.operation.memory_used(), *id)).max()?;
        if bytes < least {
            return None;
        }
        let ended = open.remove(&id)?;
        // The contents are freed without the lock.
        drop(open);
        Some((ended.namespace.clone(), bytes))
    }

    /// Returns the memory of the largest idle cursor, in bytes.
    pub fn largest(&self) -> u64 {
        let open = self.open.lock();
        let idle = open.values().filter(|slot| slot.cursor.is_some());
        idle.map(|slot| slot.operation.memory_used()).max().unwrap_or(0)
    }

    /// Returns the idle cursors.
    pub fn idle(&self) -> Vec<IdleCursor> {
        let open = self.open.lock();
        let idle = open.iter().filter_map(|(id, slot)| {
            let cursor = slot.cursor.as_ref()?;
            Some(IdleCursor {
                id: *id,
                namespace: slot.namespace.clone(),
                tag: slot.tag.clone(),
                session: slot.session,
                age: time::since(cursor.created),
                idle: time::since(slot.last_used),
                batches: cursor.batches,
                documents: cursor.documents,
                no_timeout: slot.no_timeout,
                tailable: cursor.tailable,
                await_data: cursor.await_data,
                originating_command: slot.operation.originating_command().cloned(),
                plan_summary: slot.operation.plan_summary(),
            })
        });
        idle.collect()
    }

    /// Returns the number of open change streams.
    pub fn change_streams(&self) -> usize {
        self.open.lock().values().filter(|slot| slot.is_stream).count()
    }

    /// Returns the number of cursors in use.
    pub fn pinned(&self) -> usize {
        self.open.lock().values().filter(|slot| slot.cursor.is_none()).count()
    }

    /// Returns the number of cursors closed by the idle timeout since the start.
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Relaxed)
    }
}

impl Slot {
    fn new(cursor: Cursor) -> Slot {
        Slot {
            namespace: cursor.namespace.clone(),
            tag: cursor.tag.clone(),
            session: cursor.session,
            in_transaction: cursor.transaction.is_some(),
            // A transaction's view keeps its collections.
            uuid: cursor.uuid.filter(|_| cursor.transaction.is_none()),
            interest: cursor.interest.clone(),
            no_timeout: cursor.no_timeout,
            is_stream: cursor.stream.is_some(),
            operation: cursor.operation.clone(),
            last_used: time::now(),
            killed: false,
            released: None,
            // Tailable cursors take a new snapshot for each batch.
            replaced_at: (!cursor.tailable && cursor.opener != Opener::List)
                .then(|| cursor.operation.replaced_at()),
            cursor: Some(Box::new(cursor)),
        }
    }

    /// Marks the cursor as released and takes its contents, unless the cursor is in use.
    fn release(&mut self, reason: Release) -> Option<CursorResources> {
        self.released = Some(reason);
        let cursor = self.cursor.as_deref_mut()?;
        cursor.released = Some(reason);
        let operation = Arc::new(Operation::new(self.operation.id));
        self.operation = operation.clone();
        // A getMore is refused before it reads the source.
        let released = from_fn(|| Err(err!(QueryPlanKilled, "the cursor's contents were released")));
        let source = std::mem::replace(&mut cursor.source, released);
        Some((source, cursor.pending.take(), std::mem::replace(&mut cursor.operation, operation)))
    }
}

/// Errors: BSONObjectTooLarge for a document that exceeds the size of a reply.
fn check_size(length: usize) -> Result<()> {
    if length <= RESULT_MAX {
        return Ok(());
    }
    Err(err!(
        BSONObjectTooLarge,
        "BSONObj size: {length} (0x{length:X}) is invalid. Size must be between 0 and {RESULT_MAX}(16MB)"
    ))
}

fn not_found(id: i64) -> base::Error {
    err!(CursorNotFound, "cursor id {id} not found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use query::Interrupt;

    #[test]
    fn of_cursors_over_dropped_collections_only_the_latest_are_known() {
        let cursors = Cursors::new(1);
        let namespace = Namespace::parse("test.c").unwrap();
        let cursor = |uuid| {
            let mut cursor =
                Cursor::new(namespace.clone(), from_fn(|| Ok(None)), Arc::new(Operation::new(1)));
            cursor.uuid = uuid;
            cursors.add(cursor)
        };
        let without = cursor(None);
        let read = cursor(Some([1; 16]));
        let taken = cursors.take(read, &namespace).unwrap();
        let mut dropped = Vec::new();
        for _ in 0..3 {
            dropped.extend((0..RELEASED_MAX / 2).map(|_| cursor(Some([1; 16]))));
            cursors.release_dropped(&Catalog::default());
        }
        assert_eq!(cursors.count().0, RELEASED_MAX + 2);
        let is_known = |id: &&i64| cursors.open.lock().contains_key(id);
        assert_eq!(dropped.iter().filter(is_known).count(), RELEASED_MAX);
        assert_eq!(
            dropped.iter().rev().take(RELEASED_MAX / 2).filter(is_known).count(),
            RELEASED_MAX / 2,
            "the latest"
        );
        cursors.put_back(read, taken, time::now());
        assert_eq!(cursors.count().0, RELEASED_MAX + 1, "one that was being read counts from now on");
        assert!(cursors.take(read, &namespace).is_ok() && cursors.take(without, &namespace).is_ok());
    }

    #[test]
    fn a_cursor_is_not_idle_while_its_get_more_waits() {
        let cursors = Cursors::new(1);
        let namespace = Namespace::parse("test.c").unwrap();
        let open =
            || cursors.add(Cursor::new(namespace.clone(), from_fn(|| Ok(None)), Arc::new(Operation::new(1))));
        let (waits, waited) = (open(), open());
        for (id, used_until) in
            [(waits, time::now() + Duration::from_secs(3600)), (waited, time::now() - Duration::from_secs(1))]
        {
            let cursor = cursors.take(id, &namespace).unwrap();
            cursors.put_back(id, cursor, used_until);
        }
        assert_eq!(cursors.close_idle(Duration::from_secs(1)), 1);
        let cursor = cursors.take(waits, &namespace).unwrap();
        cursors.put_back(waits, cursor, time::now() + Duration::from_secs(3600));
        // The client has gone.
        cursors.end_wait(waits);
        cursors.end_wait(waited);
        assert_eq!(cursors.close_idle(Duration::ZERO), 1);
    }

    #[test]
    fn contents_of_ended_cursors_are_freed_without_the_lock() {
        /// A stream that notes whether the registry was locked when it was freed.
        struct Stream(Arc<Cursors>, Arc<AtomicU64>);
        impl Stage for Stream {
            fn next(&mut self) -> Result<Option<query::Row>> {
                Ok(None)
            }
        }
        impl Drop for Stream {
            fn drop(&mut self) {
                self.1.fetch_add(u64::from(self.0.open.try_lock().is_some()), Relaxed);
            }
        }
        let (cursors, freed) = (Arc::new(Cursors::new(1)), Arc::new(AtomicU64::new(0)));
        let add = || {
            let stream = Box::new(Stream(cursors.clone(), freed.clone()));
            let namespace = Namespace::parse("test.c").unwrap();
            cursors.add(Cursor::new(namespace, stream, Arc::new(Operation::new(1))))
        };
        add();
        assert_eq!((cursors.close_idle(Duration::ZERO), freed.load(Relaxed)), (1, 1));
        cursors.kill(add());
        assert_eq!(freed.load(Relaxed), 2);
        add();
        cursors.end_all();
        assert_eq!((cursors.count().0, freed.load(Relaxed)), (0, 3));
    }

    #[test]
    fn the_end_of_a_transaction_ends_its_cursors_even_in_use() {
        let cursors = Cursors::new(1);
        let namespace = Namespace::parse("test.c").unwrap();
        let session = SessionId::new([1; 16], [2; 32]);
        let add = |in_transaction| {
            let mut cursor =
                Cursor::new(namespace.clone(), from_fn(|| Ok(None)), Arc::new(Operation::new(1)));
            cursor.session = Some(session);
            let id = cursors.add(cursor);
            cursors.open.lock().get_mut(&id).unwrap().in_transaction = in_transaction;
            id
        };
        let (idle, read, other) = (add(true), add(true), add(false));
        let taken = cursors.take(read, &namespace).unwrap();
        cursors.kill_transaction(&session);
        assert!(cursors.take(idle, &namespace).is_err());
        assert!(taken.operation.check().is_err(), "a getMore that reads the cursor ends");
        cursors.put_back(read, taken, time::now());
        assert!(cursors.take(read, &namespace).is_err());
        assert!(cursors.take(other, &namespace).is_ok());
    }
}
