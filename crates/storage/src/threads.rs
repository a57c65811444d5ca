//! Starting threads where the system may refuse one.
//!
//! A system refuses a thread at the limits of processes (`ulimit -u`, a control group) and of address space
//! (`ulimit -v`). The second limit has a trap: a thread may start and then find no room for its first allocations.
//! The standard library ends the process then. So the room is looked at before.

use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

/// The stack that the standard library gives a thread, in bytes.
const STACK: usize = 2 << 20;

/// Address space that must stay free beside the stack of a new thread, in bytes: for its first allocations, and for
/// what other threads take at the same time.
const MARGIN: u64 = 16 << 20;

/// The share of the address space that must stay free beside threads that clients cause.
const SPARE_SHARE: u64 = 4;

/// Stacks may take this share of the address space.
const STACKS_SHARE: u64 = 4;

/// At least so many threads are allowed, however little address space there is.
const LEAST: u64 = 4;

/// The limit of this process's address space in bytes; `None` without one.
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

/// Elsewhere the address space in use cannot be read, so its limit says nothing.
#[cfg(not(target_os = "linux"))]
fn limit() -> Option<u64> {
    None
}

/// The address space in use, in bytes; `None` where the system does not say.
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

/// Whether the address space has room for threads of this stack, and for the server itself. Costs nothing without a
/// limit.
pub fn has_room(stack: usize) -> bool {
    address_space().is_none_or(|limit| fits(limit, in_use(), stack, MARGIN))
}

/// The same for a thread that a client causes: a quarter of the address space stays free for data.
pub fn has_spare_room(stack: Option<usize>) -> bool {
    address_space().is_none_or(|limit| fits(limit, in_use(), stack.unwrap_or(STACK), limit / SPARE_SHARE))
}

fn fits(limit: u64, used: Option<u64>, stack: usize, margin: u64) -> bool {
    let needed = (stack as u64).saturating_add(margin);
    used.is_none_or(|used| limit.saturating_sub(used) >= needed)
}

/// How many threads with this stack the address space allows; `None` without a limit.
pub fn most(stack: usize) -> Option<usize> {
    let count = address_space()? / STACKS_SHARE / (stack as u64).max(1);
    Some(usize::try_from(count.max(LEAST)).unwrap_or(usize::MAX))
}

/// Starts a thread.
///
/// Errors: the system's, or `WouldBlock` where the address space has no room for the thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let stack = stack.unwrap_or(STACK);
    if !has_room(stack) {
        let why = format!("the address space (ulimit -v) has no room for the thread {name}");
        return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
    }
    Builder::new().name(name.to_owned()).stack_size(stack).spawn(run)
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
