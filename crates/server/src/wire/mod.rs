//! The wire protocol: bytes of a socket taken apart into requests, replies put together.
//!
//! Everything here is a plain function on slices, so that it can be fuzzed and tested without a
//! socket. Nothing allocates in proportion to what a length field merely claims: a frame is
//! complete before it is looked at, and decompression stops at the message limit.
//!
//! Two kinds of trouble are told apart by [`Trouble`]: bytes that make no frame (the connection
//! has lost its place and is closed) and a well-framed message whose content is refused (the
//! client gets an error and goes on).

pub(crate) mod compression;
pub(crate) mod header;
pub(crate) mod message;
pub(crate) mod query;
pub(crate) mod request;
#[cfg(test)]
mod tests;

pub(crate) use compression::Compressor;
pub(crate) use header::{HEADER_SIZE, Header, Opcode, frame_length};
pub(crate) use request::{Documents, Request};

/// The largest message either side may send, in bytes: what hello promises as
/// maxMessageSizeBytes.
pub(crate) const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// The largest document that commands and replies are made of, in bytes: 16 MiB for a stored
/// document and 16 KiB for the command around it, as MongoDB allows.
pub(crate) const MAX_INTERNAL_DOCUMENT_SIZE: usize = base::bson::MAX_DOCUMENT_SIZE + 16 * 1024;

/// Why a frame wasn't turned into a request.
#[derive(Debug)]
pub(crate) enum Trouble {
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
pub(crate) fn malformed(what: impl Into<String>) -> Trouble {
    Trouble::Malformed(what.into())
}

/// Reads a little-endian `u32` at an offset, or `None` where the bytes end.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Reads a little-endian `i32` at an offset, or `None` where the bytes end.
pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_u32(bytes, at).map(|value| value as i32)
}

/// The length that a document at the start of `bytes` claims, checked against what is there.
pub(crate) fn document_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(read_i32(bytes, 0)?).ok()?;
    (5..=bytes.len()).contains(&length).then_some(length)
}
