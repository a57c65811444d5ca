//! The null server: a server that reads a message and returns a fixed reply.
//!
//! It measures the cost of kernel and client alone, as a baseline for the figures of servers. It reads only the header
//! and the command name, and stores nothing. Its replies keep a driver going: an insert reports all documents, another
//! write one document. A find returns one document, and every cursor is exhausted.
//!
//! It follows the protocol rules that clients wait for. A message with `moreToCome` gets no reply. Its hello has no
//! topology version, so clients request no streamed replies. The command [`COMMAND`] sets the documents that finds
//! return.
//!
//! The baseline of a scan returns as many documents of equal size, in batches as large as MongoDB's.
//!
//! A new reply is a line of `null_server_replies.txt`.

use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf, FieldName};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::RwLock;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use wire::busy_poll::{self, BusyPoll, LatestConnection};
use wire::header::{self, HEADER_SIZE, Header, Opcode, read_u32};
use wire::message::{self, MORE_TO_COME, PREFIX_SIZE};
use wire::query;

/// Serves on a free loopback port until standard input ends. The first output line has the port.
pub fn run() -> ExitCode {
    let served = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| {
        let address = listener.local_addr()?;
        let mut out = io::stdout();
        writeln!(out, "mongodb://{address}/").and_then(|()| out.flush())?;
        std::thread::spawn(move || serve(&listener, Vec::new()));
        io::copy(&mut io::stdin(), &mut io::sink())
    });
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "vellum lab null-server: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves connections, each on its own thread. Additional replies have precedence, as in a fake server for tests.
pub(crate) fn serve(listener: &TcpListener, first: Vec<Reply>) {
    let mut replies = Replies::new();
    replies.known.splice(0..0, first);
    let latest = LatestConnection::default();
    std::thread::scope(|scope| {
        for (stream, id) in listener.incoming().flatten().zip(1..) {
            let (replies, latest) = (&replies, &latest);
            // A disconnected client needs no error.
            scope.spawn(move || answer(stream, id, latest, replies));
        }
    });
}

/// Waits for requests as Vellum does, so that only the work differs.
fn answer(mut stream: TcpStream, id: i32, latest: &LatestConnection, replies: &Replies) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut looking = BusyPoll::new(busy_poll::default_time());
    let mut request = Vec::with_capacity(64 << 10);
    let mut reply = Vec::with_capacity(1 << 10);
    loop {
        looking.poll(id, latest, || is_readable(&stream));
        if !read_message(&mut stream, &mut request)? {
            return Ok(());
        }
        reply.clear();
        if replies.append(&request, &mut reply).ok_or(io::ErrorKind::InvalidData)? {
            stream.write_all(&reply)?;
        }
    }
}

