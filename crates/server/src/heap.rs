//! The C library's heaps: how many there are, and giving back to the system what they hold for later.
//!
//! glibc keeps what is freed: after a collection of 4,000,000 small documents was dropped, some 850 MB stayed
//! resident for good. It has a call that gives free pages back wherever they lie. The background thread makes
//! that call once much has been freed and the server has become quiet, since giving back what is about to be
//! used again costs page faults.

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

/// How often memory is given back after it was worth it.
const MORE: u32 = 3;

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
    // SAFETY: the call takes the heaps' own locks and touches nothing but free memory. Without it what was
    // freed stays resident: 850 MB after 4,000,000 small documents were dropped.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other systems' heaps give back what they think right.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}

/// Makes glibc give large pieces back to the system as they are freed. Called before any thread is started.
///
/// What is free at the end of a thread's heap [`give_back`] doesn't reach, and glibc lets that grow to 64 MB for each
/// heap once large blocks have been freed: after hundreds of large operations on a machine of two cores 317 MB stayed
/// resident with nothing in the server, and 40 MB with these bounds. Settings in the environment come first.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn keep_heaps_short() {
    const NAMES: [&str; 3] = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"];
    if NAMES.iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: the calls set numbers that glibc reads when memory is allocated and freed; there are no other threads
    // yet. Nothing else bounds what is free at the end of a heap.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, HEAP_PIECE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, HEAP_PIECE);
    }
}

/// Other systems' heaps are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_heaps_short() {}

/// What is free at the end of a heap is given back from so many bytes on, and what is larger has pages of its own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAP_PIECE: i32 = 4 << 20;

/// Makes glibc keep to few heaps, to fewer where memory is bounded by a cache. Called before any thread is started.
///
/// glibc gives threads heaps of their own, up to eight for each core. What network threads allocate and the
/// checkpoints' thread frees stays in the heap that it came from: with 128 MB of cache and 2 GB of data, random
/// updates took 395 MB, and with two heaps 203 MB, for the same CPU time. In memory the data of `tests/soak` took 64 to
/// 76 MB instead of 74 to 79 with twice as many heaps as cores, and 37 instead of 48 to 58 once all was dropped; with
/// as few as there are cores, pipelines on 16 connections took a fifth more CPU. `MALLOC_ARENA_MAX` and `GLIBC_TUNABLES`
/// in the environment come first.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn keep_to_few_heaps(is_bounded: bool) {
    if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let heaps = if is_bounded { cores / 4 } else { cores * 2 };
    let heaps = i32::try_from(heaps).unwrap_or(i32::MAX).max(2);
    // SAFETY: the call sets a number that glibc reads when a thread asks for a heap; there are no other threads
    // yet. Two heaps instead of sixteen halve the memory of random updates on disk.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, heaps);
    }
}

/// Other systems' heaps are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_to_few_heaps(_is_bounded: bool) {}

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
