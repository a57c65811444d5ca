//! Commits in order of position, from files that may overlap: segments of a journal or an archive, and parts of
//! backups.
//!
//! Gaps and damage are never skipped silently. It is a gap if no file has the next commit and some file has a later
//! one. It is damage if invalid bytes are followed by a valid frame, or if a file should contain more.
//!
//! A part of a backup has a header, frames of the journal's format without a seed, and a trailer.
//!
//! The header has 36 bytes: `VellumB\n`, version (u32), kind (u32: 1 full, 2 changes), the data directory's id (u64),
//! the position before its first commit (u64, 0 for a full part), CRC-32C. The trailer has 44 bytes: `VellumE\n`, the
//! position of its last commit (u64), the greatest cluster time (u64), the time up to which it is complete (u64), the
//! number of frames (u64), CRC-32C. All numbers are little endian. An interrupted part has no trailer.

use crate::disk::files::{Files, during};
use crate::disk::journal::SEGMENT_HEADER_BYTES;
use crate::disk::reader::Reader;
use crate::engine::{END_BYTES, End, HEAD_BYTES, Kind, PartHeader};
use crate::record::remove_seed;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file with frames.
pub(in crate::disk) struct Source {
    path: PathBuf,
    /// Position of its first frame.
    first: u64,
    /// Position of its last frame, if known.
    last: Option<u64>,
    /// Range of its frames; `None` extends to the end of the file.
    range: Option<Range<u64>>,
    /// The open file; files are opened when the walk reaches their first position.
    reader: Option<Reader>,
    /// Offset of the next frame.
    offset: u64,
    /// Position of the frame at the offset.
    head: Option<u64>,
    /// Greatest position seen in the file.
    seen: u64,
}

/// A frame in order.
pub(in crate::disk) struct Step {
    pub(in crate::disk) position: u64,
    /// Cluster time of the commit; 0 for none.
    pub(in crate::disk) time: u64,
    /// The whole frame, without a seed.
    pub(in crate::disk) bytes: Vec<u8>,
}

/// The next step of a walk.
pub(in crate::disk) enum Next {
    Frame(Step),
    /// Commits are missing; holds the position of the next available one.
    Gap(u64),
    End,
}

/// Returns an error about missing commits, with their positions.
pub(in crate::disk) fn gap(from: u64, to: u64) -> Error {
    let which = if from == to { format!("commit {from} is") } else { format!("commits {from} to {to} are") };
    Error::Io { kind: ErrorKind::NotFound, message: format!("{which} missing") }
}

impl Source {
    /// Creates a source for a file that is opened when needed.
    pub(in crate::disk) fn closed(path: PathBuf, first: u64, last: u64, range: Option<Range<u64>>) -> Self {
        debug_assert!(range.as_ref().is_none_or(|range| range.start <= range.end), "{range:?}");
        Source { path, first, last: Some(last), range, reader: None, offset: 0, head: None, seen: 0 }
    }

    /// Creates a source for an open segment; `None` if it has no frames.
    pub(in crate::disk) fn segment(path: PathBuf, mut reader: Reader) -> Result<Option<Self>> {
        let Some(found) = reader.find(SEGMENT_HEADER_BYTES as u64)? else { return Ok(None) };
        reader.rest();
        Ok(Some(Source {
            path,
            first: found.position,
            last: None,
            range: None,
            offset: SEGMENT_HEADER_BYTES as u64,
            reader: Some(reader),
            head: None,
            seen: 0,
        }))
    }

    /// Returns the position of its first frame.
    pub(in crate::disk) fn first(&self) -> u64 {
        self.first
    }

    /// Returns true if it may contain a commit.
    pub(in crate::disk) fn reaches(&self, position: u64) -> bool {
        self.last.is_none_or(|last| last >= position)
    }

