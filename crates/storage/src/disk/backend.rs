//! redb's file on our file layer, which waits where redb would give up.
//!
//! After a failed write redb refuses everything, reads included, until it is opened anew. A full disk must
//! not do that to a server: so a write that finds no space is tried again until there is some, and only the
//! checkpoint that made it waits. Meanwhile readers go on, and writers until the memory for changes is full.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redb::{BackendError, StorageBackend};

use super::files::File;
use super::reuse::Reuse;

/// How long to wait before a write is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How things are with the base file, shared by all who need to know.
#[derive(Debug, Default)]
pub(super) struct Control {
    condition: Mutex<Condition>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone)]
struct Condition {
    /// A write is waiting for space, and this is what the system says.
    full: Option<String>,
    /// A read or write failed: the file must be opened anew.
    failed: bool,
    /// Waiting is over: the engine is closing.
    closing: bool,
}

impl Control {
    /// What the system says to a write that is waiting for space.
    pub(super) fn full(&self) -> Option<String> {
        self.condition.lock().full.clone()
    }

    /// Notes that the file has to be opened anew.
    pub(super) fn report(&self) {
        self.condition.lock().failed = true;
    }

    /// Whether the file has to be opened anew.
    pub(super) fn has_failed(&self) -> bool {
        self.condition.lock().failed
    }

    /// Lets writes that wait for space fail.
    pub(super) fn close(&self) {
        self.condition.lock().closing = true;
        self.changed.notify_all();
    }

    /// Forgets a failure.
    pub(super) fn reset(&self) {
        let mut condition = self.condition.lock();
        condition.failed = false;
        condition.full = None;
    }

    /// Repeats what needs space until it has some.
    fn with_space(&self, attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            let result = attempt();
            let mut condition = self.condition.lock();
            match &result {
                Err(error) if is_full(error) && !condition.closing => {
                    condition.full = Some(error.to_string());
                    self.changed.wait_for(&mut condition, RETRY);
                }
                _ => {
                    condition.full = None;
                    condition.failed |= result.is_err();
                    return result;
                }
            }
        }
    }

    /// Passes a result on, and notes a failure.
    fn noting<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.report();
        }
        result
    }
}

/// Whether an error says that there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The base file as redb sees it. Locks are granted: the directory's own lock keeps other processes out.
pub(super) struct Backend {
    file: Arc<dyn File>,
    control: Arc<Control>,
    /// Who wants to know of pages that are read and written, and what he tells this file's from others' by.
    reuse: Option<(Arc<Reuse>, u64)>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Backend").field("file", &self.file).field("control", &self.control).finish()
    }
}

/// Files are told apart in the bits above those of any offset.
const OFFSET_BITS: u32 = 48;

impl Backend {
    pub(super) fn new(file: Arc<dyn File>, control: Arc<Control>) -> Self {
        Backend { file, control, reuse: None }
    }

    /// A file whose pages are told about.
    pub(super) fn watched(
        file: Arc<dyn File>,
        control: Arc<Control>,
        reuse: Arc<Reuse>,
        number: u64,
    ) -> Self {
        Backend { file, control, reuse: Some((reuse, number << OFFSET_BITS)) }
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.control.noting(self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.control.noting(self.file.read_at(out, offset))?;
        if let Some((reuse, number)) = &self.reuse {
            reuse.loaded(offset ^ number, out);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.control.with_space(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        // Never tried again: after a failed sync the system may have forgotten what it was to write.
        self.control.noting(self.file.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.control.with_space(|| self.file.write_at(data, offset))?;
        if let Some((reuse, number)) = &self.reuse {
            reuse.written(offset ^ number, data);
        }
        Ok(())
    }

    fn try_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}
