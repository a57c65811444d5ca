//! The file system where a server's data lies: its kind, and how long its fdatasync takes.
//!
//! A durable write can be no faster than this, whatever the server, so it stands beside the
//! figures: a sync of 30 µs comes from a volume that doesn't sync, or from a battery.

use std::fs::File;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_timed_and_leave_nothing_behind() {
        let scratch = crate::target::Scratch::temporary().unwrap();
        let median = sync_microseconds(scratch.path()).unwrap();
        assert!(median > 0.0);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(sync_microseconds(&scratch.path().join("none")).is_err());
    }
}
