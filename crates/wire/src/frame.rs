//! A message with a request, parsed and validated once. A request that waits in a queue stores the ranges of its parts.

use crate::compression::{self, Compressor};
use crate::header::{FrameError, Header, Opcode};
use crate::request::{Documents, Request, Sequence, Sequences};
use crate::{message, query};
use base::bson::Document;
use base::{Error, Result};
use std::ops::Range;

/// Properties of a message, apart from the request, that determine its reply.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// The client's request id.
    pub request_id: i32,
    /// The opcode; the reply uses the matching opcode.
    pub opcode: Opcode,
    /// The compressor of the message, which the reply uses too.
    pub compressor: Option<Compressor>,
    /// Whether the client expects no reply.
    pub more_to_come: bool,
    /// Whether the client accepts several replies.
    pub exhaust_allowed: bool,
}

/// Decompresses a message in place if it is compressed. `limit` limits the decompressed size in bytes.
///
/// Errors: [`FrameError`] for bytes that are not an OP_COMPRESSED message.
pub fn decompress(bytes: &mut Vec<u8>, limit: usize) -> std::result::Result<Option<Compressor>, FrameError> {
    if Header::split(bytes)?.0.opcode != Opcode::Compressed {
        return Ok(None);
    }
    let mut decompressed = Vec::new();
    let compressor = compression::decompress_message(bytes, limit, &mut decompressed)?;
    *bytes = decompressed;
    Ok(Some(compressor))
}

/// Parses a whole uncompressed message and validates its documents.
///
/// Errors: [`FrameError`] for bytes that are not a message. An error of the content is inside the result, because the
/// reply's address is known by then.
pub fn parse(
    bytes: &[u8],
    compressor: Option<Compressor>,
) -> std::result::Result<(Envelope, Result<Request<'_>>), FrameError> {
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
        other => Err(FrameError::Malformed(format!("a client sent {other:?}"))),
    }
}

/// Byte ranges of a request's parts within its message.
#[derive(Debug)]
pub struct RequestRanges {
    body: Range<usize>,
    database: Range<usize>,
    sequences: Vec<SequenceRange>,
}

/// Byte range of a document sequence, and its number of documents.
#[derive(Debug)]
struct SequenceRange {
    name: Range<usize>,
    documents: Range<usize>,
    len: usize,
}

impl RequestRanges {
    /// Returns the ranges of a request that was parsed from these bytes.
    pub fn of(request: &Request<'_>, bytes: &[u8]) -> RequestRanges {
        let range = |part: &[u8]| {
            let start = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
            start..start + part.len()
        };
        let sequences = request.sequences.iter().map(|sequence| SequenceRange {
            name: range(sequence.name.as_bytes()),
            documents: range(sequence.documents.sequence_bytes()),
            len: sequence.documents.len(),
        });
        RequestRanges {
            body: range(request.body.bytes()),
            database: range(request.database.as_bytes()),
            sequences: sequences.collect(),
        }
    }
}

/// A message whose request waits in a queue.
#[derive(Debug)]
pub struct Frame {
    /// The uncompressed message.
    pub bytes: Vec<u8>,
    /// Properties that determine the reply.
    pub envelope: Envelope,
    /// Positions of the request in the message, or the error of its content.
    pub ranges: Result<RequestRanges>,
}

impl Frame {
    /// Returns the request without validating it again.
    ///
    /// Errors: the error of the content.
    pub fn request(&self) -> std::result::Result<Request<'_>, &Error> {
        let ranges = self.ranges.as_ref()?;
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let text = |range| str::from_utf8(part(range)).unwrap_or_default();
        let sequences = ranges.sequences.iter().map(|range| Sequence {
            name: text(&range.name),
            documents: Documents::from_sequence(part(&range.documents), range.len),
        });
        let body = Document::from_valid(part(&ranges.body));
        let sequences = sequences.collect::<Sequences<'_>>();
        Ok(Request { sequences, ..Request::of(body, text(&ranges.database)) })
    }
}
