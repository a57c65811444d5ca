//! The journal: every batch, in order, in append-only segment files.
//!
//! A commit appends its frame with one write, so that it survives the end of the process; a sync makes all
//! frames written so far survive the end of the machine. Whoever needs a sync and finds none running makes
//! one for all who wait; those who come meanwhile share the next. So a lone writer waits for one sync and no
//! timer, and many writers make far fewer syncs than commits. Who waits without a thread leaves a waker; where a
//! sync ends and some are left whose frames came too late for it, one is asked for on their behalf.
//!
//! Where all commits wait for syncs, frames are written by those alone (`unwritten.rs`); then what nobody has
//! waited for may be lost with the process.
//!
//! Where somebody waits for syncs, the segment is written ahead with zeros, a piece at a time: a sync of bytes
//! that the file already has is quicker than one that makes it longer, as that changes its inode, too.
//!
//! A segment ends where a checkpoint froze the state, and is removed when that checkpoint is complete. After
//! a failed write the segment is cut back to what it was. After a failed sync nobody can tell what of the
//! journal is on the disk, so it takes no more commits until a checkpoint has made it superfluous.

#[cfg(all(test, feature = "shuttle", feature = "mutants"))]
#[allow(clippy::unwrap_used)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::files::{BLOCK, File, Files};
use super::latency::Latency;
use super::mark::Mark;
use super::record::Encoded;
use super::unwritten::{Part, Unwritten};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{Awaited, Error, Result, mutant};

/// The first bytes of a segment.
const SEGMENT_MAGIC: [u8; 8] = *b"VellumJ\n";
/// The version of the segments' format.
const SEGMENT_VERSION: u32 = 2;
/// Magic, version, the directory's id, the segment's number, checksum.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 8 + 4 + 8 + 8 + 4;
pub(super) const SUFFIX: &str = ".journal";
/// What is written ahead at once.
#[cfg(not(test))]
const AHEAD_BYTES: usize = 1 << 20;
/// Little, so that short tests cross its end.
#[cfg(test)]
const AHEAD_BYTES: usize = 1 << 10;

/// The segments' directory, and whose they are.
#[derive(Clone)]
pub(super) struct Segments {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    /// The random number that data directory and journal share.
    pub(super) id: u64,
}

impl Segments {
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:016}{SUFFIX}"))
    }

    /// The numbers of the segments there are, ascending. Other names in the directory are left alone.
    pub(super) fn list(&self) -> Result<Vec<u64>> {
        let names = self.names()?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The names in the directory; none if there is no directory.
    fn names(&self) -> Result<Vec<String>> {
        match self.files.list(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(|error| during("reading", &self.directory, error)),
        }
    }

    /// The names in the directory that could be taken for a segment's.
    pub(super) fn strays(&self) -> Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| name.ends_with(SUFFIX) && number_of(name).is_none());
        Ok(names)
    }

    /// A number greater than `number` and than that of any file there is.
    pub(super) fn next(&self, number: u64) -> Result<u64> {
        Ok(self.list()?.last().copied().unwrap_or_default().max(number) + 1)
    }

    /// Makes a segment without any frames, durably.
    pub(super) fn create(&self, number: u64) -> Result<Arc<dyn File>> {
        let path = self.path(number);
        let make = || {
            let file = self.files.open(&path, true)?;
            file.set_len(0)?;
            file.write_at(&self.header(number), 0)?;
            file.sync()?;
            self.files.sync_directory(&self.directory)?;
            Ok(file)
        };
        make().map_err(|error| during("making", &path, error))
    }

    /// The header of a segment.
    pub(super) fn header(&self, number: u64) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[..8].copy_from_slice(&SEGMENT_MAGIC);
        header[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        header[12..20].copy_from_slice(&self.id.to_le_bytes());
        header[20..28].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..28]);
        header[28..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Checks a segment's header. `Ok(false)` if it isn't whole, as after a crash while it was made.
    pub(super) fn check_header(&self, number: u64, bytes: &[u8]) -> Result<bool> {
        let Some(header) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else { return Ok(false) };
        if *header == self.header(number) {
            return Ok(true);
        }
        let path = self.path(number);
        let (fields, checksum) = header.split_at(28);
        if checksum != crc32c::crc32c(fields).to_le_bytes() {
            return Ok(false);
        }
        let version =
            fields.get(8..12).and_then(|version| version.first_chunk()).map(|v| u32::from_le_bytes(*v));
        let what = match version {
            Some(other) if other != SEGMENT_VERSION => {
                format!("is a segment of version {other}: this program reads version {SEGMENT_VERSION}")
            }
            _ => "belongs to another data directory, or has been renamed".to_string(),
        };
        Err(Error::Corrupted(format!("{} {what}", path.display())))
    }

    /// Whether so begins what was never a segment: other bytes, where a segment that was only begun has the
    /// first ones of its header or zeros.
    pub(super) fn begins_otherwise(bytes: &[u8]) -> bool {
        let begin = bytes.get(..SEGMENT_MAGIC.len()).unwrap_or(bytes);
        !SEGMENT_MAGIC.starts_with(begin) && begin.iter().any(|byte| *byte != 0)
    }

    /// Removes a segment.
    pub(super) fn remove(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        self.files.remove(&path).map_err(|error| during("removing", &path, error))
    }
}

