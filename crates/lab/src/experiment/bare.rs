//! A connection that sends inserts with `w: 0` and waits for nothing.
//!
//! The official driver refuses that write concern, so that these go over a connection of the
//! lab's own: OP_MSG with the flag that no reply is wanted.

use crate::error::Result;
use crate::target::Target;
use mongodb::bson::Document;
use mongodb::options::{ClientOptions, ServerAddress};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The flag "no reply is wanted": moreToCome.
const MORE_TO_COME: u32 = 1 << 1;
const OP_MSG: i32 = 2013;

/// The connection.
pub(super) struct Bare {
    stream: TcpStream,
    target: Target,
    /// Messages sent, over all connections.
    sent: Arc<AtomicU64>,
}

impl Bare {
    /// Connects; the inner error is a reason why that is not for such a connection.
    pub(super) async fn connect(
        target: &Target,
        sent: Arc<AtomicU64>,
    ) -> Result<std::result::Result<Bare, String>> {
        let options = ClientOptions::parse(target.uri.as_str()).await.map_err(|e| target.error(e))?;
        if options.credential.is_some() || options.tls.is_some() {
            let why =
                "w 0 goes over a bare connection, since the driver refuses it, without authentication or TLS";
            return Ok(Err(why.to_string()));
        }
        let Some(ServerAddress::Tcp { host, port }) = options.hosts.first() else {
            return Ok(Err("w 0 goes over a bare connection, over TCP only".to_string()));
        };
        let stream = TcpStream::connect((host.as_str(), port.unwrap_or(27017))).await;
        let stream = stream.map_err(|error| target.error(error))?;
        stream.set_nodelay(true).map_err(|error| target.error(error))?;
        Ok(Ok(Bare { stream, target: target.clone(), sent }))
    }

    /// Sends a command, to which no reply comes.
    pub(super) async fn send(&mut self, number: u64, command: &Document) -> Result<()> {
        let body = command.to_vec().map_err(|error| self.target.error(error))?;
        let message = message(number as i32, &body);
        self.stream.write_all(&message).await.map_err(|error| self.target.error(error))?;
        self.sent.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Header (length, request id, response to, operation), flags, and one section: the body.
fn message(id: i32, body: &[u8]) -> Vec<u8> {
    let length = 16 + 4 + 1 + body.len();
    let mut message = Vec::with_capacity(length);
    for number in [length as i32, id, 0, OP_MSG] {
        message.extend(number.to_le_bytes());
    }
    message.extend(MORE_TO_COME.to_le_bytes());
    message.push(0);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn messages_are_of_the_protocol_and_want_no_reply() {
        let body = doc! { "ping": 1 }.to_vec().unwrap();
        let message = message(7, &body);
        assert_eq!(message[..4], (message.len() as i32).to_le_bytes());
        assert_eq!(message[12..21], [221, 7, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(message[21..], body);
    }
}
