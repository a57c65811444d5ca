//! A connection whose client asks one thing after another.
//!
//! Handing a request from the thread that watches all sockets to another one, and the next request back, costs about as
//! much as the request itself; over PostgreSQL, where each request waits for another server and so does its thread,
//! all the more. So a client that asks again within moments is served on one thread, which waits for its next request,
//! too, until none comes for a while. Only then the socket is watched with all others.
//!
//! Where requests need no other server, many such threads would take the processors from one another: sockets that are
//! watched together are served in batches then, which takes less of the processors' time. So only a few clients have
//! threads, and none has while more ask for one.

use super::Connection;
use super::stream::{Stream, is_readable};
use crate::blocking::in_place;
use crate::buffers;
use crate::dedicated_threads::{Entered, Threads};
use crate::driver::{Driver, Next, On};
use crate::event::Event;
use rustix::buffer::spare_capacity;
use std::future::pending;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use wire::busy_poll::BusyPoll;

/// Whoever asks again within this time is served on a thread of his own.
const SOON: Duration = Duration::from_millis(5);

/// For how long such a thread waits for the next request.
const PAUSE: Duration = Duration::from_millis(10);

/// How long it tries to send a reply that the client doesn't read.
const PATIENCE: Duration = Duration::from_millis(100);

/// A socket that is watched only while nobody works for its client.
pub(super) struct BriskStream {
    socket: Arc<TcpStream>,
    watched: Option<AsyncFd<Arc<TcpStream>>>,
    /// When the last reply was sent.
    answered: Option<Instant>,
}

impl BriskStream {
    /// Takes a socket that doesn't block.
    pub(super) fn new(socket: Arc<TcpStream>) -> BriskStream {
        BriskStream { socket, watched: None, answered: None }
    }

    #[allow(unsafe_code)]
    fn watch(&mut self) -> io::Result<&AsyncFd<Arc<TcpStream>>> {
        match &mut self.watched {
            Some(watched) => Ok(watched),
            none => {
                // SAFETY: the descriptor is open for as long as somebody holds the socket, as what watches it does.
                let watched = unsafe { AsyncFd::register(self.socket.clone()) }?;
                Ok(none.insert(watched))
            }
        }
    }

    /// Waits for bytes and reads what is there; how many, none at the end of the stream.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let watched = self.watch()?;
        loop {
            let mut ready = watched.readable().await?;
            if input.capacity() == 0 {
                *input = buffers::take();
            }
            match ready.try_io(|socket| read(socket.get_ref(), input)) {
                Ok(read) => {
                    // That nothing more is there needs no asking: what comes from now on is told anew.
                    if matches!(read, Ok(1..) if input.len() < input.capacity()) {
                        ready.clear_ready();
                    }
                    return read;
                }
                Err(_) if input.is_empty() => buffers::give(std::mem::take(input)),
                Err(_) => {}
            }
        }
    }

    /// Sends all of these.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            match (&*self.socket).write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.watch()?.writable().await?.clear_ready();
                }
                Err(error) => return Err(error),
            }
        }
        self.answered = Some(Instant::now());
        Ok(())
    }

    /// Returns when the client has closed the connection; never, if it sends something instead.
    pub(super) async fn gone(&mut self) {
        let Ok(watched) = self.watch() else { return };
        loop {
            let Ok(mut ready) = watched.readable().await else { return };
            match ready.try_io(|socket| socket.get_ref().peek(&mut [0])) {
                Ok(Ok(1..)) => pending::<()>().await,
                Ok(_) => return,
                Err(_) => {}
            }
        }
    }

    /// Whether there is something to read, or to be found out by reading.
    pub(super) fn is_readable(&self) -> bool {
        is_readable(&*self.socket)
    }

    /// Whether its client asks so soon after the last reply that he gets a thread.
    pub(super) fn is_soon(&self) -> bool {
        self.answered.is_some_and(|answered| answered.elapsed() < SOON)
    }

    /// The socket as a thread uses it that waits for this client alone; `None` where too many do.
    pub(super) fn occupy<'a>(&'a mut self, threads: &'a Threads) -> io::Result<Option<Occupied<'a>>> {
        let Some(entered) = threads.enter() else { return Ok(None) };
        let occupied = Occupied { stream: self, _entered: entered };
        occupied.stream.watched = None;
        occupied.stream.socket.set_nonblocking(false)?;
        occupied.stream.socket.set_read_timeout(Some(PAUSE))?;
        occupied.stream.socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Some(occupied))
    }
}