    /// Returns the path.
    pub(in crate::disk) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Opens the file if it is not open yet.
    fn open(&mut self, files: &dyn Files) -> Result<()> {
        if self.reader.is_none() {
            let reader = Reader::of(files, &self.path)?;
            let range = self.range.clone().unwrap_or(SEGMENT_HEADER_BYTES as u64..reader.len());
            self.offset = range.start;
            self.reader = Some(reader);
        }
        Ok(())
    }

    /// Returns the position of the first frame after `last`; `None` at the end of the file.
    fn head(&mut self, last: u64) -> Result<Option<u64>> {
        loop {
            debug_assert!(self.head.is_none() || self.reader.is_some(), "a frame of a closed file");
            if let Some(head) = self.head.filter(|head| *head > last) {
                return Ok(Some(head));
            }
            let Some(reader) = &mut self.reader else { return Ok(None) };
            let end = self.range.as_ref().map_or(reader.len(), |range| range.end);
            if let Some(passed) = self.head.take() {
                self.offset += reader.frame(self.offset)?.map_or(0, |frame| frame.len() as u64);
                self.seen = self.seen.max(passed);
            }
            let frame = match self.offset < end {
                true => reader.frame(self.offset)?.map(|frame| frame.position),
                false => None,
            };
            if frame.is_some() {
                self.head = frame;
                continue;
            }
            return self.ended(end).map(|()| None);
        }
    }

    /// Checks that the frames end at the expected place.
    fn ended(&mut self, end: u64) -> Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let torn = self.offset < end && self.range.is_none() && self.last.is_none();
        let broken = match torn {
            // The end of an active journal may have any bytes, unless a later frame follows.
            true => reader.find_after(self.seen, self.offset)?,
            false => self.offset < end || self.last.is_some_and(|last| self.seen < last),
        };
        match broken {
            false => Ok(()),
            true => {
                let (path, offset) = (self.path.display(), self.offset);
                Err(Error::Corrupted(format!(
                    "{path} is damaged at offset {offset}, commit {}",
                    self.seen + 1
                )))
            }
        }
    }

    /// Takes the current frame.
    fn take(&mut self) -> Result<Option<Step>> {
        let (Some(reader), Some(position)) = (&mut self.reader, self.head) else { return Ok(None) };
        let Some(frame) = reader.frame(self.offset)? else { return Ok(None) };
        let (len, time) = (frame.len(), frame.time());
        debug_assert_eq!(frame.position, position, "the frame is not the one that was found");
        let mut bytes = reader.bytes(self.offset, len)?.get(..len).unwrap_or_default().to_vec();
        remove_seed(&mut bytes, reader.seed);
        debug_assert_eq!(bytes.len(), len, "a part of a frame");
        Ok(Some(Step { position, time, bytes }))
    }
}

/// A walk over all files.
pub(in crate::disk) struct FrameStream {
    files: Arc<dyn Files>,
    /// Files not yet reached, by their first positions.
    later: VecDeque<Source>,
    /// Files that may contain the next commit.
    open: Vec<Source>,
    /// Position of the last commit returned.
    last: u64,
}

impl FrameStream {
    /// Creates a walk over the commits after `last`.
    pub(in crate::disk) fn new(files: Arc<dyn Files>, mut sources: Vec<Source>, last: u64) -> Self {
        sources.sort_by_key(|source| source.first);
        FrameStream { files, later: sources.into(), open: Vec::new(), last }
    }

    /// Returns the position reached.
    pub(in crate::disk) fn last(&self) -> u64 {
        self.last
    }

    /// Continues after a gap.
    pub(in crate::disk) fn pass(&mut self, next: u64) {
        self.last = next.saturating_sub(1).max(self.last);
    }

