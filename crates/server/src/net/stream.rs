//! A connection's bytes, whether they are encrypted on their way or not.
//!
//! Reading and writing a plain connection costs what it cost before there were others: one look at which it is.

#[cfg(unix)]
use super::brisk::BriskStream;
use super::tls_stream::TlsStream;
use crate::activity::Link;
use crate::buffers;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// A frame's buffer grows by at least this much at a time, in bytes, as the frame arrives.
const READ_STEP: usize = 64 * 1024;

/// A connection's two directions.
pub(super) enum Stream {
    Plain(Arc<TcpStream>),
    Tls(Box<TlsStream>),
    /// A plain one whose client may have a thread of its own: all of a server without TLS.
    #[cfg(unix)]
    Brisk(Box<BriskStream>),
    /// Neither: its handshake is under way, or has failed.
    Closed,
}

impl Stream {
    /// Waits for bytes and reads what is there; how many, none at the end of the stream. The buffer is
    /// taken only once there is something to read.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => fill(stream, input).await,
            Stream::Tls(stream) => stream.fill(input).await,
            #[cfg(unix)]
            Stream::Brisk(stream) => stream.fill(input).await,
            Stream::Closed => Ok(0),
        }
    }

    /// Whether there is something to read, or to be found out by reading.
    pub(super) fn is_readable(&self) -> bool {
        match self {
            Stream::Plain(stream) => is_readable(&**stream),
            Stream::Tls(stream) => stream.is_readable(),
            #[cfg(unix)]
            Stream::Brisk(stream) => stream.is_readable(),
            Stream::Closed => true,
        }
    }

    /// Sends all of these.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => send(stream, bytes).await,
            Stream::Tls(stream) => stream.send(bytes).await,
            #[cfg(unix)]
            Stream::Brisk(stream) => stream.send(bytes).await,
            Stream::Closed => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Returns when the client has closed the connection; never, if it sends something instead.
    pub(super) async fn gone(&mut self) {
        match self {
            Stream::Plain(stream) => {
                let mut byte = [0];
                if let Ok(1..) = stream.peek(&mut byte).await {
                    pending::<()>().await;
                }
            }
            Stream::Tls(stream) => stream.gone().await,
            #[cfg(unix)]
            Stream::Brisk(stream) => stream.gone().await,
            Stream::Closed => {}
        }
    }

    /// Tells the other end that nothing follows, where that is told.
    pub(super) fn close(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.close();
        }
    }
}

/// A connection's socket, as those see it who neither read nor write: it goes with the connection.
pub(super) struct Line<S>(pub(super) Weak<S>);

#[cfg(unix)]
impl<S: std::os::fd::AsFd + Send + Sync> Link for Line<S> {
    fn is_gone(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(stream) = self.0.upgrade() else { return true };
        #[cfg(target_os = "linux")]
        let ends = PollFlags::from_bits_retain(libc::POLLRDHUP);
        #[cfg(not(target_os = "linux"))]
        let ends = PollFlags::empty();
        // Nothing else is asked for, and which end it is makes no difference: nix doesn't tell of flags that it
        // doesn't know.
        poll(&mut [PollFd::new(stream.as_fd(), ends)], PollTimeout::ZERO).is_ok_and(|ended| ended > 0)
    }

    fn cut(&self) {
        if let Some(stream) = self.0.upgrade() {
            // Without another descriptor, or where the client has gone already, there is nothing to cut.
            let _ = stream
                .as_fd()
                .try_clone_to_owned()
                .and_then(|socket| std::net::TcpStream::from(socket).shutdown(std::net::Shutdown::Both));
        }
    }
}

/// Elsewhere that somebody has gone is found out by writing the reply.
#[cfg(not(unix))]
impl<S: Send + Sync> Link for Line<S> {
    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    fn cut(&self) {}
}

/// Waits for bytes of a socket and reads what is there.
pub(super) async fn fill(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        if input.capacity() == 0 {
            *input = buffers::take();
        } else if input.len() == input.capacity() {
            // A frame's buffer at most doubles with what has really arrived.
            input.reserve(input.len().max(READ_STEP));
        }
        match stream.try_read_buf(input) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if input.is_empty() {
            buffers::give(std::mem::take(input));
        }
    }
}

/// Asks the system, whatever the runtime knows of the socket.
#[cfg(unix)]
pub(super) fn is_readable(stream: &impl std::os::fd::AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Elsewhere the runtime finds out.
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
