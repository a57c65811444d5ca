//! A small blocking client: one connection, one command at a time, with TLS and authentication as in the connection
//! string.
//!
//! The client subcommands of `vellum`, the lab and `replay` use it.

use crate::header::{self, HEADER_SIZE};
use crate::message;
use crate::scram::{Client as Scram, Mechanism};
use crate::tls_client;
use crate::uri::{ConnectionString, Login, TlsOptions};
use base::bson::{Builder, Document, DocumentBuf, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Error text for bytes that are not a reply.
const NOT_MONGODB: &str = "the server does not use MongoDB's protocol";

/// A connection to a server.
pub struct Client {
    stream: Stream,
    request_id: i32,
}

/// The transport of a connection: plain or TLS.
enum Stream {
    Plain(DeadlineStream),
    Tls(Box<StreamOwned<ClientConnection, DeadlineStream>>),
}

/// A socket whose reads and writes end at a deadline.
struct DeadlineStream {
    socket: TcpStream,
    deadline: Instant,
}

impl Client {
    /// Connects to a host, starts TLS and authenticates as the connection string asks. The deadline covers this and the
    /// commands that follow.
    ///
    /// # Errors
    /// The reason why one of these steps failed.
    pub fn connect(host: &str, uri: &ConnectionString, deadline: Instant) -> Result<Client, String> {
        let timed = DeadlineStream { socket: connect_tcp(host, deadline)?, deadline };
        let stream = match &uri.tls {
            None => Stream::Plain(timed),
            Some(tls_options) => Stream::Tls(Box::new(tls_handshake(host, tls_options, timed)?)),
        };
        let mut client = Client { stream, request_id: 0 };
        if let Some(login) = &uri.login {
            client.authenticate(login)?;
        }
        Ok(client)
    }

    /// Sends a command, with its `$db`, and waits for the reply.
    ///
    /// # Errors
    /// A lost connection, or the server's message if the reply is not ok.
    pub fn command(&mut self, command: &DocumentBuf) -> Result<DocumentBuf, String> {
        let is_plain = matches!(self.stream, Stream::Plain(_));
        let reply = self.exchange(command).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => match is_plain {
                true => format!("{NOT_MONGODB}. It may require TLS: add ?tls=true to the connection string"),
                false => NOT_MONGODB.to_string(),
            },
            _ => error.to_string(),
        })?;
        if reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1) {
            return Ok(reply);
        }
        Err(text(reply.view(), "errmsg")
            .unwrap_or("the server refused the command without a reason")
            .to_string())
    }

    /// Sets the deadline for all further reads and writes.
    pub fn set_deadline(&mut self, deadline: Instant) {
        match &mut self.stream {
            Stream::Plain(stream) => stream.deadline = deadline,
            Stream::Tls(stream) => stream.sock.deadline = deadline,
        }
    }

    /// Sends a message of flags and encoded sections.
    ///
    /// # Errors
    /// A lost connection.
    pub fn send(&mut self, flags: u32, sections: &[u8]) -> io::Result<()> {
        self.request_id = self.request_id.wrapping_add(1);
        let stream = self.stream.duplex();
        stream.write_all(&message::encode_sections(self.request_id, flags, &[sections]))?;
        stream.flush()
    }

    /// Waits for the next message and returns the document of its body.
    ///
    /// # Errors
    /// A lost connection, or bytes that are not an OP_MSG.
    pub fn receive(&mut self) -> io::Result<DocumentBuf> {
        let stream = self.stream.duplex();
        let mut reply = vec![0; HEADER_SIZE];
        stream.read_exact(&mut reply)?;
        let length = header::frame_length(&reply).ok().flatten().ok_or_else(not_mongodb)?;
        // Memory grows with the received bytes, not with the claimed length.
        stream.take((length - HEADER_SIZE) as u64).read_to_end(&mut reply)?;
        message::document(&reply).ok_or_else(not_mongodb)
    }

    fn exchange(&mut self, command: &DocumentBuf) -> io::Result<DocumentBuf> {
        let mut section = vec![0];
        section.extend_from_slice(command.bytes());
        self.send(0, &section)?;
        self.receive()
    }

    /// Authenticates with the mechanism of the connection string, or with the strongest mechanism of the server.
    fn authenticate(&mut self, login: &Login) -> Result<(), String> {
        let failed = |why: String| format!("logging in: {why}");
        match login.mechanism.as_deref() {
            Some("MONGODB-X509") => self.authenticate_x509(login).map_err(failed),
            named => {
                let mechanism = match named.and_then(Mechanism::of_name) {
                    Some(mechanism) => mechanism,
                    None => self.strongest_mechanism(login).map_err(failed)?,
                };
                self.authenticate_scram(login, mechanism).map_err(failed)
            }
        }
    }

    /// Returns the strongest mechanism that the server offers for a user, as drivers do.
    fn strongest_mechanism(&mut self, login: &Login) -> Result<Mechanism, String> {
        let mut hello = Builder::new();
        let user = format!("{}.{}", login.source, login.user.as_deref().unwrap_or_default());
        hello.append(c"hello", 1).append(c"saslSupportedMechs", &user).append(c"$db", "admin");
        let reply = self.command(&hello.finish())?;
        let offered = reply.view().get("saslSupportedMechs").and_then(|offered| offered.as_array());
        let offers = |mechanism: &Mechanism| {
            offered.is_some_and(|offered| offered.iter().any(|name| name.as_str() == Some(mechanism.name())))
        };
        Ok(Mechanism::ALL.into_iter().find(offers).unwrap_or(Mechanism::Sha1))
    }

    /// Runs the SCRAM conversation: saslStart, then saslContinue until the server is done.
    fn authenticate_scram(&mut self, login: &Login, mechanism: Mechanism) -> Result<(), String> {
        let (user, password) =
            (login.user.as_deref().unwrap_or_default(), login.password.as_deref().unwrap_or_default());
        let scram = Scram::new(mechanism, user, password).map_err(|error| error.to_string())?;
        let mut start = Builder::new();
        start.append(c"saslStart", 1).append(c"mechanism", mechanism.name());
        start.append(c"payload", Value::Binary { subtype: 0, bytes: scram.first().as_bytes() });
        start.begin_document(c"options").append(c"skipEmptyExchange", true).end();
        start.append(c"$db", login.source.as_str());
        let reply = self.command(&start.finish())?;
        let (verifier, proof) = scram.reply(payload(reply.view())?).map_err(|error| error.to_string())?;
        let mut reply = self.sasl_step(login, reply.view(), proof.as_bytes())?;
        verifier.check(payload(reply.view())?).map_err(|error| error.to_string())?;
        // Servers without skipEmptyExchange expect one more message.
        if reply.view().get("done").and_then(|done| done.as_bool()) != Some(true) {
            reply = self.sasl_step(login, reply.view(), &[])?;
        }
        match reply.view().get("done").and_then(|done| done.as_bool()) {
            Some(true) => Ok(()),
            _ => Err("the SASL conversation does not end".to_string()),
        }
    }

    /// Sends the payload in the conversation of `reply`.
    fn sasl_step(&mut self, login: &Login, reply: Document<'_>, data: &[u8]) -> Result<DocumentBuf, String> {
        let conversation = reply.get("conversationId").ok_or("the reply has no conversation id")?;
        let mut next = Builder::new();
        next.append(c"saslContinue", 1).append(c"conversationId", conversation);
        next.append(c"payload", Value::Binary { subtype: 0, bytes: data });
        next.append(c"$db", login.source.as_str());
        self.command(&next.finish())
    }

    fn authenticate_x509(&mut self, login: &Login) -> Result<(), String> {
        let mut command = Builder::new();
        command.append(c"authenticate", 1).append(c"mechanism", "MONGODB-X509");
        if let Some(user) = &login.user {
            command.append(c"user", user.as_str());
        }
        command.append(c"$db", login.source.as_str());
        self.command(&command.finish()).map(drop)
    }
}

