//! The journal (write-ahead log): every batch, in order, in append-only segment files.
//!
//! A commit appends its frame with one write and then survives the end of the process. A sync makes all written frames
//! survive the end of the machine. A thread that needs a sync while none runs makes one for all waiting threads. Later
//! waits share the next sync (group commit). A single writer thus waits for one sync and no timer, and many writers
//! need far fewer syncs than commits. A wait without a thread registers a waker. If a sync ends and later frames still
//! have waiters, the journal requests another sync for them.
//!
//! If every commit waits for a sync, only syncs write frames (`write_buffer.rs`). Frames without a waiter may then be
//! lost with the process.
//!
//! If syncs are waited for, the segment is extended with zeros in advance, a chunk at a time. A sync is faster without
//! a change of the file length, since that changes the inode too.
//!
//! A segment ends where a checkpoint freezes the state, and is removed when the checkpoint is complete. After a failed
//! write the segment is truncated to its earlier length. After a failed sync the journal's state on disk is unknown. It
//! then refuses commits until a checkpoint has made it obsolete.

#[cfg(all(test, feature = "shuttle", feature = "mutants"))]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::time;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;

use super::files::{BLOCK, File, Files, during};
use super::latency::Latency;
use super::mark::Mark;
use super::write_buffer::{Part, WriteBuffer};
use crate::record::{Encoded, HEADER_BYTES, NO_SEED};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::{Error, EventCount, JournalWait, Result, mark, mutant};

/// Magic at the start of a segment.
const SEGMENT_MAGIC: [u8; 8] = *b"VellumJ\n";
/// Format version of new segments.
const SEGMENT_VERSION: u32 = 3;
/// Earlier version, whose frames have no seed. Archives have it still: no reader searches them for frames.
pub(super) const SEEDLESS_VERSION: u32 = 2;
/// Length of magic, version, directory id, segment number, checksum.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 8 + 4 + 8 + 8 + 4;
pub(super) const SUFFIX: &str = ".journal";

/// Returns the number of zeros written in advance at a time. It is small in unit tests and simulations, so that short
/// histories cross the end of the zeros.
fn ahead_bytes() -> usize {
    if cfg!(test) || time::is_simulated() { 1 << 10 } else { 1 << 20 }
}

/// The directory of the segments, and the id of its owner.
#[derive(Clone)]
pub(super) struct Segments {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    /// Random id shared by data directory and journal.
    pub(super) id: u64,
}

impl Segments {
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(self.name(number))
    }

    fn name(&self, number: u64) -> String {
        format!("{number:016}{SUFFIX}")
    }

    /// Returns the numbers of the segments in ascending order. Ignores other names.
    pub(super) fn list(&self) -> Result<Vec<u64>> {
        let names = self.files.names_if_any(&self.directory)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns other names that resemble segments.
    pub(super) fn unknown_names(&self) -> Result<Vec<String>> {
        let mut names = self.files.names_if_any(&self.directory)?;
        names.retain(|name| name.ends_with(SUFFIX) && number_of(name).is_none());
        Ok(names)
    }

    /// Returns a number greater than `number` and than the number of any file.
    pub(super) fn next(&self, number: u64) -> Result<u64> {
        let next = self.list()?.last().copied().unwrap_or_default().max(number) + 1;
        debug_assert!(number_of(&self.name(next)) == Some(next), "the name of segment {next} is not listed");
        Ok(next)
    }

    /// Creates an empty segment, durably.
    pub(super) fn create(&self, number: u64) -> Result<Arc<dyn File>> {
        let path = self.path(number);
        let make = || {
            let file = self.files.write_file(&path, &self.header(number, SEGMENT_VERSION))?;
            if !mutant!("names of new segments are not synced") {
                self.files.sync_directory(&self.directory)?;
            }
            Ok(file)
        };
        make().map_err(|error| during("making", &path, error))
    }

    /// Returns the header of a segment.
    pub(super) fn header(&self, number: u64, version: u32) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[..8].copy_from_slice(&SEGMENT_MAGIC);
        header[8..12].copy_from_slice(&version.to_le_bytes());
        header[12..20].copy_from_slice(&self.id.to_le_bytes());
        header[20..28].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..28]);
        header[28..].copy_from_slice(&checksum.to_le_bytes());
        debug_assert!(!Segments::begins_otherwise(&header), "a reader takes the segment for another file");
        header
    }

    /// Returns the seed of a segment of the newest version.
    pub(super) fn seed(&self, number: u64) -> u32 {
        seed(&self.header(number, SEGMENT_VERSION))
    }

    /// Checks a segment's header. Returns `Ok(false)` if it is incomplete, as after a crash during its creation.
    pub(super) fn check_header(&self, number: u64, bytes: &[u8]) -> Result<bool> {
        let Some(header) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else { return Ok(false) };
        if [SEGMENT_VERSION, SEEDLESS_VERSION].iter().any(|version| *header == self.header(number, *version))
        {
            return Ok(true);
        }
        let path = self.path(number);
        if !is_intact(header) {
            return Ok(false);
        }
        let message = match version(header) {
            Some(other) if !(SEEDLESS_VERSION..=SEGMENT_VERSION).contains(&other) => format!(
                "is a segment of version {other}: this program reads versions {SEEDLESS_VERSION} to {SEGMENT_VERSION}"
            ),
            _ => "belongs to another data directory, or has been renamed".to_string(),
        };
        Err(Error::Corrupted(format!("{} {message}", path.display())))
    }

    /// Returns true if the bytes cannot be the start of a segment. An incomplete segment begins with part of its
    /// header, or with zeros.
    pub(super) fn begins_otherwise(bytes: &[u8]) -> bool {
        let begin = bytes.get(..SEGMENT_MAGIC.len()).unwrap_or(bytes);
        !SEGMENT_MAGIC.starts_with(begin) && begin.iter().any(|byte| *byte != 0)
    }

    /// Removes a segment.
    pub(super) fn remove(&self, number: u64) -> Result<()> {
        self.files.remove_file(&self.path(number))
    }
}

