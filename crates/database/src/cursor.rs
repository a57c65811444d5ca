//! Open cursors: streams of documents that clients fetch batch by batch.

use crate::catalog::Catalog;
use crate::operation::Operation;
use crate::retry_record::SessionId;
use crate::watch::{Interest, Progress};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow};
use base::random::Random;
use base::{Error, ErrorCode, Namespace, Result, err};
use parking_lot::Mutex;
use query::Stage;
use query::change::Scope;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The most bytes of documents in one batch: a reply must stay a valid document.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size of a batch in bytes beyond which it ends where memory is scarce.
const BATCH_BYTES_SCARCE: usize = 64 * 1024;
/// The most bytes of one document, with MongoDB's allowance for what servers add to it.
const RESULT_MAX: usize = BATCH_BYTES_MAX + 16 * 1024;
/// How many cursors over dropped collections are known as such; older ones are as if they had never been.
const DEAD_MAX: usize = 256;
/// Documents in the first batch of a find that doesn't say.
pub const FIRST_BATCH: u64 = 101;

/// Which command opened a cursor, as messages tell where its documents failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opener {
    /// One that lists: nothing fails there.
    List,
    /// A find on a collection.
    Find,
    /// An aggregate, or a find on a view.
    Aggregate,
}

/// What whoever keeps cursors wants to remember of one, such as whose it is.
pub type CursorTag = Arc<dyn Any + Send + Sync>;

/// A cursor of one client.
pub struct Cursor {
    /// What it reads, for the reply and for killCursors.
    pub namespace: Namespace,
    /// The collection it was opened on, by UUID, so that dropping it ends the cursor.
    pub uuid: Option<[u8; 16]>,
    /// What its keeper remembers of it.
    pub tag: Option<CursorTag>,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// The number of the transaction it belongs to.
    pub transaction: Option<i64>,
    /// Stays open at the end, waiting for more.
    pub tailable: bool,
    /// A getMore waits a while for more before it returns empty.
    pub await_data: bool,
    /// Never closed for idleness.
    pub no_timeout: bool,
    /// Each batch of it may show only what no crash undoes.
    pub durable: bool,
    /// What stops its loops.
    pub operation: Arc<Operation>,
    /// Whether the end is found out by looking one document ahead, so that no client is given a
    /// cursor that yields nothing more; MongoDB does so only where it knows the end beforehand.
    pub looks_ahead: bool,
    /// Whether a batch may have fewer documents than were asked for, as others follow.
    pub may_end_early: bool,
    /// Whether the collection isn't there, so that there is nothing to come.
    pub missing: bool,
    /// Whose commits may bring more, where it waits for more.
    pub interest: Interest,
    /// Whether the stream writes ($out, $merge) rather than yields.
    pub writes: bool,
    /// What it was opened by.
    pub(crate) opener: Opener,
    /// How many batches have been asked for, and the documents in them.
    batches: u64,
    documents: u64,
    created: Instant,
    /// Documents still wanted; `None` is all there are.
    pub(crate) wanted: Option<u64>,
    /// What is left of maxTimeMS between requests, in milliseconds; zero is no limit.
    remaining_millis: u64,
    /// How far the change stream has come, if it is one, and where a client resumes behind what it has been
    /// given.
    stream: Option<(Progress, DocumentBuf)>,
    source: Box<dyn Stage>,
    /// A document that did not fit into the last batch.
    pending: Option<DocumentCow>,
    /// Whether its snapshot was given up, because it kept too much.
    pub(crate) lost: bool,
}

