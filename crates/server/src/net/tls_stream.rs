//! A connection whose bytes are encrypted: rustls between the socket and whoever reads and writes.
//!
//! Encrypted bytes are read into a borrowed buffer, one system call for as much as there is, so that an idle
//! connection holds none. Nothing here blocks a thread: all waiting is for the socket.

use super::stream;
use crate::buffers;
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};
use std::future::pending;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::sync::Arc;
use tokio::net::TcpStream;

/// How much is encrypted before it is sent, in bytes: a few records, sent by one system call.
const CHUNK: usize = 64 * 1024;

/// An encrypted connection.
pub(super) struct TlsStream {
    socket: Arc<TcpStream>,
    session: ServerConnection,
    /// What has been read of the socket, a borrowed buffer while there is anything in it.
    raw: Vec<u8>,
    /// How much of that rustls has taken.
    taken: usize,
    /// Whether there was more than the buffer takes the last time.
    is_bulk: bool,
    /// Whether the client has said that nothing follows.
    closed: bool,
}

impl TlsStream {
    /// A connection whose handshake is still to come; `raw` is what the client has sent so far.
    pub(super) fn new(
        socket: Arc<TcpStream>,
        config: Arc<ServerConfig>,
        raw: Vec<u8>,
    ) -> io::Result<TlsStream> {
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        // What is encrypted is bounded by what is sent at a time.
        session.set_buffer_limit(None);
        Ok(TlsStream { socket, session, raw, taken: 0, is_bulk: false, closed: false })
    }

    /// Agrees with the client on how to encrypt.
    ///
    /// Errors: why they couldn't agree, which the client has been told.
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

    /// Whether there is something to read, or to be found out by reading.
    pub(super) fn is_readable(&self) -> bool {
        self.closed || !self.raw.is_empty() || stream::is_readable(&*self.socket)
    }

    /// What was agreed on.
    pub(super) fn protocol(&self) -> Option<ProtocolVersion> {
        self.session.protocol_version()
    }

    /// The client's certificate, which has been checked, if it has one.
    pub(super) fn certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.session.peer_certificates().and_then(<[_]>::first)
    }

    /// Waits for bytes and takes what is there; how many, none at the end of the stream.
    pub(super) async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        loop {
            while self.decrypt()? {
                self.take(input)?;
            }
            if self.session.wants_write() {
                self.flush().await?;
            }
            let found = input.len() - before;
            if found > 0 || self.closed || self.read().await? == 0 {
                return Ok(found);
            }
        }
    }

    /// Waits for bytes of the socket; how many there were, none at the end.
    async fn read(&mut self) -> io::Result<usize> {
        if self.is_bulk && self.raw.capacity() == 0 {
            self.raw = Vec::with_capacity(CHUNK);
        }
        let read = stream::fill(&self.socket, &mut self.raw).await?;
        self.is_bulk = read == self.raw.capacity();
        Ok(read)
    }

    /// Has what was read of the socket decrypted until there is something for whoever reads; whether there is.
    fn decrypt(&mut self) -> io::Result<bool> {
        loop {
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The alert tells the client why. If it can't be sent, nobody is left to be told.
                    let _ = self.session.write_tls(&mut Raw(&self.socket));
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            };
            self.closed |= state.peer_has_closed();
            if state.plaintext_bytes_to_read() > 0 {
                return Ok(true);
            }
            let Some(mut rest) = self.raw.get(self.taken..).filter(|rest| !rest.is_empty()) else {
                buffers::give(std::mem::take(&mut self.raw));
                self.taken = 0;
                return Ok(false);
            };
            self.taken += self.session.read_tls(&mut rest)?;
        }
    }

    /// Moves what has been decrypted into `input`.
    fn take(&mut self, input: &mut Vec<u8>) -> io::Result<()> {
        let mut reader = self.session.reader();
        let bytes = reader.fill_buf()?;
        if input.capacity() == 0 {
            *input = buffers::take();
        }
        input.extend_from_slice(bytes);
        let taken = bytes.len();
        reader.consume(taken);
        Ok(())
    }

    /// Sends all of these.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            self.session.writer().write_all(chunk)?;
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what is encrypted.
    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Raw(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.socket.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns when the client has closed the connection; never, if it sends something instead.
    pub(super) async fn gone(&mut self) {
        loop {
            match self.decrypt() {
                Ok(true) => return pending().await,
                Ok(false) if !self.closed => {}
                _ => return,
            }
            if !self.read().await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    }

    /// Tells the other end that nothing follows; if that can't be sent at once, it will see so.
    pub(super) fn close(&mut self) {
        self.session.send_close_notify();
        let _ = self.session.write_tls(&mut Raw(&self.socket));
    }
}

/// A socket as rustls writes to it: what would wait is an error of that kind.
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
