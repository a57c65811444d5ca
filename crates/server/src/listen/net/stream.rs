//! Byte streams of connections, plain or encrypted.
//!
//! A plain connection pays only one match for the choice of its kind.

#[cfg(unix)]
use super::pinned::PinnedStream;
use super::tls_stream::TlsStream;
use crate::observe::activity::ConnectionHandle;
use crate::process::buffers;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// Minimum growth of a frame's buffer while the frame arrives, in bytes.
const READ_STEP: usize = 64 * 1024;

/// A connection's byte stream in both directions.
pub(super) enum Stream {
    Plain(Arc<TcpStream>),
    Tls(Box<TlsStream>),
    /// A plain stream whose client may have a dedicated thread. A server without TLS uses only this
    /// kind.
    #[cfg(unix)]
    Pinned(Box<PinnedStream>),
    /// No stream: the handshake is in progress or has failed.
    Closed,
}

impl Stream {
    /// Waits for bytes and reads them. Returns their number, 0 at the end of the stream. Takes a
    /// buffer only when bytes are available.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => fill(stream, input).await,
            Stream::Tls(stream) => stream.fill(input).await,
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.fill(input).await,
            Stream::Closed => Ok(0),
        }
    }

    /// Returns true if a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        match self {
            Stream::Plain(stream) => is_readable(&**stream),
            Stream::Tls(stream) => stream.is_readable(),
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.is_readable(),
            Stream::Closed => true,
        }
    }

    /// Sends all bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => send(stream, bytes).await,
            Stream::Tls(stream) => stream.send(bytes).await,
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.send(bytes).await,
            Stream::Closed => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Returns when the client has closed the connection. Never returns if the client sends bytes
    /// instead.
    pub(super) async fn disconnected(&mut self) {
        match self {
            Stream::Plain(stream) => {
                let mut byte = [0];
                if let Ok(1..) = stream.peek(&mut byte).await {
                    pending::<()>().await;
                }
            }
            Stream::Tls(stream) => stream.disconnected().await,
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.disconnected().await,
            Stream::Closed => {}
        }
    }

    /// Sends the end of the stream, if the protocol has such a message.
    pub(super) fn close(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.close();
        }
    }
}

/// A weak handle on a connection's socket for code that neither reads nor writes.
pub(super) struct SocketHandle<S>(pub(super) Weak<S>);

#[cfg(unix)]
impl<S: std::os::fd::AsFd + Send + Sync> ConnectionHandle for SocketHandle<S> {
    fn is_disconnected(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(stream) = self.0.upgrade() else { return true };
        #[cfg(target_os = "linux")]
        let ends = PollFlags::from_bits_retain(libc::POLLRDHUP);
        #[cfg(not(target_os = "linux"))]
        let ends = PollFlags::empty();
        // Any event means that an end is closed, because only closing is polled. nix drops flags
        // that it does not know.
        poll(&mut [PollFd::new(stream.as_fd(), ends)], PollTimeout::ZERO).is_ok_and(|ended| ended > 0)
    }

    fn disconnect(&self) {
        if let Some(stream) = self.0.upgrade() {
            // Nothing to cut if the client has gone already or no descriptor is free.
            let _ = stream
                .as_fd()
                .try_clone_to_owned()
                .and_then(|socket| std::net::TcpStream::from(socket).shutdown(std::net::Shutdown::Both));
        }
    }
}

/// On other systems the write of the reply detects a closed connection.
#[cfg(not(unix))]
impl<S: Send + Sync> ConnectionHandle for SocketHandle<S> {
    fn is_disconnected(&self) -> bool {
        self.0.strong_count() == 0
    }

    fn disconnect(&self) {}
}

/// Waits for bytes of a socket and reads them.
pub(super) async fn fill(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        if input.capacity() == 0 {
            *input = buffers::take();
        } else if input.len() == input.capacity() {
            // The buffer at most doubles, so its size is bounded by the received bytes.
            input.reserve(input.len().max(READ_STEP));
        }
        match stream.try_read_buf(input) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if input.is_empty() {
            buffers::release(std::mem::take(input));
        }
    }
}

/// Polls the system directly and bypasses the runtime's state of the socket.
#[cfg(unix)]
pub(super) fn is_readable(stream: &impl std::os::fd::AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// On other systems the runtime polls.
#[cfg(not(unix))]
pub(super) fn is_readable(_: &TcpStream) -> bool {
    true
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