impl Cursor {
    /// A cursor over a stream.
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
            opener: Opener::List,
            batches: 0,
            documents: 0,
            created: Instant::now(),
            wanted: None,
            remaining_millis: 0,
            stream: None,
            source,
            pending: None,
            lost: false,
        }
    }

    /// Says that the documents are the events of a change stream.
    pub(crate) fn streams(&mut self, progress: Progress) {
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

    /// Where a client resumes that has been given all batches so far: a change stream's
    /// `postBatchResumeToken`.
    pub fn resume_token(&self) -> Option<Document<'_>> {
        self.stream.as_ref().map(|(_, token)| token.view())
    }

    /// Whether a cursor that has nothing more now will have more later.
    pub fn goes_on(&self) -> bool {
        self.tailable && !self.stream.as_ref().is_some_and(|(progress, _)| progress.has_ended())
    }

    /// Gives up the cursor for its stream.
    pub(crate) fn into_source(self) -> Box<dyn Stage> {
        self.source
    }

    /// Appends the next documents to the open array of `out`: at most `count`, and no more than
    /// fit into a reply. Returns how many, and whether the stream has ended.
    ///
    /// Errors: those of the plan, introduced as MongoDB introduces them.
    pub fn next_batch(&mut self, count: u64, out: &mut Builder) -> Result<(u64, bool)> {
        let operation = self.operation.clone();
        let room = out.capacity();
        let batch = operation.run(|| self.pull(count, out)).map_err(|error| self.introduce(error));
        // The reply is nobody's operation: what waits to be read is counted by its connection.
        operation.leave_memory(out.capacity().saturating_sub(room));
        self.batches += 1;
        self.documents += batch.as_ref().map_or(0, |(count, _)| *count);
        batch
    }

    /// Whether the batch had better end before it grows by a document, as memory is scarce and the rest can follow.
    fn ends_early(&self, out: &Builder, length: usize) -> bool {
        // A buffer that is full becomes twice as large.
        let more = match out.len() + length > out.capacity() {
            true => out.capacity().max(length),
            false => 0,
        };
        self.may_end_early && !self.operation.reserve_memory(more)
    }

    fn introduce(&self, error: Error) -> Error {
        match self.opener {
            // What is wrong with the request, and found out late.
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
            let next = match self.pending.take() {
                Some(document) => Some(document),
                None => self.source.next()?,
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
            // Where replies that nobody has read yet take much memory, this one stays small.
            let ends = || size > BATCH_BYTES_SCARCE && self.ends_early(out, length);
            if appended > 0 && (size > BATCH_BYTES_MAX || ends()) {
                self.pending = Some(document);
                return Ok((appended, false));
            }
            out.push(document.view());
            if let Some((_, token)) = &mut self.stream
                && let Some(id) = document.view().get("_id").and_then(|id| id.as_document())
            {
                *token = id.to_owned();
            }
            appended += 1;
            if let Some(wanted) = &mut self.wanted {
                *wanted = wanted.saturating_sub(1);
                if *wanted == 0 {
                    return Ok((appended, true));
                }
            }
        }
        if self.looks_ahead && self.pending.is_none() {
            self.pending = self.source.next()?;
            return Ok((appended, self.pending.is_none()));
        }
        Ok((appended, false))
    }

    /// Whether the stream has nothing more, found out by looking one document ahead, so that a
    /// client isn't given a cursor that yields nothing.
    pub fn is_exhausted(&mut self) -> Result<bool> {
        if self.pending.is_none() {
            self.pending = self.source.next().map_err(|error| self.introduce(error))?;
        }
        Ok(self.pending.is_none())
    }
}

/// All open cursors.
pub struct Cursors {
    open: Mutex<HashMap<i64, Slot>>,
    /// Those over dropped collections, the oldest first; locked while `open` is. Some may have been closed.
    dead: Mutex<VecDeque<i64>>,
    random: Random,
    timed_out: AtomicU64,
}

/// What a cursor over a dropped collection held; dropped without any lock.
type Remains = (Box<dyn Stage>, Option<DocumentCow>, Arc<Operation>);

/// Whether what a cursor was opened on isn't there any more, or is another collection by now.
fn is_gone(catalog: &Catalog, namespace: &Namespace, uuid: Option<&[u8; 16]>) -> bool {
    uuid.is_some_and(|uuid| catalog.get(namespace).is_none_or(|now| now.uuid != *uuid))
}

/// What is known of an open cursor that nobody reads at the moment.
#[derive(Debug)]
pub struct IdleCursor {
    /// Its id.
    pub id: i64,
    /// What it reads.
    pub namespace: Namespace,
    /// What its keeper remembers of it.
    pub tag: Option<CursorTag>,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// The time since it was opened.
    pub age: Duration,
    /// The time since its last batch.
    pub idle: Duration,
    /// The batches it has given.
    pub batches: u64,
    /// The documents in them.
    pub documents: u64,
    /// Whether it is never closed for idleness.
    pub no_timeout: bool,
    /// Whether it stays open at its end.
    pub tailable: bool,
    /// Whether it waits there.
    pub await_data: bool,
}

