//! Frees dropped trees, big ones on a thread of their own.
//!
//! Dropping a collection takes a committer constant time, but giving a million nodes back to the allocator
//! takes many milliseconds that no writer should wait for.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};

use super::table::Table;
use crate::threads;

/// Trees with more entries than this are freed in the background.
const BIG: usize = 4096;

/// Takes trees that nobody will look at again. The thread starts with the first big tree, and ends with the
/// reaper.
#[derive(Default)]
pub(super) struct Reaper {
    sender: OnceLock<Option<Sender<Table>>>,
}

impl Reaper {
    /// Frees a tree, now or soon. Must not be called under a lock.
    pub(super) fn free(&self, table: Table) {
        if table.tree.len() > BIG
            && !table.tree.is_shared()
            && let Some(sender) = self.sender.get_or_init(start)
        {
            // A tree that cannot be sent comes back inside the error, and is freed here.
            let _ = sender.send(table);
        }
    }
}

/// Starts the thread; without one (too many threads, say) trees are freed where they are dropped.
fn start() -> Option<Sender<Table>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || receiver.into_iter().for_each(drop);
    threads::spawn("storage-reaper", None, run).ok().map(|_| sender)
}
