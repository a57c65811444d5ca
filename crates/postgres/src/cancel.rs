//! Cancellation of a statement on the server after its waiter has given up.
//!
//! PostgreSQL takes a cancel request on a separate connection, with the secret of the connection that runs the
//! statement. The cancelled connection is discarded, so a late request cannot hit another statement. It counts as open
//! until its backend has exited. Repeated cancellation therefore never makes more backends than the pool has
//! connections.

use crate::failure::{Failure, PgResult};
use crate::stream::{Encrypt, Stream, Tls};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Timeout for each step: accepting the request, and ending the backend.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of one read meanwhile.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The route of a connection: address and TLS settings.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) encrypt: Encrypt,
    pub(crate) tls: Tls,
    pub(crate) timeout: Duration,
}

impl Route {
    /// Opens an unencrypted stream to the server.
    pub(crate) fn open(&self) -> PgResult<Stream> {
        let stream = Stream::open(&self.host, self.port, self.timeout)?;
        stream.set_timeout(Some(self.timeout))?;
        Ok(stream)
    }

    /// Requests TLS if the configuration asks for it, and starts it if the server agrees.
    pub(crate) fn encrypt(&self, stream: &mut Stream) -> PgResult<()> {
        if self.encrypt == Encrypt::No {
            return Ok(());
        }
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request)?;
        // Exactly one byte: bytes behind it would be unauthenticated.
        let mut answer = [0];
        match (stream.read(&mut answer)?, answer, self.tls.client()) {
            (1, [b'S'], Some(client)) => stream.encrypt(client, &self.host).map_err(Failure::from),
            (1, [b'N'], _) if self.encrypt == Encrypt::IfOffered => Ok(()),
            (1, [b'N'], _) => Err(Failure::Unavailable(
                "the server does not support TLS, which sslmode requires".to_string(),
            )),
            _ => Err(Failure::Unavailable("the server's reply is invalid".to_string())),
        }
    }
}

/// The key data that a cancel request needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CancelKey {
    pub(crate) process: i32,
    pub(crate) key: i32,
}

/// Ends the statement on a connection, and the connection itself. Returns once the backend has exited, or after a
/// timeout.
///
/// The server drops a request that arrives before the statement begins, so the request is repeated until it works.
///
/// Errors: the last error of the connection for the request.
pub(crate) fn end_statement(route: &Route, cancel_key: CancelKey, stream: &mut Stream) -> PgResult<()> {
    let mut farewell = BytesMut::new();
    frontend::terminate(&mut farewell);
    stream.set_timeout(Some(CHECK_INTERVAL))?;
    let (end, mut pause) = (Instant::now() + TIMEOUT, CHECK_INTERVAL);
    let mut sent = send_cancel(route, cancel_key);
    // A failed write means a closed connection: no wait is needed.
    if stream.write_all(&farewell).is_ok() {
        while !reads_to_end(stream, pause) && Instant::now() < end {
            sent = send_cancel(route, cancel_key);
            pause *= 2;
        }
    }
    stream.socket().end();
    sent
}

/// Sends one cancel request on a connection of its own, and waits for its end.
fn send_cancel(route: &Route, cancel_key: CancelKey) -> PgResult<()> {
    let mut stream = route.open()?;
    route.encrypt(&mut stream)?;
    let mut request = BytesMut::new();
    frontend::cancel_request(cancel_key.process, cancel_key.key, &mut request);
    stream.write_all(&request)?;
    // The server closes the connection once it has signalled the backend.
    stream.set_timeout(Some(CHECK_INTERVAL))?;
    reads_to_end(&mut stream, TIMEOUT);
    Ok(())
}

/// Reads and discards bytes until the end of the stream or the timeout. Returns true at the end of the stream.
fn reads_to_end(stream: &mut Stream, timeout: Duration) -> bool {
    let end = Instant::now() + timeout;
    let mut passed = [0; 4096];
    loop {
        match stream.read(&mut passed) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => return true,
        }
        if Instant::now() >= end {
            return false;
        }
    }
}
