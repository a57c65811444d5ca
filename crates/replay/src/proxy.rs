//! One proxied connection and the server behind it: forwards frames in both directions, and copies them into the
//! recording.
//!
//! The server is selected as in drivers, for writes. The connection to it uses TLS if its connection string says so.
//! In replies to hello the recorder replaces the server, so drivers stay with the recorder.

use super::format::EventKind;
use super::message::{
    CHECKSUM_PRESENT, HEADER_SIZE, MORE_TO_COME, Message, Opcode, REPLY_PREFIX, Sections, command_name,
    decompressed, opcode, query_command, read_frame, read_i32, validated,
};
use super::record::Sink;
use super::redact::{self, Redactor};
use base::bson::{Builder, Document, DocumentBuf, FieldName};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use wire::client::Client;
use wire::uri::ConnectionString;

/// Maximum number of pending requests on one connection. Drivers never have as many.
const PENDING_MAX: usize = 10_000;

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) sink: Sink,
    pub(super) redactor: Redactor,
    /// Address of the server.
    pub(super) host: String,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Cursors whose first batch was withheld. Later batches are withheld too.
    pub(super) withheld_cursors: Mutex<HashSet<i64>>,
}

/// Handling of a request, and therefore of its reply.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Recorded,
    Hello,
    Withheld,
}

/// Pending requests by their ids.
type Pending = Mutex<HashMap<i32, Kind>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one client until either side leaves.
///
/// # Errors
/// The server is unreachable, one side breaks the connection, or it speaks another protocol.
pub(super) async fn serve_connection(client: TcpStream, number: u32, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let address = client.local_addr()?.to_string();
    let server = connect(&shared.host, shared.tls.as_ref()).await?;
    shared.sink.record(number, EventKind::Opened);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let pending = Pending::default();
    let ended = tokio::select! {
        ended = forward_requests(from_client, to_server, number, shared, &pending) => ended,
        ended = forward_replies(from_server, to_client, number, shared, &pending, &address) => ended,
    };
    shared.sink.record(number, EventKind::Closed);
    ended
}

/// Forwards the client's frames to the server.
async fn forward_requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u32,
    shared: &Shared,
    pending: &Pending,
) -> io::Result<()> {
    while let Some(frame) = read_frame(&mut from).await? {
        shared.request(&frame, number, pending)?;
        to.write_all(&frame).await?;
        to.flush().await?;
    }
    to.shutdown().await
}

/// Forwards the server's frames to the client, with replaced replies to hello.
async fn forward_replies(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u32,
    shared: &Shared,
    pending: &Pending,
    address: &str,
) -> io::Result<()> {
    while let Some(frame) = read_frame(&mut from).await? {
        let other = shared.reply(&frame, number, pending, address);
        to.write_all(other.as_ref().unwrap_or(&frame)).await?;
        to.flush().await?;
    }
    to.shutdown().await
}

impl Shared {
    /// Records a request before it is forwarded, so that its reply cannot arrive first.
    fn request(&self, frame: &[u8], number: u32, pending: &Pending) -> io::Result<()> {
        let id = read_i32(frame, 4).unwrap_or_default();
        let plain = decompressed(frame);
        let message = plain.as_deref().and_then(Message::read);
        let (kind, command) = match (&message, query_command(frame)) {
            (_, Some((_, command))) => (Kind::Withheld, command),
            (Some(message), None) => {
                (Kind::Recorded, command_name(message.sections).unwrap_or_default().to_string())
            }
            (None, None) => (Kind::Withheld, "unreadable messages".to_string()),
        };
        let kind = match kind {
            _ if redact::is_hello(&command) => Kind::Hello,
            _ if redact::is_secret(&command) => Kind::Withheld,
            kind => kind,
        };
        let expects_reply = message.is_none_or(|message| message.flags & MORE_TO_COME == 0);
        let recorded = match message.filter(|_| kind == Kind::Recorded && !self.sink.is_stopped()) {
            Some(message) => self.redacted_request(message),
            None => None,
        };
        let kind = if kind == Kind::Recorded && recorded.is_none() { Kind::Withheld } else { kind };
        if expects_reply {
            let mut pending = lock(pending);
            if pending.len() >= PENDING_MAX {
                return Err(io::Error::other("too many requests wait for a reply"));
            }
            pending.insert(id, kind);
        }
        self.sink.record(number, recorded.unwrap_or(EventKind::Withheld(command)));
        Ok(())
    }