    /// Returns the next commit. Fails if a file is damaged.
    pub(in crate::disk) fn next(&mut self) -> Result<Next> {
        let next = self.last + 1;
        while let Some(mut source) = self.later.pop_front_if(|source| source.first <= next) {
            if source.last.is_none_or(|last| last >= next) {
                source.open(&*self.files)?;
                self.open.push(source);
            }
        }
        let mut nearest = self.later.front().map(Source::first);
        let mut at = 0;
        while let Some(source) = self.open.get_mut(at) {
            match source.head(self.last)? {
                Some(head) if head == next => {
                    let Some(step) = source.take()? else { return Err(Error::Closed) };
                    debug_assert_eq!(step.position, next, "commits are out of order");
                    self.last = next;
                    return Ok(Next::Frame(step));
                }
                Some(head) => {
                    nearest = Some(nearest.map_or(head, |nearest| nearest.min(head)));
                    at += 1;
                }
                None => drop(self.open.swap_remove(at)),
            }
        }
        debug_assert!(nearest.is_none_or(|nearest| nearest > next), "commit {next} was overlooked");
        Ok(nearest.map_or(Next::End, Next::Gap))
    }
}

impl Reader {
    /// Opens a file of frames that is not a segment of the active journal.
    pub(in crate::disk) fn of(files: &dyn Files, path: &Path) -> Result<Self> {
        let file = files.open(path, false).map_err(|error| during("reading", path, error))?;
        Reader::on(file, path.to_path_buf())
    }
}

/// A complete part in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Number of the part in its directory.
    pub number: u64,
    /// Kind of the part.
    pub kind: Kind,
    /// Random id of its data directory.
    pub id: u64,
    /// Position before its first commit.
    pub from: u64,
    /// End of the part.
    pub end: End,
    /// Number of frames.
    pub frames: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Path of the file.
    pub path: PathBuf,
}

impl Part {
    /// Reads the header and the trailer of a file.
    pub(super) fn open(files: &dyn Files, path: &Path, part: u64) -> Result<Self> {
        let (mut head, mut end) = ([0; HEAD_BYTES], [0; END_BYTES]);
        let mut read = || {
            let file = files.open(path, false)?;
            let len = file.len()?;
            let rest = len.checked_sub((HEAD_BYTES + END_BYTES) as u64);
            if let Some(rest) = rest {
                file.read_at(&mut head, 0)?;
                file.read_at(&mut end, HEAD_BYTES as u64 + rest)?;
            }
            Ok(rest.map(|_| len))
        };
        let damaged = |message: &str| Error::Corrupted(format!("{} {message}", path.display()));
        let bytes = read().map_err(|error| during("reading", path, error))?;
        let bytes = bytes.ok_or_else(|| damaged("is shorter than any part of a backup"))?;
        let head = PartHeader::read(&head).map_err(|message| damaged(&message))?;
        let (end, frames) = End::read(&end).ok_or_else(|| damaged("is truncated or damaged at its end"))?;
        let PartHeader { kind, id, from } = head;
        Ok(Part { number: part, kind, id, from, end, frames, bytes, path: path.to_path_buf() })
    }

    /// Returns its frames as a source of commits. Positions of a full part count from 1.
    pub(super) fn source(&self) -> Source {
        let last = match self.kind {
            Kind::Full => self.frames,
            Kind::Changes => self.end.position,
        };
        let range = HEAD_BYTES as u64..self.bytes.saturating_sub(END_BYTES as u64);
        Source::closed(self.path.clone(), self.from + 1, last, Some(range))
    }

    /// Reads the whole part. Fails at the first damage.
    pub(super) fn check(&self, files: &Arc<dyn Files>) -> Result<()> {
        let mut frame_stream = FrameStream::new(Arc::clone(files), vec![self.source()], self.from);
        let mut frames = 0;
        loop {
            match frame_stream.next()? {
                Next::Frame(_) => frames += 1,
                Next::End if frames == self.frames => return Ok(()),
                Next::End | Next::Gap(_) => {
                    let message = format!("found {frames} frames, expected {}", self.frames);
                    return Err(Error::Corrupted(format!("{}: {message}", self.path.display())));
                }
            }
        }
    }
}
