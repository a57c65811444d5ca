//! Backups: everything as of one moment, or the commits since an earlier backup, as a stream of bytes.
//!
//! A backup is made of parts. A full part is a snapshot, written as batches that make everything anew; a part of
//! changes is the journal's own frames between two positions. Both are frames of the journal's format between a
//! header and a trailer (`trail.rs`), so that restoring is replaying (`restore.rs`). Parts lie in a directory, in
//! their order (`chain.rs`). Frames out of several files that may overlap are put in order there, too.
//!
//! A snapshot takes no lock, and holds no commit and no checkpoint up. What it stands for is synced before anything
//! is told of it: a backup never has what a crash of the machine takes from the data it was made of.

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

/// A batch of a full backup ends when it has so many entries, or so many bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 256 << 10;
/// Frames of the journal go out together up to about so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Where an earlier backup has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The random number of the data directory that it was made of.
    pub id: u64,
    /// The position of the last commit in it.
    pub position: u64,
}

/// One part of a backup, while it is being made: bytes to be written one after the other.
pub struct Backup {
    head: trail::Head,
    end: End,
    source: Content,
    frames: u64,
    begun: bool,
    ended: bool,
    instead: Option<String>,
}

enum Content {
    Full(Full),
    Changes(Trail),
}

/// A snapshot being written.
struct Full {
    snapshot: Arc<dyn Snapshot>,
    idents: VecDeque<Ident>,
    cursor: Option<(Ident, Box<dyn Cursor>)>,
}

impl Backup {
    /// A full one of a snapshot with these trees, which is what `end` says.
    pub(crate) fn full(snapshot: Arc<dyn Snapshot>, idents: Vec<Ident>, id: u64, end: End) -> Self {
        let full = Full { snapshot, idents: idents.into(), cursor: None };
        Backup::new(trail::Head { kind: Kind::Full, id, from: 0 }, end, Content::Full(full))
    }

    /// The commits behind an earlier one, up to what `end` says.
    pub(super) fn changes(trail: Trail, since: Since, end: End) -> Self {
        let head = trail::Head { kind: Kind::Changes, id: since.id, from: since.position };
        Backup::new(head, end, Content::Changes(trail))
    }

    fn new(head: trail::Head, end: End, source: Content) -> Self {
        Backup { head, end, source, frames: 0, begun: false, ended: false, instead: None }
    }

    /// Says why it is a full one though changes were asked for.
    pub(super) fn instead(mut self, why: Option<String>) -> Self {
        self.instead = why;
        self
    }

    /// Whether it is everything, or the changes that were asked for.
    pub fn kind(&self) -> Kind {
        self.head.kind
    }

    /// Why it is everything, where changes were asked for.
    pub fn why_full(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// The next bytes; `None` at the end.
    ///
    /// Errors: what cannot be read.
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
    /// The next frame: its positions count the frames of this part.
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

/// The next frames up to a position.
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
