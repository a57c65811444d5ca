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

/// The bytes of a batch as they stand in a frame of the journal, behind its header.
///
/// Fails with `Full` if there are more than a frame may have.
pub fn journal_batch(batch: &Batch) -> Result<Vec<u8>> {
    record::batch_bytes(batch)
}

/// The batch in such bytes; `None` if they make no sense.
pub fn read_journal_batch(bytes: &[u8]) -> Option<Batch> {
    record::batch_of(bytes)
}

/// A segment of the journal with other frames behind its header, whose checksums are made right.
pub fn with_frames(segment: &mut Vec<u8>, frames: &[u8]) {
    segment.truncate(disk::SEGMENT_HEADER_BYTES);
    segment.extend(frames);
    record::seal(segment.get_mut(disk::SEGMENT_HEADER_BYTES..).unwrap_or_default());
}

/// The frames of a segment.
pub fn frames(segment: &[u8]) -> &[u8] {
    segment.get(disk::SEGMENT_HEADER_BYTES..).unwrap_or_default()
}

/// A page of the base with these entries, which are in the order of their keys, in its frame.
pub fn base_page(entries: &[(&[u8], &[u8])], compression: Compression) -> Vec<u8> {
    disk::framed(entries, compression)
}

/// The entries of a page in its frame, whatever its checksum; `None` if the bytes make no sense.
pub fn read_base_page(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    disk::entries(bytes)
}
