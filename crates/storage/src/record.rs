//! The journal's records: batches as bytes, each in a frame with a checksum.
//!
//! A frame has a header of [`HEADER_BYTES`], then the batch. The header has a magic to search for, the length of the
//! batch, its position in the order of commits, the durable position at the time of writing, its cluster time, and a
//! CRC-32C of these fields and the batch, XORed with the seed of the file. All numbers are little endian. In a batch an
//! operation has a byte for its kind, then idents and lengths as variable-length numbers, and bytes. A value put
//! earlier in the batch is stored as the distance to the earlier operation. A new operation needs a kind, and cases in
//! `encode_op` and `decode`.
//!
//! Each segment of the journal has its own seed, which clients cannot know. A value that contains the bytes of a frame
//! is therefore no frame, even if a torn write makes a reader search for frames within values.

use std::collections::HashMap;

use crate::{Batch, Error, Ident, Key, Op, Result, Value, mutant};

/// Common prefix of the magic of all frame versions; the last byte is the version.
pub(crate) const MAGIC_PREFIX: [u8; 3] = *b"VJR";
/// First bytes of every frame.
const MAGIC: [u8; 4] = *b"VJR2";
/// Length of magic, batch length, position, durable position, time, checksum.
pub(crate) const HEADER_BYTES: usize = 4 + FIELD_BYTES + 4;
const FIELD_BYTES: usize = 4 + 8 + 8 + 8;
/// Seed of frames in backups, in archives, and in segments of the first version.
pub(crate) const NO_SEED: u32 = 0;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CREATE: u8 = 3;
const DROP: u8 = 4;
const CLEAR: u8 = 5;
const FORK: u8 = 6;
const PUT_SHARED: u8 = 7;

/// Minimum length of values that are stored once.
const SHARED_VALUE_MIN: usize = 32;
/// Number of operations up to which debug builds read an encoded batch back.
const READ_BACK: usize = 8;
/// Number of operations above which equal values are found by hashing.
const LINEAR_SEARCH_MAX: usize = 16;

/// An encoded batch. Its frame lacks the fields that are known only in the order of commits.
pub(crate) struct Encoded {
    /// Space for the header, then the batch.
    bytes: Vec<u8>,
    /// Checksum of the batch alone.
    checksum: u32,
    time: u64,
}

impl Encoded {
    /// Encodes a batch. This slow part runs outside of any lock.
    pub(crate) fn new(batch: &Batch) -> Result<Self> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + batch.ops().iter().map(length).sum::<usize>());
        bytes.resize(HEADER_BYTES, 0);
        let mut shared_values = SharedValues::new(batch);
        for (at, op) in batch.ops().iter().enumerate() {
            encode_op(op, shared_values.before(at, op), &mut bytes);
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::Full(format!(
                "a batch of {} bytes is too large for the journal",
                bytes.len()
            )));
        }
        let encoded = bytes.get(HEADER_BYTES..).unwrap_or_default();
        debug_assert!(
            batch.len() > READ_BACK || decode(encoded).is_some_and(|read| read.ops() == batch.ops()),
            "a replay would apply another batch than {batch:?}"
        );
        let checksum = crc32c::crc32c(encoded);
        Ok(Encoded { bytes, checksum, time: batch.time() })
    }

    /// Completes the header for a file with this seed, and returns the whole frame.
    pub(crate) fn frame(&mut self, position: u64, durable: u64, seed: u32) -> &[u8] {
        debug_assert!(durable < position, "commit {position} is durable before it is written");
        let numbers = [position, durable, self.time];
        let header = header(self.bytes.len() - HEADER_BYTES, numbers, self.checksum, seed);
        if let Some(target) = self.bytes.first_chunk_mut() {
            *target = header;
        }
        debug_assert_eq!(Header::read(&self.bytes).map(|read| read.frame_len()), Some(self.bytes.len()));
        &self.bytes
    }
}

