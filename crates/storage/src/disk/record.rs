//! What the journal holds: batches as bytes, each in a frame that tells whether it is whole.
//!
//! A frame is a header of [`HEADER_BYTES`], then the batch. The header has a mark to search for, the length of
//! the batch, its position in the order of commits, the position that was known to be durable when it was
//! written, and a checksum (CRC-32C) of all of these and the batch. All numbers are little endian. Within the
//! batch an operation is a byte for its kind, then idents and lengths as variable-length numbers, and bytes.

use crate::{Batch, Error, Ident, Key, Op, Result};

/// The first bytes of every frame.
pub(super) const MARK: [u8; 4] = *b"VJR1";
/// Mark, length of the batch, position, durable position, checksum.
pub(super) const HEADER_BYTES: usize = 4 + 4 + 8 + 8 + 4;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CREATE: u8 = 3;
const DROP: u8 = 4;
const CLEAR: u8 = 5;
const FORK: u8 = 6;

/// A batch encoded, and framed but for what is known only when its turn comes.
pub(super) struct Encoded {
    /// Room for the header, then the batch.
    bytes: Vec<u8>,
    /// The checksum of the batch alone.
    checksum: u32,
}

impl Encoded {
    /// Encodes a batch; the slow part, to be done outside of any lock.
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + batch.len() * 32);
        bytes.resize(HEADER_BYTES, 0);
        batch.ops().iter().for_each(|op| encode_op(op, &mut bytes));
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::Full(format!(
                "a batch of {} bytes is too large for the journal",
                bytes.len()
            )));
        }
        let checksum = crc32c::crc32c(bytes.get(HEADER_BYTES..).unwrap_or_default());
        Ok(Encoded { bytes, checksum })
    }

    /// Fills in the header, and returns the whole frame.
    pub(super) fn frame(&mut self, position: u64, durable: u64) -> &[u8] {
        let header = header(self.bytes.len() - HEADER_BYTES, position, durable, self.checksum);
        if let Some(room) = self.bytes.first_chunk_mut() {
            *room = header;
        }
        &self.bytes
    }
}

fn header(len: usize, position: u64, durable: u64, checksum: u32) -> [u8; HEADER_BYTES] {
    let mut fields = [0; 20];
    fields[..4].copy_from_slice(&(len as u32).to_le_bytes());
    fields[4..12].copy_from_slice(&position.to_le_bytes());
    fields[12..].copy_from_slice(&durable.to_le_bytes());
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MARK);
    header[4..24].copy_from_slice(&fields);
    header[24..].copy_from_slice(&crc32c::crc32c_append(checksum, &fields).to_le_bytes());
    header
}

/// What a frame's header says, whole or not.
pub(super) struct Header {
    fields: [u8; 20],
    expected: [u8; 4],
    len: usize,
}

impl Header {
    /// The header that the bytes begin with, if they begin with the mark.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (mark, rest) = header.split_first_chunk::<4>()?;
        let (fields, expected) = rest.split_first_chunk::<20>()?;
        let len = u32::from_le_bytes(*fields.first_chunk()?) as usize;
        (*mark == MARK).then_some(Header { fields: *fields, expected: *expected.first_chunk()?, len })
    }

    /// The length that it gives the whole frame.
    pub(super) fn frame_len(&self) -> usize {
        HEADER_BYTES + self.len
    }

    /// Whether it belongs to a batch with this checksum.
    pub(super) fn seals(&self, batch: u32) -> bool {
        self.expected == crc32c::crc32c_append(batch, &self.fields).to_le_bytes()
    }
}

