//! Holding all writes up while somebody copies the files, as `fsync {lock: true}` does.
//!
//! Commits that would begin wait until the last lock is taken back, one under way is waited for. When
//! [`Database::lock_writes`] returns, the engine has written everything to its files and does nothing more
//! to them, so that they can be copied.

use crate::database::Database;
use base::Result;
use std::time::Duration;

impl Database {
    /// Locks writes once more, and writes everything down. Returns how often they are locked now.
    ///
    /// Errors: the engine's, where it can't write everything down; then it is as if not asked for.
    pub fn lock_writes(&self) -> Result<u64> {
        let count = self.store.freeze();
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
        self.store.thaw()
    }

    /// How often writes are locked.
    pub fn write_locks(&self) -> u64 {
        self.store.frozen()
    }

    /// Writes everything down that has been committed.
    ///
    /// Errors: the engine's.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint().map_err(crate::storage_error)
    }

    /// How long what is committed may lie in the journal alone; `None`: until there is another reason to write it
    /// down. An engine without files doesn't care.
    pub fn checkpoint_after(&self, longest: Option<Duration>) {
        self.engine().checkpoint_after(longest);
    }

    /// How often the journal is synced unasked, where it is at all.
    pub fn sync_every(&self, interval: Duration) {
        self.engine().sync_every(interval);
    }
}
