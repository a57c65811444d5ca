//! One proxied connection: forwards frames in both directions, and copies them into the recording.

use super::format::EventKind;
use super::message::{
    MORE_TO_COME, Message, Sections, command_name, decompressed, query_command, read_frame, read_i32,
};
use super::record::Sink;
use super::redact::Redactor;
use super::{redact, upstream};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;

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
    let server = upstream::connect(&shared.host, shared.tls.as_ref()).await?;
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
        if let Some(kind) = kind.filter(|_| upstream::has_more_to_come(&plain)) {
            lock(pending).insert(read_i32(&plain, 4)?, kind);
        }
        match kind {
            Some(Kind::Hello) => return upstream::rewrite_hello(&plain, address),
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
