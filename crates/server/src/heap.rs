//! Giving back to the system what heaps hold for later.
//!
//! An allocator keeps what is freed, to give it out again: jemalloc, which the program has on Linux, for a moment while
//! others allocate, but for good where nobody does. It has a call that gives free pages back wherever they lie. The
//! background thread makes that call once much has been freed and the server has become quiet, since giving back what
//! is about to be used again costs page faults.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::{ffi::CStr, ptr::null_mut};

/// How much memory is in use, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Held {
    /// What the engine keeps in memory: documents and indexes, or its cache.
    pub(crate) engine: u64,
    /// What the whole process has of the system's memory.
    pub(crate) resident: u64,
}

/// Less than this is not worth giving back, in bytes, unless it is most of what there was.
const WORTH: u64 = 8 << 20;

/// What may change in a second in which the server is called quiet, in bytes.
const QUIET: u64 = 1 << 20;

/// For how many seconds a busy server may keep what it has freed.
const BUSY_SECONDS: u32 = 10;

/// How often memory is given back after it was worth it: in that many seconds threads that the work has left behind end,
/// too, and with them what they kept for themselves.
const MORE: u32 = 15;

/// Decides, from one second to the next, when free memory is given back.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    /// What was in use a second ago.
    before: Held,
    /// The most that the engine has kept since memory was last given back.
    engine_max: u64,
    /// What was resident after memory was last given back.
    resident_then: u64,
    /// For how many seconds there has been something to give back.
    waited: u32,
    /// How many more times memory is given back, since what is dropped is freed little by little.
    more: u32,
}

impl Keeper {
    /// Whether memory is to be given back now; called once a second.
    pub(crate) fn is_due(&mut self, now: Held) -> bool {
        let before = std::mem::replace(&mut self.before, now);
        self.engine_max = self.engine_max.max(now.engine);
        let freed = self.engine_max - now.engine;
        let has_freed = freed >= WORTH || freed >= WORTH / 4 && freed >= self.engine_max / 4 * 3;
        // Work of many kinds takes memory and frees it again without the engine's knowing.
        let has_grown = now.resident >= self.resident_then + (self.resident_then / 8).max(2 * WORTH);
        if !has_freed && !has_grown && self.more == 0 {
            self.waited = 0;
            return false;
        }
        self.waited += 1;
        let is_quiet =
            now.resident.abs_diff(before.resident) < QUIET && now.engine.abs_diff(before.engine) < QUIET;
        is_quiet || self.waited >= BUSY_SECONDS
    }

    /// Notes what is in use after memory was given back.
    pub(crate) fn given_back(&mut self, now: Held) {
        let brought_much = self.before.resident.saturating_sub(now.resident) >= WORTH;
        let more = if brought_much { MORE } else { self.more.saturating_sub(1) };
        *self = Keeper { before: now, engine_max: now.engine, resident_then: now.resident, waited: 0, more };
    }
}

/// Bytes of address space, and bytes of memory, that this process has; `None` where the system doesn't say.
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

/// Gives all free pages of all heaps back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(crate) fn give_back() {
    for control in [FLUSH, PURGE] {
        // SAFETY: the name ends with a zero, and these controls neither read nor write a value. jemalloc takes its own
        // locks and touches nothing but free memory. Without it what is freed last stays resident until somebody allocates
        // again: all that was dropped. A program that has another allocator isn't changed.
        unsafe {
            tikv_jemalloc_sys::mallctl(control.as_ptr(), null_mut(), null_mut(), null_mut(), 0);
        }
    }
}

/// jemalloc's control that gives back what the calling thread keeps for itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FLUSH: &CStr = c"thread.tcache.flush";

/// The one that purges an arena; this number stands for all of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PURGE: &CStr = c"arena.4096.purge";

/// Other systems' heaps give back what they think right.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn held(engine: u64, resident: u64) -> Held {
        Held { engine: engine * MB, resident: resident * MB }
    }

    #[test]
    fn memory_is_given_back_once_much_was_freed_and_all_is_quiet() {
        let mut keeper = Keeper::default();
        keeper.given_back(held(0, 6));
        assert!(!keeper.is_due(held(1, 8)), "little");
        assert!(!keeper.is_due(held(60, 100)), "loading");
        assert!(keeper.is_due(held(60, 100)), "quiet, and larger than before");
        keeper.given_back(held(60, 98));
        assert!(!keeper.is_due(held(60, 98)), "that was not worth it");
        assert!(!keeper.is_due(held(20, 98)), "being dropped");
        assert!(!keeper.is_due(held(0, 98)), "still");
        assert!(keeper.is_due(held(0, 98)));
        keeper.given_back(held(0, 50));
        for _ in 0..MORE {
            assert!(keeper.is_due(held(0, 50)), "more may have been freed meanwhile");
            keeper.given_back(held(0, 50));
        }
        assert!(!keeper.is_due(held(0, 50)));
    }

    #[test]
    fn little_is_given_back_where_it_was_nearly_all() {
        let mut keeper = Keeper::default();
        keeper.given_back(held(5, 60));
        assert!(!keeper.is_due(held(3, 60)), "some of it");
        assert!(!keeper.is_due(held(1, 60)), "being dropped");
        assert!(keeper.is_due(held(1, 60)));
        keeper.given_back(held(1, 20));
        assert!(keeper.is_due(held(1, 20)), "more may have been freed meanwhile");
    }

    #[test]
    fn a_server_that_is_never_quiet_gives_back_every_ten_seconds() {
        let mut keeper = Keeper::default();
        keeper.given_back(held(0, 6));
        let due: Vec<u64> = (1..=25)
            .filter(|second| {
                let now = held(if second % 2 == 0 { 0 } else { 50 }, 100 + second % 2 * 20);
                let due = keeper.is_due(now);
                if due {
                    keeper.given_back(now);
                }
                due
            })
            .collect();
        assert_eq!(due.len(), 2, "{due:?}");
    }
}
