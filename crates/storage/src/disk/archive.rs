//! The archive of the journal: obsolete commits, kept for restores to a point in time.
//!
//! Before the checkpointer removes segments, it copies their frames to `ARCHIVE/ID/FIRST-LAST-SECONDS.journal`. The
//! file is a segment without a seed. Its name has the positions of its first and last commit, and the time of the
//! latest. Each position is archived once and in order, so the names reveal gaps. A file is written under a temporary
//! name, synced and renamed; only then are the segments removed. The archive contains only commits that are durable in
//! the base: no crash reverts them.

use std::any::Any;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::backup::{FrameStream, Next, Source};
use super::directory::LOCK_FILE;
use super::files::{File, Files, during};
use super::journal::{SEEDLESS_VERSION, SEGMENT_HEADER_BYTES, SUFFIX, Segments};
use super::reader::Reader;
use crate::{ArchiveCounts, Error, Result};

/// Temporary name of a file being written.
const UNFINISHED: &str = "unfinished";
/// Approximate number of bytes written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Location and retention of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Directory of the archive, created if missing. Several data directories may share one.
    pub directory: PathBuf,
    /// Minimum retention of commits; `None` keeps them forever.
    pub keep: Option<Duration>,
}

/// The open archive of one data directory.
pub(super) struct Archive {
    files: Arc<dyn Files>,
    /// The archived segments, with the id of the data directory.
    segments: Segments,
    keep: Option<Duration>,
    /// State as reported by statistics.
    state: Mutex<ArchiveCounts>,
    /// Excludes other processes from the archive.
    _lock: Box<dyn Any + Send + Sync>,
}

/// The parts of a file's name.
struct Name {
    first: u64,
    last: u64,
    /// Time of the latest commit, in seconds since 1970.
    seconds: u64,
}

impl Name {
    /// Parses a file name; `None` for other files.
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(SUFFIX)?.split('-').map(|digits| digits.parse().ok());
        let parsed = Name { first: parts.next()??, last: parts.next()??, seconds: parts.next()?? };
        (parsed.text() == name && parsed.first <= parsed.last).then_some(parsed)
    }

    /// Returns the file name.
    fn text(&self) -> String {
        debug_assert!(self.first <= self.last, "commits {} to {}", self.first, self.last);
        format!("{:016}-{:016}-{}{SUFFIX}", self.first, self.last, self.seconds)
    }
}

/// Returns the archive's folder for a data directory.
pub(super) fn folder(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id:016x}"))
}

/// Returns the archived files of a directory by name; none if it cannot be read.
pub(super) fn sources(files: &dyn Files, directory: &Path) -> Vec<Source> {
    let names = files.list(directory).unwrap_or_default();
    let found = names.iter().filter_map(|name| Some((Name::parse(name)?, name)));
    found.map(|(name, text)| Source::closed(directory.join(text), name.first, name.last, None)).collect()
}

/// Returns true if an archived file belongs to the journal of a data directory.
pub(super) fn belongs(files: &Arc<dyn Files>, source: &Source, id: u64) -> bool {
    let directory = PathBuf::new();
    let segments = Segments { files: Arc::clone(files), directory, id };
    let mut header = [0; SEGMENT_HEADER_BYTES];
    let read = files.open(source.path(), false).and_then(|file| file.read_at(&mut header, 0));
    read.is_ok() && matches!(segments.check_header(source.first(), &header), Ok(true))
}

