//! An engine that records every committed batch, in order: the ground truth, independent of the
//! clients' replies.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::{Batch, Engine, Op, Position, Result, Room};

/// A batch and its result.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) time: u64,
    pub(crate) ops: Vec<Op>,
    /// Position of the commit; `None` if the engine refused it or has not answered yet.
    pub(crate) position: Option<Position>,
}

/// Delegates everything to an engine.
pub(crate) struct Recorder {
    engine: Arc<dyn Engine>,
    entries: Mutex<Vec<Entry>>,
    /// Numbers of started and finished batches.
    started: AtomicUsize,
    done: AtomicUsize,
    /// Called when a writer is about to commit, without any locks.
    pause: fn(),
}

impl Recorder {
    /// Returns a recorder of an engine, whose present state comes from these batches.
    pub(crate) fn new(engine: Arc<dyn Engine>, entries: Vec<Entry>, pause: fn()) -> Recorder {
        let (started, done) = (AtomicUsize::new(entries.len()), AtomicUsize::new(entries.len()));
        Recorder { engine, entries: Mutex::new(entries), started, done, pause }
    }

    /// Returns the committed batches.
    pub(crate) fn committed(&self) -> Vec<Entry> {
        self.entries.lock().iter().filter(|entry| entry.position.is_some()).cloned().collect()
    }

    /// Returns the number of finished commits. A read that begins now sees at least these.
    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Returns the number of started commits. A read that has ended has seen no more.
    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

impl storage::Wrapper for Recorder {
    type Wrapped = dyn Engine;

    fn wrapped(&self) -> &Self::Wrapped {
        &*self.engine
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut entries = self.entries.lock();
        entries.push(Entry { time: batch.time(), ops: batch.ops().to_vec(), position: None });
        let started = self.done.load(Ordering::SeqCst) + 1;
        self.started.store(started, Ordering::SeqCst);
        let committed = self.wrapped().commit(batch);
        match &committed {
            Ok(position) => {
                if let Some(entry) = entries.last_mut() {
                    entry.position = Some(*position);
                }
                self.done.store(started, Ordering::SeqCst);
            }
            Err(_) => self.started.store(started - 1, Ordering::SeqCst),
        }
        committed
    }

    fn room(&self) -> Result<Room> {
        (self.pause)();
        self.wrapped().room()
    }
}
