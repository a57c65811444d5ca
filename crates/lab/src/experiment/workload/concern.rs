//! Write concerns of operations, and the reasons why a target's figures with one would mislead.
//!
//! The module also has a connection for inserts with `w: 0`, which waits for no answer. The official driver refuses
//! this write concern, so the lab sends OP_MSG with the flag for "no reply" itself. A server executes the messages of a
//! connection in order. The answer to a final ping therefore confirms all earlier messages.

use super::generator::Constant;
use crate::Result;
use crate::experiment::MongoConnection;
use crate::result::DurabilityGuarantee;
use crate::target::Target;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ServerAddress};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::message::{MORE_TO_COME, encode_sections};

/// A write concern.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Constant")]
pub(super) struct Concern {
    /// Its document in a command.
    pub(super) document: Document,
    /// Number of members that must have the write, if `w` is a number.
    members: Option<i64>,
    journaled: bool,
}

impl TryFrom<Constant> for Concern {
    type Error = &'static str;

    fn try_from(Constant(document): Constant) -> std::result::Result<Concern, &'static str> {
        let members = match document.get("w") {
            Some(Bson::Int32(members)) => Some(i64::from(*members)),
            Some(Bson::String(_)) | None => None,
            Some(_) => return Err("w is a number of members or \"majority\""),
        };
        Ok(Concern { members, journaled: document.get_bool("j").unwrap_or(false), document })
    }
}

impl Concern {
    /// Returns true if no answer comes.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.members == Some(0)
    }

    /// Tries a command with the write concern, and returns the reason to skip it, if any. A target that acknowledges an
    /// impossible write concern has no figure.
    ///
    /// # Errors
    /// The target is gone.
    pub(super) async fn refusal(
        &self,
        link: &MongoConnection,
        promise: DurabilityGuarantee,
        mut command: Document,
    ) -> Result<Option<String>> {
        command.insert("writeConcern", self.document.clone());
        let reply = match link.database.run_command(command).await {
            Ok(reply) => reply,
            Err(error) => match &*error.kind {
                ErrorKind::Command(refused) => return Ok(Some(format!("refused: {}", refused.message))),
                _ => return Err(link.target.error(error)),
            },
        };
        if let Ok(error) = reply.get_document("writeConcernError") {
            let why = error.get_str("errmsg").unwrap_or("a write concern error");
            return Ok(Some(format!("refused: {why}")));
        }
        if link.target.is_null_server {
            return Ok(None);
        }
        if let (Some(required), Some(members)) = (self.members, members(link).await?)
            && required > members
        {
            return Ok(Some(format!(
                "claimed: the target acknowledged w: {required}, but reports {members} data-bearing member"
            )));
        }
        let is_implausible =
            self.journaled && !self.is_unacknowledged() && promise == DurabilityGuarantee::Memory;
        Ok(is_implausible
            .then(|| "claimed: the target acknowledged j: true, but keeps its data in memory".to_string()))
    }
}

/// Returns the reported number of data-bearing members; `None` behind a router.
async fn members(link: &MongoConnection) -> Result<Option<i64>> {
    let hello = match link.database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => hello,
        // Servers before 4.4 know only `isMaster`.
        Err(_) => link.admin(doc! { "isMaster": 1 }).await?,
    };
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Ok(None);
    }
    if !hello.contains_key("setName") {
        return Ok(Some(1));
    }
    Ok(Some(listed(&hello)))
}

/// Returns the number of members in hello, without arbiters.
fn listed(hello: &Document) -> i64 {
    let count = |field| hello.get_array(field).map_or(0, Vec::len);
    (count("hosts") + count("passives")).max(1) as i64
}

/// Timeout for the server to execute the messages sent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Messages sent by the connections of a round, and the connections that have finished sending.
#[derive(Clone, Debug, Default)]
pub(super) struct SentMessages {
    pub(super) messages: Arc<AtomicU64>,
    ended: Arc<Mutex<Vec<TcpStream>>>,
}

impl SentMessages {
    /// Starts a round.
    pub(super) fn clear(&self) {
        self.messages.store(0, Relaxed);
        self.ended.lock().clear();
    }

