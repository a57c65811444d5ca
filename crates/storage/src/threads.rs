//! Thread creation under system limits.
//!
//! A system refuses a thread at the limits of processes (`ulimit -u`, a control group) and of
//! address space (`ulimit -v`). The second limit has a trap: a thread may start and then fail its
//! first allocations, and the standard library aborts the process. This module therefore checks the
//! free address space first.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

/// The standard library's stack size of a thread, in bytes.
const STACK: usize = 2 << 20;

/// Address space that must stay free besides the stack of a new thread, in bytes: for its first
/// allocations, and for concurrent allocations of other threads.
const MARGIN: u64 = 16 << 20;

/// Divisor of the address space that must stay free besides threads created for clients.
const SPARE_SHARE: u64 = 4;

/// Divisor of the address space for all stacks.
const STACKS_SHARE: u64 = 4;

/// Least number of threads, independent of the address space.
const LEAST: u64 = 4;

/// Returns the limit of this process's address space in bytes; `None` without one.
pub fn address_space() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(limit)
}

#[cfg(target_os = "linux")]
fn limit() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (soft != nix::libc::RLIM_INFINITY).then_some(soft)
}

/// Returns no limit: other systems do not report the address space in use.
#[cfg(not(target_os = "linux"))]
fn limit() -> Option<u64> {
    None
}

/// Returns the address space in use, in bytes; `None` if the system does not report it.
fn in_use() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().next()?.parse().ok()?;
    Some(pages.saturating_mul(page_bytes()))
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

#[cfg(not(unix))]
fn page_bytes() -> u64 {
    4096
}

/// Returns true if the address space has room for a thread with this stack, and for the server.
/// Costs nothing without a limit.
pub fn has_address_space(stack: usize) -> bool {
    address_space().is_none_or(|limit| fits(limit, in_use(), stack, MARGIN))
}

/// Returns true if the address space has room for a thread created for a client. A quarter of the
/// address space stays free for data.
pub fn has_spare_address_space(stack: Option<usize>) -> bool {
    address_space().is_none_or(|limit| fits(limit, in_use(), stack.unwrap_or(STACK), limit / SPARE_SHARE))
}

fn fits(limit: u64, used: Option<u64>, stack: usize, margin: u64) -> bool {
    let needed = (stack as u64).saturating_add(margin);
    used.is_none_or(|used| limit.saturating_sub(used) >= needed)
}

/// Returns the number of threads with this stack that the address space allows; `None` without a
/// limit.
pub fn most(stack: usize) -> Option<usize> {
    let count = address_space()? / STACKS_SHARE / (stack as u64).max(1);
    Some(usize::try_from(count.max(LEAST)).unwrap_or(usize::MAX))
}

/// Starts a thread.
///
/// Errors: system errors, or `WouldBlock` if the address space has no room for the thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let stack = stack.unwrap_or(STACK);
    if !has_address_space(stack) {
        let why = format!("the address space (ulimit -v) has no room for the thread {name}");
        return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
    }
    Builder::new().name(name.to_owned()).stack_size(stack).spawn(run)
}

/// Starts a thread that other threads depend on. A panic of this thread ends the process, so that no thread waits for
/// it forever.
///
/// Errors: as [`spawn`].
pub fn spawn_essential(
    name: &'static str,
    stack: Option<usize>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    spawn(name, stack, move || {
        // The panic hook has reported the panic.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            log::error!("the process ends because its thread {name} panicked");
            log::logger().flush();
            std::process::abort();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_needs_its_stack_and_some_room_beside_it() {
        let limit = 1 << 30;
        assert!(fits(limit, None, STACK, MARGIN));
        assert!(fits(limit, Some(limit - STACK as u64 - MARGIN), STACK, MARGIN));
        assert!(!fits(limit, Some(limit - STACK as u64 - MARGIN + 1), STACK, MARGIN));
        assert!(!fits(limit, Some(limit + 1), STACK, MARGIN));
        assert_eq!(spawn("test", None, || 5).unwrap().join().unwrap(), 5);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_address_space_in_use_can_be_read() {
        assert!(in_use().unwrap() > 1 << 20);
    }
}