/// Returns true if the checksum of a segment's header is correct.
pub(super) fn is_intact(header: &[u8; SEGMENT_HEADER_BYTES]) -> bool {
    let (fields, checksum) = header.split_at(28);
    checksum == crc32c::crc32c(fields).to_le_bytes()
}

/// Returns the version in the header of a segment.
fn version(header: &[u8; SEGMENT_HEADER_BYTES]) -> Option<u32> {
    Some(u32::from_le_bytes(*header.get(8..12)?.first_chunk()?))
}

/// Returns the seed of the frames behind a valid header. It is made of the directory's random id, which no client can
/// read, and the segment's number.
pub(crate) fn seed(header: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
    match version(header) {
        Some(SEEDLESS_VERSION) => NO_SEED,
        _ => crc32c::crc32c(header.get(12..28).unwrap_or_default()),
    }
}

/// Returns the number in the name of a segment.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (digits == format!("{number:016}")).then_some(number)
}

/// The segment being written. Its owner is the only committer.
pub(super) struct Appender {
    number: u64,
    /// Seed of its frames.
    seed: u32,
    file: Arc<dyn File>,
    /// Offset of the next frame.
    len: u64,
    /// Length of the file: zeros after `len`.
    ahead: u64,
    /// Position of the last frame.
    position: u64,
}

impl Appender {
    /// Continues a segment of the newest version, without zeros at its end.
    pub(super) fn new(
        segments: &Segments,
        number: u64,
        file: Arc<dyn File>,
        len: u64,
        position: u64,
    ) -> Self {
        debug_assert!(len >= SEGMENT_HEADER_BYTES as u64, "segment {number} is shorter than its header");
        Appender { number, seed: segments.seed(number), file, len, ahead: len, position }
    }

    /// Returns the number of the segment.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the position of the last frame.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

/// Writes zeros behind the last frame. On a full disk the file stays unchanged.
fn write_ahead(appender: &mut Appender) {
    debug_assert_eq!(appender.ahead, appender.len, "zeros would overwrite zeros");
    // On the heap, since a constant of this size would enlarge the program.
    let zeros = vec![0; ahead_bytes()];
    match appender.file.write_at(&zeros, appender.len) {
        Ok(()) => {
            mark!("the journal is extended with zeros");
            appender.ahead = appender.len + zeros.len() as u64;
        }
        // If this fails too, a partial run of zeros is harmless.
        Err(_) => _ = appender.file.set_len(appender.len),
    }
}

/// Extends the file for a frame, in whole blocks. Returns true if zeros were written.
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
    // On a nearly full disk, only the required length.
    let only_required = |_| {
        mark!("a nearly full disk has room for one frame");
        fill(end)
    };
    appender.ahead = fill(end + ahead_bytes() as u64).or_else(only_required)?;
    debug_assert!(appender.ahead >= end, "the frame ends behind the zeros");
    debug_assert!(appender.ahead.is_multiple_of(BLOCK as u64), "the file ends within a block");
    Ok(true)
}

