//! The synced mark: the position of the last commit covered by a sync, in a small file next to the segments.
//!
//! The end of a journal looks alike if it was never synced and if synced frames were lost. The mark distinguishes the
//! two. It is written after each sync and checkpoint. It is not synced itself, so it costs one write into the system's
//! cache. After a power failure it may be older than the last sync, or missing. It never claims too much.

use std::sync::Arc;

use super::files::File;
use super::journal::Segments;
use crate::sync::Mutex;
use crate::{Error, Result, mutant};

const MAGIC: [u8; 8] = *b"VellumS\n";
pub(super) const NAME: &str = "synced.mark";
/// Length of magic, directory id, position, checksum.
const BYTES: usize = 8 + 8 + 8 + 4;

/// The mark of a journal in use.
pub(super) struct Mark {
    /// `None` if the disk is full.
    file: Option<Arc<dyn File>>,
    id: u64,
    /// The latest position in the file. A checkpoint may end after the sync of later commits.
    noted: Mutex<u64>,
}

impl Mark {
    /// Opens or creates the mark of a journal. A journal works without a mark.
    pub(super) fn open(segments: &Segments) -> Mark {
        let file = segments.files.open(&segments.directory.join(NAME), true);
        if let Err(error) = &file {
            log::warn!(
                "{NAME} cannot be opened, so a later truncation of the journal may go unnoticed: \
             {error}"
            );
        }
        Mark { file: file.ok(), id: segments.id, noted: Mutex::default() }
    }

    /// Records that a sync or a checkpoint has covered everything up to a position. An error leaves an older mark, or
    /// none.
    pub(super) fn note(&self, position: u64) {
        let Some(file) = &self.file else { return };
        let mut noted = self.noted.lock();
        if position <= *noted {
            return;
        }
        let mark = encode(self.id, position);
        debug_assert_eq!(mark.get(16..24), Some(&position.to_le_bytes()[..]), "a reader reads elsewhere");
        if file.write_at(&mark, 0).is_ok() {
            *noted = position;
        }
    }
}

/// Encodes the mark with its checksum.
fn encode(id: u64, position: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    bytes[16..24].copy_from_slice(&position.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the position of a mark; `None` if it is missing, damaged, or of another directory.
pub(super) fn read(segments: &Segments) -> Option<u64> {
    let file = segments.files.open(&segments.directory.join(NAME), false).ok()?;
    let mut bytes = [0; BYTES];
    file.read_at(&mut bytes, 0).ok()?;
    let position = u64::from_le_bytes(*bytes.get(16..24)?.first_chunk()?);
    (bytes == encode(segments.id, position)).then_some(position)
}

/// Checks that a journal which ends with the commit `last` contains all synced commits.
///
/// Errors: `Corrupted` if synced commits are missing.
pub(super) fn check(segments: &Segments, last: u64) -> Result<()> {
    match read(segments) {
        Some(synced) if synced > last && !mutant!("shortened journals are accepted") => {
            Err(Error::Corrupted(format!(
                "the journal in {} ends after commit {last}, but commits up to {synced} were synced: its end is \
             missing",
                segments.directory.display()
            )))
        }
        _ => Ok(()),
    }
}
