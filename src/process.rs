//! The process: allocator, memory limit, file descriptors, signals, and its start in the background.
//!
//! The memory limit is an option's value, or nine tenths of the control group's limit or of the
//! machine's memory. With a limited address space (`ulimit -v`) it is at most half of that.
//!
//! The kernel kills a process that exceeds its control group's limit. A tenth is reserved for
//! kernel memory and for the reaction time. Of an address space, stacks and the allocator's
//! reserves take much that is never resident.
//!
//! The process raises its limit of file descriptors to the maximum and reserves a fifth for files.
//! Each connection and each file takes a descriptor. If connections could take all, no journal
//! segment could be created. Connections above four fifths are therefore refused, as in MongoDB.
//!
//! SIGHUP reopens the log and reads certificates again. SIGUSR1 begins a new log file. Neither ends
//! the server. SIGUSR2 (in mongod: the stacks of all threads) is only logged. SIGXFSZ has no effect: the write to
//! the file at its limit (`ulimit -f`) fails.
//!
//! The first SIGTERM or SIGINT triggers the action of [`StopSignal`]: during the start it ends scripts, later it stops
//! the server. A second one ends the process without waiting for running commands and the last checkpoint. The next
//! start replays the journal.
//!
//! `mongod --fork` starts the process again in a new session. It exits when clients can connect to the new process.

use base::memory::CountingAllocator;
use server::{MemoryLimit, Tls};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::threads;

/// Mount point of control groups, and the file with the groups of this process.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";
const OWN_CGROUPS: &str = "/proc/self/cgroup";

/// Control groups of version 1 report at least about this many bytes if they have no limit.
const UNLIMITED: u64 = 1 << 60;

/// Returns the effective limit. `asked` is the option's value.
pub(crate) fn memory_limit(requested: Option<u64>) -> Option<MemoryLimit> {
    if let Some(bytes) = requested {
        return Some(MemoryLimit { bytes, from: "--memory-limit".to_string() });
    }
    let groups = std::fs::read_to_string(OWN_CGROUPS).unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = cgroup_limit(Path::new(CGROUP_MOUNT), &groups);
    let (bytes, whose) = match (group, machine) {
        (Some(group), machine) if machine.is_none_or(|machine| group < machine) => (group, "control group's"),
        (_, machine) => (machine?, "machine's"),
    };
    let from = format!("nine tenths of the {whose} {} MB", bytes >> 20);
    Some(capped_by_address_space(MemoryLimit { bytes: bytes / 10 * 9, from }, threads::address_space()))
}

/// Returns the limit, or half of the address space if that is lower.
fn capped_by_address_space(limit: MemoryLimit, space: Option<u64>) -> MemoryLimit {
    match space {
        Some(space) if space / 2 < limit.bytes => {
            let from = format!("half of the address space of {} MB (ulimit -v)", space >> 20);
            MemoryLimit { bytes: space / 2, from }
        }
        _ => limit,
    }
}

/// Returns the lowest limit of the control groups around the process, in bytes.
fn cgroup_limit(mounted: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (folder, file) = match controllers {
            "" => (mounted.to_path_buf(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may belong to the host, and the mount is the group itself.
        let within = folder.join(path.trim_start_matches('/'));
        let around = within.ancestors().take_while(|group| group.starts_with(&folder));
        around.filter_map(|group| bytes_in(&group.join(file))).min()
    });
    limits.min()
}

/// Returns the number in a file, unless it means no limit.
fn bytes_in(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED)
}

/// Returns the machine's memory in bytes from the text of /proc/meminfo.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Maximum number of requested descriptors.
#[cfg(unix)]
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Raises the soft limit to the hard limit. Returns the number of connections that it allows;
/// `None` if the system does not report limits.
#[cfg(unix)]
pub(crate) fn raise_descriptor_limit() -> Option<usize> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let target = hard.min(DESCRIPTORS_MAX);
    let limit = match soft < target && setrlimit(Resource::RLIMIT_NOFILE, target, hard).is_ok() {
        true => target,
        false => soft,
    };
    Some(usize::try_from(limit.min(DESCRIPTORS_MAX) / 5 * 4).unwrap_or(usize::MAX).max(1))
}

/// On other systems sockets are not files.
#[cfg(not(unix))]
pub(crate) fn raise_descriptor_limit() -> Option<usize> {
    None
}

/// Base of the exit code of a process that a signal ended, as in shells.
#[cfg(unix)]
const ENDED_BY: i32 = 128;

/// The first stop signal, and the action that it triggers.
#[derive(Default)]
pub(crate) struct StopSignal(Mutex<StopState>);

#[derive(Default)]
struct StopState {
    is_received: bool,
    action: Option<Box<dyn Fn() + Send>>,
}

