//! What begins every message: sixteen bytes with its length, two ids and the kind of message.
//!
//! All that takes messages apart is plain functions on slices, so that it can be fuzzed and tested without a socket.
//! Nothing allocates in proportion to what a length field merely claims. [`Trouble`] tells bytes that make no frame from
//! a well-framed message whose content is refused.

/// The largest message either side may send, in bytes: what hello promises as
/// maxMessageSizeBytes.
pub const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// The largest document that commands and replies are made of, in bytes: 16 MiB for a stored
/// document and 16 KiB for the command around it, as MongoDB allows.
pub const MAX_INTERNAL_DOCUMENT_SIZE: usize = base::bson::MAX_DOCUMENT_SIZE + 16 * 1024;

/// Why a frame wasn't turned into a request.
#[derive(Debug)]
pub enum Trouble {
    /// The bytes follow no protocol; the connection is closed, the text goes to the log.
    Malformed(String),
    /// The frame is sound and its content refused: the client gets this error.
    Refused(base::Error),
}

impl From<base::Error> for Trouble {
    fn from(error: base::Error) -> Trouble {
        Trouble::Refused(error)
    }
}

/// A frame makes no sense: builds [`Trouble::Malformed`].
pub fn malformed(what: impl Into<String>) -> Trouble {
    Trouble::Malformed(what.into())
}

/// Reads a little-endian `u32` at an offset, or `None` where the bytes end.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Reads a little-endian `i32` at an offset, or `None` where the bytes end.
pub fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_u32(bytes, at).map(|value| value as i32)
}

/// The length that a document at the start of `bytes` claims, checked against what is there.
pub fn document_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(read_i32(bytes, 0)?).ok()?;
    (5..=bytes.len()).contains(&length).then_some(length)
}

/// The bytes of a header.
pub const HEADER_SIZE: usize = 16;

/// The kinds of message this server reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// The reply to an [`Opcode::Query`].
    Reply = 1,
    /// A legacy command; only the handshake comes this way.
    Query = 2004,
    /// A compressed message of another kind.
    Compressed = 2012,
    /// Everything else.
    Message = 2013,
}

impl Opcode {
    /// The opcode with this number, unless it is one that MongoDB has removed too.
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

/// A header taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The sender's number of this message, which the answer repeats.
    pub request_id: i32,
    /// The kind of message.
    pub opcode: Opcode,
}

impl Header {
    /// Reads the header at the start of a complete frame and returns it with the bytes behind.
    pub fn split(frame: &[u8]) -> Result<(Header, &[u8]), Trouble> {
        let body = frame.get(HEADER_SIZE..).ok_or_else(|| malformed("message without a header"))?;
        let field = |at| read_i32(frame, at).unwrap_or_default();
        let number = field(12);
        let opcode =
            Opcode::from_number(number).ok_or_else(|| malformed(format!("unsupported opcode {number}")))?;
        Ok((Header { request_id: field(4), opcode }, body))
    }
}

/// The length of the frame that starts `bytes`, or `None` while too little has arrived to tell.
///
/// Errors: a length no message has.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Trouble> {
    let Some(length) = read_i32(bytes, 0) else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(0);
    if !(HEADER_SIZE..=MAX_MESSAGE_SIZE).contains(&length) {
        return Err(malformed(format!(
            "message length {length} is not within {HEADER_SIZE} to {MAX_MESSAGE_SIZE}"
        )));
    }
    Ok(Some(length))
}

/// Appends a header whose length is filled in by [`finish`].
pub fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, opcode: Opcode) {
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&request_id.to_le_bytes());
    out.extend_from_slice(&response_to.to_le_bytes());
    out.extend_from_slice(&(opcode as i32).to_le_bytes());
}

/// Fills in the length of the message that began at `start` and ends where the buffer does.
pub fn finish(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as i32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
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
    fn what_is_begun_and_finished_is_read_back() {
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
