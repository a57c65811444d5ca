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
use crate::listen::driver::{Driver, DriverAction, ThreadKind};
use crate::process::blocking::in_place;
use crate::process::dedicated_threads::{ThreadPermit, Threads};
use crate::process::event::Event;
use crate::process::memory;
use rustix::buffer::spare_capacity;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use wire::busy_poll::BusyPoll;

/// A client that sends its next request within this time gets a dedicated thread.
const PIN_THRESHOLD: Duration = Duration::from_millis(5);

/// Time for which a dedicated thread waits for the next request.
const READ_TIMEOUT: Duration = Duration::from_millis(10);

/// Timeout for writing a reply to a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

/// A socket that is registered with the poller only while no thread serves its client.
pub(super) struct PinnedStream {
    socket: Arc<TcpStream>,
    watched: Option<AsyncFd<Arc<TcpStream>>>,
    /// Time of the last reply.
    last_reply: Option<Instant>,
}

impl PinnedStream {
    /// Takes a nonblocking socket.
    pub(super) fn new(socket: Arc<TcpStream>) -> PinnedStream {
        PinnedStream { socket, watched: None, last_reply: None }
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

    /// Reads bytes, if there are any. Returns their number, 0 at the end of the stream.
    pub(super) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let watched = self.watch()?;
        loop {
            let mut ready = ready!(watched.poll_read_ready(context))?;
            if input.capacity() == 0 {
                *input = memory::take_buffer();
            }
            match ready.try_io(|socket| read(socket.get_ref(), input)) {
                Ok(read) => {
                    // A partly filled buffer means that the socket is empty. Later bytes raise a
                    // new event.
                    if matches!(read, Ok(1..) if input.len() < input.capacity()) {
                        ready.clear_ready();
                    }
                    return Poll::Ready(read);
                }
                Err(_) if input.is_empty() => memory::release_buffer(std::mem::take(input)),
                Err(_) => {}
            }
        }
    }

    /// Sends bytes. Returns the number of sent bytes.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match (&*self.socket).write(bytes) {
                Ok(written) => {
                    self.last_reply = Some(Instant::now());
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.watch()?.poll_write_ready(context))?.clear_ready();
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Returns true when the client has closed the connection, and false when it has sent bytes instead.
    pub(super) async fn disconnected(&mut self) -> bool {
        let Ok(watched) = self.watch() else { return true };
        loop {
            let Ok(mut ready) = poll_fn(|context| watched.poll_read_ready(context)).await else {
                return true;
            };
            match ready.try_io(|socket| socket.get_ref().peek(&mut [0])) {
                Ok(Ok(1..)) => return false,
                Ok(_) => return true,
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
    pub(super) fn should_pin(&self) -> bool {
        self.last_reply.is_some_and(|last_reply| last_reply.elapsed() < PIN_THRESHOLD)
    }

    /// Returns the socket for use by a dedicated thread; `None` if too many clients have threads.
    pub(super) fn pin<'a>(&'a mut self, threads: &'a Threads) -> io::Result<Option<BlockingSocket<'a>>> {
        let Some(permit) = threads.acquire() else { return Ok(None) };
        let blocking = BlockingSocket { stream: self, _permit: permit };
        blocking.stream.watched = None;
        blocking.stream.socket.set_nonblocking(false)?;
        blocking.stream.socket.set_read_timeout(Some(READ_TIMEOUT))?;
        blocking.stream.socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Some(blocking))
    }
}

/// A socket that a dedicated thread reads.
pub(super) struct BlockingSocket<'a> {
    stream: &'a mut PinnedStream,
    _permit: ThreadPermit<'a>,
}

impl BlockingSocket<'_> {
    /// Waits briefly for bytes and reads them. Returns their number; `None` if no bytes arrive.
    pub(super) fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<Option<usize>> {
        if input.capacity() == 0 {
            *input = memory::take_buffer();
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
        self.stream.last_reply = Some(Instant::now());
        Ok(sent)
    }
}

impl Drop for BlockingSocket<'_> {
    fn drop(&mut self) {
        // If this fails, the next read fails too and reports the error.
        let _ = self.stream.socket.set_nonblocking(true);
    }
}

impl Connection {
    /// Serves a client on a dedicated thread while its requests follow quickly and need only a
    /// reply.
    pub(super) fn serve_on_dedicated_thread(&mut self) -> io::Result<()> {
        let Connection { stream: Stream::Pinned(stream), driver, busy_poll, .. } = self else {
            return Ok(());
        };
        // A client without a finished request may stay silent for long.
        if !stream.should_pin() || driver.state.is_unauthenticated(&driver.server.auth) {
            return Ok(());
        }
        let server = driver.server.clone();
        let Some(mut socket) = stream.pin(&server.network.dedicated_threads)? else { return Ok(()) };
        in_place(|| serve(&mut socket, driver, busy_poll))
    }
}

/// Serves one client on this thread. Returns when no request arrives, or when a request needs more
/// than a reply.
fn serve(socket: &mut BlockingSocket<'_>, driver: &mut Driver, busy_poll: &mut BusyPoll) -> io::Result<()> {
    loop {
        match driver.advance(ThreadKind::Dedicated) {
            DriverAction::Send => {
                driver.state.activity.record_reply(driver.buffered_bytes(), &driver.server.database);
                let sent = socket.send(driver.unsent())?;
                driver.state.activity.end_reply(&driver.server.database);
                driver.count_sent(sent);
                if !driver.unsent().is_empty() {
                    return Ok(());
                }
            }
            DriverAction::Wait => match driver.event.take() {
                Some(event @ Event::Journaled { .. }) => event.wait(&driver.server.database),
                event => {
                    driver.event = event;
                    return Ok(());
                }
            },
            DriverAction::Read => {
                let Driver { server, state, input, .. } = driver;
                if server.network.dedicated_threads.is_saturated() {
                    return Ok(());
                }
                state.activity.record_buffers(input.capacity(), &server.database);
                if !server.settings.shared {
                    let id = state.activity.connection_id;
                    busy_poll.poll(id, &server.network.latest_connection, || socket.stream.is_readable());
                }
                match socket.fill(input)? {
                    Some(0) => driver.close(),
                    Some(read) => driver.server.counters.bytes_in.add(read as u64),
                    None => return Ok(()),
                }
            }
            DriverAction::Refuse(_) | DriverAction::Close => return Ok(()),
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
