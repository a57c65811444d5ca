//! Backups: the state of one moment, or the commits since an earlier backup, as a stream of bytes.
//!
//! A backup consists of parts. A full part is a snapshot, written as batches that recreate all data. A part of changes
//! contains the journal's own frames between two positions. Both have a header, frames in the journal's format, and a
//! trailer (`frame_stream.rs`), so a restore is a replay (`restore.rs`). A directory holds the parts in order
//! (`chain.rs`). The same module orders the frames of several overlapping files.
//!
//! A snapshot takes no lock, and blocks neither commits nor checkpoints. Its state is synced before it is exported. A
//! backup therefore never contains data that a crash of the machine would remove from the source.

mod chain;
mod frame_stream;
mod restore;

use crate::Result;
use crate::engine::Pieces;
pub(super) use frame_stream::{FrameStream, Next, Source};

pub use chain::{BackupDirectory, PartWriter};
pub use frame_stream::Part;
pub use restore::{Restore, Restored, restore};

/// Approximate number of journal bytes returned at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The commits after an earlier backup, up to a position.
pub(super) struct Changes {
    pub(super) frame_stream: FrameStream,
    pub(super) end: u64,
}

impl Pieces for Changes {
    fn piece(&mut self, frames: &mut u64) -> Result<Option<Vec<u8>>> {
        let Changes { frame_stream, end } = self;
        debug_assert!(frame_stream.last() <= *end, "the part is longer than announced");
        let mut piece = Vec::new();
        while frame_stream.last() < *end && piece.len() < PIECE_BYTES {
            match frame_stream.next()? {
                Next::Frame(frame) => {
                    piece.extend_from_slice(&frame.bytes);
                    *frames += 1;
                }
                Next::Gap(next) => return Err(frame_stream::gap(frame_stream.last() + 1, next - 1)),
                Next::End => return Err(frame_stream::gap(frame_stream.last() + 1, *end)),
            }
        }
        debug_assert!(!piece.is_empty() || frame_stream.last() == *end, "the part ends early");
        Ok((!piece.is_empty()).then_some(piece))
    }
}
