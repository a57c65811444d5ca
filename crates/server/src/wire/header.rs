//! The sixteen bytes before every message: its length, two ids and the kind of message.

use super::{MAX_MESSAGE_SIZE, Trouble, malformed, read_i32};

/// The bytes of a header.
pub(crate) const HEADER_SIZE: usize = 16;

/// The kinds of message this server reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opcode {
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
    pub(crate) fn from_number(number: i32) -> Option<Opcode> {
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
pub(crate) struct Header {
    /// The sender's number of this message, which the answer repeats.
    pub(crate) request_id: i32,
    /// The kind of message.
    pub(crate) opcode: Opcode,
}

impl Header {
    /// Reads the header at the start of a complete frame and returns it with the bytes behind.
    pub(crate) fn split(frame: &[u8]) -> Result<(Header, &[u8]), Trouble> {
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
pub(crate) fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Trouble> {
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
pub(crate) fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, opcode: Opcode) {
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&request_id.to_le_bytes());
    out.extend_from_slice(&response_to.to_le_bytes());
    out.extend_from_slice(&(opcode as i32).to_le_bytes());
}

/// Fills in the length of the message that began at `start` and ends where the buffer does.
pub(crate) fn finish(out: &mut [u8], start: usize) {
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