/// A cursor at rest, or the trace of one that is being read.
struct Slot {
    cursor: Option<Box<Cursor>>,
    namespace: Namespace,
    tag: Option<CursorTag>,
    session: Option<SessionId>,
    uuid: Option<[u8; 16]>,
    no_timeout: bool,
    is_stream: bool,
    operation: Arc<Operation>,
    used: Instant,
    /// Killed while being read: it is not put back.
    killed: bool,
    /// Whether its collection or its snapshot is gone: what it held is freed, and only the next getMore's error is left of it.
    dead: bool,
    /// Whether its snapshot was given up.
    lost: bool,
    /// The bytes that commits had replaced when its snapshot was taken, where it keeps one.
    pinned_at: Option<u64>,
}

impl Cursors {
    /// None yet; `seed` starts the ids, so that those of an earlier run name nothing in this one.
    pub(crate) fn new(seed: u64) -> Cursors {
        Cursors {
            open: Mutex::default(),
            dead: Mutex::default(),
            random: Random::new(seed.rotate_left(17)),
            timed_out: AtomicU64::new(0),
        }
    }

    /// Keeps a cursor for later batches and gives it an id.
    pub(crate) fn add(&self, mut cursor: Cursor) -> i64 {
        cursor.remaining_millis = cursor.operation.remaining_millis();
        cursor.operation.rest_memory();
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

    /// Frees what one cursor holds if this catalog doesn't have its collection.
    pub(crate) fn let_go_if_dropped(&self, id: i64, catalog: &Catalog) {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id).filter(|slot| is_gone(catalog, &slot.namespace, slot.uuid.as_ref()));
        let remains = slot.and_then(Slot::let_go);
        if remains.is_some() {
            self.note_dead(&mut open, [id]);
        }
        drop(open);
        drop(remains);
    }

    /// Notes whose collections are gone, and forgets the oldest of those beyond [`DEAD_MAX`].
    fn note_dead(&self, open: &mut HashMap<i64, Slot>, ids: impl IntoIterator<Item = i64>) {
        let mut dead = self.dead.lock();
        dead.extend(ids);
        while dead.len() > DEAD_MAX {
            let oldest = dead.pop_front();
            if let Some(id) = oldest.filter(|id| open.get(id).is_some_and(|slot| slot.cursor.is_some())) {
                open.remove(&id);
            }
        }
    }

