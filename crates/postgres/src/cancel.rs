//! Ending a statement at the server that nobody waits for any longer.
//!
//! PostgreSQL takes such a wish on a connection of its own, with a secret that it has told the connection that the
//! statement runs on. That one is of no more use by then, so that no other statement can be hit, however late the wish
//! arrives. It counts as open until its backend has gone: who gives up again and again has no more backends at the
//! server than his pool has connections.

use crate::failure::{Answer, Failure};
use crate::stream::{Encrypt, Stream, Tls};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// How long the server may take for each step: to hear the wish, and to end the backend.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one read may take meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// How a connection was made.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) encrypt: Encrypt,
    pub(crate) tls: Tls,
    pub(crate) timeout: Duration,
}

impl Way {
    /// Opens a stream there, which isn't encrypted yet.
    pub(crate) fn open(&self) -> Answer<Stream> {
        let stream = Stream::open(&self.host, self.port, self.timeout)?;
        stream.limit(Some(self.timeout))?;
        Ok(stream)
    }

    /// Encrypts it where that is wished: asks for it, and begins it where the server has it.
    pub(crate) fn encrypt(&self, stream: &mut Stream) -> Answer<()> {
        if self.encrypt == Encrypt::No {
            return Ok(());
        }
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request)?;
        // One byte and no more: what came behind it would be nobody's word.
        let mut answer = [0];
        match (stream.read(&mut answer)?, answer, self.tls.client()) {
            (1, [b'S'], Some(client)) => stream.encrypt(client, &self.host).map_err(Failure::from),
            (1, [b'N'], _) if self.encrypt == Encrypt::IfOffered => Ok(()),
            (1, [b'N'], _) => {
                Err(Failure::Lost("the server has no encryption, which sslmode asks for".to_string()))
            }
            _ => Err(Failure::Lost("the server's answer can't be read".to_string())),
        }
    }
}

/// What the server wants to hear from whoever wishes a connection's statement ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secret {
    pub(crate) process: i32,
    pub(crate) key: i32,
}

/// Ends the statement on a connection, and the connection: returns once its backend has gone, or after a while.
///
/// A wish that arrives before the statement has been begun is lost, so it is told until it has come true.
///
/// Errors: those of the connection on which the wish is told last.
pub(crate) fn end_statement(way: &Way, secret: Secret, on: &mut Stream) -> Answer<()> {
    let mut farewell = BytesMut::new();
    frontend::terminate(&mut farewell);
    on.limit(Some(LOOK))?;
    let (end, mut pause) = (Instant::now() + PATIENCE, LOOK);
    let mut told = tell(way, secret);
    // Where that can't be written any more there is nothing to wait for either.
    if on.write_all(&farewell).is_ok() {
        while !reads_to_end(on, pause) && Instant::now() < end {
            told = tell(way, secret);
            pause *= 2;
        }
    }
    on.socket().end();
    told
}

fn tell(way: &Way, secret: Secret) -> Answer<()> {
    let mut stream = way.open()?;
    way.encrypt(&mut stream)?;
    let mut request = BytesMut::new();
    frontend::cancel_request(secret.process, secret.key, &mut request);
    stream.write_all(&request)?;
    // The server closes it once the statement's backend has been told.
    stream.limit(Some(LOOK))?;
    reads_to_end(&mut stream, PATIENCE);
    Ok(())
}

/// Reads what comes, for so long, and looks at none of it; whether it came to its end.
fn reads_to_end(stream: &mut Stream, patience: Duration) -> bool {
    let end = Instant::now() + patience;
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
