//! OP_MSG: flags, sections, and an optional checksum at the end.

use crate::header::{
    self, FrameError, HEADER_SIZE, MAX_INTERNAL_DOCUMENT_SIZE, Opcode, document_length, malformed, read_u32,
};
use crate::request::{Documents, Request, Sequence, Sequences};
use base::bson::{Document, DocumentBuf, validate};
use base::{Result, bail, err};
use smallvec::SmallVec;

/// Flag: a crc32c of the whole message follows the sections.
pub const CHECKSUM_PRESENT: u32 = 1;
/// Flag from a client: no reply is expected. Flag from the server: another reply follows without a request.
pub const MORE_TO_COME: u32 = 1 << 1;
/// Flag: the client accepts further replies without a request.
pub const EXHAUST_ALLOWED: u32 = 1 << 16;
/// Bits of flags that a receiver must understand; it may ignore other bits.
const REQUIRED_FLAGS: u32 = 0xFFFF;

/// Bytes between the header and the document in a message with one section: the flags and the section's kind.
pub const PREFIX_SIZE: usize = 5;

/// Maximum number of document sequences: more than any command has. The limit keeps linear search cheap.
const SEQUENCES_MAX: usize = 16;

/// A parsed OP_MSG.
#[derive(Debug)]
pub struct Message<'a> {
    /// The client expects no reply.
    pub more_to_come: bool,
    /// The client accepts several replies.
    pub exhaust_allowed: bool,
    /// The request, or the error of its content.
    pub request: Result<Request<'a>>,
}

/// Parses an OP_MSG. `frame` is the whole message with its header, because the checksum covers it.
///
/// Errors: [`FrameError::Malformed`] for broken framing. Invalid BSON is an error inside the message, because the
/// reply's address is known by then.
pub fn parse(frame: &[u8]) -> std::result::Result<Message<'_>, FrameError> {
    let body = frame.get(HEADER_SIZE..).unwrap_or_default();
    let flags = read_u32(body, 0).ok_or_else(|| malformed("OP_MSG without flags"))?;
    if flags & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
        return Err(malformed(format!("OP_MSG with unknown required flags {flags:#x}")));
    }
    let end = if flags & CHECKSUM_PRESENT != 0 { verify_checksum(frame)? } else { frame.len() };
    let sections = frame.get(HEADER_SIZE + 4..end).ok_or_else(|| malformed("OP_MSG is cut off"))?;
    let (document, sequences) = split_sections(sections)?;
    let request = check_documents(document, sequences);
    Ok(Message {
        more_to_come: flags & MORE_TO_COME != 0,
        exhaust_allowed: flags & EXHAUST_ALLOWED != 0,
        request,
    })
}

/// Verifies the checksum and returns the offset at which the sections end.
fn verify_checksum(frame: &[u8]) -> std::result::Result<usize, FrameError> {
    let cut_off = || malformed("OP_MSG is too short for its checksum");
    let end = frame.len().checked_sub(4).ok_or_else(cut_off)?;
    let covered = frame.get(..end).ok_or_else(cut_off)?;
    if read_u32(frame, end) != Some(crc32c::crc32c(covered)) {
        return Err(malformed("OP_MSG checksum does not match its contents"));
    }
    Ok(end)
}

/// An unchecked document sequence of a message: name and bytes.
pub type RawSequence<'a> = (&'a [u8], &'a [u8]);
/// All unchecked document sequences of a message.
pub type RawSequences<'a> = SmallVec<[RawSequence<'a>; 1]>;

/// Finds the sections: exactly one of kind 0 and any number of kind 1.
///
/// Errors: [`FrameError::Malformed`].
pub fn split_sections(mut rest: &[u8]) -> std::result::Result<(&[u8], RawSequences<'_>), FrameError> {
    let mut body = None;
    let mut sequences = RawSequences::new();
    while let Some((&kind, behind)) = rest.split_first() {
        let size = match kind {
            0 => document_length(behind),
            1 => document_length(behind).filter(|&size| size >= 6),
            _ => return Err(malformed(format!("OP_MSG section of unknown kind {kind}"))),
        };
        let (section, after) = size
            .and_then(|size| behind.split_at_checked(size))
            .ok_or_else(|| malformed(format!("OP_MSG section of kind {kind} with a bad length")))?;
        rest = after;
        match kind {
            0 if body.replace(section).is_some() => return Err(malformed("OP_MSG with two bodies")),
            0 => {}
            _ if sequences.len() == SEQUENCES_MAX => return Err(malformed("OP_MSG with too many sequences")),
            _ => sequences.push(split_sequence(section)?),
        }
    }
    Ok((body.ok_or_else(|| malformed("OP_MSG without a body"))?, sequences))
}