/// Encodes a header: batch length, then position, durable position and time, then the checksum.
fn header(len: usize, numbers: [u64; 3], checksum: u32, seed: u32) -> [u8; HEADER_BYTES] {
    let mut fields = [0; FIELD_BYTES];
    fields[..4].copy_from_slice(&(len as u32).to_le_bytes());
    for (field, number) in fields[4..].chunks_exact_mut(8).zip(numbers) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..4 + FIELD_BYTES].copy_from_slice(&fields);
    let checksum_of_all = crc32c::crc32c_append(checksum, &fields) ^ seed;
    header[4 + FIELD_BYTES..].copy_from_slice(&checksum_of_all.to_le_bytes());
    debug_assert!(
        Header::read(&header).is_some_and(|read| read.matches_checksum(checksum, seed)),
        "a reader refuses the frame"
    );
    header
}

/// The header of a frame, valid or not.
pub(crate) struct Header {
    pub(crate) position: u64,
    durable: u64,
    time: u64,
    /// The encoded fields, for the checksum.
    fields: [u8; FIELD_BYTES],
    /// The stored checksum.
    expected: u32,
    /// Length of the batch.
    len: usize,
}

impl Header {
    /// Parses the header at the start of the bytes; `None` without a magic.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (fields, rest) = bytes.strip_prefix(&MAGIC)?.split_first_chunk::<FIELD_BYTES>()?;
        Some(Header {
            position: number(fields, 4)?,
            durable: number(fields, 12)?,
            time: number(fields, 20)?,
            fields: *fields,
            expected: u32::from_le_bytes(*rest.first_chunk()?),
            len: u32::from_le_bytes(*fields.first_chunk()?) as usize,
        })
    }

    /// Returns the length of the whole frame.
    pub(crate) fn frame_len(&self) -> usize {
        HEADER_BYTES + self.len
    }

    /// Returns true if the header belongs to a batch with this checksum, in a file with this seed.
    pub(crate) fn matches_checksum(&self, batch: u32, seed: u32) -> bool {
        self.expected == crc32c::crc32c_append(batch, &self.fields) ^ seed
            || mutant!("frames are not verified")
    }
}

/// Removes a seed from a whole frame.
pub(crate) fn remove_seed(frame: &mut [u8], seed: u32) {
    if let Some(checksum) = frame.get_mut(4 + FIELD_BYTES..).and_then(|rest| rest.first_chunk_mut()) {
        *checksum = (u32::from_le_bytes(*checksum) ^ seed).to_le_bytes();
    }
}

/// Corrects the checksums of consecutive frames in random test data.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn fix_checksums(mut bytes: &mut [u8], seed: u32) {
    while let Some(header) = Header::read(bytes) {
        let (at, len) = (HEADER_BYTES, header.frame_len());
        let Some(batch) = bytes.get(at..len) else { return };
        let checksum = crc32c::crc32c_append(crc32c::crc32c(batch), &header.fields) ^ seed;
        let Some((frame, rest)) = bytes.split_at_mut_checked(len) else { return };
        if let Some(slot) = frame.get_mut(at - 4..at) {
            slot.copy_from_slice(&checksum.to_le_bytes());
        }
        bytes = rest;
    }
}

/// A valid frame.
pub(crate) struct Frame<'a> {
    pub(crate) position: u64,
    /// Durable position at the time of its writing.
    pub(crate) durable: u64,
    /// Cluster time of the batch.
    time: u64,
    batch: &'a [u8],
    len: usize,
}

impl<'a> Frame<'a> {
    /// Returns the frame at the start of the bytes; `None` if it is incomplete, invalid, or has another seed.
    pub(crate) fn read(bytes: &'a [u8], seed: u32) -> Option<Self> {
        let header = Header::read(bytes)?;
        let batch = bytes.get(HEADER_BYTES..header.frame_len())?;
        let Header { position, durable, time, .. } = header;
        let len = header.frame_len();
        header.matches_checksum(crc32c::crc32c(batch), seed).then_some(Frame {
            position,
            durable,
            time,
            batch,
            len,
        })
    }

    /// Returns the length of the whole frame.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the cluster time of the batch; 0 for none.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// Decodes the batch; `None` for invalid bytes, which a correct checksum nearly excludes.
    pub(crate) fn decode(&self) -> Option<Batch> {
        let mut batch = decode(self.batch)?;
        batch.set_time(self.time);
        Some(batch)
    }
}

