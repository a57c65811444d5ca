//! A message that holds a request, with its bytes: taken apart and checked once, viewed as often as needed.

use crate::compression::{self, Compressor};
use crate::header::{Header, Opcode, Trouble};
use crate::request::{Documents, Request, Sequence};
use crate::{message, query};
use base::Error;
use base::bson::Document;
use smallvec::SmallVec;
use std::ops::Range;

/// A request's message.
#[derive(Debug)]
pub struct Frame {
    /// The message, unpacked where it came compressed.
    bytes: Vec<u8>,
    /// Where the request lies in it, or why its content is refused.
    content: Result<Content, Error>,
    /// The client's number of the message.
    pub request_id: i32,
    /// The kind of message, which that of the reply follows.
    pub opcode: Opcode,
    /// How it was compressed, if it was: the reply is compressed in the same way.
    pub compressor: Option<Compressor>,
    /// Whether the client waits for no reply.
    pub more_to_come: bool,
    /// Whether the client takes several replies.
    pub exhaust_allowed: bool,
}

/// Where the parts of a request lie among the bytes of its message.
#[derive(Debug)]
struct Content {
    body: Range<usize>,
    database: Range<usize>,
    sequences: SmallVec<[Place; 1]>,
}

/// Where a document sequence lies, and how many documents it has.
#[derive(Debug)]
struct Place {
    name: Range<usize>,
    documents: Range<usize>,
    len: usize,
}

impl Frame {
    /// Takes a whole message apart and validates its documents. `most` is the size that it may have unpacked, in
    /// bytes.
    ///
    /// Errors: [`Trouble`] for bytes that are no message. Refused content is an error of
    /// [`request`](Self::request), as there is somebody to reply to.
    pub fn open(mut bytes: Vec<u8>, most: usize) -> Result<Frame, Trouble> {
        let (outer, _) = Header::split(&bytes)?;
        let mut compressor = None;
        if outer.opcode == Opcode::Compressed {
            let mut unpacked = Vec::new();
            compressor = Some(compression::unpack(&bytes, most, &mut unpacked)?);
            bytes = unpacked;
        }
        let (header, body) = Header::split(&bytes)?;
        let (mut more_to_come, mut exhaust_allowed) = (false, false);
        let request = match header.opcode {
            Opcode::Message => {
                let message = message::parse(&bytes)?;
                (more_to_come, exhaust_allowed) = (message.more_to_come, message.exhaust_allowed);
                message.request
            }
            Opcode::Query => query::parse(body)?,
            other => return Err(Trouble::Malformed(format!("a client sent {other:?}"))),
        };
        let content = request.map(|request| Content::of(&request, &bytes));
        let (request_id, opcode) = (outer.request_id, header.opcode);
        Ok(Frame { content, bytes, request_id, opcode, compressor, more_to_come, exhaust_allowed })
    }

    /// The request.
    ///
    /// Errors: why its content is refused.
    pub fn request(&self) -> Result<Request<'_>, &Error> {
        self.content.as_ref().map(|content| content.view(&self.bytes))
    }

    /// Gives the bytes' memory back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

impl Content {
    fn of(request: &Request<'_>, bytes: &[u8]) -> Content {
        let place = |part: &[u8]| {
            let start = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
            start..start + part.len()
        };
        let sequences = request.sequences.iter().map(|sequence| Place {
            name: place(sequence.name.as_bytes()),
            documents: place(sequence.documents.sequence_bytes()),
            len: sequence.documents.len(),
        });
        Content {
            body: place(request.body.bytes()),
            database: place(request.database.as_bytes()),
            sequences: sequences.collect(),
        }
    }

    fn view<'a>(&self, bytes: &'a [u8]) -> Request<'a> {
        let part = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        let text = |range| str::from_utf8(part(range)).unwrap_or_default();
        let sequences = self.sequences.iter().map(|place| Sequence {
            name: text(&place.name),
            documents: Documents::from_sequence(part(&place.documents), place.len),
        });
        Request {
            body: Document::from_valid(part(&self.body)),
            database: text(&self.database),
            sequences: sequences.collect(),
        }
    }
}
