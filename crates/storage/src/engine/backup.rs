//! A backup in progress: a header, frames of the journal's format, a trailer.

use super::{Cursor, Snapshot};
use crate::record::{Encoded, NO_SEED};
use crate::{Batch, Direction, Ident, Range, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of entries in a batch of a full backup; a second limit is in bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 256 << 10;

/// Magic of the header and of the trailer.
const BEGIN: [u8; 8] = *b"VellumB\n";
const END: [u8; 8] = *b"VellumE\n";
const VERSION: u32 = 1;
pub(crate) const HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 8 + 4;
pub(crate) const END_BYTES: usize = 8 + 8 + 8 + 8 + 8 + 4;

/// Kind of a backup part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The state of one moment.
    Full,
    /// The commits since the previous part.
    Changes,
}

impl Kind {
    /// Returns the extension of its file name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Full => "full",
            Kind::Changes => "changes",
        }
    }
}

/// Header of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartHeader {
    pub(crate) kind: Kind,
    /// Id of the data directory.
    pub(crate) id: u64,
    /// Position before its first commit.
    pub(crate) from: u64,
}

/// The end of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// Position of the last commit.
    pub position: u64,
    /// Greatest cluster time of any commit.
    pub time: u64,
    /// Cluster time up to which the part is complete.
    pub covers: u64,
}

impl PartHeader {
    /// Encodes the header.
    pub(crate) fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let kind: u32 = match self.kind {
            Kind::Full => 1,
            Kind::Changes => 2,
        };
        bytes[..8].copy_from_slice(&BEGIN);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.from.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(PartHeader::read(&bytes).as_ref(), Ok(self), "a reader finds something else");
        bytes
    }

    /// Decodes the header. Errors say what is wrong with it.
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> std::result::Result<Self, String> {
        let (fields, checksum) = bytes.split_at(32);
        if fields.get(..8) != Some(&BEGIN) || checksum != crc32c::crc32c(fields).to_le_bytes() {
            return Err("does not begin like a part of a backup".to_string());
        }
        if let Some(other) = word(fields, 8).filter(|version| *version != VERSION) {
            return Err(format!(
                "has version {other}, and this version of Vellum reads only version {VERSION}"
            ));
        }
        let kind = match word(fields, 12) {
            Some(1) => Kind::Full,
            Some(2) => Kind::Changes,
            _ => return Err("has a type that this version of Vellum does not support".to_string()),
        };
        let (id, from) = (number(fields, 16).unwrap_or_default(), number(fields, 24).unwrap_or_default());
        Ok(PartHeader { kind, id, from })
    }
}

impl End {
    /// Encodes the trailer.
    pub(crate) fn bytes(&self, frames: u64) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END);
        let numbers = [self.position, self.time, self.covers, frames];
        for (field, number) in bytes[8..40].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(End::read(&bytes), Some((*self, frames)), "a reader finds something else");
        bytes
    }

    /// Decodes the trailer: the end and the number of frames. `None` if the part is incomplete.
    pub(crate) fn read(bytes: &[u8; END_BYTES]) -> Option<(Self, u64)> {
        let (fields, checksum) = bytes.split_at(40);
        if fields.get(..8) != Some(&END) || checksum != crc32c::crc32c(fields).to_le_bytes() {
            return None;
        }
        let (position, time) = (number(fields, 8)?, number(fields, 16)?);
        Some((End { position, time, covers: number(fields, 24)? }, number(fields, 32)?))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The end of an earlier backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// Random id of its data directory.
    pub id: u64,
    /// Position of its last commit.
    pub position: u64,
}

/// A part of a backup in progress: bytes to be written in sequence.
pub struct Backup {
    head: PartHeader,
    end: End,
    source: Box<dyn Pieces>,
    /// Number of frames returned so far.
    frames: u64,
    /// True once the header has been returned.
    started: bool,
    /// True once the trailer has been returned.
    ended: bool,
    /// Reason for a full part, although changes were requested.
    instead: Option<String>,
}

/// The frames between header and trailer.
pub(crate) trait Pieces: Send {
    /// Returns the next frames; `None` at the end. Adds their number to `frames`.
    fn piece(&mut self, frames: &mut u64) -> Result<Option<Vec<u8>>>;
}

/// A snapshot being written.
struct FullBackup {
    snapshot: Arc<dyn Snapshot>,
    /// Trees not yet written.
    idents: VecDeque<Ident>,
    /// The tree being written.
    cursor: Option<(Ident, Box<dyn Cursor>)>,
}

impl Backup {
    /// Creates a full part of a snapshot with these trees. `end` describes its state.
    pub(crate) fn full(snapshot: Arc<dyn Snapshot>, idents: Vec<Ident>, id: u64, end: End) -> Self {
        let full = FullBackup { snapshot, idents: idents.into(), cursor: None };
        Backup::new(PartHeader { kind: Kind::Full, id, from: 0 }, end, Box::new(full))
    }

    /// Creates a part with the commits after an earlier backup, up to `end`.
    pub(crate) fn changes(frames: Box<dyn Pieces>, since: Since, end: End) -> Self {
        debug_assert!(since.position <= end.position, "{since:?} is after {end:?}");
        let head = PartHeader { kind: Kind::Changes, id: since.id, from: since.position };
        Backup::new(head, end, frames)
    }

    fn new(head: PartHeader, end: End, source: Box<dyn Pieces>) -> Self {
        debug_assert!(end.covers >= end.time, "a commit of the backup is later than its end: {end:?}");
        Backup { head, end, source, frames: 0, started: false, ended: false, instead: None }
    }

    /// Sets the reason why a full part was made although changes were requested.
    pub(crate) fn instead(mut self, why: Option<String>) -> Self {
        self.instead = why;
        self
    }

    /// Returns the kind: full, or changes as requested.
    pub fn kind(&self) -> Kind {
        self.head.kind
    }

    /// Returns the reason for a full part, if changes were requested.
    pub fn why_full(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// Errors: data that cannot be read.
    pub fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.started {
            self.started = true;
            return Ok(Some(self.head.bytes().to_vec()));
        }
        if self.ended {
            return Ok(None);
        }
        let before = self.frames;
        let piece = self.source.piece(&mut self.frames)?;
        if piece.is_some() {
            debug_assert!(self.frames > before, "bytes without a frame");
            return Ok(piece);
        }
        debug_assert_eq!(self.frames, before, "a frame without bytes");
        self.ended = true;
        Ok(Some(self.end.bytes(self.frames).to_vec()))
    }
}

impl Pieces for FullBackup {
    /// Returns the next frame. Its position counts the frames of this part.
    fn piece(&mut self, frames: &mut u64) -> Result<Option<Vec<u8>>> {
        let mut batch = Batch::new();
        let mut bytes = 0;
        while batch.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
            let Some((ident, cursor)) = &mut self.cursor else {
                let Some(ident) = self.idents.pop_front() else { break };
                batch.create(ident);
                let cursor = self.snapshot.scan(ident, Range::all(), Direction::Forward)?;
                self.cursor = Some((ident, cursor));
                continue;
            };
            match cursor.next()? {
                Some((key, value)) => {
                    bytes += key.len() + value.len();
                    batch.put(*ident, key, value.to_value());
                }
                None => self.cursor = None,
            }
        }
        if batch.is_empty() {
            return Ok(None);
        }
        *frames += 1;
        Ok(Some(Encoded::new(&batch)?.frame(*frames, 0, NO_SEED).to_vec()))
    }
}
