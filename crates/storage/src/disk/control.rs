//! Writes to the base's file, with retries if the disk is full.
//!
//! A write without space is repeated until it succeeds, and only its checkpoint waits. Meanwhile readers continue, and
//! writers continue until the memory for changes is full.

use std::io;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Pause before a retry.
const RETRY: Duration = Duration::from_millis(50);

/// Write state of the base's file, shared with other threads.
#[derive(Debug, Default)]
pub(super) struct Control {
    condition: Mutex<Condition>,
    changed: Condvar,
}

/// Shared flags of the writes.
#[derive(Debug, Default)]
struct Condition {
    /// Error text of a write that waits for space.
    full: Option<String>,
    /// The engine is closing: writes fail instead of waiting.
    closing: bool,
}

impl Control {
    /// Creates a control whose writes never wait.
    pub(super) fn impatient() -> Self {
        let control = Control::default();
        control.close();
        control
    }

    /// Returns the error text of a write that waits for space.
    pub(super) fn full(&self) -> Option<String> {
        self.condition.lock().full.clone()
    }

    /// Makes waiting writes fail.
    pub(super) fn close(&self) {
        self.condition.lock().closing = true;
        self.changed.notify_all();
    }

    /// Repeats an operation until it has space.
    pub(super) fn with_space(&self, attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
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
                    return result;
                }
            }
        }
    }
}

/// Returns true for an error that means a full disk.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
