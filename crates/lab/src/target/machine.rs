//! Figures of this machine and its servers from Linux's /proc: processor time, memory, listening sockets. Other systems
//! have none.
//!
//! For a server started by the lab, inotify counts the files created and removed in its data directory. Only Linux has
//! these counts.

#[cfg(target_os = "linux")]
pub(crate) use linux::{FileWatch, clocks, description, file_system, listener, usage};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{FileWatch, clocks, description, file_system, listener, usage};

use super::address::Local;
use std::path::Path;
use std::time::Duration;

/// Resources used by a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and system time since the server's start.
    pub(crate) cpu: Duration,
    /// Memory in use now.
    pub(crate) resident_bytes: u64,
    /// Bytes that went to a device, or will; `None` if the system does not report it.
    pub(crate) written_bytes: Option<u64>,
}

impl Usage {
    /// Returns the processor time between two moments.
    pub(crate) fn cpu_between(before: Option<Usage>, after: Option<Usage>) -> Option<Duration> {
        Some(after?.cpu.saturating_sub(before?.cpu))
    }

    /// Returns the sum.
    pub(super) fn and(self, other: Usage) -> Usage {
        let written = [self.written_bytes, other.written_bytes].into_iter().flatten();
        Usage {
            cpu: self.cpu + other.cpu,
            resident_bytes: self.resident_bytes + other.resident_bytes,
            written_bytes: written.reduce(|one, other| one + other),
        }
    }
}

