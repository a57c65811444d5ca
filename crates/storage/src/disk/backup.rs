//! Backups: the state of one moment, or the commits since an earlier backup, as a stream of bytes.
//!
//! A backup consists of parts. A full part is a snapshot, written as batches that recreate all data. A part of changes
//! contains the journal's own frames between two positions. Both have a header, frames in the journal's format, and a
//! trailer (`trail.rs`), so a restore is a replay (`restore.rs`). A directory holds the parts in order (`chain.rs`).
//! The same module orders the frames of several overlapping files.
//!
//! A snapshot takes no lock, and blocks neither commits nor checkpoints. Its state is synced before it is exported. A
//! backup therefore never contains data that a crash of the machine would remove from the source.

mod chain;
mod restore;
mod trail;

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::Encoded;
use crate::{Batch, Cursor, Direction, Ident, Range, Result, Snapshot};
pub(super) use trail::{Next, Source, Trail};

pub use chain::{BackupDirectory, PartWriter};
pub use restore::{Restore, Restored, restore};
pub use trail::{End, Kind, Part};

/// Maximum number of entries in a batch of a full backup; a second limit is in bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 256 << 10;
/// Approximate number of journal bytes returned at a time.
const PIECE_BYTES: usize = 256 << 10;

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
    head: trail::Head,
    end: End,
    source: Content,
    /// Number of frames returned so far.
    frames: u64,
    /// True once the header has been returned.
    begun: bool,
    /// True once the trailer has been returned.
    ended: bool,
    /// Reason for a full part, although changes were requested.
    instead: Option<String>,
}

/// Source of a part's frames.
enum Content {
    Full(Full),
    Changes(Trail),
}

/// A snapshot being written.
struct Full {
    snapshot: Arc<dyn Snapshot>,
    /// Trees not yet written.
    idents: VecDeque<Ident>,
    /// The tree being written.
    cursor: Option<(Ident, Box<dyn Cursor>)>,
}

impl Backup {
    /// Creates a full part of a snapshot with these trees. `end` describes its state.
    pub(crate) fn full(snapshot: Arc<dyn Snapshot>, idents: Vec<Ident>, id: u64, end: End) -> Self {
        let full = Full { snapshot, idents: idents.into(), cursor: None };
        Backup::new(trail::Head { kind: Kind::Full, id, from: 0 }, end, Content::Full(full))
    }

    /// Creates a part with the commits after an earlier backup, up to `end`.
    pub(super) fn changes(trail: Trail, since: Since, end: End) -> Self {
        let head = trail::Head { kind: Kind::Changes, id: since.id, from: since.position };
        Backup::new(head, end, Content::Changes(trail))
    }

    fn new(head: trail::Head, end: End, source: Content) -> Self {
        Backup { head, end, source, frames: 0, begun: false, ended: false, instead: None }
    }

    /// Sets the reason why a full part was made although changes were requested.
    pub(super) fn instead(mut self, why: Option<String>) -> Self {
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
        if !self.begun {
            self.begun = true;
            return Ok(Some(self.head.bytes().to_vec()));
        }
        if self.ended {
            return Ok(None);
        }
        let piece = match &mut self.source {
            Content::Full(full) => full.piece(&mut self.frames)?,
            Content::Changes(trail) => changes(trail, self.end.position, &mut self.frames)?,
        };
        if piece.is_some() {
            return Ok(piece);
        }
        self.ended = true;
        Ok(Some(self.end.bytes(self.frames).to_vec()))
    }
}

impl Full {
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
        Ok(Some(Encoded::new(&batch)?.frame(*frames, 0).to_vec()))
    }
}

/// Returns the next frames up to a position.
fn changes(trail: &mut Trail, end: u64, frames: &mut u64) -> Result<Option<Vec<u8>>> {
    let mut piece = Vec::new();
    while trail.last() < end && piece.len() < PIECE_BYTES {
        match trail.next()? {
            Next::Frame(frame) => {
                piece.extend_from_slice(&frame.bytes);
                *frames += 1;
            }
            Next::Gap(next) => return Err(trail::gap(trail.last() + 1, next - 1)),
            Next::End => return Err(trail::gap(trail.last() + 1, end)),
        }
    }
    Ok((!piece.is_empty()).then_some(piece))
}