/// A socket whose thread waits for it.
pub(super) struct Occupied<'a> {
    stream: &'a mut BriskStream,
    _entered: Entered<'a>,
}

impl Occupied<'_> {
    /// Waits a moment for bytes and reads what is there: how many, or `None` where nothing comes.
    pub(super) fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<Option<usize>> {
        if input.capacity() == 0 {
            *input = buffers::take();
        }
        match read(&self.stream.socket, input) {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends these, as far as the client takes them; how many.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(rest @ [_, ..]) = bytes.get(sent..) {
            match (&*self.stream.socket).write(rest) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
        }
        self.stream.answered = Some(Instant::now());
        Ok(sent)
    }
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        // A socket of which that can't be said is of no use to whoever reads from it next, and says so.
        let _ = self.stream.socket.set_nonblocking(true);
    }
}

impl Connection {
    /// Serves a client who asks one thing after another, as long as he does and his requests need no more than a
    /// reply.
    pub(super) fn serve_on_own_thread(&mut self) -> io::Result<()> {
        let Connection { stream: Stream::Brisk(stream), driver, busy_poll } = self else { return Ok(()) };
        // One who has asked nothing yet may well not do so soon.
        if !stream.is_soon() || driver.state.is_stranger(&driver.server) {
            return Ok(());
        }
        let server = driver.server.clone();
        let Some(mut socket) = stream.occupy(&server.brisk)? else { return Ok(()) };
        let mut served = Ok(());
        in_place(&mut || served = serve(&mut socket, driver, busy_poll));
        served
    }
}

/// Serves one client on this thread, waiting for his requests, until he asks nothing or a request takes more than a
/// reply.
fn serve(socket: &mut Occupied<'_>, driver: &mut Driver, busy_poll: &mut BusyPoll) -> io::Result<()> {
    loop {
        match driver.advance(On::OwnThread) {
            Next::Send => {
                driver.state.activity.hold(driver.held(), &driver.server.database);
                let sent = socket.send(driver.unsent())?;
                driver.state.activity.hold(0, &driver.server.database);
                driver.note_sent(sent);
                if !driver.unsent().is_empty() {
                    return Ok(());
                }
            }
            Next::Wait => match driver.event.take() {
                Some(event @ Event::Journaled { .. }) => event.wait(&driver.server.database),
                event => {
                    driver.event = event;
                    return Ok(());
                }
            },
            Next::Read => {
                let Driver { server, state, input, .. } = driver;
                if server.brisk.is_crowded() {
                    return Ok(());
                }
                state.activity.hold(input.capacity(), &server.database);
                if !server.settings.shared {
                    let id = state.activity.connection_id;
                    busy_poll.look(id, &server.latest, || socket.stream.is_readable());
                }
                match socket.fill(input)? {
                    Some(0) => driver.close(),
                    Some(read) => driver.server.counters.bytes_in.add(read as u64),
                    None => return Ok(()),
                }
            }
            Next::Refuse(_) | Next::Close => return Ok(()),
        }
    }
}

/// A frame's buffer grows by at least this much at a time, in bytes, as the frame arrives.
const READ_STEP: usize = 64 * 1024;

/// Reads once, behind what is there, as much as there is room for.
fn read(socket: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    if input.capacity() == input.len() {
        // A frame's buffer at most doubles with what has really arrived.
        input.reserve(input.len().max(READ_STEP));
    }
    Ok(rustix::io::read(socket, spare_capacity(input))?)
}