    /// Takes a cursor for reading; [`put_back`](Self::put_back) returns it.
    ///
    /// Errors: CursorNotFound, CursorInUse, Unauthorized where another session opened it or the
    /// namespace differs.
    pub fn take(&self, id: i64, namespace: &Namespace) -> Result<Box<Cursor>> {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id).ok_or_else(|| not_found(id))?;
        if slot.namespace != *namespace {
            return Err(err!(
                Unauthorized,
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                slot.namespace
            ));
        }
        slot.used = Instant::now();
        let cursor =
            slot.cursor.take().ok_or_else(|| err!(CursorInUse, "cursor id {id} is already in use"))?;
        cursor.operation.set_max_time(cursor.remaining_millis);
        cursor.operation.resume_memory();
        Ok(cursor)
    }

    /// Returns a cursor that is not exhausted.
    pub fn put_back(&self, id: i64, mut cursor: Box<Cursor>) {
        cursor.remaining_millis = cursor.operation.remaining_millis();
        cursor.operation.rest_memory();
        let mut remains = None;
        let mut open = self.open.lock();
        if let Some(slot) = open.get_mut(&id) {
            if slot.killed {
                open.remove(&id);
            } else {
                slot.used = Instant::now();
                slot.cursor = Some(cursor);
                if slot.dead {
                    remains = slot.let_go();
                    self.note_dead(&mut open, [id]);
                }
            }
        }
        drop(open);
        drop(remains);
    }

    /// Frees what cursors hold whose collections this catalog doesn't have: nothing can be read by them any more, and
    /// whoever asks for their next batch is told so. One that is being read is freed when it is put back.
    pub(crate) fn let_go_of_dropped(&self, catalog: &Catalog) {
        let mut open = self.open.lock();
        let dying = open
            .iter_mut()
            .filter(|(_, slot)| !slot.dead && is_gone(catalog, &slot.namespace, slot.uuid.as_ref()));
        let (ids, remains): (Vec<i64>, Vec<Remains>) =
            dying.filter_map(|(id, slot)| Some((*id, slot.let_go()?))).unzip();
        self.note_dead(&mut open, ids);
        // Not under the lock: views and buffers may take a while.
        drop(open);
        drop(remains);
    }

    /// Frees what cursors hold whose snapshots were taken when fewer bytes had been replaced. Returns that number for
    /// the oldest snapshot left. A cursor that is being read is freed when it is put back.
    pub(crate) fn let_go_before(&self, least: u64) -> u64 {
        let mut open = self.open.lock();
        let (mut oldest, mut ids, mut remains) = (u64::MAX, Vec::new(), Vec::new());
        for (id, slot) in open.iter_mut().filter(|(_, slot)| !slot.dead) {
            match slot.pinned_at {
                Some(at) if at < least => {
                    slot.lost = true;
                    if let Some(held) = slot.let_go() {
                        ids.push(*id);
                        remains.push(held);
                    }
                }
                at => oldest = oldest.min(at.unwrap_or(u64::MAX)),
            }
        }
        self.note_dead(&mut open, ids);
        drop(open);
        drop(remains);
        oldest
    }

    /// Forgets a cursor that was taken and came to its end.
    pub fn close(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// What is remembered of a cursor on this namespace.
    pub fn tag(&self, id: i64, namespace: &Namespace) -> Option<CursorTag> {
        let open = self.open.lock();
        open.get(&id).filter(|slot| slot.namespace == *namespace)?.tag.clone()
    }

    /// Ends a cursor, also one being read; whether there was one on this namespace.
    pub fn kill(&self, id: i64, namespace: &Namespace) -> bool {
        let mut open = self.open.lock();
        let Some(slot) = open.get_mut(&id).filter(|slot| slot.namespace == *namespace) else { return false };
        slot.operation.kill();
        if slot.cursor.is_some() {
            open.remove(&id);
        } else {
            slot.killed = true;
        }
        true
    }

    /// Ends every cursor of a session.
    pub fn kill_session(&self, session: &SessionId) {
        self.open.lock().retain(|_, slot| {
            let goes = slot.session.as_ref() == Some(session);
            if goes {
                slot.operation.kill();
                slot.killed = true;
            }
            !goes || slot.cursor.is_none()
        });
    }

    /// Ends the cursors that the transactions of a session have opened.
    pub fn kill_transaction(&self, session: &SessionId) {
        self.open.lock().retain(|_, slot| {
            let in_transaction = slot.cursor.as_ref().is_some_and(|cursor| cursor.transaction.is_some());
            !(in_transaction && slot.session.as_ref() == Some(session))
        });
    }

    /// Closes cursors that lay unused for so long; how many.
    pub fn close_idle(&self, after: Duration) -> u64 {
        let mut closed = 0;
        self.open.lock().retain(|_, slot| {
            let stays = slot.cursor.is_none() || slot.no_timeout || slot.used.elapsed() < after;
            closed += u64::from(!stays);
            stays
        });
        self.timed_out.fetch_add(closed, Relaxed);
        closed
    }

    /// Open cursors: all, and those that never time out.
    pub fn count(&self) -> (usize, usize) {
        let open = self.open.lock();
        (open.len(), open.values().filter(|slot| slot.no_timeout).count())
    }

    /// Ends, of the cursors that nobody reads, the one that holds the most memory, if that is so many bytes; what it
    /// read and how much it held.
    pub fn end_largest(&self, least: u64) -> Option<(Namespace, u64)> {
        let mut open = self.open.lock();
        let idle = open.iter().filter(|(_, slot)| slot.cursor.is_some());
        let (held, id) = idle.map(|(id, slot)| (slot.operation.held(), *id)).max()?;
        if held < least {
            return None;
        }
        let ended = open.remove(&id)?;
        // What it holds is freed without the lock.
        drop(open);
        Some((ended.namespace.clone(), held))
    }

    /// How much memory the largest of the cursors holds that nobody reads, in bytes.
    pub fn largest(&self) -> u64 {
        let open = self.open.lock();
        let idle = open.values().filter(|slot| slot.cursor.is_some());
        idle.map(|slot| slot.operation.held()).max().unwrap_or(0)
    }

    /// The open cursors that nobody reads at the moment.
    pub fn idle(&self) -> Vec<IdleCursor> {
        let open = self.open.lock();
        let idle = open.iter().filter_map(|(id, slot)| {
            let cursor = slot.cursor.as_ref()?;
            Some(IdleCursor {
                id: *id,
                namespace: slot.namespace.clone(),
                tag: slot.tag.clone(),
                session: slot.session,
                age: cursor.created.elapsed(),
                idle: slot.used.elapsed(),
                batches: cursor.batches,
                documents: cursor.documents,
                no_timeout: slot.no_timeout,
                tailable: cursor.tailable,
                await_data: cursor.await_data,
            })
        });
        idle.collect()
    }

    /// Change streams that are open.
    pub fn streams(&self) -> usize {
        self.open.lock().values().filter(|slot| slot.is_stream).count()
    }

    /// Cursors being read at the moment.
    pub fn pinned(&self) -> usize {
        self.open.lock().values().filter(|slot| slot.cursor.is_none()).count()
    }

    /// Cursors closed for idleness since the start.
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
            // What a transaction reads, its own view has.
            uuid: cursor.uuid.filter(|_| cursor.transaction.is_none()),
            no_timeout: cursor.no_timeout,
            is_stream: cursor.stream.is_some(),
            operation: cursor.operation.clone(),
            used: Instant::now(),
            killed: false,
            dead: false,
            lost: false,
            // Cursors that wait for more read anew each time.
            pinned_at: (!cursor.tailable && cursor.opener != Opener::List)
                .then(|| cursor.operation.pinned_at()),
            cursor: Some(Box::new(cursor)),
        }
    }

    /// Lets go of all that a cursor holds whose collection is gone, unless somebody reads it at the moment.
    fn let_go(&mut self) -> Option<Remains> {
        self.dead = true;
        let cursor = self.cursor.as_deref_mut()?;
        cursor.lost = self.lost;
        let operation = Arc::new(Operation::new(self.operation.id));
        self.operation = operation.clone();
        let source = std::mem::replace(&mut cursor.source, Box::new(Gone));
        Some((source, cursor.pending.take(), std::mem::replace(&mut cursor.operation, operation)))
    }
}

