//! Resources of the process: memory, file descriptors, signals.
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
//! the server.
//!
//! The server crate handles SIGTERM and SIGINT. This module handles only a second one: it ends the
//! process without waiting for running commands and the last checkpoint. The next start replays the
//! journal.

use server::{MemoryLimit, Tls};
use std::io;
use std::path::Path;
use std::sync::Arc;
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

/// Handles signals from now on, also during the recovery of the data directory.
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
                    log::warn!(c = "CONTROL"; "second stop signal: exiting at once; the next start recovers \
                     from the journal");
                    std::process::exit(ENDED_BY + signal);
                }
                is_stopping = true;
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
    Ok(())
}

/// Other systems lack these signals.
#[cfg(not(unix))]
pub(crate) fn watch_signals(_: Option<Arc<Tls>>) -> io::Result<()> {
    Ok(())
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
