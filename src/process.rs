//! What the process takes of the system: memory, file descriptors, signals.
//!
//! How much memory the process may have: what an option says, else nine tenths of what its control group has, or
//! the machine. Of a limited address space (`ulimit -v`) it may fill half.
//!
//! The kernel ends a process that goes beyond its control group's memory, whatever it was doing for whom. A tenth is
//! left to what the kernel counts besides, and to the time that it takes to notice. Of an address space stacks and the
//! allocator's reserves take much that is never resident.
//!
//! File descriptors: as many as the system lets this process have, a fifth of them kept for files.
//!
//! Each connection takes one, and so does each file. Where connections could take all, a journal segment could
//! not be made: so connections beyond four fifths are refused, as by MongoDB.
//!
//! SIGHUP opens the log and reads certificates again, SIGUSR1 begins a new log file; neither ends the server.
//!
//! What ends it, SIGTERM and SIGINT, is the server crate's. Only the second of them is seen to here: who sends it
//! won't wait for commands under way and the last checkpoint. The next start finds in the journal what those leave.

use server::{MemoryLimit, Tls};
use std::io;
use std::path::Path;
use std::sync::Arc;
use storage::threads;

/// Where control groups are mounted, and where it says which are this process's.
const GROUPS: &str = "/sys/fs/cgroup";
const OWN_GROUPS: &str = "/proc/self/cgroup";

/// What control groups of version 1 say where there is no limit is about as many bytes, or more.
const UNLIMITED: u64 = 1 << 60;

/// The limit in force: `asked` is that of the option.
pub(crate) fn memory_limit(asked: Option<u64>) -> Option<MemoryLimit> {
    if let Some(bytes) = asked {
        return Some(MemoryLimit { bytes, from: "--memory-limit".to_string() });
    }
    let own = std::fs::read_to_string(OWN_GROUPS).unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = of_groups(Path::new(GROUPS), &own);
    let (bytes, whose) = match (group, machine) {
        (Some(group), machine) if machine.is_none_or(|machine| group < machine) => (group, "control group's"),
        (_, machine) => (machine?, "machine's"),
    };
    let from = format!("nine tenths of the {whose} {} MB", bytes >> 20);
    Some(within_space(MemoryLimit { bytes: bytes / 10 * 9, from }, threads::address_space()))
}

/// The lower of a limit and half of the address space.
fn within_space(limit: MemoryLimit, space: Option<u64>) -> MemoryLimit {
    match space {
        Some(space) if space / 2 < limit.bytes => {
            let from = format!("half of the address space of {} MB (ulimit -v)", space >> 20);
            MemoryLimit { bytes: space / 2, from }
        }
        _ => limit,
    }
}

/// The least limit of the control groups around the process, in bytes.
fn of_groups(mounted: &Path, own: &str) -> Option<u64> {
    let limits = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (folder, file) = match controllers {
            "" => (mounted.to_path_buf(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be that of the machine outside, and what is mounted the group itself.
        let within = folder.join(path.trim_start_matches('/'));
        let around = within.ancestors().take_while(|group| group.starts_with(&folder));
        around.filter_map(|group| number_in(&group.join(file))).min()
    });
    limits.min()
}

/// The number that a file holds, unless it stands for none.
fn number_in(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED)
}

/// The machine's memory in bytes, by what /proc/meminfo says.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The most that is asked for, however many there could be.
#[cfg(unix)]
const MOST: u64 = 1 << 20;

/// Raises the soft limit to the hard one; how many connections may be open then. `None` where the system
/// doesn't say.
#[cfg(unix)]
pub(crate) fn raise_descriptors() -> Option<usize> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = hard.min(MOST);
    let limit = match soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        true => wanted,
        false => soft,
    };
    Some(usize::try_from(limit.min(MOST) / 5 * 4).unwrap_or(usize::MAX).max(1))
}

/// Elsewhere sockets are no files.
#[cfg(not(unix))]
pub(crate) fn raise_descriptors() -> Option<usize> {
    None
}

/// What a process ends with that a signal of this number has ended, by the shells' custom.
#[cfg(unix)]
const ENDED_BY: i32 = 128;

/// Looks out for signals from now on, also while the data directory is recovered.
#[cfg(unix)]
pub(crate) fn watch_signals(tls: Option<Arc<Tls>>) -> io::Result<()> {
    use server::logging;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1, SIGTERM, SIGINT])?;
    storage::threads::spawn("vellum-signals", None, move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGINT) {
                if is_stopping {
                    log::warn!(c = "CONTROL"; "told to stop once more: what isn't finished is left to the journal");
                    std::process::exit(ENDED_BY + signal);
                }
                is_stopping = true;
                continue;
            }
            let done = match signal {
                SIGHUP => {
                    logging::reopen().map(|()| log::info!(c = "CONTROL"; "SIGHUP: the log is opened again"))
                }
                _ => logging::rotate().map(|old| match old {
                    Some(old) => {
                        log::info!(c = "CONTROL"; "SIGUSR1: what came before is in {}", old.display())
                    }
                    None => log::info!(c = "CONTROL"; "SIGUSR1: the log goes to no file, nothing to rotate"),
                }),
            };
            if let Err(error) = done {
                log::error!(c = "CONTROL"; "the log stays as it is: {error}");
            }
            if let Some(tls) = tls.as_ref().filter(|_| signal == SIGHUP) {
                match tls.rotate() {
                    Ok(()) => log::info!(c = "NETWORK"; "SIGHUP: certificates are read again"),
                    Err(why) => log::error!(c = "NETWORK"; "certificates stay as they are: {why}"),
                }
            }
        }
    })?;
    Ok(())
}

/// There are no such signals elsewhere.
#[cfg(not(unix))]
pub(crate) fn watch_signals(_: Option<Arc<Tls>>) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_goes_first() {
        let limit = memory_limit(Some(5)).unwrap();
        assert_eq!((limit.bytes, limit.from.as_str()), (5, "--memory-limit"));
    }

    #[test]
    fn the_least_of_the_groups_around_counts() {
        let folder = std::env::temp_dir().join(format!("vellum-groups-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(of_groups(&folder, "0::/a/b\n"), None);
        file("memory.max", "max\n");
        file("a/memory.max", "1000\n");
        file("a/b/memory.max", "max\n");
        assert_eq!(of_groups(&folder, "0::/a/b\n"), Some(1000));
        file("a/b/memory.max", "300\n");
        assert_eq!(of_groups(&folder, "0::/a/b\n"), Some(300));
        assert_eq!(of_groups(&folder, "0::/\n"), None);
        file("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of_groups(&folder, "3:cpu,memory:/docker/x\n1:name=systemd:/docker/x\n"), None);
        file("memory/memory.limit_in_bytes", "700\n");
        assert_eq!(of_groups(&folder, "3:cpu,memory:/docker/x\n"), Some(700));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn half_of_the_address_space_is_enough() {
        let limit = MemoryLimit { bytes: 1000, from: "x".to_string() };
        assert_eq!(within_space(limit.clone(), None), limit);
        assert_eq!(within_space(limit.clone(), Some(2000)), limit);
        assert_eq!(within_space(limit, Some(1000)).bytes, 500);
    }

    #[test]
    fn the_machine_tells_its_memory() {
        assert_eq!(total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total(""), None);
    }
}
