//! The memory limit of the process, and counts of ended operations and cursors.

use crate::process::counter::Counter;
use std::sync::atomic::AtomicU64;

/// Maximum default memory of an operation.
const OPERATION_MAX: u64 = 1 << 30;

/// Memory limit of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLimit {
    /// Limit in bytes.
    pub bytes: u64,
    /// Source of the limit, for the log and serverStatus.
    pub from: String,
}

impl MemoryLimit {
    /// Returns the default memory limit of an operation in bytes.
    pub(crate) fn of_operation(limit: Option<&MemoryLimit>) -> u64 {
        limit.map_or(OPERATION_MAX, |limit| (limit.bytes / 2).min(OPERATION_MAX))
    }

    /// Returns the limit of the memory engine's data in bytes.
    pub(crate) fn of_data(&self) -> u64 {
        self.bytes / 8 * 7
    }

    /// Returns the amount in bytes below which refused writes are accepted again.
    pub(crate) fn of_data_again(&self) -> u64 {
        self.bytes / 32 * 27
    }
}

/// Counts of ended operations and cursors for serverStatus.
#[derive(Default)]
pub(crate) struct MemoryLimitStats {
    pub(crate) operations: Counter,
    pub(crate) cursors: Counter,
    pub(crate) connections: Counter,
    /// Resident bytes at the last check.
    pub(crate) resident: AtomicU64,
}
