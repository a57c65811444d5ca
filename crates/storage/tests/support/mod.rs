//! Engines and a file system for tests, to be stacked: [`Mirror`] compares two engines at every answer,
//! [`Emit`] shows what is written, [`FaultyFiles`] fails as disks do.
//!
//! A test that runs on `Emit<Mirror<A, B>>` tests two engines for the price of one, and can print the keys
//! that each step wrote. Both are ordinary [`Engine`](crate::Engine)s, so the layers above run on them
//! unchanged. [`Checked`] asserts what the traits promise; debug builds of the server run on it.
//!
//! [`check_engine`] and [`check_store`] are the contracts of the traits as suites, which every engine and store passes.
//!
//! Debug builds have this module. A release build has it with the feature `testing` alone.
//!
//! The parsers of what files hold, past the checksums that bytes drawn at random never have: for fuzzing.

mod contract;
#[cfg(feature = "shuttle")]
mod explore;
pub(crate) mod faulty;
mod mirror;
mod shared;
mod suite;

pub use contract::Checked;
#[cfg(feature = "shuttle")]
pub use explore::{explore, fails};
pub use faulty::{FaultyFiles, Loss};
pub use mirror::{Describe, Emit, Mirror};
pub use shared::Shared;
pub use suite::{check_engine, check_store};

use crate::{Batch, Compression, Result, disk, record};

/// Returns the bytes of a batch in a frame of the journal, after its header.
///
/// Errors: `Full` if they exceed the size of a frame.
pub fn journal_batch(batch: &Batch) -> Result<Vec<u8>> {
    record::batch_bytes(batch)
}

/// Parses these bytes into a batch; `None` for invalid bytes.
pub fn read_journal_batch(bytes: &[u8]) -> Option<Batch> {
    record::batch_of(bytes)
}

/// Replaces the frames of a segment of the journal, and corrects their checksums.
pub fn with_frames(segment: &mut Vec<u8>, frames: &[u8]) {
    segment.truncate(disk::SEGMENT_HEADER_BYTES);
    let seed = segment.first_chunk().map_or(record::NO_SEED, disk::seed);
    segment.extend(frames);
    record::fix_checksums(segment.get_mut(disk::SEGMENT_HEADER_BYTES..).unwrap_or_default(), seed);
}

/// Returns the frames of a segment.
pub fn frames(segment: &[u8]) -> &[u8] {
    segment.get(disk::SEGMENT_HEADER_BYTES..).unwrap_or_default()
}

/// Returns the frame of a page of the base with these entries, which are in key order.
pub fn base_page(entries: &[(&[u8], &[u8])], compression: Compression) -> Vec<u8> {
    disk::framed(entries, compression)
}

/// Returns the entries of a page in its frame, without a check of its checksum; `None` for invalid
/// bytes.
pub fn read_base_page(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    disk::entries(bytes)
}