    /// Returns the recorded form of a request; `None` if it is withheld.
    fn redacted_request(&self, message: Message<'_>) -> Option<EventKind> {
        let sections = if self.redactor.is_empty() {
            message.sections.to_vec()
        } else {
            let parts = Sections::parse(message.sections)?;
            let cursor = parts.body.get("getMore").and_then(|id| id.as_i64());
            if self.redactor.withholds(&parts)
                || cursor.is_some_and(|id| lock(&self.withheld_cursors).contains(&id))
            {
                return None;
            }
            parts.encode_with(|list, document| self.redactor.redacted(list, document))
        };
        Some(EventKind::Request { id: message.id, flags: message.flags, sections })
    }

    /// Records a reply. Returns the replacement for the client, if any.
    fn reply(&self, frame: &[u8], number: u32, pending: &Pending, address: &str) -> Option<Vec<u8>> {
        let kind = lock(pending).remove(&read_i32(frame, 8)?);
        let plain = decompressed(frame)?;
        if let Some(kind) = kind.filter(|_| has_more_to_come(&plain)) {
            lock(pending).insert(read_i32(&plain, 4)?, kind);
        }
        match kind {
            Some(Kind::Hello) => return rewrite_hello(&plain, address),
            Some(Kind::Recorded) => {
                if let Some(event) = Message::read(&plain).and_then(|message| self.redacted_reply(message)) {
                    self.sink.record(number, event);
                }
            }
            _ => self.withhold_cursor(&plain),
        }
        None
    }

    /// Returns the recorded form of a reply; `None` if recording has ended.
    fn redacted_reply(&self, message: Message<'_>) -> Option<EventKind> {
        if self.sink.is_stopped() {
            return None;
        }
        let sections = if self.redactor.is_empty() {
            message.sections.to_vec()
        } else {
            Sections::parse(message.sections)?
                .encode_with(|list, document| self.redactor.redacted(list, document))
        };
        Some(EventKind::Reply { id: message.id, to: message.to, flags: message.flags, sections })
    }

    /// Stores the cursor of a withheld reply.
    fn withhold_cursor(&self, frame: &[u8]) {
        if self.redactor.is_empty() {
            return;
        }
        let parts = Message::read(frame).and_then(|message| Sections::parse(message.sections));
        let cursor = parts.and_then(|parts| parts.body.get("cursor")?.as_document()?.get("id")?.as_i64());
        if let Some(id) = cursor.filter(|id| *id != 0) {
            lock(&self.withheld_cursors).insert(id);
        }
    }
}

/// Timeout for connecting to a host and reading its replies.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The chosen host of a connection string.
pub struct Upstream {
    /// Host with port.
    pub host: String,
    /// Name and version: "MongoDB 8.0.4", "Vellum 0.1.0".
    pub server: String,
}

/// Returns the first host that takes writes; without one, the first that answers. Blocks.
///
/// # Errors
/// No host answers.
pub fn select_server(uri: &ConnectionString) -> Result<Upstream, String> {
    let mut read_only: Option<Upstream> = None;
    let mut last = "the connection string has no host".to_string();
    for host in &uri.hosts {
        match probe(host, uri) {
            Ok((upstream, true)) => return Ok(upstream),
            Ok((upstream, false)) => drop(read_only.get_or_insert(upstream)),
            Err(why) => last = format!("{host}: {why}"),
        }
    }
    read_only.ok_or(last)
}

/// Returns the server at a host, and whether it takes writes.
fn probe(host: &str, uri: &ConnectionString) -> Result<(Upstream, bool), String> {
    let mut client = Client::connect(host, uri, Instant::now() + CONNECT_TIMEOUT)?;
    let mut run = |name: &str| {
        let mut command = Builder::new();
        command.append(FieldName::trusted(name), 1).append(c"$db", "admin");
        client.command(&command.finish())
    };
    // Servers before 4.4 know only `isMaster`.
    let hello = run("hello").or_else(|_| run("isMaster"))?;
    let is = |name: &str| hello.view().get(name).and_then(|value| value.as_bool()) == Some(true);
    let writable = is("isWritablePrimary") || is("ismaster");
    let server = run("buildInfo").map_or_else(|_| "unknown".to_string(), |info| product(info.view()));
    Ok((Upstream { host: host.to_string(), server }, writable))
}

