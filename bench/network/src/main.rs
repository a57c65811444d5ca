//! Compares epoll with io_uring: two servers that answer each message of 200 bytes with 60 bytes, on one thread.
//!
//!     cargo run --release --manifest-path bench/network/Cargo.toml
//!
//! A client keeps one request in flight on each connection, on at most 256 of 10,000. The servers take turns. A line
//! has the requests per second and the CPU of the server for a request. The server of io_uring accepts and receives by
//! multishot requests into provided buffers, and submits all replies of a round by one system call.

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, cqueue, opcode, types};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REQUEST: [u8; 200] = [9; 200];
static REPLY: [u8; 60] = [7; 60];
const CONNECTIONS: [usize; 4] = [1, 16, 256, 10_000];
const IN_FLIGHT_MAX: usize = 256;
const ROUNDS: usize = 3;
const LISTENER: Token = Token(usize::MAX);

fn main() -> Result<()> {
    let (_, files) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, files, files)?;
    match std::env::args().nth(1).as_deref() {
        Some("epoll") => serve_by_epoll(listen()?),
        Some("io_uring") => serve_by_io_uring(&listen()?),
        _ => compare(),
    }
}

/// Prints a line for each round, server and number of connections.
fn compare() -> Result<()> {
    for _ in 0..ROUNDS {
        for connections in CONNECTIONS {
            for kind in ["epoll", "io_uring"] {
                let mut server =
                    Command::new(std::env::current_exe()?).arg(kind).stdout(Stdio::piped()).spawn()?;
                let measured = measure(&mut server, connections);
                server.kill()?;
                server.wait()?;
                let (rate, cpu) = measured?;
                println!("{connections:>6} connections, {kind:>8}: {rate:>7.0} requests/s, {cpu:.2} µs");
            }
        }
    }
    Ok(())
}

/// Returns the requests per second and the server's CPU for a request in µs.
fn measure(server: &mut Child, count: usize) -> Result<(f64, f64)> {
    let mut port = [0; 5];
    server.stdout.as_mut().ok_or(ErrorKind::BrokenPipe)?.read_exact(&mut port)?;
    let port = String::from_utf8_lossy(&port).parse().map_err(std::io::Error::other)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for _ in 0..count {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        connections.push(TcpStream::from_std(stream));
    }
    let step = count.div_ceil(IN_FLIGHT_MAX);
    for (number, stream) in connections.iter_mut().enumerate().step_by(step) {
        poll.registry().register(stream, Token(number), Interest::READABLE)?;
    }
    std::thread::sleep(Duration::from_millis(200));
    let (cpu, start) = (cpu_time(server.id())?, Instant::now());
    for stream in connections.iter_mut().step_by(step) {
        stream.write_all(&REQUEST)?;
    }
    let (mut events, mut requests, mut buffer) = (Events::with_capacity(256), 0_u64, [0; 4096]);
    while start.elapsed() < Duration::from_secs(3) {
        poll.poll(&mut events, Some(Duration::from_secs(1)))?;
        for event in &events {
            let stream = &mut connections[event.token().0];
            stream.read_exact(&mut buffer[..REPLY.len()])?;
            stream.write_all(&REQUEST)?;
            requests += 1;
        }
    }
    let cpu = cpu_time(server.id())? - cpu;
    Ok((requests as f64 / start.elapsed().as_secs_f64(), cpu.as_secs_f64() * 1e6 / requests as f64))
}

/// Returns the CPU time of a process, in steps of 10 ms.
fn cpu_time(process: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Ok(Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().unwrap_or_default() * 10).sum()))
}

/// Listens on a free port and prints it.
fn listen() -> Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    print!("{:05}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    Ok(listener)
}

fn serve_by_epoll(listener: std::net::TcpListener) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(256));
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (mut connections, mut buffer) = (HashMap::new(), [0; 4096]);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(stream.as_raw_fd() as usize);
                    poll.registry().register(&mut stream, token, Interest::READABLE)?;
                    connections.insert(token, stream);
                }
            } else if let Some(stream) = connections.get_mut(&event.token()) {
                match stream.read(&mut buffer) {
                    Ok(0) => _ = connections.remove(&event.token()),
                    Ok(_) => stream.write_all(&REPLY)?,
                    Err(_) => {}
                }
            }
        }
    }
}

/// Kinds of completions, in the low byte of `user_data`. The descriptor of the connection is above.
const ACCEPTED: u64 = 1;
const RECEIVED: u64 = 2;
const OTHER: u64 = 3;

const BUFFERS: u16 = 4096;
const BUFFER_SIZE: usize = 512;

fn serve_by_io_uring(listener: &std::net::TcpListener) -> Result<()> {
    let mut ring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(32_768).build(4096)?;
    let buffers = vec![0_u8; usize::from(BUFFERS) * BUFFER_SIZE].leak();
    let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).build().user_data(ACCEPTED);
    let receive =
        |fd| opcode::RecvMulti::new(types::Fd(fd), 0).build().user_data((fd as u64) << 8 | RECEIVED);
    let provide = opcode::ProvideBuffers::new(buffers.as_mut_ptr(), BUFFER_SIZE as i32, BUFFERS, 0, 0);
    let mut entries = vec![provide.build().user_data(OTHER), accept.clone()];
    let mut connections = HashMap::new();
    loop {
        for entry in entries.drain(..) {
            push(&mut ring, &entry)?;
        }
        ring.submit_and_wait(1)?;
        for completion in ring.completion() {
            let (result, flags) = (completion.result(), completion.flags());
            let fd = (completion.user_data() >> 8) as i32;
            match completion.user_data() & 0xff {
                ACCEPTED => {
                    if result >= 0 {
                        // SAFETY: the kernel has just opened this descriptor for us.
                        let stream = unsafe { std::net::TcpStream::from_raw_fd(result) };
                        stream.set_nodelay(true)?;
                        connections.insert(result, OwnedFd::from(stream));
                        entries.push(receive(result));
                    }
                    if !cqueue::more(flags) {
                        entries.push(accept.clone());
                    }
                }
                RECEIVED if result > 0 => {
                    let number = cqueue::buffer_select(flags).ok_or(ErrorKind::InvalidData)?;
                    let send = opcode::Send::new(types::Fd(fd), REPLY.as_ptr(), REPLY.len() as u32);
                    entries.push(send.build().flags(Flags::SKIP_SUCCESS).user_data(OTHER));
                    let buffer = buffers[usize::from(number) * BUFFER_SIZE..].as_mut_ptr();
                    let provide = opcode::ProvideBuffers::new(buffer, BUFFER_SIZE as i32, 1, 0, number);
                    entries.push(provide.build().flags(Flags::SKIP_SUCCESS).user_data(OTHER));
                    if !cqueue::more(flags) {
                        entries.push(receive(fd));
                    }
                }
                // No buffer was free.
                RECEIVED if result == -(nix::errno::Errno::ENOBUFS as i32) => entries.push(receive(fd)),
                RECEIVED => _ = connections.remove(&fd),
                _ => {}
            }
        }
    }
}

/// Adds an entry to the submission queue, and submits the queue if it is full.
fn push(ring: &mut IoUring, entry: &Entry) -> Result<()> {
    // SAFETY: the buffers and the reply of an entry live as long as the program.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}
