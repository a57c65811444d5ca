//! The message header: sixteen bytes with the length, two ids and the opcode.
//!
//! All parsers of messages are functions on slices, which can be fuzzed and tested without a socket. No
//! allocation is proportional to the claim of a length field. [`FrameError`] distinguishes bytes that are not a frame
//! from a well-formed frame with refused content.

/// Maximum message size in both directions, in bytes: hello's maxMessageSizeBytes.
pub const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// Maximum size of a command or reply document, in bytes. As in MongoDB: 16 MiB for a stored document and 16 KiB for
/// the command around it.
pub const MAX_INTERNAL_DOCUMENT_SIZE: usize = base::bson::MAX_DOCUMENT_SIZE + 16 * 1024;

/// Reason why a frame is not a request.
#[derive(Debug)]
pub enum FrameError {
    /// Bytes outside the protocol. The server closes the connection and logs the text.
    Malformed(String),
    /// A well-formed frame with refused content. The client receives this error.
    Refused(base::Error),
}

impl From<base::Error> for FrameError {
    fn from(error: base::Error) -> FrameError {
        FrameError::Refused(error)
    }
}

/// Builds [`FrameError::Malformed`].
pub fn malformed(message: impl Into<String>) -> FrameError {
    FrameError::Malformed(message.into())
}

/// Reads a little-endian `u32` at an offset; `None` past the end.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Reads a little-endian `i32` at an offset; `None` past the end.
pub fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_u32(bytes, at).map(|value| value as i32)
}

/// Reads the length field of the document at the start of `bytes` and checks it against the available bytes.
pub fn document_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(read_i32(bytes, 0)?).ok()?;
    (5..=bytes.len()).contains(&length).then_some(length)
}

/// Size of a header in bytes.
pub const HEADER_SIZE: usize = 16;

/// The opcodes that this server reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// The reply to an [`Opcode::Query`].
    Reply = 1,
    /// A legacy command; accepted only for the handshake.
    Query = 2004,
    /// A compressed message of another opcode.
    Compressed = 2012,
    /// All other requests and replies.
    Message = 2013,
}

impl Opcode {
    /// Returns the opcode with this number; `None` for opcodes that MongoDB has removed too.
    pub fn from_number(number: i32) -> Option<Opcode> {
        Some(match number {
            1 => Opcode::Reply,
            2004 => Opcode::Query,
            2012 => Opcode::Compressed,
            2013 => Opcode::Message,
            _ => return None,
        })
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The sender's id of this message, which the reply repeats.
    pub request_id: i32,
    /// The kind of message.
    pub opcode: Opcode,
}

impl Header {
    /// Reads the header of a complete frame and returns it with the bytes after it.
    pub fn split(frame: &[u8]) -> Result<(Header, &[u8]), FrameError> {
        let body = frame.get(HEADER_SIZE..).ok_or_else(|| malformed("message without a header"))?;
        let field = |at| read_i32(frame, at).unwrap_or_default();
        let number = field(12);
        let opcode =
            Opcode::from_number(number).ok_or_else(|| malformed(format!("unsupported opcode {number}")))?;
        Ok((Header { request_id: field(4), opcode }, body))
    }
}

/// Returns the length of the frame that starts `bytes`; `None` until enough bytes have arrived.
///
/// Errors: a length that no message can have.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(length) = read_i32(bytes, 0) else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(0);
    if !(HEADER_SIZE..=MAX_MESSAGE_SIZE).contains(&length) {
        return Err(malformed(format!(
            "message length {length} is not within {HEADER_SIZE} to {MAX_MESSAGE_SIZE}"
        )));
    }
    Ok(Some(length))
}

/// Appends a header; [`finish`] fills in its length.
pub fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, opcode: Opcode) {
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&request_id.to_le_bytes());
    out.extend_from_slice(&response_to.to_le_bytes());
    out.extend_from_slice(&(opcode as i32).to_le_bytes());
}

/// Fills in the length of the message that spans from `start` to the end of the buffer.
pub fn finish(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as i32;
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_on_both_sides() {
        assert!(matches!(frame_length(&[1, 2, 3]), Ok(None)));
        assert!(matches!(frame_length(&16i32.to_le_bytes()), Ok(Some(16))));
        assert!(matches!(frame_length(&48_000_000i32.to_le_bytes()), Ok(Some(48_000_000))));
        for bad in [0, 15, 48_000_001, -1, i32::MIN, i32::MAX] {
            assert!(frame_length(&bad.to_le_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_finished_message_is_read_back() {
        let mut out = vec![7];
        begin(&mut out, 5, 6, Opcode::Message);
        out.extend_from_slice(b"body");
        finish(&mut out, 1);
        assert_eq!(frame_length(&out[1..]).unwrap(), Some(20));
        let (header, body) = Header::split(&out[1..]).unwrap();
        assert_eq!((header.request_id, header.opcode, body), (5, Opcode::Message, &b"body"[..]));
        assert!(Header::split(&out[1..10]).is_err());
    }
}
