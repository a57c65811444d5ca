//! A connection with a dedicated thread while its client sends requests in quick succession.
//!
//! The handover of a request between the polling thread and another thread costs about as much as
//! the request itself. Over PostgreSQL it costs more, since each request blocks its thread until
//! the other server replies. A dedicated thread serves a busy client and also waits for its next
//! request. After a short silence the socket returns to the poller.
//!
//! If requests need no other server, many dedicated threads would compete for the processors. The
//! poller then serves its sockets in batches, which takes less processor time. Few clients
//! therefore get a thread, and none gets a thread while more clients are busy.

use super::Connection;
use super::stream::{Stream, is_readable};
use crate::listen::driver::{Driver, Next, On};
use crate::process::blocking::in_place;
use crate::process::buffers;
use crate::process::dedicated_threads::{Entered, Threads};
use crate::process::event::Event;
use rustix::buffer::spare_capacity;
use std::future::pending;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use wire::busy_poll::BusyPoll;

/// A client that sends its next request within this time gets a dedicated thread.
const SOON: Duration = Duration::from_millis(5);

/// Time for which a dedicated thread waits for the next request.
const PAUSE: Duration = Duration::from_millis(10);

/// Timeout for writing a reply to a client that does not read.
const PATIENCE: Duration = Duration::from_millis(100);

/// A socket that is registered with the poller only while no thread serves its client.
pub(super) struct BriskStream {
    socket: Arc<TcpStream>,
    watched: Option<AsyncFd<Arc<TcpStream>>>,
    /// Time of the last reply.
    answered: Option<Instant>,
}

impl BriskStream {
    /// Takes a nonblocking socket.
    pub(super) fn new(socket: Arc<TcpStream>) -> BriskStream {
        BriskStream { socket, watched: None, answered: None }
    }

    #[allow(unsafe_code)]
    fn watch(&mut self) -> io::Result<&AsyncFd<Arc<TcpStream>>> {
        match &mut self.watched {
            Some(watched) => Ok(watched),
            none => {
                // SAFETY: the descriptor is open while a reference to the socket exists, and the
                // registration holds a reference.
                let watched = unsafe { AsyncFd::register(self.socket.clone()) }?;
                Ok(none.insert(watched))
            }
        }
    }

    /// Waits for bytes and reads them. Returns their number, 0 at the end of the stream.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let watched = self.watch()?;
        loop {
            let mut ready = watched.readable().await?;
            if input.capacity() == 0 {
                *input = buffers::take();
            }
            match ready.try_io(|socket| read(socket.get_ref(), input)) {
                Ok(read) => {
                    // A partly filled buffer means that the socket is empty. Later bytes raise a
                    // new event.
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

    /// Sends all bytes.
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

    /// Returns when the client has closed the connection. Never returns if the client sends bytes
    /// instead.
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

    /// Returns true if a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        is_readable(&*self.socket)
    }

    /// Returns true if the client's request follows the last reply so soon that the client gets a
    /// thread.
    pub(super) fn is_soon(&self) -> bool {
        self.answered.is_some_and(|answered| answered.elapsed() < SOON)
    }

    /// Returns the socket for use by a dedicated thread; `None` if too many clients have threads.
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

/// A socket that a dedicated thread reads.
pub(super) struct Occupied<'a> {
    stream: &'a mut BriskStream,
    _entered: Entered<'a>,
}

impl Occupied<'_> {
    /// Waits briefly for bytes and reads them. Returns their number; `None` if no bytes arrive.
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

    /// Sends bytes until the client stops reading. Returns the number of sent bytes.
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
        // If this fails, the next read fails too and reports the error.
        let _ = self.stream.socket.set_nonblocking(true);
    }
}

impl Connection {
    /// Serves a client on a dedicated thread while its requests follow quickly and need only a
    /// reply.
    pub(super) fn serve_on_own_thread(&mut self) -> io::Result<()> {
        let Connection { stream: Stream::Brisk(stream), driver, busy_poll } = self else { return Ok(()) };
        // A client without a finished request may stay silent for long.
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

/// Serves one client on this thread. Returns when no request arrives, or when a request needs more
/// than a reply.
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

/// Minimum growth of a frame's buffer while the frame arrives, in bytes.
const READ_STEP: usize = 64 * 1024;

/// Reads once into the spare capacity.
fn read(socket: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    if input.capacity() == input.len() {
        // The buffer at most doubles, so its size is bounded by the received bytes.
        input.reserve(input.len().max(READ_STEP));
    }
    Ok(rustix::io::read(socket, spare_capacity(input))?)
}
