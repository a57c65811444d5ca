//! Commits in the order of their positions, out of files that may overlap: segments of a journal, an archive's, parts
//! of backups.
//!
//! Nothing is passed over: where the next commit is in none of the files, and a later one is in some, that is a gap;
//! where bytes are no sound frame and one follows, or the file should have had more, that is damage.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::files::Files;
use crate::disk::journal::{SEGMENT_HEADER_BYTES, during};
use crate::disk::reader::Reader;
use crate::{Error, Result};

/// A file with frames.
pub(in crate::disk) struct Source {
    path: PathBuf,
    /// The position of its first frame.
    first: u64,
    /// That of its last, where it is known.
    last: Option<u64>,
    /// Where its frames are; to the end of the file, unless that is known.
    range: Option<Range<u64>>,
    reader: Option<Reader>,
    offset: u64,
    /// The position of the frame at the offset.
    head: Option<u64>,
    /// The greatest position seen in it.
    seen: u64,
}

/// A frame in its turn.
pub(in crate::disk) struct Step {
    pub(in crate::disk) position: u64,
    /// The commit's cluster time, 0 if it has none.
    pub(in crate::disk) time: u64,
    /// The whole frame.
    pub(in crate::disk) bytes: Vec<u8>,
}

/// What comes next.
pub(in crate::disk) enum Next {
    Frame(Step),
    /// Commits are missing; the next that there is has this position.
    Gap(u64),
    End,
}

/// That commits are missing, which are told.
pub(in crate::disk) fn gap(from: u64, to: u64) -> Error {
    let which = if from == to { format!("commit {from} is") } else { format!("commits {from} to {to} are") };
    Error::Io { kind: ErrorKind::NotFound, message: format!("{which} missing") }
}

impl Source {
    /// A file to be opened when its turn comes.
    pub(in crate::disk) fn closed(path: PathBuf, first: u64, last: u64, range: Option<Range<u64>>) -> Self {
        Source { path, first, last: Some(last), range, reader: None, offset: 0, head: None, seen: 0 }
    }

    /// A segment of a journal that is open already, if there is any frame in it.
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

    /// The position of its first frame.
    pub(in crate::disk) fn first(&self) -> u64 {
        self.first
    }

    /// Whether it may hold a commit.
    pub(in crate::disk) fn reaches(&self, position: u64) -> bool {
        self.last.is_none_or(|last| last >= position)
    }

    /// The file.
    pub(in crate::disk) fn path(&self) -> &PathBuf {
        &self.path
    }

    fn open(&mut self, files: &dyn Files) -> Result<()> {
        if self.reader.is_none() {
            let reader = Reader::of(files, &self.path)?;
            let range = self.range.clone().unwrap_or(SEGMENT_HEADER_BYTES as u64..reader.len());
            self.offset = range.start;
            self.reader = Some(reader);
        }
        Ok(())
    }

    /// The position of the first frame behind `last`; `None` at the end of the file.
    fn head(&mut self, last: u64) -> Result<Option<u64>> {
        loop {
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

    /// Makes sure that the frames end where they should.
    fn ended(&mut self, end: u64) -> Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let torn = self.offset < end && self.range.is_none() && self.last.is_none();
        let broken = match torn {
            // The end of a journal that was being written may be anything, unless a sound frame follows.
            true => reader.find(self.offset)?.is_some(),
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

    /// Takes the frame at its head.
    fn take(&mut self) -> Result<Option<Step>> {
        let (Some(reader), Some(position)) = (&mut self.reader, self.head) else { return Ok(None) };
        let Some(frame) = reader.frame(self.offset)? else { return Ok(None) };
        let (len, time) = (frame.len(), frame.time());
        let bytes = reader.bytes(self.offset, len)?.get(..len).unwrap_or_default().to_vec();
        Ok(Some(Step { position, time, bytes }))
    }
}

/// The walk along all of them.
pub(in crate::disk) struct Trail {
    files: Arc<dyn Files>,
    /// Those that come later, by their first positions.
    later: VecDeque<Source>,
    open: Vec<Source>,
    last: u64,
}

impl Trail {
    /// The commits behind `last` in some files.
    pub(in crate::disk) fn new(files: Arc<dyn Files>, mut sources: Vec<Source>, last: u64) -> Self {
        sources.sort_by_key(|source| source.first);
        Trail { files, later: sources.into(), open: Vec::new(), last }
    }

    /// The position that has been reached.
    pub(in crate::disk) fn last(&self) -> u64 {
        self.last
    }

    /// Goes on behind a gap.
    pub(in crate::disk) fn pass(&mut self, next: u64) {
        self.last = next.saturating_sub(1).max(self.last);
    }

    /// The next commit. Fails where a file is damaged.
    pub(in crate::disk) fn next(&mut self) -> Result<Next> {
        let wanted = self.last + 1;
        while let Some(mut source) = self.later.pop_front_if(|source| source.first <= wanted) {
            if source.last.is_none_or(|last| last >= wanted) {
                source.open(&*self.files)?;
                self.open.push(source);
            }
        }
        let mut nearest = self.later.front().map(Source::first);
        let mut at = 0;
        while let Some(source) = self.open.get_mut(at) {
            match source.head(self.last)? {
                Some(head) if head == wanted => {
                    let Some(step) = source.take()? else { return Err(Error::Closed) };
                    self.last = wanted;
                    return Ok(Next::Frame(step));
                }
                Some(head) => {
                    nearest = Some(nearest.map_or(head, |nearest| nearest.min(head)));
                    at += 1;
                }
                None => drop(self.open.swap_remove(at)),
            }
        }
        Ok(nearest.map_or(Next::End, Next::Gap))
    }
}

impl Reader {
    /// A file of frames that is no segment of the journal in use.
    pub(in crate::disk) fn of(files: &dyn Files, path: &Path) -> Result<Self> {
        let file = files.open(path, false).map_err(|error| during("reading", path, error))?;
        Reader::on(file, path.to_path_buf())
    }
}
