//! A message that holds a request: taken apart and validated once, and kept with what was found where the request waits.

use crate::compression::{self, Compressor};
use crate::header::{Header, Opcode, Trouble};
use crate::request::{Documents, Request, Sequence, Sequences};
use crate::{message, query};
use base::bson::Document;
use base::{Error, Result};
use std::ops::Range;

/// What a message's reply depends on, apart from the request.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
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

/// Unpacks a message in place where it is compressed; `most` is the size that it may have then, in bytes.
///
/// Errors: [`Trouble`] for bytes that are no such message.
pub fn unpack(bytes: &mut Vec<u8>, most: usize) -> std::result::Result<Option<Compressor>, Trouble> {
    if Header::split(bytes)?.0.opcode != Opcode::Compressed {
        return Ok(None);
    }
    let mut unpacked = Vec::new();
    let compressor = compression::unpack(bytes, most, &mut unpacked)?;
    *bytes = unpacked;
    Ok(Some(compressor))
}

/// Takes a whole message apart that isn't compressed, or not any more, and validates its documents.
///
/// Errors: [`Trouble`] for bytes that are no message. Where the content is refused, that is inside, as there is somebody
/// to reply to.
pub fn parse(
    bytes: &[u8],
    compressor: Option<Compressor>,
) -> std::result::Result<(Envelope, Result<Request<'_>>), Trouble> {
    let (Header { request_id, opcode }, body) = Header::split(bytes)?;
    let mut envelope =
        Envelope { request_id, opcode, compressor, more_to_come: false, exhaust_allowed: false };
    match opcode {
        Opcode::Message => {
            let message = message::parse(bytes)?;
            envelope.more_to_come = message.more_to_come;
            envelope.exhaust_allowed = message.exhaust_allowed;
            Ok((envelope, message.request))
        }
        Opcode::Query => Ok((envelope, query::parse(body)?)),
        other => Err(Trouble::Malformed(format!("a client sent {other:?}"))),
    }
}

/// Where the parts of a request lie among the bytes of its message.
#[derive(Debug)]
pub struct Places {
    body: Range<usize>,
    database: Range<usize>,
    sequences: Vec<SequencePlace>,
}

/// Where a document sequence lies, and how many documents it has.
#[derive(Debug)]
struct SequencePlace {
    name: Range<usize>,
    documents: Range<usize>,
    len: usize,
}

impl Places {
    /// Those of a request that was parsed from these bytes.
    pub fn of(request: &Request<'_>, bytes: &[u8]) -> Places {
        let place = |part: &[u8]| {
            let start = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
            start..start + part.len()
        };
        let sequences = request.sequences.iter().map(|sequence| SequencePlace {
            name: place(sequence.name.as_bytes()),
            documents: place(sequence.documents.sequence_bytes()),
            len: sequence.documents.len(),
        });
        Places {
            body: place(request.body.bytes()),
            database: place(request.database.as_bytes()),
            sequences: sequences.collect(),
        }
    }
}

/// A message that is kept while its request waits.
#[derive(Debug)]
pub struct Frame {
    /// The message, not compressed.
    pub bytes: Vec<u8>,
    /// What its reply depends on.
    pub envelope: Envelope,
    /// Where the request lies in it, or why its content is refused.
    pub places: Result<Places>,
}

impl Frame {
    /// The request. Nothing is validated again.
    ///
    /// Errors: why its content is refused.
    pub fn request(&self) -> std::result::Result<Request<'_>, &Error> {
        let places = self.places.as_ref()?;
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let text = |range| str::from_utf8(part(range)).unwrap_or_default();
        let sequences = places.sequences.iter().map(|place| Sequence {
            name: text(&place.name),
            documents: Documents::from_sequence(part(&place.documents), place.len),
        });
        Ok(Request {
            body: Document::from_valid(part(&places.body)),
            database: text(&places.database),
            sequences: sequences.collect::<Sequences<'_>>(),
        })
    }
}