/// Error text of [`Client::connect`] for an address without a listening server.
pub const NO_SERVER: &str = "connection refused, no server listens at this address";

/// Connects to the first address of the host that accepts; returns the error of the last address otherwise.
fn connect_tcp(host: &str, deadline: Instant) -> Result<TcpStream, String> {
    let mut last = "the host name has no address".to_string();
    for address in host.to_socket_addrs().map_err(|error| error.to_string())? {
        let remaining = remaining(deadline).map_err(|error| error.to_string())?;
        match TcpStream::connect_timeout(&address, remaining) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => last = NO_SERVER.to_string(),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Performs the TLS handshake. The name of the host, without port and brackets, must match the certificate.
fn tls_handshake(
    host: &str,
    tls_options: &TlsOptions,
    timed: DeadlineStream,
) -> Result<StreamOwned<ClientConnection, DeadlineStream>, String> {
    let config = tls_client::config(tls_options)?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_string();
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    let mut stream = StreamOwned::new(session, timed);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the TLS handshake: the server closed the connection".to_string(),
            _ => format!("the TLS handshake: {error}"),
        })?;
    }
    Ok(stream)
}

impl Stream {
    fn duplex(&mut self) -> &mut dyn Duplex {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream,
        }
    }
}

/// A stream for both directions.
trait Duplex: Read + Write {}

impl<S: Read + Write> Duplex for S {}

fn text<'a>(document: Document<'a>, name: &str) -> Option<&'a str> {
    document.get(name).and_then(|value| value.as_str())
}

fn payload(reply: Document<'_>) -> Result<&[u8], String> {
    match reply.get("payload") {
        Some(Value::Binary { bytes, .. }) => Ok(bytes),
        _ => Err("the reply has no payload".to_string()),
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

fn not_mongodb() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, NOT_MONGODB)
}

impl Read for DeadlineStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(remaining(self.deadline)?))?;
        self.socket.read(bytes)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(remaining(self.deadline)?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
