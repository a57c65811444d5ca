//! Byte streams of connections: the detection of MongoDB's protocol, TLS, or HTTP by mistake; then bytes, plain or
//! encrypted.
//!
//! A plain connection pays only one match for the choice of its kind.

#[cfg(unix)]
use super::pinned::PinnedStream;
use super::tls_stream::TlsStream;
use crate::observe::activity::ConnectionHandle;
use crate::process::memory;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;
use wire::header::{HEADER_SIZE, read_i32};

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
    ///
    /// Each idle connection stores this future. TLS has a box, because its future is larger.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        if let Stream::Tls(stream) = self {
            return Box::pin(stream.fill(input)).await;
        }
        poll_fn(|context| match self {
            Stream::Plain(stream) => poll_fill(stream, context, input),
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.poll_fill(context, input),
            Stream::Tls(_) | Stream::Closed => Poll::Ready(Ok(0)),
        })
        .await
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
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.write(bytes).await?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends bytes, all or the first ones. Returns the number of sent bytes.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Stream::Tls(stream) = self {
            return Box::pin(stream.write(bytes)).await;
        }
        poll_fn(|context| match self {
            Stream::Plain(stream) => poll_write(stream, context, bytes),
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.poll_write(context, bytes),
            Stream::Tls(_) | Stream::Closed => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        })
        .await
    }

    /// Returns true when the client has closed the connection, and false when it has sent bytes instead.
    pub(super) async fn disconnected(&mut self) -> bool {
        match self {
            Stream::Plain(stream) => !matches!(stream.peek(&mut [0]).await, Ok(1..)),
            Stream::Tls(stream) => stream.disconnected().await,
            #[cfg(unix)]
            Stream::Pinned(stream) => stream.disconnected().await,
            Stream::Closed => true,
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

/// Reads bytes of a socket, if there are any. Returns their number, 0 at the end of the stream.
pub(super) fn poll_fill(
    stream: &TcpStream,
    context: &mut Context<'_>,
    input: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        if input.capacity() == 0 {
            *input = memory::take_buffer();
        } else if input.len() == input.capacity() {
            // The buffer at most doubles, so its size is bounded by the received bytes.
            input.reserve(input.len().max(READ_STEP));
        }
        match stream.try_read_buf(input) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return Poll::Ready(read),
        }
        if input.is_empty() {
            memory::release_buffer(std::mem::take(input));
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

/// Sends bytes, if the socket accepts any. Returns the number of sent bytes.
fn poll_write(stream: &TcpStream, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        match stream.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(stream.poll_write_ready(context))?,
            sent => return Poll::Ready(sent),
        }
    }
}

/// MongoDB's text for a browser that connects to the port.
const HTTP_TEXT: &str =
    "It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

/// First bytes of HTTP requests. Each exceeds the maximum length of a message.
const HTTP_METHODS: [&[u8]; 6] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE"];

/// TLS record with a handshake, and the first message of the handshake.
const TLS_RECORD: u8 = 0x16;
const TLS_MAJOR: u8 = 3;
const TLS_MINOR_MAX: u8 = 4;
const CLIENT_HELLO: u8 = 1;

/// Minor version in the hello of TLS 1.2 and later clients.
const TLS12_MINOR: u8 = 3;

/// Fatal alert: unsupported version.
pub(super) const VERSION_ALERT: [u8; 7] = [21, TLS_MAJOR, 1, 0, 2, 2, 70];

/// Kinds of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Protocol {
    /// A MongoDB message, or bytes that only the message parser can judge.
    Message,
    /// A TLS client hello.
    Tls,
    /// A TLS client hello for at most TLS 1.1.
    OldTls,
    /// An HTTP request.
    Http,
}

impl Protocol {
    /// Returns the kind of the first bytes; `None` if more bytes are needed.
    pub(super) fn of(bytes: &[u8]) -> Option<Protocol> {
        if HTTP_METHODS.iter().any(|method| bytes.starts_with(method)) {
            return Some(Protocol::Http);
        }
        if bytes.len() < HEADER_SIZE {
            return None;
        }
        // These bytes could also be a message length. A MongoDB request has 0 or -1 in
        // `responseTo`, and a TLS hello has not.
        let is_response = read_i32(bytes, 8).is_some_and(|number| !matches!(number, 0 | -1));
        match *bytes {
            [TLS_RECORD, TLS_MAJOR, ..=TLS_MINOR_MAX, _, _, CLIENT_HELLO, _, _, _, TLS_MAJOR, minor, ..]
                if is_response =>
            {
                Some(if minor < TLS12_MINOR { Protocol::OldTls } else { Protocol::Tls })
            }
            _ => Some(Protocol::Message),
        }
    }
}

/// Returns the whole response to an HTTP request.
pub(super) fn http_response() -> Vec<u8> {
    let length = HTTP_TEXT.len();
    format!(
        "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{HTTP_TEXT}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::header;
    use wire::header::Opcode;

    #[test]
    fn protocols_are_detected_by_their_first_bytes() {
        assert_eq!(Protocol::of(b"GET"), None);
        assert_eq!(Protocol::of(b"GET /"), Some(Protocol::Http));
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7];
        assert_eq!(Protocol::of(&hello), Some(Protocol::Tls));
        assert_eq!(Protocol::of(&hello[..15]), None);
        let old = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 2, 7, 7, 7, 7, 7];
        assert_eq!(Protocol::of(&old), Some(Protocol::OldTls));
        let mut message = Vec::new();
        header::begin(&mut message, 0x0100, 0, Opcode::Message);
        message[..4].copy_from_slice(&[0x16, 3, 1, 0]);
        assert_eq!(Protocol::of(&message), Some(Protocol::Message));
        assert_eq!(Protocol::of(&[0xFF; 16]), Some(Protocol::Message));
    }

    #[test]
    fn no_message_is_as_long_as_http_would_make_it() {
        for method in HTTP_METHODS {
            assert!(wire::header::frame_length(method).is_err());
        }
    }
}
