//! An encrypted connection: rustls between the socket and the code that reads and writes.
//!
//! Encrypted bytes are read into a borrowed buffer with one system call. An idle connection
//! therefore holds no buffer. No call blocks its thread: all waits are for the socket.

use super::stream;
use crate::process::memory;
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::sync::Arc;
use tokio::net::TcpStream;

/// Bytes that are encrypted before each send: a few records in one system call.
const CHUNK: usize = 64 * 1024;

/// An encrypted connection.
pub(super) struct TlsStream {
    socket: Arc<TcpStream>,
    session: ServerConnection,
    /// Bytes read from the socket, in a borrowed buffer while it is not empty.
    raw: Vec<u8>,
    /// Number of these bytes that rustls has consumed.
    consumed: usize,
    /// True if the last read filled the buffer.
    is_bulk: bool,
    /// True after the client's end of stream.
    closed: bool,
}

impl TlsStream {
    /// Creates a connection before its handshake. `raw` has the bytes that the client has already
    /// sent.
    pub(super) fn new(
        socket: Arc<TcpStream>,
        config: Arc<ServerConfig>,
        raw: Vec<u8>,
    ) -> io::Result<TlsStream> {
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        // The size of each send already bounds the encrypted bytes.
        session.set_buffer_limit(None);
        Ok(TlsStream { socket, session, raw, consumed: 0, is_bulk: false, closed: false })
    }

    /// Runs the handshake.
    ///
    /// Errors: the handshake failed. The client has received an alert.
    pub(super) async fn shake_hands(&mut self) -> io::Result<()> {
        loop {
            self.decrypt()?;
            self.flush().await?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            if self.closed || self.read().await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns true if a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        self.closed || !self.raw.is_empty() || stream::is_readable(&*self.socket)
    }

    /// Returns the negotiated protocol version.
    pub(super) fn protocol(&self) -> Option<ProtocolVersion> {
        self.session.protocol_version()
    }

    /// Returns the client's verified certificate, if it sent one.
    pub(super) fn certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.session.peer_certificates().and_then(<[_]>::first)
    }

    /// Waits for bytes and decrypts them. Returns their number, 0 at the end of the stream.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        loop {
            while self.decrypt()? {
                self.take(input)?;
            }
            if self.session.wants_write() {
                self.flush().await?;
            }
            let count = input.len() - before;
            if count > 0 || self.closed || self.read().await? == 0 {
                return Ok(count);
            }
        }
    }

    /// Waits for encrypted bytes. Returns their number, 0 at the end of the stream.
    async fn read(&mut self) -> io::Result<usize> {
        if self.is_bulk && self.raw.capacity() == 0 {
            self.raw = Vec::with_capacity(CHUNK);
        }
        let read = poll_fn(|context| stream::poll_fill(&self.socket, context, &mut self.raw)).await?;
        self.is_bulk = read == self.raw.capacity();
        Ok(read)
    }

    /// Decrypts the read bytes until plain bytes are available. Returns true if some are.
    fn decrypt(&mut self) -> io::Result<bool> {
        loop {
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The alert explains the failure to the client. A failed write means that the
                    // client has gone.
                    let _ = self.session.write_tls(&mut Raw(&self.socket));
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            };
            self.closed |= state.peer_has_closed();
            if state.plaintext_bytes_to_read() > 0 {
                return Ok(true);
            }
            let Some(mut rest) = self.raw.get(self.consumed..).filter(|rest| !rest.is_empty()) else {
                memory::release_buffer(std::mem::take(&mut self.raw));
                self.consumed = 0;
                return Ok(false);
            };
            self.consumed += self.session.read_tls(&mut rest)?;
        }
    }

    /// Moves the decrypted bytes to `input`.
    fn take(&mut self, input: &mut Vec<u8>) -> io::Result<()> {
        let mut reader = self.session.reader();
        let bytes = reader.fill_buf()?;
        if input.capacity() == 0 {
            *input = memory::take_buffer();
        }
        input.extend_from_slice(bytes);
        let count = bytes.len();
        reader.consume(count);
        Ok(())
    }

    /// Sends all bytes. Returns their number.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for chunk in bytes.chunks(CHUNK) {
            self.session.writer().write_all(chunk)?;
            self.flush().await?;
        }
        Ok(bytes.len())
    }

    /// Sends the encrypted bytes.
    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Raw(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_fn(|context| self.socket.poll_write_ready(context)).await?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true when the client has closed the connection, and false when it has sent bytes instead.
    pub(super) async fn disconnected(&mut self) -> bool {
        loop {
            match self.decrypt() {
                Ok(true) => return false,
                Ok(false) if !self.closed => {}
                _ => return true,
            }
            if !self.read().await.is_ok_and(|read| read > 0) {
                return true;
            }
        }
    }

    /// Sends the end of stream if the socket accepts it at once. Otherwise the client sees the
    /// closed socket.
    pub(super) fn close(&mut self) {
        self.session.send_close_notify();
        let _ = self.session.write_tls(&mut Raw(&self.socket));
    }
}

/// Adapts a socket to rustls: a write that would block returns `WouldBlock`.
struct Raw<'a>(&'a TcpStream);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
