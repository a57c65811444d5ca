//! Fewer heaps for a server whose memory is bounded.
//!
//! glibc gives threads heaps of their own, up to eight for each core. What network threads allocate and the
//! checkpoints' thread frees stays in the heap that it came from, held there by pages of the cache that lie
//! between: with 128 MB of cache and 2 GB of data, random updates took 395 MB, and with two heaps 203 MB, for
//! the same CPU time. How many there are is read from the environment when a process starts, and changing it
//! later takes unsafe code; so the process starts itself once more, which costs two milliseconds.

/// The variable that glibc reads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LIMIT: &str = "MALLOC_ARENA_MAX";

/// Starts this process again with few heaps, unless the environment says how many there are to be. Returns
/// where that needs no doing or can't be done.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn limit() {
    use std::os::unix::process::CommandExt;
    if [LIMIT, "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // By its path and not as /proc/self/exe, so that the process keeps its name.
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut again = std::process::Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    let error = again.args(arguments).env(LIMIT, (cores / 4).max(2).to_string()).exec();
    // As when the binary has been replaced since: more memory is all it costs.
    log::info!("the number of heaps stays as it is: {error}");
}

/// Other systems' heaps are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit() {}
