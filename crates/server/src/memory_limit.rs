//! The memory that the process may have, and counts of what was ended for want of it.

use crate::counter::Counter;
use std::sync::atomic::AtomicU64;

/// The most that an operation may hold where there is memory for more.
const OPERATION_MOST: u64 = 1 << 30;

/// How much memory the process may have.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLimit {
    /// In bytes.
    pub bytes: u64,
    /// Who says so, as the log and serverStatus tell it.
    pub from: String,
}

impl MemoryLimit {
    /// What one operation may hold unless the parameter says otherwise, in bytes.
    pub(crate) fn of_operation(limit: Option<&MemoryLimit>) -> u64 {
        limit.map_or(OPERATION_MOST, |limit| (limit.bytes / 2).min(OPERATION_MOST))
    }

    /// What the memory engine's data may take, in bytes.
    pub(crate) fn of_data(&self) -> u64 {
        self.bytes / 8 * 7
    }

    /// Below how much writes that were refused are taken again, in bytes.
    pub(crate) fn of_data_again(&self) -> u64 {
        self.bytes / 32 * 27
    }
}

/// What has been ended for want of memory, for serverStatus.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) operations: Counter,
    pub(crate) cursors: Counter,
    pub(crate) connections: Counter,
    /// Bytes resident when that was last looked at.
    pub(crate) resident: AtomicU64,
}