/// Returns true if bytes are ready to be read.
fn is_readable(stream: &TcpStream) -> bool {
    poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Reads a whole message; false if the client has disconnected.
fn read_message(stream: &mut impl Read, message: &mut Vec<u8>) -> io::Result<bool> {
    message.resize(HEADER_SIZE, 0);
    match stream.read_exact(message) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let length = header::frame_length(message).ok().flatten().ok_or(io::ErrorKind::InvalidData)?;
    message.resize(length, 0);
    stream.read_exact(message.get_mut(HEADER_SIZE..).unwrap_or_default())?;
    Ok(true)
}

/// Command names, separated by spaces, and their reply.
pub(crate) type Reply = (&'static str, DocumentBuf);

/// The fixed replies.
struct Replies {
    known: Vec<Reply>,
    other: DocumentBuf,
    /// The present answer of finds, if not the fixed document.
    documents: RwLock<Option<Documents>>,
}

impl Replies {
    fn new() -> Replies {
        let known = KNOWN.lines().filter_map(|line| line.split_once(" => "));
        let known = known.map(|(names, reply)| (names, document(reply)));
        let pid = format!("{{pid: NumberLong({}), ok: 1.0}}", std::process::id());
        let known = known.chain([("serverStatus", document(&pid))]);
        Replies { known: known.collect(), other: document("{ok: 1.0}"), documents: RwLock::new(None) }
    }

    /// Appends the reply to a message. Returns false if the message wants none, `None` if it is invalid.
    fn append(&self, request: &[u8], reply: &mut Vec<u8>) -> Option<bool> {
        let (head, rest) = Header::split(request).ok()?;
        let body = match head.opcode {
            Opcode::Message if read_u32(rest, 0)? & MORE_TO_COME != 0 => return Some(false),
            Opcode::Message => rest.get(PREFIX_SIZE..)?,
            Opcode::Query => {
                let name = rest.get(4..)?;
                name.get(name.iter().position(|byte| *byte == 0)? + 9..)?
            }
            _ => return None,
        };
        let name = body.get(5..)?;
        let name = name.get(..name.iter().position(|byte| *byte == 0)?)?;
        if name == COMMAND.as_bytes() {
            *self.documents.write() = Documents::requested(body);
        }
        let documents = self.documents.read();
        let made = documents.as_ref().and_then(|documents| documents.answer(name, body));
        let document = made.as_deref().unwrap_or_else(|| self.to(name).bytes());
        let start = reply.len();
        match head.opcode {
            Opcode::Message => message::begin_reply(reply, head.request_id, head.request_id),
            _ => query::begin_reply(reply, head.request_id, head.request_id, false),
        }
        reply.extend_from_slice(document);
        header::finish(reply, start);
        Some(true)
    }

    /// Returns the fixed reply to a command. The name of the command is the first element, behind length and type.
    fn to(&self, name: &[u8]) -> &DocumentBuf {
        let known =
            self.known.iter().find(|(names, _)| names.split(' ').any(|known| known.as_bytes() == name));
        known.map_or(&self.other, |(_, reply)| reply)
    }
}

/// Parses a document; an invalid text yields an empty document, which the tests exclude.
fn document(text: &str) -> DocumentBuf {
    parse(text).unwrap_or_else(|_| DocumentBuf::empty())
}

/// Replies by command, with MongoDB 8.0's wire version: lines of command names and a reply. An insert reports all
/// documents, since the official driver resends the missing ones.
const KNOWN: &str = include_str!("null_server_replies.txt");

/// A command of the null server: `{nullServerReplies: N, bytes: B}` makes each find and aggregate return N documents of
/// about B bytes. Without `bytes` it restores the default.
pub(crate) const COMMAND: &str = "nullServerReplies";

/// Size of the first batch of MongoDB's cursors, and the maximum bytes of later batches.
const FIRST: u64 = 101;
const BATCH_BYTES: usize = 16 << 20;

/// BSON's type of 64-bit integers.
const INT64: u8 = 0x12;

/// The answer to a find and its getMores.
#[derive(Debug)]
struct Documents {
    count: u64,
    document: DocumentBuf,
}

impl Documents {
    /// Parses the request for documents of a command; `None` for the default.
    fn requested(body: &[u8]) -> Option<Documents> {
        let count = number(body, COMMAND.as_bytes())?;
        let bytes = usize::try_from(number(body, b"bytes")?).ok()?.clamp(1, BATCH_BYTES);
        Some(Documents::new(count, bytes))
    }

    fn new(count: u64, bytes: usize) -> Documents {
        let mut document = Builder::new();
        document.append(c"_id", 1_i64).append(c"text", "x".repeat(bytes.saturating_sub(35)).as_str());
        Documents { count, document: document.finish() }
    }

    /// Returns the body of the answer if the command concerns a cursor.
    fn answer(&self, name: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"find" | b"aggregate" => Some(self.batch("firstBatch", self.count, FIRST)),
            b"getMore" => Some(self.batch("nextBatch", number(body, b"getMore")?, u64::MAX)),
            _ => None,
        }
    }

    /// Returns the next batch. The cursor id is the number of remaining documents, so the null server stores no state.
    fn batch(&self, name: &str, left: u64, most: u64) -> Vec<u8> {
        let document = self.document.view();
        let fitting = (BATCH_BYTES / self.document.bytes().len()).clamp(1, 100_000) as u64;
        let count = left.min(most).min(fitting);
        let mut reply = Builder::new();
        reply.begin_document(c"cursor").append(c"id", (left - count) as i64).append(c"ns", "null.replies");
        reply.begin_array(FieldName::trusted(name));
        for _ in 0..count {
            reply.push(document);
        }
        reply.end().end().append(c"ok", 1.0);
        reply.into_buffer()
    }
}

/// Returns a 64-bit number of a command at any position. Only the lab and the driver send such commands.
fn number(body: &[u8], name: &[u8]) -> Option<u64> {
    let pattern = [&[INT64], name, &[0]].concat();
    let at = body.windows(pattern.len()).position(|bytes| bytes == pattern)? + pattern.len();
    Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Document;

    fn asking(flags: u32, command: &str) -> Vec<u8> {
        let mut body = Builder::new();
        body.append(FieldName::trusted(command), 1).append(c"$db", "x");
        let body = body.finish();
        message::encode(77, flags, body.view())
    }

    fn reply_to(request: &[u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        Replies::new().append(request, &mut reply).and_then(|expects_reply| expects_reply.then_some(reply))
    }

    #[test]
    fn replies_name_the_request_and_hold_a_document() {
        let reply = reply_to(&asking(0, "find")).unwrap();
        assert_eq!(header::frame_length(&reply).unwrap(), Some(reply.len()));
        let words = [8, 12, 16].map(|at| read_u32(&reply, at));
        assert_eq!(words, [Some(77), Some(Opcode::Message as u32), Some(0)]);
        base::bson::validate(&reply[HEADER_SIZE + PREFIX_SIZE..]).unwrap();
        let document = Document::from_valid(&reply[HEADER_SIZE + PREFIX_SIZE..]);
        assert!(document.get("cursor").is_some());
    }

    #[test]
    fn every_reply_is_a_document() {
        for (names, reply) in KNOWN.lines().filter_map(|line| line.split_once(" => ")) {
            assert!(parse(reply).is_ok(), "{names}");
        }
    }

    #[test]
    fn an_unacknowledged_message_gets_no_reply() {
        assert_eq!(reply_to(&asking(MORE_TO_COME, "insert")), None);
        assert_eq!(Replies::new().append(&asking(MORE_TO_COME, "insert"), &mut Vec::new()), Some(false));
    }

    #[test]
    fn a_truncated_message_ends_the_connection() {
        let message = asking(0, "ping");
        for end in 0..HEADER_SIZE + PREFIX_SIZE + 5 {
            assert_eq!(Replies::new().append(&message[..end], &mut Vec::new()), None, "{end}");
        }
        let mut huge: &[u8] = &[0xFF; 16];
        assert!(read_message(&mut huge, &mut Vec::new()).is_err());
    }
}

#[cfg(test)]
mod documents_tests {
    use super::*;

    fn command(name: &str, value: i64) -> Vec<u8> {
        let mut body = Builder::new();
        body.append(FieldName::trusted(name), value).append(c"bytes", 1000_i64);
        body.finish().bytes().to_vec()
    }

    #[test]
    fn a_cursor_yields_as_many_documents_as_were_asked_for() {
        for count in [0, 1, 101, 102, 40_000] {
            let documents = Documents::requested(&command(COMMAND, count)).unwrap();
            let (mut read, mut name, mut left) = (0, "find", 0);
            loop {
                let reply = documents.answer(name.as_bytes(), &command(name, left)).unwrap();
                base::bson::validate(&reply).unwrap();
                read += reply.windows(4).filter(|bytes| *bytes == b"_id\0").count() as i64;
                left = number(&reply, b"id").unwrap() as i64;
                if left == 0 {
                    break;
                }
                assert!(reply.len() < 17 << 20);
                name = "getMore";
            }
            assert_eq!(read, count);
        }
        assert!(Documents::requested(b"").is_none());
    }

    #[test]
    fn documents_have_the_size_asked_for() {
        let documents = Documents::new(1, 1000);
        let size = documents.document.bytes().len();
        assert!((980..1020).contains(&size), "{size}");
    }
}
