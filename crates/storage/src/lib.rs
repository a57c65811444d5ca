//! Ordered keys and values: the traits of storage engines and stores, the memory engine and the disk engine.
//!
//! This crate handles bytes only: no documents, no BSON, no wire codes. Above it, `database` defines the keys.
//! Below the [`Engine`] trait an engine decides where the bytes are. The path of a write and of a read:
//!
//! 1. A writer fills a [`Batch`] with operations on numbered trees ([`Ident`]) and commits it atomically.
//! 2. A reader takes a [`Snapshot`], which is consistent over all trees and never changes, and reads
//!    single keys or opens a [`Cursor`] over a [`Range`].
//!
//! `testing` is for tests, and no part of a release build: `Checked` wraps any engine and asserts the contract of the
//! traits. Other wrappers compare two engines or record the keys written. A new engine passes
//! `tests/support/contract.rs`.

mod batch;
mod bytes;
pub mod cancellation;
pub mod coverage;
pub mod cpu_slice;
pub mod disk;
mod engine;
mod error;
mod event_count;
pub mod memory;
pub mod mutants;
mod overlay;
mod queue;
mod record;
pub mod store;
pub mod sync;
#[cfg(any(test, debug_assertions, feature = "testing"))]
#[path = "../tests/support/mod.rs"]
pub mod testing;
pub mod threads;
pub mod time;
mod tree;
mod working_set;

pub use batch::{Batch, Op};
pub use bytes::{Key, Value, ValueRef};
pub use disk::{
    ArchiveOptions, BackupDirectory, Compression, DataLoss, DiskEngine, DiskOptions, Part, PartWriter,
    ReadOnlyEngine, Restore, Restored, Salvage, restore,
};
pub use engine::{
    ArchiveCounts, Backup, Cursor, Damage, Difference, Differences, Durability, End, Engine, Excerpt, Hints,
    JournalWait, Journaling, Kind, Ranges, RecordFilter, RemoteHints, Room, SYNC_SPANS, Since, Snapshot,
    Statistics, Wrapper,
};
pub use error::{Error, Result};
pub use event_count::{EventCount, Listener};
pub use memory::MemoryEngine;
pub use overlay::Overlay;
pub use queue::{Queue, Ticket};
pub use tree::{Direction, Ident, Position, Range};
pub use working_set::{Curve, Reads, Span, WorkingSet};
