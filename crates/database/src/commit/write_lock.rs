//! Lock of all writes while the files are copied: `fsync {lock: true}`.
//!
//! New commits wait until the last lock is released. The lock waits for running commits. When
//! [`Database::lock_writes`] returns, the engine has written all data to its files and does not
//! change them, so that they can be copied.

use crate::database::Database;
use base::Result;
use std::time::Duration;

impl Database {
    /// Adds a lock of writes and runs a checkpoint. Returns the number of locks.
    ///
    /// Errors: storage errors of the checkpoint; the lock is then released.
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

    /// Releases one lock. Returns the number of remaining locks; `None` if writes were not locked.
    pub fn unlock_writes(&self) -> Option<u64> {
        self.store.thaw()
    }

    /// Returns the number of locks.
    pub fn write_locks(&self) -> u64 {
        self.store.frozen()
    }

    /// Runs a checkpoint of all committed data.
    ///
    /// Errors: storage errors.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint().map_err(crate::storage_error)
    }

    /// Sets the longest time that committed data may be in the journal alone; `None` disables the
    /// time limit. An engine without files ignores it.
    pub fn checkpoint_after(&self, longest: Option<Duration>) {
        self.engine().checkpoint_after(longest);
    }

    /// Sets the interval of journal syncs, for an engine with a journal.
    pub fn sync_every(&self, interval: Duration) {
        self.engine().sync_every(interval);
    }
}
