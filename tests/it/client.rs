//! A minimal blocking client: OP_MSG over TCP, one reply for each command.

use base::ErrorCode;
use base::bson::{Builder, Document, DocumentBuf, MAX_DEPTH, Value, nests_deeper, validate};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use wire::header::{HEADER_SIZE, read_i32, read_u32};
use wire::message::{MORE_TO_COME, PREFIX_SIZE, encode};
use wire::scram::{Client as Scram, Mechanism};

/// A byte stream.
pub(crate) trait Duplex: Read + Write + Send {}

impl<S: Read + Write + Send> Duplex for S {}

/// A connection.
pub(crate) struct Client {
    stream: Box<dyn Duplex>,
    address: SocketAddr,
    request_id: i32,
}

impl Client {
    /// Connects; `timeout` limits the wait for a reply.
    pub(crate) fn connect(address: &str, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let address = stream.local_addr()?;
        Ok(Client::over(stream, address))
    }

    /// Creates a client over any byte stream.
    pub(crate) fn over(stream: impl Duplex + 'static, address: SocketAddr) -> Client {
        Client { stream: Box::new(stream), address, request_id: 0 }
    }

    /// Returns the client's address as the server sees it.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sends a command (with its `$db`) and waits for the reply.
    pub(crate) fn command(&mut self, command: &DocumentBuf) -> io::Result<DocumentBuf> {
        self.send_command(command)?;
        self.reply()
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send_command(&mut self, command: &DocumentBuf) -> io::Result<()> {
        self.send(command, 0)
    }

    /// Waits for the reply to the command sent last.
    pub(crate) fn reply(&mut self) -> io::Result<DocumentBuf> {
        let mut head = [0; HEADER_SIZE];
        self.stream.read_exact(&mut head)?;
        let length = read_u32(&head, 0).unwrap() as usize;
        let mut body = vec![0; length.saturating_sub(HEADER_SIZE)];
        self.stream.read_exact(&mut body)?;
        let document = body.split_off(PREFIX_SIZE.min(body.len()));
        if read_i32(&head, 8) != Some(self.request_id) || !is_valid(&document) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply isn't one OP_MSG document"));
        }
        Ok(DocumentBuf::from_valid(document))
    }

    /// Authenticates and returns the last reply. Checks the server's signature.
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
        let mut conversation = Builder::new();
        conversation.append(c"saslContinue", 1).append(c"conversationId", 1);
        conversation
            .append(c"payload", Value::Binary { subtype: 0, bytes: proof.as_bytes() })
            .append(c"$db", db);
        let reply = self.command(&conversation.finish())?;
        if let Some(payload) = self::payload(&reply) {
            verifier.check(&payload).map_err(wrong)?;
        }
        Ok(reply)
    }

    /// Sends a command that gets no reply.
    pub(crate) fn command_unacknowledged(&mut self, command: &DocumentBuf) -> io::Result<()> {
        self.send(command, MORE_TO_COME)
    }

    fn send(&mut self, command: &DocumentBuf, flags: u32) -> io::Result<()> {
        self.request_id += 1;
        self.stream.write_all(&encode(self.request_id, flags, command.view()))
    }
}

/// Returns true for valid BSON. In a cursor's reply, documents of the maximum depth are three levels deep.
fn is_valid(reply: &[u8]) -> bool {
    let in_cursor = || !nests_deeper(Document::from_valid(reply), MAX_DEPTH + 3);
    validate(reply).map_or_else(|error| error.code() == ErrorCode::Overflow && in_cursor(), |()| true)
}

/// Returns the payload of a SASL reply.
fn payload(reply: &DocumentBuf) -> Option<Vec<u8>> {
    match reply.view().get("payload") {
        Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
        _ => None,
    }
}