/// A frame found whole.
pub(super) struct Frame<'a> {
    pub(super) position: u64,
    /// What was known to be durable when this was written.
    pub(super) durable: u64,
    pub(super) batch: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame that the bytes begin with; `None` if there is none, or not a whole and sound one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::read(bytes)?;
        let batch = bytes.get(HEADER_BYTES..header.frame_len())?;
        let (position, durable) = (number(&header.fields, 4)?, number(&header.fields, 12)?);
        header.seals(crc32c::crc32c(batch)).then_some(Frame { position, durable, batch })
    }

    /// The length of the whole frame.
    pub(super) fn len(&self) -> usize {
        HEADER_BYTES + self.batch.len()
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn encode_op(op: &Op, bytes: &mut Vec<u8>) {
    match op {
        Op::Put { ident, key, value } => {
            bytes.push(PUT);
            encode_number(ident.0, bytes);
            encode_bytes(key, bytes);
            encode_bytes(value, bytes);
        }
        Op::Delete { ident, key } => {
            bytes.push(DELETE);
            encode_number(ident.0, bytes);
            encode_bytes(key, bytes);
        }
        Op::Create(ident) => encode_plain(CREATE, *ident, bytes),
        Op::Drop(ident) => encode_plain(DROP, *ident, bytes),
        Op::Clear(ident) => encode_plain(CLEAR, *ident, bytes),
        Op::Fork { from, to } => {
            encode_plain(FORK, *from, bytes);
            encode_number(to.0, bytes);
        }
    }
}

fn encode_plain(kind: u8, ident: Ident, bytes: &mut Vec<u8>) {
    bytes.push(kind);
    encode_number(ident.0, bytes);
}

fn encode_bytes(from: &[u8], bytes: &mut Vec<u8>) {
    encode_number(from.len() as u64, bytes);
    bytes.extend_from_slice(from);
}

fn encode_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The batch in a frame; `None` if its bytes make no sense, which a right checksum all but excludes.
pub(super) fn decode(bytes: &[u8]) -> Option<Batch> {
    let mut batch = Batch::new();
    let mut rest = bytes;
    while let Some(kind) = take_byte(&mut rest) {
        let ident = Ident(take_number(&mut rest)?);
        match kind {
            PUT => {
                let key = Key::from(take_bytes(&mut rest)?);
                batch.put(ident, key, take_bytes(&mut rest)?);
            }
            DELETE => batch.delete(ident, take_bytes(&mut rest)?),
            CREATE => batch.create(ident),
            DROP => batch.drop_ident(ident),
            CLEAR => batch.clear(ident),
            FORK => batch.fork(ident, Ident(take_number(&mut rest)?)),
            _ => return None,
        }
    }
    Some(batch)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, after) = rest.split_first()?;
    *rest = after;
    Some(*byte)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(rest)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let mut batch = Batch::new();
        batch.create(Ident(1));
        batch.put(Ident(1), b"key", vec![7; 300]);
        batch.put(Ident(u64::MAX), b"", b"");
        batch.delete(Ident(128), vec![0; 200]);
        batch.fork(Ident(1), Ident(1 << 40));
        batch.clear(Ident(1));
        batch.drop_ident(Ident(1));
        batch
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let mut encoded = Encoded::new(&batch()).unwrap();
        let frame = encoded.frame(7, 3).to_vec();
        let read = Frame::read(&frame).unwrap();
        assert_eq!((read.position, read.durable, read.len()), (7, 3, frame.len()));
        assert_eq!(decode(read.batch), Some(batch()));
        assert_eq!(decode(&[]), Some(Batch::new()));
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_anywhere_is_no_frame() {
        let frame = Encoded::new(&batch()).unwrap().frame(7, 3).to_vec();
        for at in 0..frame.len() {
            assert!(Frame::read(&frame[..at]).is_none());
            for bit in 0..8 {
                let mut flipped = frame.clone();
                flipped[at] ^= 1 << bit;
                assert!(Frame::read(&flipped).is_none());
            }
        }
    }

    #[test]
    fn nonsense_is_not_decoded() {
        for bytes in [&[9, 1][..], &[PUT], &[PUT, 1, 5, 0], &[FORK, 1], &[CREATE; 0], &[CREATE, 0xFF]] {
            assert_eq!(decode(bytes).is_some(), bytes.is_empty());
        }
    }
}
