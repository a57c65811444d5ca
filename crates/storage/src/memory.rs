//! The memory engine: all data in persistent trees, nothing on disk.
//!
//! One reference-counted root holds the state of all trees. A snapshot is another reference to it.
//! A commit changes nodes in place if no snapshot shares them, and copies shared nodes. Readers
//! therefore never wait for one another, and a reader's view never changes. One lock orders reads
//! and commits. It is held for one reference count or a small batch. A large batch is applied to a
//! copy first, so that readers do not wait for it.

mod cursor;
mod differences;
mod keys;
mod node;
mod table;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Backup, Batch, End, Engine, Journaling, Position, Result, Since, Snapshot, Statistics};
use table::{Reaper, State, Table};

pub(crate) use cursor::LookaheadCursor;
pub use cursor::TreeCursor;
pub use node::Tree;

/// Larger batches, in operations, are applied to a copy of the state, so that readers do not wait.
/// Every changed node is then copied once.
const LARGE: usize = 512;

/// An [`Engine`] whose data ends with the process.
#[derive(Default)]
pub struct MemoryEngine {
    /// Held for a whole commit: one writer at a time.
    writer: Mutex<()>,
    /// The latest state. Locked only while `writer` is held, or to clone it.
    state: Mutex<Arc<State>>,
    /// The greatest time of any batch.
    time: AtomicU64,
    reaper: Reaper,
}

impl MemoryEngine {
    /// Returns an engine without trees.
    pub fn new() -> Self {
        MemoryEngine::default()
    }

    fn commit_small(&self, batch: Batch) -> Result<(Position, Vec<Table>)> {
        let mut state = self.state.lock();
        state.validate(&batch)?;
        let state = Arc::make_mut(&mut state);
        let discarded = state.apply(batch);
        Ok((Position(state.commits), discarded))
    }

    fn commit_large(&self, batch: Batch) -> Result<(Position, Vec<Table>)> {
        let mut next = State::clone(&self.latest());
        next.validate(&batch)?;
        let discarded = next.apply(batch);
        let position = Position(next.commits);
        let before = mem::replace(&mut *self.state.lock(), Arc::new(next));
        debug_assert_eq!(before.commits + 1, position.0, "another commit came between, and is lost");
        drop(before);
        Ok((position, discarded))
    }

    fn latest(&self) -> Arc<State> {
        Arc::clone(&self.state.lock())
    }
}

impl Engine for MemoryEngine {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.latest()
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let time = batch.time();
        let writer = self.writer.lock();
        let (position, discarded) = match batch.len() > LARGE {
            true => self.commit_large(batch)?,
            false => self.commit_small(batch)?,
        };
        debug_assert!(self.durable() == position, "the commit is not visible");
        self.time.fetch_max(time, Ordering::AcqRel);
        drop(writer);
        discarded.into_iter().for_each(|table| self.reaper.free(table));
        Ok(position)
    }

    fn latest_time(&self) -> u64 {
        self.time.load(Ordering::Acquire)
    }

    /// Always a full backup, because no journal exists.
    fn backup(&self, _: Option<Since>, covers: u64) -> Result<Backup> {
        let writer = self.writer.lock();
        let (state, time) = (self.latest(), self.latest_time());
        drop(writer);
        let end = End { position: state.commits, time, covers: covers.max(time) };
        let idents = state.idents();
        Ok(Backup::full(state, idents, 0, end))
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn statistics(&self) -> Statistics {
        let state = self.latest();
        Statistics { bytes: state.bytes, commits: state.commits, ..Statistics::default() }
    }
}

impl Journaling for MemoryEngine {
    fn wait_journaled(&self, _position: Position) -> Result<()> {
        Ok(())
    }

    fn durable(&self) -> Position {
        Position(self.state.lock().commits)
    }

    fn when_durable(&self, _wake: Arc<dyn Fn() + Send + Sync>) {}

    fn sync_soon(&self) {}

    fn has_journal(&self) -> bool {
        false
    }
}
