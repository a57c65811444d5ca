//! The memory of the process: its limit, the buffers of connections, and the return of freed memory to the system.
//!
//! An allocator keeps freed memory for reuse. jemalloc, the allocator on Linux, returns it after a
//! short time, but only while the program allocates. A call returns all free pages at once. The
//! background thread makes this call when much memory was freed and the server is quiet. An earlier
//! call would cost page faults for memory that is soon used again.
//!
//! Connections hold a buffer only while a request is in progress, so thousands of idle connections cost little. Each
//! network thread caches a few buffers, which are still in the processor's cache.

use crate::process::Counter;
use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::{ffi::CStr, ptr::null_mut};

/// Memory in use, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct MemoryUsage {
    /// Memory of the engine: documents and indexes, or its cache.
    pub(crate) engine: u64,
    /// Resident memory of the process.
    pub(crate) resident: u64,
}

/// Minimum amount that is worth returning, in bytes. A smaller amount is returned if it is most of
/// the memory.
const MIN_PURGE: u64 = 8 << 20;

/// Maximum change within a second on a quiet server, in bytes.
const QUIET: u64 = 1 << 20;

/// Seconds after which a busy server returns memory too.
const BUSY_SECONDS: u32 = 10;

/// Number of further calls, one each second, after a call that returned much. Threads left by the
/// work end in this time and release their own caches.
const EXTRA_PURGES: u32 = 15;

/// Decides once a second if free memory is returned.
#[derive(Debug, Default)]
pub(crate) struct PurgePolicy {
    /// Memory in use a second ago.
    before: MemoryUsage,
    /// Maximum memory of the engine since the last call.
    engine_max: u64,
    /// Resident memory after the last call.
    resident_after_purge: u64,
    /// Seconds since memory became worth returning.
    waited: u32,
    /// Remaining further calls, since dropped data is freed gradually.
    extra_purges: u32,
}

impl PurgePolicy {
    /// Returns true if memory should be returned now. Called once a second.
    pub(crate) fn is_due(&mut self, now: MemoryUsage) -> bool {
        let before = std::mem::replace(&mut self.before, now);
        self.engine_max = self.engine_max.max(now.engine);
        let freed = self.engine_max - now.engine;
        let has_freed = freed >= MIN_PURGE || freed >= MIN_PURGE / 4 && freed >= self.engine_max / 4 * 3;
        // Some work allocates and frees memory outside of the engine.
        let has_grown =
            now.resident >= self.resident_after_purge + (self.resident_after_purge / 8).max(2 * MIN_PURGE);
        if !has_freed && !has_grown && self.extra_purges == 0 {
            self.waited = 0;
            return false;
        }
        self.waited += 1;
        let is_quiet =
            now.resident.abs_diff(before.resident) < QUIET && now.engine.abs_diff(before.engine) < QUIET;
        is_quiet || self.waited >= BUSY_SECONDS
    }

    /// Records the memory in use after a call.
    pub(crate) fn record_purge(&mut self, now: MemoryUsage) {
        let brought_much = self.before.resident.saturating_sub(now.resident) >= MIN_PURGE;
        let extra_purges = if brought_much { EXTRA_PURGES } else { self.extra_purges.saturating_sub(1) };
        *self = PurgePolicy {
            before: now,
            engine_max: now.engine,
            resident_after_purge: now.resident,
            waited: 0,
            extra_purges,
        };
    }
}

/// Returns address space and resident memory of this process in bytes; `None` if the system does
/// not report them.
pub(crate) fn process_bytes() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    let mut bytes = || Some(pages.next()?? * page_bytes());
    Some((bytes()?, bytes()?))
}

#[cfg(target_os = "linux")]
fn page_bytes() -> u64 {
    use nix::unistd::{SysconfVar, sysconf};
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

#[cfg(not(target_os = "linux"))]
fn page_bytes() -> u64 {
    4096
}

/// Returns all free pages of all heaps to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(crate) fn purge() {
    for control in [FLUSH, PURGE] {
        // SAFETY: the name ends with a zero byte, and these controls neither read nor write a
        // value. jemalloc takes its own locks and changes only free memory. Without this call the
        // memory freed last stays resident until the next allocation. A program with another
        // allocator is not affected.
        unsafe {
            tikv_jemalloc_sys::mallctl(control.as_ptr(), null_mut(), null_mut(), null_mut(), 0);
        }
    }
}

