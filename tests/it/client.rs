//! A tiny blocking client: OP_MSG over TCP, one reply for one command.

use base::ErrorCode;
use base::bson::{Builder, Document, DocumentBuf, MAX_DEPTH, Value, nests_deeper, validate};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use wire::scram::{Client as Scram, Mechanism};

const OP_MSG: u32 = 2013;
const HEADER_LENGTH: usize = 16;
/// Flags and the section's kind before the document.
const PREFIX_LENGTH: usize = 5;
/// Tells the server that no reply is expected.
const MORE_TO_COME: u32 = 1 << 1;

/// What bytes are read from and written to.
pub(crate) trait Duplex: Read + Write + Send {}

impl<S: Read + Write + Send> Duplex for S {}

/// A connection.
pub(crate) struct Client {
    stream: Box<dyn Duplex>,
    address: SocketAddr,
    request_id: u32,
}

impl Client {
    /// Connects; a reply may take as long as `timeout`.
    pub(crate) fn connect(address: &str, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let address = stream.local_addr()?;
        Ok(Client::over(stream, address))
    }

    /// A connection over whatever carries bytes.
    pub(crate) fn over(stream: impl Duplex + 'static, address: SocketAddr) -> Client {
        Client { stream: Box::new(stream), address, request_id: 0 }
    }

    /// The address by which the server knows the connection.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sends a command (with its `$db`) and waits for the reply.
    pub(crate) fn command(&mut self, command: &DocumentBuf) -> io::Result<DocumentBuf> {
        self.ask(command)?;
        self.reply()
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn ask(&mut self, command: &DocumentBuf) -> io::Result<()> {
        self.send(command, 0)
    }

    /// Waits for the reply to the command sent last.
    pub(crate) fn reply(&mut self) -> io::Result<DocumentBuf> {
        let mut header = [0; HEADER_LENGTH];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let mut body = vec![0; length.saturating_sub(HEADER_LENGTH)];
        self.stream.read_exact(&mut body)?;
        let answers = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let document = body.split_off(PREFIX_LENGTH.min(body.len()));
        if answers != self.request_id || !is_sound(&document) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply isn't one OP_MSG document"));
        }
        Ok(DocumentBuf::from_valid(document))
    }

    /// Logs in, and returns the last reply: that of a server whose signature is right, or an error.
    pub(crate) fn login(
        &mut self,
        (user, db): (&str, &str),
        password: &str,
        mechanism: Mechanism,
    ) -> io::Result<DocumentBuf> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let client = Scram::new(mechanism, user, password).map_err(wrong)?;
        let mut start = Builder::new();
        start.append(c"saslStart", 1).append(c"mechanism", mechanism.name());
        start.append(c"payload", Value::Binary { subtype: 0, bytes: client.first().as_bytes() });
        start.begin_document(c"options").append(c"skipEmptyExchange", true).end().append(c"$db", db);
        let reply = self.command(&start.finish())?;
        let Some(payload) = payload(&reply) else { return Ok(reply) };
        let (verifier, proof) = client.reply(&payload).map_err(wrong)?;
        let mut go_on = Builder::new();
        go_on.append(c"saslContinue", 1).append(c"conversationId", 1);
        go_on.append(c"payload", Value::Binary { subtype: 0, bytes: proof.as_bytes() }).append(c"$db", db);
        let reply = self.command(&go_on.finish())?;
        if let Some(payload) = self::payload(&reply) {
            verifier.check(&payload).map_err(wrong)?;
        }
        Ok(reply)
    }

    /// Sends a command that isn't answered.
    pub(crate) fn command_unacknowledged(&mut self, command: &DocumentBuf) -> io::Result<()> {
        self.send(command, MORE_TO_COME)
    }

    fn send(&mut self, command: &DocumentBuf, flags: u32) -> io::Result<()> {
        self.request_id += 1;
        let length = HEADER_LENGTH + PREFIX_LENGTH + command.bytes().len();
        let mut message = Vec::with_capacity(length);
        for word in [length as u32, self.request_id, 0, OP_MSG, flags] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(command.bytes());
        self.stream.write_all(&message)
    }
}

/// Whether a reply is BSON; in a cursor's, documents as deep as there may be lie three levels deep.
fn is_sound(reply: &[u8]) -> bool {
    let in_cursor = || !nests_deeper(Document::from_valid(reply), MAX_DEPTH + 3);
    validate(reply).map_or_else(|error| error.code() == ErrorCode::Overflow && in_cursor(), |()| true)
}

/// What a server says in a conversation of SASL.
fn payload(reply: &DocumentBuf) -> Option<Vec<u8>> {
    match reply.view().get("payload") {
        Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
        _ => None,
    }
}