/// The number of the segment with a name, if a segment has such a name.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (digits == format!("{number:016}")).then_some(number)
}

/// An error of the operating system, with what was being done.
pub(super) fn during(what: &str, path: &Path, error: std::io::Error) -> Error {
    match Error::from(error) {
        Error::Full(message) => Error::Full(format!("{what} {}: {message}", path.display())),
        Error::Io { kind, message } => {
            Error::Io { kind, message: format!("{what} {}: {message}", path.display()) }
        }
        error => error,
    }
}

/// The segment being written; whoever has it is the only one who commits.
pub(super) struct Appender {
    number: u64,
    file: Arc<dyn File>,
    /// Where the next frame goes.
    len: u64,
    /// How long the file is: what lies beyond `len` are zeros.
    ahead: u64,
    /// The position of the last frame.
    position: u64,
}

impl Appender {
    /// Goes on in a file that is as long as what it holds.
    pub(super) fn new(number: u64, file: Arc<dyn File>, len: u64, position: u64) -> Self {
        Appender { number, file, len, ahead: len, position }
    }

    /// The number of the segment.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// Writes zeros behind the last frame. Without room for them the file stays as it was.
fn write_ahead(appender: &mut Appender) {
    // On the heap, since constants of this size would make the program as much larger.
    match appender.file.write_at(&vec![0; AHEAD_BYTES], appender.len) {
        Ok(()) => appender.ahead = appender.len + AHEAD_BYTES as u64,
        // If this fails too, zeros in part do no harm either.
        Err(_) => _ = appender.file.set_len(appender.len),
    }
}

/// Makes sure that the file has room for a frame, in whole blocks; true if zeros had to be written for that.
fn fill_ahead(appender: &mut Appender, len: usize) -> std::io::Result<bool> {
    let end = appender.len + len as u64;
    if end <= appender.ahead && appender.ahead.is_multiple_of(BLOCK as u64) {
        return Ok(false);
    }
    let fill = |to: u64| {
        let to = to.next_multiple_of(BLOCK as u64);
        let zeros = vec![0; (to - appender.ahead) as usize];
        appender.file.write_at(&zeros, appender.ahead).map(|()| to)
    };
    // Without room for much, what it takes now.
    appender.ahead = fill(end + AHEAD_BYTES as u64).or_else(|_| fill(end))?;
    Ok(true)
}

/// What all who write or wait share.
pub(super) struct Journal {
    pub(super) segments: Segments,
    syncing: Mutex<Syncing>,
    synced: Condvar,
    /// The last position written.
    appended: AtomicU64,
    /// The last position known to be durable.
    durable: AtomicU64,
    /// The bytes written since the latest freeze.
    bytes: AtomicU64,
    /// Whether anybody has waited for a sync since zeros were last written ahead.
    waited: AtomicBool,
    /// The frames that syncs write, where commits don't.
    unwritten: Option<Mutex<Unwritten>>,
    /// What was synced last, for the next start.
    mark: Mark,
    /// Called when `durable` has advanced.
    wake: Mutex<Option<Wake>>,
    /// Called when nobody syncs and somebody waits who can't do so himself.
    left: Mutex<Option<Wake>>,
    pub(super) latency: Latency,
}

/// Somebody to be told.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// What everybody is told at the end of a sync.
#[derive(Default)]
struct Ended {
    /// Whether more is durable than before.
    advanced: bool,
    /// Of those whose waits are over.
    wakers: Vec<Waker>,
    /// Whether others are left to whom a sync has been promised.
    left: bool,
}

struct Syncing {
    /// Whether somebody is syncing.
    running: bool,
    /// Whether somebody is about to: who has been told to, or whom `left` called.
    promised: bool,
    /// Who waits without a thread, and for what position.
    waiting: Vec<(u64, Waker)>,
    /// The segments that may hold frames that aren't durable; the last one is being written.
    files: Vec<Arc<dyn File>>,
    /// Why the journal takes no commits.
    broken: Option<Error>,
}

impl Journal {
    /// A journal that goes on in a segment, with everything so far durable.
    pub(super) fn new(segments: Segments, appender: &Appender) -> Self {
        let syncing = Syncing {
            running: false,
            promised: false,
            waiting: Vec::new(),
            files: vec![Arc::clone(&appender.file)],
            broken: None,
        };
        let mark = Mark::open(&segments);
        Journal {
            segments,
            syncing: Mutex::new(syncing),
            synced: Condvar::new(),
            appended: AtomicU64::new(appender.position),
            durable: AtomicU64::new(appender.position),
            bytes: AtomicU64::new(appender.len),
            waited: AtomicBool::new(false),
            unwritten: None,
            mark,
            wake: Mutex::default(),
            left: Mutex::default(),
            latency: Latency::default(),
        }
    }