/// jemalloc's control that flushes the calling thread's cache.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FLUSH: &CStr = c"thread.tcache.flush";

/// jemalloc's control that purges an arena. This number selects all arenas.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PURGE: &CStr = c"arena.4096.purge";

/// Allocators of other systems decide themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn purge() {}

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

/// Capacity of a new buffer in bytes. Enough for most requests.
const CAPACITY: usize = 8 * 1024;

/// Maximum capacity of a cached buffer. Larger buffers are freed.
const CACHED_CAPACITY_MAX: usize = 64 * 1024;

/// Number of cached buffers for each thread.
const CACHED_MAX: usize = 4;

thread_local! {
    static CACHE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer.
pub(crate) fn take_buffer() -> Vec<u8> {
    CACHE.with_borrow_mut(|cache| cache.pop()).unwrap_or_else(|| Vec::with_capacity(CAPACITY))
}

/// Returns a buffer to the cache.
pub(crate) fn release_buffer(mut buffer: Vec<u8>) {
    if !(CAPACITY..=CACHED_CAPACITY_MAX).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    CACHE.with_borrow_mut(|cache| {
        if cache.len() < CACHED_MAX {
            cache.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn held(engine: u64, resident: u64) -> MemoryUsage {
        MemoryUsage { engine: engine * MB, resident: resident * MB }
    }

    #[test]
    fn memory_is_given_back_once_much_was_freed_and_all_is_quiet() {
        let mut policy = PurgePolicy::default();
        policy.record_purge(held(0, 6));
        assert!(!policy.is_due(held(1, 8)), "little");
        assert!(!policy.is_due(held(60, 100)), "loading");
        assert!(policy.is_due(held(60, 100)), "quiet, and larger than before");
        policy.record_purge(held(60, 98));
        assert!(!policy.is_due(held(60, 98)), "that was not worth it");
        assert!(!policy.is_due(held(20, 98)), "being dropped");
        assert!(!policy.is_due(held(0, 98)), "still");
        assert!(policy.is_due(held(0, 98)));
        policy.record_purge(held(0, 50));
        for _ in 0..EXTRA_PURGES {
            assert!(policy.is_due(held(0, 50)), "more may have been freed meanwhile");
            policy.record_purge(held(0, 50));
        }
        assert!(!policy.is_due(held(0, 50)));
    }

    #[test]
    fn little_is_given_back_where_it_was_nearly_all() {
        let mut policy = PurgePolicy::default();
        policy.record_purge(held(5, 60));
        assert!(!policy.is_due(held(3, 60)), "some of it");
        assert!(!policy.is_due(held(1, 60)), "being dropped");
        assert!(policy.is_due(held(1, 60)));
        policy.record_purge(held(1, 20));
        assert!(policy.is_due(held(1, 20)), "more may have been freed meanwhile");
    }

    #[test]
    fn a_server_that_is_never_quiet_gives_back_every_ten_seconds() {
        let mut policy = PurgePolicy::default();
        policy.record_purge(held(0, 6));
        let due: Vec<u64> = (1..=25)
            .filter(|second| {
                let now = held(if second % 2 == 0 { 0 } else { 50 }, 100 + second % 2 * 20);
                let due = policy.is_due(now);
                if due {
                    policy.record_purge(now);
                }
                due
            })
            .collect();
        assert_eq!(due.len(), 2, "{due:?}");
    }

    #[test]
    fn small_buffers_are_reused_and_large_buffers_freed() {
        release_buffer(Vec::with_capacity(10 * CACHED_CAPACITY_MAX));
        let mut buffer = take_buffer();
        assert!(buffer.capacity() <= CACHED_CAPACITY_MAX);
        buffer.push(1);
        let address = buffer.as_ptr();
        release_buffer(buffer);
        let again = take_buffer();
        assert!(again.is_empty() && again.as_ptr() == address);
    }
}