    /// Waits until the server has executed all messages, and closes the connections. Returns false after the timeout.
    pub(super) async fn drain(&self) -> bool {
        let streams = std::mem::take(&mut *self.ended.lock());
        for mut stream in streams {
            if !matches!(tokio::time::timeout(DRAIN_TIMEOUT, ping(&mut stream)).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }
}

/// Sends a ping and reads its reply.
async fn ping(stream: &mut TcpStream) -> std::io::Result<()> {
    let body = doc! { "ping": 1, "$db": "admin" }.to_vec().map_err(std::io::Error::other)?;
    stream.write_all(&message(i32::MAX, 0, &body)).await?;
    let length = stream.read_i32_le().await?;
    let mut rest = vec![0; usize::try_from(length - 4).map_err(std::io::Error::other)?.min(1 << 20)];
    stream.read_exact(&mut rest).await.map(drop)
}

/// A connection, or the reason why the target does not support it.
pub(super) type Connected<T> = std::result::Result<T, String>;

/// A connection for unacknowledged inserts.
pub(super) struct UnacknowledgedConnection {
    /// Handed to [`SentMessages`] once this connection has sent everything.
    stream: Option<TcpStream>,
    target: Target,
    sent: SentMessages,
}

impl Drop for UnacknowledgedConnection {
    fn drop(&mut self) {
        self.sent.ended.lock().extend(self.stream.take());
    }
}

impl UnacknowledgedConnection {
    /// Connects.
    pub(super) async fn connect(target: &Target, sent: SentMessages) -> Result<Connected<Self>> {
        let options = ClientOptions::parse(target.uri.as_str()).await.map_err(|e| target.error(e))?;
        if options.credential.is_some() || options.tls.is_some() {
            let why = "since the driver refuses it, without authentication or TLS";
            return Ok(Err(format!("w 0 goes over a bare connection, {why}")));
        }
        let Some(ServerAddress::Tcp { host, port }) = options.hosts.first() else {
            return Ok(Err("w 0 goes over a bare connection, over TCP only".to_string()));
        };
        let stream = TcpStream::connect((host.as_str(), port.unwrap_or(27017))).await;
        let stream = stream.map_err(|error| target.error(error))?;
        stream.set_nodelay(true).map_err(|error| target.error(error))?;
        Ok(Ok(UnacknowledgedConnection { stream: Some(stream), target: target.clone(), sent }))
    }

    /// Sends a command without a reply.
    pub(super) async fn send(&mut self, number: u64, mut command: Document) -> Result<()> {
        command.insert("$db", self.target.database()?);
        let body = command.to_vec().map_err(|error| self.target.error(error))?;
        let message = message(number as i32, MORE_TO_COME, &body);
        write_all(&mut self.stream, &message).await.map_err(|error| self.target.error(error))?;
        self.sent.messages.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Writes all bytes. A partial write makes the connection unusable: the server would take later bytes for the missing
/// ones.
async fn write_all(held: &mut Option<TcpStream>, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = held.take().ok_or_else(|| std::io::Error::other("the connection is closed"))?;
    stream.write_all(bytes).await?;
    *held = Some(stream);
    Ok(())
}

/// Returns a request with one section, the body.
fn message(id: i32, flags: u32, body: &[u8]) -> Vec<u8> {
    encode_sections(id, flags, &[&[0], body])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbiters_do_not_count() {
        assert_eq!(listed(&doc! { "hosts": ["a", "b"], "arbiters": ["c"] }), 2);
        assert_eq!(listed(&doc! {}), 1);
    }
}

#[cfg(test)]
mod bare_tests {
    use super::*;

    #[tokio::test]
    async fn a_message_that_was_cut_short_is_the_last_on_its_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut held = Some(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        write_all(&mut held, b"whole").await.unwrap();
        assert!(held.is_some());
        // Without a reader, that many bytes fit into no buffer.
        let much = vec![0; 256 << 20];
        let written = tokio::time::timeout(Duration::from_millis(100), write_all(&mut held, &much)).await;
        assert!(written.is_err() && held.is_none());
        assert!(write_all(&mut held, b"more").await.is_err());
    }

    #[test]
    fn messages_are_of_the_protocol_and_want_no_reply() {
        let body = doc! { "ping": 1 }.to_vec().unwrap();
        let message = message(7, MORE_TO_COME, &body);
        assert_eq!(message[..4], (message.len() as i32).to_le_bytes());
        assert_eq!(message[12..21], [221, 7, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(message[21..], body);
    }
}