/// The values put by a batch so far, by their address.
struct SharedValues<'a> {
    ops: &'a [Op],
    /// In a large batch, the first operation with each address.
    first: HashMap<*const u8, usize>,
}

impl<'a> SharedValues<'a> {
    /// Indexes the values by address if the batch is large.
    fn new(batch: &'a Batch) -> Self {
        SharedValues { ops: batch.ops(), first: HashMap::new() }
    }

    /// Returns the distance to an earlier operation with the same value, if any.
    fn before(&mut self, at: usize, op: &Op) -> Option<u64> {
        let address = shared(op)?;
        let first = match self.ops.len() > LINEAR_SEARCH_MAX {
            true => *self.first.entry(address).or_insert(at),
            false => self.ops.iter().position(|other| shared(other) == Some(address))?,
        };
        debug_assert!(first <= at, "operation {at} would refer to a later one");
        debug_assert!(
            first == at || self.ops.get(first).and_then(shared) == Some(address),
            "operation {first} has another value"
        );
        (first < at).then(|| (at - first) as u64)
    }
}

/// Returns the address of an operation's value, if values may be shared.
fn shared(op: &Op) -> Option<*const u8> {
    match op {
        Op::Put { value, .. } if value.len() >= SHARED_VALUE_MIN && value.is_shared() => Some(value.as_ptr()),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the maximum encoded length of an operation with numbers of ordinary size.
fn length(op: &Op) -> usize {
    const NUMBER_BYTES: usize = 16;
    NUMBER_BYTES
        + match op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete { key, .. } => key.len(),
            _ => 0,
        }
}

/// Encodes an operation. `before` is the distance to an earlier operation with its value, if any.
fn encode_op(op: &Op, before: Option<u64>, bytes: &mut Vec<u8>) {
    match op {
        Op::Put { ident, key, value } => {
            encode_kind(if before.is_some() { PUT_SHARED } else { PUT }, *ident, bytes);
            encode_bytes(key, bytes);
            match before {
                Some(before) => encode_number(before, bytes),
                None => encode_bytes(value, bytes),
            }
        }
        Op::Delete { ident, key } => {
            bytes.push(DELETE);
            encode_number(ident.0, bytes);
            encode_bytes(key, bytes);
        }
        Op::Create(ident) => encode_kind(CREATE, *ident, bytes),
        Op::Drop(ident) => encode_kind(DROP, *ident, bytes),
        Op::Clear(ident) => encode_kind(CLEAR, *ident, bytes),
        Op::Fork { from, to } => {
            encode_kind(FORK, *from, bytes);
            encode_number(to.0, bytes);
        }
    }
}

fn encode_kind(kind: u8, ident: Ident, bytes: &mut Vec<u8>) {
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

/// Decodes a batch; `None` for invalid bytes.
fn decode(bytes: &[u8]) -> Option<Batch> {
    let mut batch = Batch::new();
    let mut rest = bytes;
    while let Some(kind) = take_byte(&mut rest) {
        let ident = Ident(take_number(&mut rest)?);
        match kind {
            PUT => {
                let key = Key::from(take_bytes(&mut rest)?);
                batch.put(ident, key, take_bytes(&mut rest)?);
            }
            PUT_SHARED => {
                let key = Key::from(take_bytes(&mut rest)?);
                let before = usize::try_from(take_number(&mut rest)?).ok()?;
                let value = put_at(&batch, batch.len().checked_sub(before)?)?;
                batch.put(ident, key, value);
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

/// Returns the value put by an operation of a batch.
fn put_at(batch: &Batch, at: usize) -> Option<Value> {
    match batch.ops().get(at)? {
        Op::Put { value, .. } => Some(value.clone()),
        _ => None,
    }
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

/// Returns the bytes of a batch as in a frame, after the header.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn batch_bytes(batch: &Batch) -> Result<Vec<u8>> {
    let mut bytes = Encoded::new(batch)?.bytes;
    Ok(bytes.split_off(HEADER_BYTES))
}

/// Decodes these bytes.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn batch_of(bytes: &[u8]) -> Option<Batch> {
    decode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a batch that contains one value several times.
    fn batch() -> Batch {
        let mut batch = Batch::new();
        let value = Value::from(vec![6; 200]);
        batch.set_time(5 << 32 | 1);
        batch.create(Ident(1));
        batch.put(Ident(1), b"key", vec![7; 300]);
        batch.put(Ident(u64::MAX), b"", b"");
        batch.put(Ident(1), b"a", value.clone());
        batch.put(Ident(2), b"b", value.clone());
        batch.delete(Ident(128), vec![0; 200]);
        batch.fork(Ident(1), Ident(1 << 40));
        batch.clear(Ident(1));
        batch.drop_ident(Ident(1));
        batch.put(Ident(3), b"c", value);
        batch
    }

    fn addresses(batch: &Batch) -> Vec<*const u8> {
        batch.ops().iter().filter_map(shared).collect()
    }

    #[test]
    fn a_batch_round_trips() {
        let mut encoded = Encoded::new(&batch()).unwrap();
        let mut frame = encoded.frame(7, 3, 9).to_vec();
        let read = Frame::read(&frame, 9).unwrap();
        assert_eq!((read.position, read.durable, read.len()), (7, 3, frame.len()));
        assert_eq!(read.decode(), Some(batch()));
        assert!(Frame::read(&frame, 8).is_none() && Frame::read(&frame, NO_SEED).is_none());
        remove_seed(&mut frame, 9);
        assert_eq!(frame, encoded.frame(7, 3, NO_SEED));
        assert_eq!(decode(&[]), Some(Batch::new()));
    }

    #[test]
    fn a_value_put_again_is_written_once_and_shared_once_read() {
        for others in [0, 3, 1000] {
            let mut batch = Batch::new();
            let values: Vec<Value> = (0..others + 1).map(|fill| vec![fill as u8; 100].into()).collect();
            for (at, value) in (0u64..).zip(&values) {
                batch.put(Ident(1), at.to_be_bytes(), value.clone());
                batch.put(Ident(2), at.to_be_bytes(), at.to_be_bytes());
            }
            for (at, value) in (0u64..).zip(&values) {
                batch.put(Ident(3), at.to_be_bytes(), value.clone());
            }
            let mut encoded = Encoded::new(&batch).unwrap();
            let frame = encoded.frame(1, 0, 9);
            assert!(frame.len() < HEADER_BYTES + values.len() * 160, "{} {}", frame.len(), values.len());
            let read = Frame::read(frame, 9).and_then(|frame| frame.decode()).unwrap();
            assert_eq!(read, batch);
            let addresses = addresses(&read);
            assert_eq!(addresses.len(), 2 * values.len());
            assert_eq!(addresses[..values.len()], addresses[values.len()..]);
        }
    }

    #[test]
    fn a_frame_of_another_version_is_no_frame() {
        let frame = Encoded::new(&batch()).unwrap().frame(7, 3, 9).to_vec();
        for mark in [b"VJR1", b"VJR3"] {
            assert!(Frame::read(&[&mark[..], &frame[4..]].concat(), 9).is_none());
        }
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_anywhere_is_no_frame() {
        let frame = Encoded::new(&batch()).unwrap().frame(7, 3, 9).to_vec();
        for at in 0..frame.len() {
            assert!(Frame::read(&frame[..at], 9).is_none());
            for bit in 0..8 {
                let mut flipped = frame.clone();
                flipped[at] ^= 1 << bit;
                assert!(Frame::read(&flipped, 9).is_none());
            }
        }
    }

    #[test]
    fn nonsense_is_not_decoded() {
        let again = [CREATE, 1, PUT_SHARED, 1, 0, 1];
        for bytes in [&[9, 1][..], &[PUT], &[PUT, 1, 5, 0], &[FORK, 1], &[CREATE; 0], &[CREATE, 0xFF], &again]
        {
            assert_eq!(decode(bytes).is_some(), bytes.is_empty());
        }
    }
}
