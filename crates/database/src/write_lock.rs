//! Holding all writes up while somebody copies the files, as `fsync {lock: true}` does.
//!
//! The lock is a count that the holder of the commit lock looks at: a transaction that would begin waits
//! until it is back at zero, one that has begun is waited for. When [`Database::lock_writes`] returns, the
//! engine has written everything to its files and does nothing more to them, so that they can be copied.

use crate::commit::Writer;
use crate::database::Database;
use crate::operation::BlockingHook;
use base::Result;
use parking_lot::{Condvar, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often writes are locked, and who waits for the end of that.
#[derive(Default)]
pub(crate) struct WriteLock {
    /// Changed under the commit lock alone.
    count: AtomicU64,
    unlocked: Condvar,
    /// Runs waits of the threads that begin transactions.
    blocking: OnceLock<BlockingHook>,
}

impl Database {
    /// Says how threads wait for the lock; once, by whoever owns them.
    pub fn wait_through(&self, hook: BlockingHook) {
        let _ = self.write_lock.blocking.set(hook);
    }

    /// Locks writes once more, and writes everything down. Returns how often they are locked now.
    ///
    /// Errors: the engine's, where it can't write everything down; then it is as if not asked for.
    pub fn lock_writes(&self) -> Result<u64> {
        let writer = self.writer.lock();
        let count = self.write_lock.count.fetch_add(1, Ordering::AcqRel) + 1;
        drop(writer);
        match self.checkpoint() {
            Ok(()) => Ok(count),
            Err(error) => {
                self.unlock_writes();
                Err(error)
            }
        }
    }

    /// Takes one lock back; returns how many are left, `None` where there was none.
    pub fn unlock_writes(&self) -> Option<u64> {
        let _writer = self.writer.lock();
        let left = self.write_locks().checked_sub(1)?;
        self.write_lock.count.store(left, Ordering::Release);
        self.write_lock.unlocked.notify_all();
        Some(left)
    }

    /// How often writes are locked.
    pub fn write_locks(&self) -> u64 {
        self.write_lock.count.load(Ordering::Acquire)
    }

    /// Writes everything down that has been committed.
    ///
    /// Errors: the engine's.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint().map_err(crate::storage_error)
    }

    /// Takes the commit lock once writes aren't locked.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        let mut writer = self.writer.lock();
        if self.write_locks() > 0 {
            let hook = self.write_lock.blocking.get().copied().unwrap_or(|work| work());
            hook(&mut || {
                while self.write_locks() > 0 {
                    self.write_lock.unlocked.wait(&mut writer);
                }
            });
        }
        writer
    }
}