/// In the place of what a cursor held; its getMore is refused before it comes here.
struct Gone;

impl Stage for Gone {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        Ok(None)
    }
}

/// Errors: BSONObjectTooLarge for a document that no client could take.
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

    #[test]
    fn of_cursors_over_dropped_collections_only_the_latest_are_known() {
        let cursors = Cursors::new(1);
        let namespace = Namespace::parse("test.c").unwrap();
        let cursor = |uuid| {
            let mut cursor = Cursor::new(namespace.clone(), Box::new(Gone), Arc::new(Operation::new(1)));
            cursor.uuid = uuid;
            cursors.add(cursor)
        };
        let without = cursor(None);
        let read = cursor(Some([1; 16]));
        let taken = cursors.take(read, &namespace).unwrap();
        let mut dropped = Vec::new();
        for _ in 0..3 {
            dropped.extend((0..DEAD_MAX / 2).map(|_| cursor(Some([1; 16]))));
            cursors.let_go_of_dropped(&Catalog::default());
        }
        assert_eq!(cursors.count().0, DEAD_MAX + 2);
        let is_known = |id: &&i64| cursors.open.lock().contains_key(id);
        assert_eq!(dropped.iter().filter(is_known).count(), DEAD_MAX);
        assert_eq!(
            dropped.iter().rev().take(DEAD_MAX / 2).filter(is_known).count(),
            DEAD_MAX / 2,
            "the latest"
        );
        cursors.put_back(read, taken);
        assert_eq!(cursors.count().0, DEAD_MAX + 1, "one that was being read counts from now on");
        assert!(cursors.take(read, &namespace).is_ok() && cursors.take(without, &namespace).is_ok());
    }
}
