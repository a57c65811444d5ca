//! The processor time and memory of servers on this machine, read from Linux's /proc.
//!
//! The process is the one that holds the listening socket. PostgreSQL serves each connection with
//! a child of it, so that children count, and the time of those that have ended, which the kernel
//! adds up in their parent. Elsewhere than on Linux nothing is found, and nothing is told.

use super::address::Local;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The unit of times in /proc/PID/stat: USER_HZ, 100 on every architecture that we build for.
const TICK: Duration = Duration::from_millis(10);

/// What a server has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and system time since the server's start.
    pub(crate) cpu: Duration,
    /// Memory in use now.
    pub(crate) resident_bytes: u64,
    /// Bytes that went to a device, or will; `None` where that isn't told.
    pub(crate) written_bytes: Option<u64>,
}

impl Usage {
    /// Both together.
    pub(super) fn and(self, other: Usage) -> Usage {
        Usage {
            cpu: self.cpu + other.cpu,
            resident_bytes: self.resident_bytes + other.resident_bytes,
            written_bytes: self
                .written_bytes
                .map(|bytes| bytes + other.written_bytes.unwrap_or(0))
                .or(other.written_bytes),
        }
    }
}

/// What a process and all below it have used; `None` if it is gone.
pub(super) fn usage(root: u32) -> Option<Usage> {
    let mut usage = Usage::default();
    let family = family(root);
    for &pid in &family {
        // A child may have ended since: its parent has its time then.
        let Some(cpu) = cpu(pid) else { continue };
        usage.cpu += cpu;
        usage.resident_bytes += resident(pid, family.len() > 1).unwrap_or(0);
        usage.written_bytes =
            written(pid).map(|bytes| bytes + usage.written_bytes.unwrap_or(0)).or(usage.written_bytes);
    }
    (usage.cpu > Duration::ZERO).then_some(usage)
}

/// A process and its descendants; empty if it is gone.
fn family(root: u32) -> Vec<u32> {
    let Some(_) = stat(root) else { return Vec::new() };
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in processes() {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        next += 1;
        family.extend(children.remove(&pid).unwrap_or_default());
    }
    family
}

/// Its own time, to the nanosecond where the kernel tells, and that of children that have ended.
fn cpu(pid: u32) -> Option<Duration> {
    let stat = stat(pid)?;
    Some(clock(pid).unwrap_or(stat.own) + stat.ended_children)
}

#[cfg(target_os = "linux")]
fn clock(pid: u32) -> Option<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
    let now = nix::time::ClockId::pid_cpu_clock_id(pid).and_then(|clock| clock.now());
    now.ok().map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn clock(_: u32) -> Option<Duration> {
    None
}

/// Only the process's own user may know. What has ended takes its count along.
fn written(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

/// Bytes in RAM; where several processes share memory, each one's part of what is shared.
fn resident(pid: u32, shares: bool) -> Option<u64> {
    let (file, field) = if shares { ("smaps_rollup", "Pss:") } else { ("status", "VmRSS:") };
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What /proc/PID/stat tells.
struct Stat {
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything, parentheses included.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| -> Option<Duration> {
        let count: u32 = fields.get(at)?.parse().ok()?;
        Some(TICK * count)
    };
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: ticks(11)? + ticks(12)?,
        ended_children: ticks(13)? + ticks(14)?,
    })
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The process that listens at one of these sockets. None for a container's port: what holds that
/// is a proxy.
pub(super) fn listener(sockets: &[Local]) -> Option<u32> {
    let inode = sockets.iter().find_map(listening_inode)?;
    let link = format!("socket:[{inode}]");
    // Children may have inherited the socket: the parent is the older one.
    let pid = processes().filter(|pid| holds(*pid, &link)).min()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.trim() != "docker-proxy").then_some(pid)
}

fn holds(pid: u32, link: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target.as_os_str() == link)
}

fn listening_inode(socket: &Local) -> Option<u64> {
    match socket {
        Local::Tcp(address) => ["tcp", "tcp6"].iter().find_map(|table| {
            let text = fs::read_to_string(format!("/proc/net/{table}")).ok()?;
            text.lines().skip(1).find_map(|line| listens_at(line, *address))
        }),
        Local::Unix(path) => {
            let text = fs::read_to_string("/proc/net/unix").ok()?;
            let path = path.to_str()?;
            // Num RefCount Protocol Flags Type St Inode Path; the flag is that of a listener.
            text.lines().skip(1).find_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let listens = *fields.get(3)? == "00010000" && *fields.get(7)? == path;
                listens.then(|| fields.get(6)?.parse().ok())?
            })
        }
    }
}

/// The inode of a line of /proc/net/tcp, if it is a socket that listens at this address.
fn listens_at(line: &str, address: SocketAddr) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let same = ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical();
    let found = same && port == address.port() && *fields.get(3)? == LISTEN;
    found.then(|| fields.get(9)?.parse().ok())?
}

/// An address as words of the machine's own byte order, in hexadecimal.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    #[test]
    fn a_listener_is_traced_to_this_process() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(socket) = TcpListener::bind(address) else { continue };
            let mut dialled = socket.local_addr().unwrap();
            if dialled.ip().is_unspecified() {
                dialled.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            assert_eq!(listener(&[Local::Tcp(dialled)]), Some(std::process::id()), "{address}");
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
        let family = family(std::process::id());
        assert!(family.contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        let after = usage(std::process::id()).unwrap();
        assert!(after.cpu > before.cpu + TICK, "{before:?} {after:?}");
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let text = "7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 5 6 7 8 20 0 1 0 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.own, stat.ended_children), (3, TICK * 11, TICK * 15));
        assert!(usage(u32::MAX / 2).is_none());
    }
}