impl Archive {
    /// Opens the archive of a data directory whose base is at `position`.
    ///
    /// Errors: the archive has commits that the data lacks, and so belongs to another copy; another process writes to
    /// it; I/O.
    pub(super) fn open(
        files: Arc<dyn Files>,
        options: &ArchiveOptions,
        id: u64,
        position: u64,
    ) -> Result<Self> {
        let directory = folder(&options.directory, id);
        files.make(&directory)?;
        let lock = files.lock(&directory.join(LOCK_FILE)).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                Error::Unavailable(format!("another process writes to the archive {}", directory.display()))
            }
            _ => during("locking", &directory, error),
        })?;
        let names = files.names(&directory)?;
        for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
            files.remove_file(&directory.join(name))?;
        }
        let last = names.iter().filter_map(|name| Name::parse(name)).map(|name| name.last).max();
        let last = last.unwrap_or_default();
        if last > position {
            return Err(Error::Unavailable(format!(
                "the archive {} goes up to commit {last}, and the data to {position}: it belongs to another \
                 copy of this data; choose another directory",
                directory.display()
            )));
        }
        let segments = Segments { files: Arc::clone(&files), directory, id };
        let state = Mutex::new(ArchiveCounts { position: last, ..ArchiveCounts::default() });
        Ok(Archive { files, segments, keep: options.keep, state, _lock: lock })
    }

    /// Returns the directory.
    pub(super) fn directory(&self) -> &Path {
        &self.segments.directory
    }

    /// Returns the state of the archive.
    pub(super) fn counts(&self) -> ArchiveCounts {
        *self.state.lock()
    }

    /// Archives the commits of segments up to a position, before the segments are removed. Returns false after a
    /// failure.
    pub(super) fn take(&self, journal: &Segments, numbers: &[u64], upto: u64) -> bool {
        // Only the checkpointer's thread changes it. The copy keeps readers from waiting.
        let mut state = self.counts();
        let before = state.position;
        let result = self.try_take(journal, numbers, upto, &mut state.position);
        debug_assert!(state.position >= before, "the archive goes back");
        debug_assert!(state.position <= upto.max(before), "the archive is ahead of the base");
        if let Err(error) = &result
            && !state.failing
        {
            log::error!("the journal cannot be archived, and grows until archiving works: {error}");
        }
        state.failing = result.is_err();
        state.failures += u64::from(state.failing);
        *self.state.lock() = state;
        result.is_ok()
    }

    /// Archives commits up to a position, and advances `last` to the position reached.
    fn try_take(&self, journal: &Segments, numbers: &[u64], upto: u64, last: &mut u64) -> Result<()> {
        let mut sources = Vec::new();
        for number in numbers {
            if let Some(reader) = Reader::open_segment(journal, *number)? {
                sources.extend(Source::segment(journal.path(*number), reader)?);
            }
        }
        let begin = sources.iter().map(Source::first).min();
        let mut frame_stream = FrameStream::new(Arc::clone(&self.files), sources, *last);
        if let (0, Some(begin)) = (*last, begin) {
            frame_stream.pass(begin);
        }
        while frame_stream.last() < upto {
            let before = frame_stream.last();
            let copied = self.copy(&mut frame_stream, upto)?;
            *last = copied.last;
            match copied.next {
                Some(next) => {
                    let missing = before.max(*last);
                    debug_assert!(next > missing + 1, "commit {next} is next, and no commit is missing");
                    log::warn!(
                        "the archive {} lacks the commits {} to {}: only a new backup can be restored to \
                         later times",
                        self.directory().display(),
                        missing + 1,
                        next - 1
                    );
                    frame_stream.pass(next);
                }
                None => break,
            }
        }
        self.prune()
    }

    /// Copies commits up to a gap into a file.
    fn copy(&self, frame_stream: &mut FrameStream, upto: u64) -> Result<Copied> {
        let (first, mut last, mut seconds) = (frame_stream.last() + 1, frame_stream.last(), 0);
        let path = self.directory().join(format!("{first:016}.{UNFINISHED}"));
        let mut bytes = self.segments.header(first, SEEDLESS_VERSION).to_vec();
        let mut file: Option<Arc<dyn File>> = None;
        let mut written = 0;
        let mut next = None;
        let mut write = |bytes: &mut Vec<u8>, file: &mut Option<Arc<dyn File>>| {
            let mut put = || {
                let file = match file {
                    Some(file) => file,
                    None => {
                        let opened = self.files.open(&path, true)?;
                        opened.set_len(0)?;
                        file.insert(opened)
                    }
                };
                file.write_at(bytes, written)
            };
            put().map_err(|error| during("writing", &path, error))?;
            written += bytes.len() as u64;
            bytes.clear();
            Ok::<(), Error>(())
        };
        while last < upto {
            match frame_stream.next()? {
                Next::Frame(frame) => {
                    debug_assert_eq!(frame.position, last + 1, "a file of the archive has a gap");
                    (last, seconds) = (frame.position, seconds.max(frame.time >> 32));
                    bytes.extend_from_slice(&frame.bytes);
                    if bytes.len() >= PIECE_BYTES {
                        write(&mut bytes, &mut file)?;
                    }
                }
                Next::Gap(position) => {
                    next = Some(position);
                    break;
                }
                Next::End => break,
            }
        }
        if last < first {
            return Ok(Copied { last: first - 1, next });
        }
        write(&mut bytes, &mut file)?;
        // Commits without a time count as old as their archiving.
        debug_assert!(bytes.is_empty() && last <= upto, "{last} of {upto}, {} bytes", bytes.len());
        let seconds = if seconds == 0 { now().as_secs() } else { seconds };
        let name = self.directory().join(Name { first, last, seconds }.text());
        let Some(file) = file else { return Err(Error::Closed) };
        let done = || {
            file.sync()?;
            self.files.rename(&path, &name)?;
            self.files.sync_directory(self.directory())
        };
        done().map_err(|error| during("writing", &path, error))?;
        Ok(Copied { last, next })
    }

    /// Removes expired files. The latest file stays, since it marks the position at which the archive continues.
    fn prune(&self) -> Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        let oldest = now().saturating_sub(keep).as_secs();
        let names = self.files.names(self.directory())?;
        let mut archived: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
        archived.sort_by_key(|name| name.first);
        archived.pop();
        // The oldest first, so that an interruption leaves no gap.
        for name in archived.iter().take_while(|name| name.seconds < oldest) {
            self.files.remove_file(&self.directory().join(name.text()))?;
        }
        Ok(())
    }
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Result of a copy.
struct Copied {
    /// Position of the last copied commit.
    last: u64,
    /// Position of the next available commit, if some are missing.
    next: Option<u64>,
}