/// Returns name and version from buildInfo. Vellum has a field of its own there.
fn product(info: Document<'_>) -> String {
    let text = |document: Document<'_>, name: &str| {
        document.get(name).and_then(|value| value.as_str()).map(String::from)
    };
    let version = text(info, "version").unwrap_or_default();
    match info.get("vellum") {
        Some(vellum) => {
            let version = vellum.as_str().map(str::to_string);
            let version = version.or_else(|| text(vellum.as_document()?, "version")).unwrap_or_default();
            format!("Vellum {version}").trim_end().to_string()
        }
        None => format!("MongoDB {version}").trim_end().to_string(),
    }
}

/// A connection with or without TLS.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// Connects to `host`, which includes a port.
///
/// # Errors
/// The host does not reply, or its certificate is invalid.
pub(super) async fn connect(host: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Duplex>> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let Some(config) = tls else { return Ok(Box::new(stream)) };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_string();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?))
}

/// Returns the decompressed frame with every member of the set at `address`; `None` if it holds no document.
pub(super) fn rewrite_hello(frame: &[u8], address: &str) -> Option<Vec<u8>> {
    let is_legacy = opcode(frame)? == Opcode::Reply;
    let (prefix, document) = if is_legacy {
        let body = HEADER_SIZE + REPLY_PREFIX;
        (frame.get(HEADER_SIZE..body)?.to_vec(), validated(frame.get(body..)?)?)
    } else {
        let message = Message::read(frame)?;
        let mut prefix = (message.flags & !CHECKSUM_PRESENT).to_le_bytes().to_vec();
        prefix.push(0);
        (prefix, validated(message.sections.get(1..)?)?)
    };
    let document = with_address(document, address);
    let length = HEADER_SIZE + prefix.len() + document.bytes().len();
    let mut out = (length as i32).to_le_bytes().to_vec();
    out.extend(frame.get(4..HEADER_SIZE)?);
    out.extend(prefix);
    out.extend(document.bytes());
    Some(out)
}

/// Returns true if further replies follow without a request.
pub(super) fn has_more_to_come(frame: &[u8]) -> bool {
    Message::read(frame).is_some_and(|message| message.flags & MORE_TO_COME != 0)
}

/// Returns a hello reply in which the recorder is the only host.
fn with_address(document: Document<'_>, address: &str) -> DocumentBuf {
    let mut out = Builder::new();
    for element in document {
        match element.name() {
            name @ ("me" | "primary") => {
                out.append(FieldName::trusted(name), address);
            }
            "hosts" => {
                out.begin_array(c"hosts").push(address).end();
            }
            // Clients of the recorder cannot reach these members.
            "passives" | "arbiters" => {}
            _ => {
                out.append_element(&element);
            }
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn frame(opcode: Opcode, prefix: &[u8], text: &str) -> Vec<u8> {
        let body = parse(text).unwrap();
        let mut out = Vec::new();
        for number in [(HEADER_SIZE + prefix.len() + body.bytes().len()) as i32, 5, 6, opcode as i32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(prefix);
        out.extend(body.bytes());
        out
    }

    #[test]
    fn members_of_a_set_are_at_the_recorder() {
        let before =
            "{setName: 'rs0', hosts: ['a:1', 'b:2'], arbiters: ['c:3'], primary: 'a:1', me: 'b:2', ok: 1}";
        let after = "{setName: 'rs0', hosts: ['r:9'], primary: 'r:9', me: 'r:9', ok: 1}";
        for (opcode, prefix) in [(Opcode::Message, 5), (Opcode::Reply, REPLY_PREFIX)] {
            let prefix = vec![0; prefix];
            assert_eq!(
                rewrite_hello(&frame(opcode, &prefix, before), "r:9").unwrap(),
                frame(opcode, &prefix, after)
            );
        }
    }

    #[test]
    fn replies_without_a_document_stay() {
        assert_eq!(rewrite_hello(&frame(Opcode::Reply, &[0; REPLY_PREFIX], "{}")[..40], "r:9"), None);
    }
}