    /// The same where frames are to be written by syncs alone.
    pub(super) fn written_by_syncs(segments: Segments, appender: &Appender) -> Result<Self> {
        let path = segments.path(appender.number);
        let unwritten = Unwritten::new(Arc::clone(&appender.file), appender.len);
        let unwritten = unwritten.map_err(|error| during("reading", &path, error))?;
        Ok(Journal { unwritten: Some(Mutex::new(unwritten)), ..Journal::new(segments, appender) })
    }

    /// The last position known to be durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Sets what is called when that has advanced.
    pub(super) fn when_durable(&self, wake: Wake) {
        *self.wake.lock() = Some(wake);
    }

    /// Sets what is called when nobody syncs and somebody waits who can't do so himself: it is to have
    /// [`sync`](Self::sync) called soon.
    pub(super) fn when_left(&self, wake: Wake) {
        *self.left.lock() = Some(wake);
    }

    /// Notes that everything up to a position is durable; true if that is news.
    fn advance(&self, position: u64) -> bool {
        self.durable.fetch_max(position, Ordering::AcqRel) < position
    }

    /// Lets everybody know; to be called without any lock.
    fn tell(&self, ended: Ended) {
        if !mutant!("nobody is told of a sync") {
            self.synced.notify_all();
            ended.wakers.into_iter().for_each(Waker::wake);
        }
        if ended.left {
            self.call(&self.left);
        }
        if ended.advanced {
            self.call(&self.wake);
        }
    }

