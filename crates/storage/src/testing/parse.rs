//! The parsers of what files hold, past the checksums that bytes drawn at random never have: for fuzzing.

use crate::{Batch, Compression, Result, disk};

/// The bytes of a batch as they stand in a frame of the journal, behind its header.
///
/// Fails with `Full` if there are more than a frame may have.
pub fn journal_batch(batch: &Batch) -> Result<Vec<u8>> {
    disk::batch_bytes(batch)
}

/// The batch in such bytes; `None` if they make no sense.
pub fn read_journal_batch(bytes: &[u8]) -> Option<Batch> {
    disk::batch_of(bytes)
}

/// A page of the base with these entries, which are in the order of their keys, in its frame.
pub fn base_page(entries: &[(&[u8], &[u8])], compression: Compression) -> Vec<u8> {
    disk::framed(entries, compression)
}

/// The entries of a page in its frame, whatever its checksum; `None` if the bytes make no sense.
pub fn read_base_page(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    disk::entries(bytes)
}