impl StopSignal {
    fn state(&self) -> MutexGuard<'_, StopState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true after the signal.
    pub(crate) fn is_received(&self) -> bool {
        self.state().is_received
    }

    /// Replaces the action. An earlier signal triggers it at once, so that no signal is lost.
    pub(crate) fn set_action(&self, action: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if state.is_received {
            action();
        }
        state.action = Some(Box::new(action));
    }

    /// Triggers the action. Returns false for the second signal.
    #[cfg_attr(not(unix), allow(dead_code, reason = "other systems lack these signals"))]
    fn receive(&self) -> bool {
        let mut state = self.state();
        let is_first = !std::mem::replace(&mut state.is_received, true);
        if let Some(action) = state.action.as_ref().filter(|_| is_first) {
            action();
        }
        is_first
    }
}

/// Ends a process and its children. They may have ended already.
pub(crate) fn end_group(leader: u32) {
    #[cfg(unix)]
    if let Ok(leader) = i32::try_from(leader) {
        let _ =
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(leader), nix::sys::signal::Signal::SIGTERM);
    }
}

/// Handles signals from now on, also during the recovery of the data directory.
#[cfg(unix)]
pub(crate) fn watch_signals(tls: Option<Arc<Tls>>) -> io::Result<Arc<StopSignal>> {
    use server::logging;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGINT])?;
    // The write fails and is reported. A line here would be another write, perhaps to the same file.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let stop = Arc::<StopSignal>::default();
    let received = stop.clone();
    storage::threads::spawn("vellum-signals", None, move || {
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGINT) {
                log::info!("{}: stopping", if signal == SIGINT { "SIGINT" } else { "SIGTERM" });
                if !received.receive() {
                    log::warn!(c = "CONTROL"; "second stop signal: exiting at once; the next start recovers \
                     from the journal");
                    std::process::exit(ENDED_BY + signal);
                }
                continue;
            }
            if signal == SIGUSR2 {
                log::info!(c = "CONTROL"; "SIGUSR2: no effect; the command currentOp lists running operations");
                continue;
            }
            let done = match signal {
                SIGHUP => {
                    logging::reopen().map(|()| log::info!(c = "CONTROL"; "SIGHUP: reopened the log"))
                }
                _ => logging::rotate().map(|old| match old {
                    Some(old) => {
                        log::info!(c = "CONTROL"; "SIGUSR1: rotated the log; earlier lines are in {}", old.display())
                    }
                    None => log::info!(c = "CONTROL"; "SIGUSR1: no log file to rotate"),
                }),
            };
            if let Err(error) = done {
                log::error!(c = "CONTROL"; "cannot reopen the log, the old file stays in use: {error}");
            }
            if let Some(tls) = tls.as_ref().filter(|_| signal == SIGHUP) {
                match tls.rotate() {
                    Ok(()) => log::info!(c = "NETWORK"; "SIGHUP: reloaded the certificates"),
                    Err(why) => log::error!(c = "NETWORK"; "cannot reload the certificates, the old ones \
                     stay in use: {why}"),
                }
            }
        }
    })?;
    Ok(stop)
}

/// Other systems lack these signals.
#[cfg(not(unix))]
pub(crate) fn watch_signals(_: Option<Arc<Tls>>) -> io::Result<Arc<StopSignal>> {
    Ok(Arc::default())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::ffi::{CStr, c_char};

/// jemalloc on Linux, elsewhere the system's allocator.
///
/// Freed blocks of a server lie between live blocks. glibc's heaps keep a page while any block in
/// it is live, and mix blocks of all sizes. After 50 minutes of `tests/soak` with all data dropped,
/// glibc left 53 MB in memory and 51 on disk, of which about 6 were in use. jemalloc leaves 29 and
/// 27. It groups blocks by size and returns single pages, at equal speed
/// ([measured](../docs/performance.md#the-allocator)).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Allocator = tikv_jemallocator::Jemalloc;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALLOCATOR: Allocator = tikv_jemallocator::Jemalloc;

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Allocator = std::alloc::System;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const ALLOCATOR: Allocator = std::alloc::System;

/// Counts the memory of each operation.
#[global_allocator]
static HEAP: CountingAllocator<Allocator> = CountingAllocator(ALLOCATOR);

/// Options of jemalloc. `_RJEM_MALLOC_CONF` in the environment overrides them.
///
/// - Few arenas: a block that another thread frees stays in its arena.
/// - Small thread caches, and none for blocks above 4 KiB, because each cached block keeps its
///   pages. With jemalloc's default the soak's server held 4 MB more after all data was dropped,
///   and was no faster.
/// - Blocks of 512 and 1,024 bytes, the nodes of the memory engine, use runs of several pages.
///   jemalloc keeps the metadata of each run forever. Runs of one page left 30 instead of 25 MB
///   after 4,000,000 documents of 85 bytes were dropped.
/// - Free pages are returned within half a second while the program allocates. `server/process/memory.rs`
///   returns the remaining pages when the server is quiet.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
// SAFETY: jemalloc declares a weak variable of this name and type for programs to define. It reads
// the text at the first allocation and never writes it. The number of arenas cannot be set later.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &c_char = {
    const TEXT: &CStr = c"narenas:2,lg_tcache_max:12,tcache_nslots_small_max:16,tcache_nslots_small_min:4,\
                          tcache_nslots_large:2,slab_sizes:897-1024:8|449-512:4,dirty_decay_ms:500,muzzy_decay_ms:0";
    // SAFETY: the text has at least its final zero byte.
    unsafe { &*TEXT.as_ptr() }
};

