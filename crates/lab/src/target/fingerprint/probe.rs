//! The file system where a server's data lies: its kind, and how long its fdatasync takes.
//!
//! A durable write can be no faster than this, whatever the server, so it stands beside the
//! figures: a sync of 30 µs comes from a volume that doesn't sync, or from a battery.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// File systems that keep everything in memory.
pub(super) const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// As much as a journal writes for a small document.
const APPEND: [u8; 512] = [0x5A; 512];

const SAMPLES: usize = 60;

/// However slow the volume, nobody waits longer than about this.
const AT_MOST: Duration = Duration::from_secs(2);

/// The median time of fdatasync after a small append in this directory, microseconds. The file has
/// no name, so that a server which looks through its directory finds nothing new.
pub(super) fn sync_microseconds(directory: &Path) -> io::Result<f64> {
    let mut file = unnamed(directory)?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(SAMPLES);
    while times.len() < SAMPLES && (times.len() < 3 || begin.elapsed() < AT_MOST) {
        file.write_all(&APPEND)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e6)
}

#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = nix::fcntl::OFlag::O_TMPFILE.bits();
    File::options().read(true).write(true).custom_flags(flags).mode(0o600).open(directory)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The kind of the file system that holds a directory, such as "ext4".
pub(super) fn file_system(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    kind_at(&mounts, &directory)
}

/// In /proc/self/mountinfo the fifth field is where something is mounted, and the one behind the
/// lone dash its kind. What is mounted later hides what was there.
fn kind_at(mounts: &str, directory: &Path) -> Option<String> {
    let mut best = None;
    for line in mounts.lines() {
        let (before, after) = line.split_once(" - ")?;
        let point = Path::new(before.split(' ').nth(4)?);
        let depth = point.components().count();
        if directory.starts_with(point) && best.as_ref().is_none_or(|(deepest, _)| depth >= *deepest) {
            best = Some((depth, after.split(' ').next()?.to_string()));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_counts() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/vda rw\n23 22 0:2 / /dev rw,x shared:2 - devtmpfs d rw\n\
                      24 23 0:3 / /dev/shm rw - tmpfs tmpfs rw\n25 22 0:4 / /devices rw - xfs x rw";
        let kind = |path: &str| kind_at(mounts, Path::new(path));
        assert_eq!(kind("/dev/shm/x").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/dev/x").as_deref(), Some("devtmpfs"));
        assert_eq!(kind("/var").as_deref(), Some("ext4"));
        assert_eq!(kind_at("", Path::new("/")), None);
    }

    #[test]
    fn syncs_are_timed_and_leave_nothing_behind() {
        let scratch = crate::target::Scratch::temporary().unwrap();
        let median = sync_microseconds(scratch.path()).unwrap();
        assert!(median > 0.0);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(sync_microseconds(&scratch.path().join("none")).is_err());
    }
}
