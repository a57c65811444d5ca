//! The server behind the recorder: server selection, as in drivers, for writes.
//!
//! The connection to it uses TLS if its connection string says so.
//!
//! In replies to hello the recorder replaces the server, so drivers stay with the recorder.

use super::message::{
    CHECKSUM_PRESENT, HEADER_SIZE, MORE_TO_COME, Message, Opcode, REPLY_PREFIX, opcode, validated,
};
use base::bson::{Builder, Document, DocumentBuf, FieldName};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use wire::client::Client;
use wire::uri::ConnectionString;

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
