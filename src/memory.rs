//! How much memory the process may have: what an option says, else nine tenths of what its control group has, or
//! the machine. Of a limited address space (`ulimit -v`) it may fill half.
//!
//! The kernel ends a process that goes beyond its control group's memory, whatever it was doing for whom. A tenth is
//! left to what the kernel counts besides, and to the time that it takes to notice. Of an address space stacks and the
//! allocator's reserves take much that is never resident.

use server::MemoryLimit;
use std::path::Path;
use storage::threads;

/// Where control groups are mounted, and where it says which are this process's.
const GROUPS: &str = "/sys/fs/cgroup";
const OWN_GROUPS: &str = "/proc/self/cgroup";

/// What control groups of version 1 say where there is no limit is about as many bytes, or more.
const UNLIMITED: u64 = 1 << 60;

/// The limit in force: `asked` is that of the option.
pub(crate) fn limit(asked: Option<u64>) -> Option<MemoryLimit> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_goes_first() {
        let limit = limit(Some(5)).unwrap();
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