    fn call(&self, wake: &Mutex<Option<Wake>>) {
        let wake = wake.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// What is to be told once a sync has ended, or turns out not to be needed. Those are left whose positions aren't
    /// durable; where there are any, a next sync is promised to them.
    fn end(&self, syncing: &mut Syncing, advanced: bool) -> Ended {
        let durable = self.durable.load(Ordering::Acquire);
        let over = |(position, _): &mut (u64, Waker)| *position <= durable;
        let wakers = match &syncing.broken {
            // They ask again, and find out.
            Some(_) => std::mem::take(&mut syncing.waiting),
            None => syncing.waiting.extract_if(.., over).collect(),
        };
        syncing.promised = !syncing.running && !syncing.waiting.is_empty();
        let wakers = wakers.into_iter().map(|(_, waker)| waker).collect();
        Ended { advanced, wakers, left: syncing.promised }
    }

    /// The bytes written since the latest freeze.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether frames were written that aren't known to be durable.
    pub(super) fn has_unsynced(&self) -> bool {
        self.durable.load(Ordering::Acquire) < self.appended.load(Ordering::Acquire)
    }

    /// Whether somebody is syncing.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.syncing.lock().running
    }

    /// How many segments are held open to be written or synced.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.syncing.lock().files.len()
    }

    /// Whether the journal takes no commits until the next checkpoint.
    pub(super) fn is_broken(&self) -> bool {
        self.syncing.lock().broken.is_some()
    }

    /// Writes the next frame, and returns its position. After an error it is as if nothing had been written.
    pub(super) fn append(&self, appender: &mut Appender, encoded: &mut Encoded) -> Result<u64> {
        if let Some(error) = &self.syncing.lock().broken {
            return Err(error.clone());
        }
        let position = appender.position + 1;
        let frame = encoded.frame(position, self.durable.load(Ordering::Acquire));
        if let Some(unwritten) = &self.unwritten {
            let zeros = fill_ahead(appender, frame.len()).map_err(|error| self.cut(appender, error))?;
            let mut unwritten = unwritten.lock();
            if zeros {
                unwritten.has_zeros();
            }
            unwritten.push(frame);
            // With the lock held, so that a sync knows which frames it has.
            self.note(appender, position, frame.len() as u64);
            return Ok(position);
        }
        if let Err(error) = appender.file.write_at(frame, appender.len) {
            return Err(self.cut(appender, error));
        }
        self.note(appender, position, frame.len() as u64);
        if appender.len > appender.ahead {
            appender.ahead = appender.len;
            if self.waited.swap(false, Ordering::Relaxed) {
                write_ahead(appender);
            }
        }
        Ok(position)
    }

    fn note(&self, appender: &mut Appender, position: u64, len: u64) {
        appender.len += len;
        appender.position = position;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.appended.store(position, Ordering::Release);
    }

    /// Cuts off what a failed write may have left.
    fn cut(&self, appender: &mut Appender, error: std::io::Error) -> Error {
        appender.ahead = appender.len;
        let path = self.segments.path(appender.number);
        let error = during("writing", &path, error);
        if let Err(cut) = appender.file.set_len(appender.len) {
            self.syncing.lock().broken = Some(during("cutting", &path, cut));
        }
        error
    }