/// State shared by writers and waiters.
pub(super) struct Journal {
    pub(super) segments: Segments,
    syncing: Mutex<Syncing>,
    /// Counts ended syncs.
    ended: EventCount,
    /// Last written position.
    appended: AtomicU64,
    /// Last durable position.
    durable: EventCount,
    /// Bytes written since the latest freeze.
    bytes: AtomicU64,
    /// True if a sync was waited for since zeros were last written.
    waited: AtomicBool,
    /// Frames that syncs write, if commits do not.
    write_buffer: Option<Mutex<WriteBuffer>>,
    /// The synced mark, read at the next start.
    mark: Mark,
    /// Called when `durable` has advanced.
    wake: Mutex<Option<WakeCallback>>,
    /// Called when no sync runs and waiters without threads remain.
    left: Mutex<Option<WakeCallback>>,
    pub(super) latency: Latency,
}

/// A callback.
type WakeCallback = Arc<dyn Fn() + Send + Sync>;

/// Notifications at the end of a sync.
#[derive(Default)]
struct Ended {
    /// True if `durable` advanced.
    advanced: bool,
    /// Wakers of finished waits.
    wakers: Vec<Waker>,
    /// True if waiters remain, to whom a sync is promised.
    left: bool,
}

struct Syncing {
    /// True while a sync runs.
    running: bool,
    /// True if a thread is about to sync: a woken waiter, or the thread called by `left`.
    promised: bool,
    /// Segments that may contain frames that are not durable. The last one is being written.
    files: Vec<Arc<dyn File>>,
    /// Reason why the journal refuses commits.
    broken: Option<Error>,
}

impl Journal {
    /// Creates a journal that continues a segment. Everything so far is durable.
    pub(super) fn new(segments: Segments, appender: &Appender) -> Self {
        let syncing = Syncing {
            running: false,
            promised: false,
            files: vec![Arc::clone(&appender.file)],
            broken: None,
        };
        let mark = Mark::open(&segments);
        Journal {
            segments,
            syncing: Mutex::new(syncing),
            ended: EventCount::default(),
            appended: AtomicU64::new(appender.position),
            durable: EventCount::new(appender.position),
            bytes: AtomicU64::new(appender.len),
            waited: AtomicBool::new(false),
            write_buffer: None,
            mark,
            wake: Mutex::default(),
            left: Mutex::default(),
            latency: Latency::default(),
        }
    }

    /// Creates a journal whose frames are written by syncs only.
    pub(super) fn written_by_syncs(segments: Segments, appender: &Appender) -> Result<Self> {
        let path = segments.path(appender.number);
        let write_buffer = WriteBuffer::new(Arc::clone(&appender.file), appender.len);
        let write_buffer = write_buffer.map_err(|error| during("reading", &path, error))?;
        Ok(Journal { write_buffer: Some(Mutex::new(write_buffer)), ..Journal::new(segments, appender) })
    }

    /// Returns the last durable position.
    pub(super) fn durable(&self) -> u64 {
        self.durable.read()
    }

    /// Sets the callback for an advanced durable position.
    pub(super) fn when_durable(&self, wake: WakeCallback) {
        *self.wake.lock() = Some(wake);
    }

    /// Sets the callback for waiters without threads that remain while no sync runs. It must have [`sync`](Self::sync)
    /// called soon.
    pub(super) fn on_remaining_waiters(&self, wake: WakeCallback) {
        *self.left.lock() = Some(wake);
    }

    /// Sends the notifications. The caller must hold no lock.
    fn notify(&self, ended: Ended) {
        if !mutant!("a sync wakes no waiter") {
            self.ended.advance();
            ended.wakers.into_iter().for_each(Waker::wake);
        }
        if ended.left {
            self.call(&self.left);
        }
        if ended.advanced {
            self.call(&self.wake);
        }
    }