fn split_sequence(section: &[u8]) -> std::result::Result<RawSequence<'_>, FrameError> {
    let content = section.get(4..).unwrap_or_default();
    let name_end = content
        .iter()
        .position(|&byte| byte == 0)
        .ok_or_else(|| malformed("OP_MSG sequence without a name"))?;
    let (name, documents) = content.split_at(name_end);
    Ok((name, documents.get(1..).unwrap_or_default()))
}

/// Validates the documents of a client. No other function turns them into trusted BSON.
fn check_documents<'a>(body: &'a [u8], raw: RawSequences<'a>) -> Result<Request<'a>> {
    let body = validated(body)?;
    let mut sequences = Sequences::default();
    for (name, bytes) in raw {
        let name = std::str::from_utf8(name)
            .map_err(|_| err!(InvalidBSON, "the name of a document sequence is not UTF-8"))?;
        if sequences.iter().any(|known| known.name == name) {
            bail!(40431, "Duplicate document sequence: {name}");
        }
        sequences.push(Sequence { name, documents: check_sequence(name, bytes)? });
    }
    Request::new(body, sequences)
}

/// Validates each document of a sequence. Errors: InvalidBSON with the position of a truncated document, and the errors
/// of [`validated`].
fn check_sequence<'a>(name: &str, bytes: &'a [u8]) -> Result<Documents<'a>> {
    let mut rest = bytes;
    let mut len = 0;
    while !rest.is_empty() {
        let (document, behind) = document_length(rest)
            .and_then(|length| rest.split_at_checked(length))
            .ok_or_else(|| err!(InvalidBSON, "document {len} of sequence '{name}' is cut off"))?;
        validated(document)?;
        rest = behind;
        len += 1;
    }
    Ok(Documents::from_sequence(bytes, len))
}

/// Checks one document from outside. Errors: InvalidBSON, Overflow, BSONObjectTooLarge.
pub fn validated(bytes: &[u8]) -> Result<Document<'_>> {
    if bytes.len() > MAX_INTERNAL_DOCUMENT_SIZE {
        bail!(
            BSONObjectTooLarge,
            "BSONObj size: {} is invalid. Size must be between 0 and {MAX_INTERNAL_DOCUMENT_SIZE}",
            bytes.len()
        );
    }
    validate(bytes)?;
    Ok(Document::from_valid(bytes))
}

/// Encodes a request of one document with these flags.
pub fn encode(request_id: i32, flags: u32, document: Document<'_>) -> Vec<u8> {
    encode_sections(request_id, flags, &[&[0], document.bytes()])
}

/// Encodes a request from encoded sections, given in parts.
pub fn encode_sections(request_id: i32, flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    let length: usize = sections.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(HEADER_SIZE + 4 + length);
    header::begin(&mut out, request_id, 0, Opcode::Message);
    out.extend_from_slice(&flags.to_le_bytes());
    sections.iter().for_each(|part| out.extend_from_slice(part));
    header::finish(&mut out, 0);
    out
}

/// Returns the document of a message with a single section; `None` for other messages.
pub fn document(message: &[u8]) -> Option<DocumentBuf> {
    let document = message.get(HEADER_SIZE + PREFIX_SIZE..)?;
    validate(document).ok()?;
    Some(DocumentBuf::from_valid(document.to_vec()))
}

/// Starts a reply; the caller appends the document.
pub fn begin_reply(out: &mut Vec<u8>, request_id: i32, response_to: i32) {
    header::begin(out, request_id, response_to, Opcode::Message);
    out.extend_from_slice(&0u32.to_le_bytes());
    out.push(0);
}

/// Sets `moreToCome` in the reply that fills `out`: further replies follow without a request.
pub fn set_more_to_come(out: &mut [u8]) {
    if let Some(flags) = out.get_mut(HEADER_SIZE..HEADER_SIZE + 4) {
        flags.copy_from_slice(&MORE_TO_COME.to_le_bytes());
    }
}
