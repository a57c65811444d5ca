//! The synced mark: the position of the last commit that a sync of the journal covered, in a small file beside the
//! segments.
//!
//! The end of a journal looks the same if it was never synced and if synced frames were cut off. The mark tells the two
//! apart. It is written after each sync and is not synced itself, so it costs one write into the system's cache. After
//! a power failure it may be older than the last sync, or missing, and then shows less. It never claims too much.

use std::sync::Arc;

use super::files::File;
use super::journal::Segments;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"VellumS\n";
pub(super) const NAME: &str = "synced.mark";
/// Magic, the directory's id, the position, checksum.
const BYTES: usize = 8 + 8 + 8 + 4;

/// The mark, to be written.
pub(super) struct Mark {
    /// `None` where there is no room for it.
    file: Option<Arc<dyn File>>,
    id: u64,
}

impl Mark {
    /// Opens the mark of a journal, or makes it. A journal without a mark works, and shows less.
    pub(super) fn open(segments: &Segments) -> Mark {
        let file = segments.files.open(&segments.directory.join(NAME), true);
        if let Err(error) = &file {
            log::warn!("{NAME} cannot be opened, so a journal that is cut later may go unnoticed: {error}");
        }
        Mark { file: file.ok(), id: segments.id }
    }

    /// Notes that a sync has covered everything up to a position. An error leaves an older mark, or none.
    pub(super) fn note(&self, position: u64) {
        if let Some(file) = &self.file {
            let _ = file.write_at(&encode(self.id, position), 0);
        }
    }
}

fn encode(id: u64, position: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    bytes[16..24].copy_from_slice(&position.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The position that the mark of a journal has. `None` without one, or if it isn't whole, or another directory's.
pub(super) fn read(segments: &Segments) -> Option<u64> {
    let file = segments.files.open(&segments.directory.join(NAME), false).ok()?;
    let mut bytes = [0; BYTES];
    file.read_at(&mut bytes, 0).ok()?;
    let position = u64::from_le_bytes(*bytes.get(16..24)?.first_chunk()?);
    (bytes == encode(segments.id, position)).then_some(position)
}

/// Checks that a journal which ends with the commit `last` has all that was synced.
///
/// Errors: `Corrupted` if synced commits are missing.
pub(super) fn check(segments: &Segments, last: u64) -> Result<()> {
    match read(segments) {
        Some(synced) if synced > last => Err(Error::Corrupted(format!(
            "the journal in {} ends behind commit {last}, and commits up to {synced} had been synced: its end is missing",
            segments.directory.display()
        ))),
        _ => Ok(()),
    }
}