    fn call(&self, wake: &Mutex<Option<WakeCallback>>) {
        let wake = wake.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Advances the durable position and collects the notifications. Remaining waiters have later positions, and a next
    /// sync is promised to them.
    fn end(&self, syncing: &mut Syncing, durable: u64) -> Ended {
        debug_assert!(durable <= self.appended.load(Ordering::Acquire), "durable before it was written");
        let advanced = self.durable.read() < durable;
        let mut wakers = self.durable.advance_to(durable);
        if syncing.broken.is_some() {
            // They poll again and get the error.
            wakers.extend(self.durable.interrupt());
        }
        syncing.promised = !syncing.running && self.durable.is_awaited();
        Ended { advanced, wakers, left: syncing.promised }
    }

    /// Returns the bytes written since the latest freeze.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if written frames may not be durable.
    pub(super) fn has_unsynced(&self) -> bool {
        self.durable.read() < self.appended.load(Ordering::Acquire)
    }

    /// Returns true while a sync runs.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.syncing.lock().running
    }

    /// Returns the number of open segments.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.syncing.lock().files.len()
    }

    /// Returns true if the journal refuses commits until the next checkpoint.
    pub(super) fn is_broken(&self) -> bool {
        self.syncing.lock().broken.is_some()
    }

    /// Writes the next frame and returns its position. An error leaves the journal as before.
    pub(super) fn append(&self, appender: &mut Appender, encoded: &mut Encoded) -> Result<u64> {
        if let Some(error) = &self.syncing.lock().broken {
            mark!("a broken journal refuses a commit");
            return Err(error.clone());
        }
        debug_assert_eq!(appender.position, self.appended.load(Ordering::Acquire), "another appender writes");
        debug_assert!(appender.len <= appender.ahead, "the file ends within the last frame");
        let position = appender.position + 1;
        let frame = encoded.frame(position, self.durable.read(), appender.seed);
        if let Some(write_buffer) = &self.write_buffer {
            let zeros = fill_ahead(appender, frame.len()).map_err(|error| self.cut(appender, error))?;
            let mut write_buffer = write_buffer.lock();
            if zeros {
                write_buffer.has_zeros();
            }
            write_buffer.push(frame);
            // Under the lock, so that a sync knows its frames.
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
        debug_assert!(len >= HEADER_BYTES as u64, "a frame of {len} bytes");
        debug_assert_eq!(position, appender.position + 1, "a position is missing");
        appender.len += len;
        appender.position = position;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.appended.store(position, Ordering::Release);
    }

    /// Truncates the remains of a failed write.
    fn cut(&self, appender: &mut Appender, error: std::io::Error) -> Error {
        mark!("the remains of a failed journal write are cut");
        appender.ahead = appender.len;
        let path = self.segments.path(appender.number);
        let error = during("writing", &path, error);
        if let Err(cut) = appender.file.set_len(appender.len) {
            self.syncing.lock().broken = Some(during("cutting", &path, cut));
        }
        error
    }

    /// Switches to a new segment.
    pub(super) fn switch(&self, appender: &mut Appender, number: u64, file: Arc<dyn File>) {
        if let Some(write_buffer) = &self.write_buffer {
            write_buffer.lock().switch(Arc::clone(&file), &self.segments.header(number, SEGMENT_VERSION));
        }
        mark!("the journal begins a segment");
        debug_assert!(number > appender.number, "segment {number} after {}", appender.number);
        self.syncing.lock().files.push(Arc::clone(&file));
        appender.number = number;
        appender.seed = self.segments.seed(number);
        appender.file = file;
        appender.len = SEGMENT_HEADER_BYTES as u64;
        appender.ahead = appender.len;
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Records a checkpoint: everything up to `position` is durable in the base.
    pub(super) fn checkpointed(&self, position: u64) {
        let mut syncing = self.syncing.lock();
        debug_assert!(!syncing.files.is_empty(), "the journal has no segment");
        if position >= self.appended.load(Ordering::Acquire) && syncing.broken.take().is_some() {
            mark!("a checkpoint repairs a broken journal");
        }
        // They need no sync any more. Open handles would keep their disk space after removal.
        let older = syncing.files.len().saturating_sub(1);
        syncing.files.drain(..older);
        let ended = self.end(&mut syncing, position);
        drop(syncing);
        // Without a later sync, only the mark shows that an older base is combined with this journal.
        self.mark.note(position);
        if let Some(write_buffer) = &self.write_buffer {
            write_buffer.lock().forget_older();
        }
        self.notify(ended);
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.sync_to(self.appended.load(Ordering::Acquire))
    }

    /// Waits until everything up to `position` is durable.
    pub(super) fn wait(&self, position: u64) -> Result<()> {
        debug_assert!(position <= self.appended.load(Ordering::Acquire), "no commit has position {position}");
        self.waited.store(true, Ordering::Relaxed);
        self.sync_to(position)
    }

    /// Returns the state of a wait for a position, for a waiter without a thread.
    pub(super) fn await_sync(&self, position: u64, waker: &Waker) -> JournalWait {
        debug_assert!(position <= self.appended.load(Ordering::Acquire), "no commit has position {position}");
        if self.durable.read() >= position {
            return JournalWait::Satisfied;
        }
        self.waited.store(true, Ordering::Relaxed);
        let mut syncing = self.syncing.lock();
        if syncing.broken.is_none() && (syncing.running || syncing.promised) {
            return match self.durable.has_reached(position, waker) {
                true => JournalWait::Satisfied,
                false => JournalWait::Pending,
            };
        }
        if self.durable.read() >= position {
            return JournalWait::Satisfied;
        }
        syncing.promised = true;
        JournalWait::SyncNeeded
    }

    /// Records that the thread called by [`on_remaining_waiters`](Self::on_remaining_waiters) found
    /// nothing to sync.
    pub(super) fn needs_no_sync(&self) {
        let mut syncing = self.syncing.lock();
        if !syncing.promised {
            return;
        }
        let ended = self.end(&mut syncing, 0);
        drop(syncing);
        self.notify(ended);
    }

    fn sync_to(&self, position: u64) -> Result<()> {
        let mut syncing = self.syncing.lock();
        loop {
            let over = match &syncing.broken {
                _ if self.durable.read() >= position => Some(Ok(())),
                Some(error) => Some(Err(error.clone())),
                None => None,
            };
            if let Some(over) = over {
                // Other waiters may rely on the sync that was promised.
                let ended = match syncing.promised {
                    true => self.end(&mut syncing, 0),
                    false => Ended::default(),
                };
                drop(syncing);
                if !ended.wakers.is_empty() || ended.left {
                    self.notify(ended);
                }
                return over;
            }
            if !syncing.running {
                break;
            }
            let next = self.ended.read() + 1;
            drop(syncing);
            self.ended.wait(next);
            syncing = self.syncing.lock();
        }
        (syncing.running, syncing.promised) = (true, false);
        // In this order: a frame written after the position was read may or may not be synced.
        let mut appended = self.appended.load(Ordering::Acquire);
        let files = syncing.files.clone();
        drop(syncing);
        debug_assert!(!files.is_empty(), "the journal has no segment");
        let started = time::now();
        let result = match &self.write_buffer {
            Some(write_buffer) => {
                let parts: Vec<Part>;
                (appended, parts) = {
                    let mut write_buffer = write_buffer.lock();
                    (self.appended.load(Ordering::Acquire), write_buffer.take())
                };
                let result = parts.iter().try_for_each(Part::write);
                write_buffer.lock().written(&parts, result.is_ok());
                result
            }
            None => files.iter().try_for_each(|file| file.sync()),
        };
        let appended = match mutant!("writes during a sync count as durable") {
            true => self.appended.load(Ordering::Acquire),
            false => appended,
        };
        if self.appended.load(Ordering::Acquire) > appended {
            mark!("a commit during a sync");
        }
        self.latency.note(time::since(started));
        if result.is_ok() {
            self.mark.note(appended);
        }
        self.finish(appended, &files, result)
    }

    /// Records the result of a sync and sends the notifications.
    fn finish(&self, appended: u64, files: &[Arc<dyn File>], result: std::io::Result<()>) -> Result<()> {
        let mut syncing = self.syncing.lock();
        debug_assert!(syncing.running, "two syncs have ended, and one has begun");
        syncing.running = false;
        let result = match result {
            Ok(()) => {
                // The last segment may have been written since; earlier ones were complete.
                let complete = files.len().saturating_sub(1);
                let done = files.get(..complete).unwrap_or_default();
                syncing.files.retain(|file| !done.iter().any(|other| Arc::ptr_eq(file, other)));
                Ok(())
            }
            Err(error) => {
                let error = during("syncing the journal in", &self.segments.directory, error);
                mark!("a sync of the journal fails");
                if !mutant!("a failed sync is forgotten") {
                    syncing.broken = Some(error.clone());
                }
                Err(error)
            }
        };
        let ended = self.end(&mut syncing, if result.is_ok() { appended } else { 0 });
        drop(syncing);
        self.notify(ended);
        result
    }
}