/// Variable that marks the background process.
const CHILD: &str = "VELLUM_FORKED";

/// Line on standard output that reports readiness.
const READY: &str = "ready";

/// Returns true in the background process.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Leaves the terminal's session in the background process.
pub(crate) fn leave_terminal() {
    #[cfg(unix)]
    if is_child() {
        // Fails if the process already leads a session.
        let _ = nix::unistd::setsid();
    }
}

/// Reports to the foreground process that clients can connect.
pub(crate) fn ready() {
    if is_child() {
        let mut out = io::stdout();
        // The foreground process may have ended.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    }
}

/// Returns a command that runs this program with Vellum's options, also if its file has the name mongod.
pub(crate) fn own_program() -> io::Result<Command> {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "other systems cannot set the name"))]
    let mut command = Command::new(std::env::current_exe()?);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::arg0(&mut command, "vellum");
    Ok(command)
}

/// Starts the background process. Returns when it is ready or has ended.
pub(crate) fn start_child(words: &[OsString]) -> ExitCode {
    let mut out = io::stdout();
    let mut print = |text: String| {
        // A closed standard output is not an error.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    };
    print("about to fork child process, waiting until server is ready for connections.".to_string());
    let spawned = own_program().and_then(|mut again| {
        again.arg("mongod").args(words).env(CHILD, "1");
        again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            crate::print_error(&format!("ERROR: cannot start the child process: {error}"));
            return ExitCode::FAILURE;
        }
    };
    print(format!("forked process: {}", child.id()));
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // The line stays empty at the end of the output or after an error.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() == READY {
        print("child process started successfully, parent exiting".to_string());
        return ExitCode::SUCCESS;
    }
    let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(1);
    print(format!("ERROR: child process failed, exited with {code}"));
    print("To see additional information in this output, start without the \"--fork\" option.".to_string());
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_has_precedence() {
        let limit = memory_limit(Some(5)).unwrap();
        assert_eq!((limit.bytes, limit.from.as_str()), (5, "--memory-limit"));
    }

    #[test]
    fn a_stop_signal_triggers_later_actions_too() {
        let (stop, done) = (StopSignal::default(), Arc::<Mutex<Vec<&str>>>::default());
        let action = |name| {
            let done = done.clone();
            move || done.lock().unwrap().push(name)
        };
        stop.set_action(action("scripts"));
        assert!(!stop.is_received() && done.lock().unwrap().is_empty());
        assert!(stop.receive() && stop.is_received());
        stop.set_action(action("server"));
        assert!(!stop.receive(), "the second one");
        assert_eq!(*done.lock().unwrap(), ["scripts", "server"]);
    }

    #[test]
    fn the_least_of_the_groups_around_counts() {
        let folder = std::env::temp_dir().join(format!("vellum-groups-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(cgroup_limit(&folder, "0::/a/b\n"), None);
        file("memory.max", "max\n");
        file("a/memory.max", "1000\n");
        file("a/b/memory.max", "max\n");
        assert_eq!(cgroup_limit(&folder, "0::/a/b\n"), Some(1000));
        file("a/b/memory.max", "300\n");
        assert_eq!(cgroup_limit(&folder, "0::/a/b\n"), Some(300));
        assert_eq!(cgroup_limit(&folder, "0::/\n"), None);
        file("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroup_limit(&folder, "3:cpu,memory:/docker/x\n1:name=systemd:/docker/x\n"), None);
        file("memory/memory.limit_in_bytes", "700\n");
        assert_eq!(cgroup_limit(&folder, "3:cpu,memory:/docker/x\n"), Some(700));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn half_of_the_address_space_is_enough() {
        let limit = MemoryLimit { bytes: 1000, from: "x".to_string() };
        assert_eq!(capped_by_address_space(limit.clone(), None), limit);
        assert_eq!(capped_by_address_space(limit.clone(), Some(2000)), limit);
        assert_eq!(capped_by_address_space(limit, Some(1000)).bytes, 500);
    }

    #[test]
    fn the_memory_of_the_machine_is_known() {
        assert_eq!(total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total(""), None);
    }
}