/// Processor time in seconds: of this process, of all busy processors, and in total.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    pub(crate) own: f64,
    pub(crate) busy: f64,
    pub(crate) all: f64,
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Clocks, Duration, FileCounts, Local, Path, Usage};
    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
    use nix::time::ClockId;
    use nix::unistd::Pid;
    use parking_lot::Mutex;
    use procfs::net::{TcpState, UnixState};
    use procfs::process::{FDTarget, Process, all_processes};
    use procfs::{Current, CurrentSI};
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// Usage of a process and its descendants; `None` if the process has ended. PostgreSQL serves each connection with
    /// a child, and the kernel adds the time of ended children to their parent.
    pub(crate) fn usage(root: u32) -> Option<Usage> {
        let process_tree = process_tree(root)?;
        // The time of a child that has ended is in its parent's.
        let each = process_tree.iter().filter_map(|process| used(process, process_tree.len() > 1));
        Some(each.fold(Usage::default(), Usage::and)).filter(|usage| !usage.cpu.is_zero())
    }

    /// Returns a process and its descendants.
    pub(super) fn process_tree(root: u32) -> Option<Vec<Process>> {
        let mut process_tree = vec![Process::new(i32::try_from(root).ok()?).ok()?];
        let parent_of = |process: Process| Some((process.stat().ok()?.ppid, process));
        let mut others: Vec<_> = all_processes().ok()?.flatten().filter_map(parent_of).collect();
        let mut next = 0;
        while let Some(parent) = process_tree.get(next).map(Process::pid) {
            let children = others.extract_if(.., |(of, _)| *of == parent);
            process_tree.extend(children.map(|(_, child)| child));
            next += 1;
        }
        Some(process_tree)
    }

    /// Returns the usage of one process.
    fn used(process: &Process, shares: bool) -> Option<Usage> {
        let stat = process.stat().ok()?;
        let ticks = |ticks: u64| Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64);
        // In nanoseconds, if the kernel has this clock.
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(process.pid())).and_then(|clock| clock.now());
        let own = clock.map_or_else(|_| ticks(stat.utime + stat.stime), Duration::from);
        // The proportional share of memory that several processes share.
        let part = || {
            process.smaps_rollup().ok()?.memory_map_rollup.iter().next()?.extension.map.get("Pss").copied()
        };
        let resident = if shares { part() } else { None };
        Some(Usage {
            cpu: own + ticks((stat.cutime + stat.cstime).max(0) as u64),
            resident_bytes: resident.unwrap_or(stat.rss * procfs::page_size()),
            // Readable only by the process's own user. An ended process takes its count along.
            written_bytes: process.io().ok().map(|io| io.write_bytes),
        })
    }

    /// Returns the process that listens on one of these sockets. None for a container's port, which a proxy holds.
    pub(crate) fn listener(sockets: &[Local]) -> Option<u32> {
        let inode = sockets.iter().find_map(listening_inode)?;
        let holds = |process: &Process| {
            let Ok(mut descriptors) = process.fd() else { return false };
            descriptors.any(|each| each.is_ok_and(|each| each.target == FDTarget::Socket(inode)))
        };
        // Children may have inherited the socket. The parent is the older process.
        let process = all_processes().ok()?.flatten().filter(holds).min_by_key(Process::pid)?;
        let is_proxy = process.stat().ok()?.comm == "docker-proxy";
        u32::try_from(process.pid()).ok().filter(|_| !is_proxy)
    }

    /// Returns the inode of a listening socket, from the tables in /proc/net.
    fn listening_inode(socket: &Local) -> Option<u64> {
        match socket {
            Local::Tcp(address) => {
                let tables = [procfs::net::tcp(), procfs::net::tcp6()];
                let found = tables.into_iter().flatten().flatten().find(|entry| {
                    let (local, ip) = (entry.local_address, entry.local_address.ip());
                    let same = ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical();
                    same && local.port() == address.port() && entry.state == TcpState::Listen
                });
                found.map(|entry| entry.inode)
            }
            Local::Unix(path) => {
                let listens = |entry: &procfs::net::UnixNetEntry| {
                    entry.path.as_ref() == Some(path) && entry.state == UnixState::UNCONNECTED
                };
                procfs::net::unix().ok()?.into_iter().find(listens).map(|entry| entry.inode)
            }
        }
    }

    /// Returns the processor times.
    pub(crate) fn clocks() -> Option<Clocks> {
        let (stat, cpu) = (Process::myself().ok()?.stat().ok()?, procfs::KernelStats::current().ok()?.total);
        let busy = cpu.user + cpu.nice + cpu.system;
        let busy = busy + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0) + cpu.steal.unwrap_or(0);
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let all = seconds(busy + cpu.idle + cpu.iowait.unwrap_or(0));
        Some(Clocks { own: seconds(stat.utime + stat.stime), busy: seconds(busy), all })
    }

    /// Returns the kind of a directory's file system, such as "ext4". A later mount hides an earlier one.
    pub(crate) fn file_system(directory: &Path) -> Option<String> {
        let directory = std::fs::canonicalize(directory).ok()?;
        let mounts = Process::myself().ok()?.mountinfo().ok()?;
        let above = mounts.into_iter().filter(|mount| directory.starts_with(&mount.mount_point));
        above.max_by_key(|mount| mount.mount_point.components().count()).map(|mount| mount.fs_type)
    }

    /// Returns a description of the machine for the report.
    pub(crate) fn description() -> Vec<(&'static str, String)> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let model = procfs::CpuInfo::current().ok().and_then(|info| Some(info.model_name(0)?.to_string()));
        let memory = procfs::Meminfo::current().map(|memory| memory.mem_total as f64 / (1 << 30) as f64);
        let load = procfs::LoadAverage::current().map(|load| format!("{} (one minute)", load.one));
        let known = [
            ("system", kernel.ok().map(|release| format!("linux {}", release.trim()))),
            ("processors", Some(format!("{count} × {}", model.unwrap_or_default()))),
            ("memory", memory.ok().map(|memory| format!("{memory:.1} GiB"))),
            ("temporary files on", file_system(&std::env::temp_dir())),
            ("load at the start", load.ok()),
        ];
        known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Interval for draining the kernel's queue, which holds 16,384 events.
    const STEP: Duration = Duration::from_millis(50);

    /// A count of file changes since its creation.
    #[derive(Debug)]
    pub(crate) struct FileWatch(Arc<Mutex<State>>);

    #[derive(Debug)]
    struct State {
        inotify: Inotify,
        directories: HashMap<WatchDescriptor, PathBuf>,
        files: FileCounts,
        /// True after an overflow of the kernel's queue: the count is unknown.
        lost: bool,
    }

    impl FileWatch {
        /// Watches a directory tree; `None` if the system has no free watches.
        pub(crate) fn new(directory: &Path) -> Option<FileWatch> {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
            let mut state =
                State { inotify, directories: HashMap::new(), files: FileCounts::default(), lost: false };
            state.add(directory)?;
            let state = Arc::new(Mutex::new(state));
            let weak = Arc::downgrade(&state);
            std::thread::spawn(move || {
                while let Some(state) = weak.upgrade() {
                    state.lock().drain();
                    drop(state);
                    std::thread::sleep(STEP);
                }
            });
            Some(FileWatch(state))
        }

        /// Returns the count so far.
        pub(crate) fn count(&self) -> Option<FileCounts> {
            let mut state = self.0.lock();
            state.drain();
            (!state.lost).then_some(state.files)
        }
    }

    impl State {
        /// Watches a directory and its subdirectories.
        fn add(&mut self, directory: &Path) -> Option<()> {
            let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
            let watch = self.inotify.add_watch(directory, events).ok()?;
            self.directories.insert(watch, directory.to_path_buf());
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // A directory that is already removed has nothing to count.
                    let _ = self.add(&entry.path());
                }
            }
            Some(())
        }

        /// Reads the kernel's queue and counts its events.
        fn drain(&mut self) {
            loop {
                let events = match self.inotify.read_events() {
                    Ok(events) => events,
                    Err(Errno::EINTR) => continue,
                    Err(_) => return,
                };
                for event in events {
                    self.lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                    let created = event.mask.contains(AddWatchFlags::IN_CREATE);
                    if event.mask.contains(AddWatchFlags::IN_ISDIR) {
                        let parent = self.directories.get(&event.wd);
                        let path = parent.zip(event.name.as_ref()).map(|(parent, name)| parent.join(name));
                        if let Some(path) = path.filter(|_| created) {
                            let _ = self.add(&path);
                        }
                    } else if created {
                        self.files.created += 1;
                    } else if event.mask.contains(AddWatchFlags::IN_DELETE) {
                        self.files.removed += 1;
                    }
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::{Clocks, FileCounts, Local, Path, Usage};

    pub(crate) fn usage(_: u32) -> Option<Usage> {
        None
    }

    pub(crate) fn listener(_: &[Local]) -> Option<u32> {
        None
    }

    pub(crate) fn clocks() -> Option<Clocks> {
        None
    }

    pub(crate) fn file_system(_: &Path) -> Option<String> {
        None
    }

    pub(crate) fn description() -> Vec<(&'static str, String)> {
        vec![("system", std::env::consts::OS.to_string())]
    }

    #[derive(Debug)]
    pub(crate) struct FileWatch;

    impl FileWatch {
        pub(crate) fn new(_: &Path) -> Option<FileWatch> {
            None
        }

        pub(crate) fn count(&self) -> Option<FileCounts> {
            None
        }
    }
}

/// Numbers of files created and removed since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FileCounts {
    pub(crate) created: u64,
    pub(crate) removed: u64,
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::process_tree;
    use super::*;
    use std::fs;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    #[test]
    fn a_listener_is_traced_to_this_process() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(socket) = TcpListener::bind(address) else { continue };
            let mut connect_address = socket.local_addr().unwrap();
            if connect_address.ip().is_unspecified() {
                connect_address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            assert_eq!(listener(&[Local::Tcp(connect_address)]), Some(std::process::id()), "{address}");
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(listener(&[Local::Tcp(free)]), None);
    }

    #[test]
    fn a_socket_in_the_file_system_is_traced_too() {
        let path = std::env::temp_dir().join(format!("vellum-lab-test-{}.sock", std::process::id()));
        let socket = UnixListener::bind(&path).unwrap();
        assert_eq!(listener(&[Local::Unix(path.clone())]), Some(std::process::id()));
        drop(socket);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn work_and_that_of_children_is_counted() {
        let before = usage(std::process::id()).unwrap();
        assert!(before.resident_bytes > 100_000);
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read _";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let process_tree = process_tree(std::process::id()).unwrap();
        assert!(process_tree.iter().any(|process| process.pid() == child.id() as i32));
        drop(child.stdin.take());
        child.wait().unwrap();
        let after = usage(std::process::id()).unwrap();
        assert!(after.cpu > before.cpu + Duration::from_millis(10), "{before:?} {after:?}");
    }

    #[test]
    fn an_ended_process_has_no_cpu_time() {
        assert!(usage(u32::MAX / 2).is_none());
    }

    #[test]
    fn a_file_system_is_that_of_the_deepest_mount() {
        assert_eq!(file_system(Path::new("/proc/self")).as_deref(), Some("proc"));
        assert!(file_system(Path::new("/")).is_some());
        assert_eq!(file_system(Path::new("/nowhere")), None);
    }

    #[test]
    fn the_machine_has_processors() {
        assert!(description().iter().any(|(name, value)| *name == "processors" && !value.is_empty()));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod files_tests {
    use super::*;
    use crate::target::Scratch;

    #[test]
    fn files_made_and_removed_are_counted_below_too() {
        let scratch = Scratch::temporary().unwrap();
        std::fs::create_dir(scratch.path().join("a")).unwrap();
        let watch = FileWatch::new(scratch.path()).unwrap();
        for name in ["x", "a/y", "a/z"] {
            std::fs::write(scratch.path().join(name), "1").unwrap();
        }
        std::fs::remove_file(scratch.path().join("a/y")).unwrap();
        assert_eq!(watch.count(), Some(FileCounts { created: 3, removed: 1 }));
    }
}