    /// Goes on in a new segment.
    pub(super) fn switch(&self, appender: &mut Appender, number: u64, file: Arc<dyn File>) {
        if let Some(unwritten) = &self.unwritten {
            unwritten.lock().switch(Arc::clone(&file), &self.segments.header(number));
        }
        self.syncing.lock().files.push(Arc::clone(&file));
        appender.number = number;
        appender.file = file;
        appender.len = SEGMENT_HEADER_BYTES as u64;
        appender.ahead = appender.len;
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// After a checkpoint: everything up to `position` is durable in the base.
    pub(super) fn checkpointed(&self, position: u64) {
        let mut syncing = self.syncing.lock();
        if position >= self.appended.load(Ordering::Acquire) {
            syncing.broken = None;
        }
        // Nobody has to sync them any more, and where nobody ever does, they would keep their room once removed.
        let older = syncing.files.len().saturating_sub(1);
        syncing.files.drain(..older);
        let advanced = self.advance(position);
        let ended = self.end(&mut syncing, advanced);
        drop(syncing);
        if let Some(unwritten) = &self.unwritten {
            unwritten.lock().forget_older();
        }
        self.tell(ended);
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.sync_to(self.appended.load(Ordering::Acquire))
    }

    /// Returns once everything up to `position` is durable, for somebody who waits for that.
    pub(super) fn wait(&self, position: u64) -> Result<()> {
        self.waited.store(true, Ordering::Relaxed);
        self.sync_to(position)
    }

    /// How far the wait for a position is, for whoever has no thread to wait on.
    pub(super) fn await_sync(&self, position: u64, waker: &Waker) -> Awaited {
        if self.durable.load(Ordering::Acquire) >= position {
            return Awaited::There;
        }
        self.waited.store(true, Ordering::Relaxed);
        let mut syncing = self.syncing.lock();
        if self.durable.load(Ordering::Acquire) >= position {
            return Awaited::There;
        }
        if syncing.broken.is_none() && (syncing.running || syncing.promised) {
            syncing.waiting.push((position, waker.clone()));
            return Awaited::Later;
        }
        syncing.promised = true;
        Awaited::Yours
    }

    /// Notes that whom [`when_left`](Self::when_left) called has found nothing to sync.
    pub(super) fn needs_no_sync(&self) {
        let mut syncing = self.syncing.lock();
        if !syncing.promised {
            return;
        }
        let ended = self.end(&mut syncing, false);
        drop(syncing);
        self.tell(ended);
    }

    fn sync_to(&self, position: u64) -> Result<()> {
        let mut syncing = self.syncing.lock();
        loop {
            let over = match &syncing.broken {
                _ if self.durable.load(Ordering::Acquire) >= position => Some(Ok(())),
                Some(error) => Some(Err(error.clone())),
                None => None,
            };
            if let Some(over) = over {
                // Others may rely on a sync that whoever is here was told to make.
                let ended = match syncing.promised {
                    true => self.end(&mut syncing, false),
                    false => Ended::default(),
                };
                drop(syncing);
                if !ended.wakers.is_empty() || ended.left {
                    self.tell(ended);
                }
                return over;
            }
            if !syncing.running {
                break;
            }
            self.synced.wait(&mut syncing);
        }
        (syncing.running, syncing.promised) = (true, false);
        // In this order: what is written after the position was read may be synced too, or not.
        let mut appended = self.appended.load(Ordering::Acquire);
        let files = syncing.files.clone();
        drop(syncing);
        let started = Instant::now();
        let result = match &self.unwritten {
            Some(unwritten) => {
                let parts: Vec<Part>;
                (appended, parts) = {
                    let mut unwritten = unwritten.lock();
                    (self.appended.load(Ordering::Acquire), unwritten.take())
                };
                let result = parts.iter().try_for_each(Part::write);
                unwritten.lock().written(&parts, result.is_ok());
                result
            }
            None => files.iter().try_for_each(|file| file.sync()),
        };
        let appended = match mutant!("what is written during a sync counts as durable") {
            true => self.appended.load(Ordering::Acquire),
            false => appended,
        };
        self.latency.note(started.elapsed());
        if result.is_ok() {
            self.mark.note(appended);
        }
        self.finish(appended, &files, result)
    }

    /// Notes what has come of a sync, and tells everybody.
    fn finish(&self, appended: u64, files: &[Arc<dyn File>], result: std::io::Result<()>) -> Result<()> {
        let mut syncing = self.syncing.lock();
        syncing.running = false;
        let result = match result {
            Ok(()) => {
                // The last one may have been written since; the others were complete before.
                let complete = files.len().saturating_sub(1);
                let done = files.get(..complete).unwrap_or_default();
                syncing.files.retain(|file| !done.iter().any(|other| Arc::ptr_eq(file, other)));
                Ok(self.advance(appended))
            }
            Err(error) => {
                let error = during("syncing the journal in", &self.segments.directory, error);
                syncing.broken = Some(error.clone());
                Err(error)
            }
        };
        let ended = self.end(&mut syncing, matches!(result, Ok(true)));
        drop(syncing);
        self.tell(ended);
        result.map(drop)
    }
}
