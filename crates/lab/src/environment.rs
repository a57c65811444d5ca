//! The machine that a run was made on, as a reader of its report wants to know it.

use std::fs::read_to_string;
use std::path::Path;

/// Names and values; what a system doesn't tell is left out.
pub(crate) fn describe() -> Vec<(String, String)> {
    let known = [
        ("lab", Some(format!("vellum {}", env!("CARGO_PKG_VERSION")))),
        ("system", system()),
        ("processors", Some(processors())),
        ("memory", memory()),
        ("temporary files on", file_system(&std::env::temp_dir())),
        ("load at the start", load()),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

fn system() -> Option<String> {
    let release = read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(format!("{} {}", std::env::consts::OS, release.trim()))
}

fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{count} × {model}").trim_end_matches(" × ").to_string()
}

fn memory() -> Option<String> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let kilobytes = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: f64 = kilobytes.split_whitespace().next()?.parse().ok()?;
    Some(format!("{:.1} GiB", kilobytes / (1 << 20) as f64))
}

/// The kind of file system of a directory: that of the longest mount point above it.
fn file_system(directory: &Path) -> Option<String> {
    let mounts = read_to_string("/proc/self/mounts").ok()?;
    kind_of(&mounts, directory)
}

fn kind_of(mounts: &str, directory: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(point, _)| directory.starts_with(point));
    let (point, kind) = above.max_by_key(|(point, _)| point.len())?;
    Some(format!("{kind} (mounted at {point})"))
}

fn load() -> Option<String> {
    let text = read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next().map(|minute| format!("{minute} (one minute)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nx /tmpx xfs rw 0 0\n";
        assert_eq!(kind_of(mounts, Path::new("/tmp/y")).unwrap(), "tmpfs (mounted at /tmp)");
        assert_eq!(kind_of(mounts, Path::new("/home")).unwrap(), "ext4 (mounted at /)");
    }

    #[test]
    fn the_machine_has_processors() {
        assert!(describe().iter().any(|(name, value)| name == "processors" && !value.is_empty()));
    }
}
