//! Ordered keys and values: the traits every engine keeps, the memory engine and the disk engine.
//!
//! This crate knows bytes only: no documents, no BSON, no wire codes. Above it, `database` decides what the
//! keys mean; below the [`Engine`] trait it does not matter where the bytes live. The way through:
//!
//! 1. A writer fills a [`Batch`] with operations on numbered trees ([`Ident`]) and commits it whole.
//! 2. A reader takes a [`Snapshot`], which is consistent over all trees and never changes, and asks it for
//!    single keys or for a [`Cursor`] over a [`Range`].
//!
//! `testing` is for tests, and no part of a release build: `Checked` wraps any engine and asserts what the traits
//! promise, other doubles compare two engines or show the keys written.

mod batch;
mod bytes;
pub mod cpu_slice;
mod differences;
pub mod disk;
mod engine;
mod error;
pub mod memory;
pub mod mutants;
mod overlay;
pub mod patience;
pub mod store;
pub mod sync;
#[cfg(any(test, debug_assertions, feature = "testing"))]
#[path = "../tests/support/mod.rs"]
pub mod testing;
pub mod threads;
mod wanted;
mod working_set;

pub use batch::{Batch, Op};
pub use bytes::{Key, Lent, Value};
pub use differences::{Difference, Differences};
pub use disk::{
    ArchiveOptions, Backup, BackupDirectory, Compression, DiskEngine, DiskOptions, End, Kind, Lost, Part,
    PartWriter, Restore, Restored, Salvage, Since, Still, restore,
};
pub use engine::{
    ArchiveCounts, Awaited, Cursor, Damage, Direction, Durability, Engine, Ident, Position, Range,
    SYNC_SPANS, Snapshot, Statistics, Wrapper,
};
pub use error::{Error, Result};
pub use memory::MemoryEngine;
pub use overlay::Overlay;
pub use wanted::{Chosen, Ranges, Wanted};
pub use working_set::{Curve, Reads, Span, WorkingSet};
