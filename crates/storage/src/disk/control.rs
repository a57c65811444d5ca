//! Writing to the base's file, which waits where there is no room.
//!
//! A write that finds no space is tried again until there is some, and only the checkpoint that made it waits.
//! Meanwhile readers go on, and writers until the memory for changes is full.

use std::io;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long to wait before a write is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How things are with the base's file, shared by all who need to know.
#[derive(Debug, Default)]
pub(super) struct Control {
    condition: Mutex<Condition>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Condition {
    /// A write is waiting for space, and this is what the system says.
    full: Option<String>,
    /// Waiting is over: the engine is closing.
    closing: bool,
}

impl Control {
    /// One that waits for nothing.
    pub(super) fn impatient() -> Self {
        let control = Control::default();
        control.close();
        control
    }

    /// What the system says to a write that is waiting for space.
    pub(super) fn full(&self) -> Option<String> {
        self.condition.lock().full.clone()
    }

    /// Lets writes that wait for space fail.
    pub(super) fn close(&self) {
        self.condition.lock().closing = true;
        self.changed.notify_all();
    }

    /// Repeats what needs space until it has some.
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

/// Whether an error says that there is no space.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
