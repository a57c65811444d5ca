//! Reads a segment in chunks, so that memory does not grow with the journal.
//!
//! A frame longer than a chunk is read whole only after its checksum has been verified. A damaged header may contain
//! any length.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{File, during};
use super::journal::{self, SEGMENT_HEADER_BYTES, Segments};
use crate::record::{Frame, HEADER_BYTES, Header, MAGIC_PREFIX, NO_SEED};
use crate::{Error, Result, mark};

/// Size of a chunk.
const PIECE: usize = 1 << 20;
/// Block size of a lost write: a file system leaves zeros in multiples of it.
const BLOCK_BYTES: usize = 512;

/// A segment and its current chunk.
pub(super) struct Reader {
    pub(super) number: u64,
    /// Seed of its frames.
    pub(super) seed: u32,
    file: Arc<dyn File>,
    path: PathBuf,
    len: u64,
    /// Bytes of the chunk.
    piece: Vec<u8>,
    /// Offset of the chunk.
    start: u64,
}

/// Place and length of a valid frame.
pub(super) struct FrameLocation {
    pub(super) offset: u64,
    pub(super) position: u64,
    /// Durable position at the time of its writing.
    pub(super) durable: u64,
    /// Length of the whole frame.
    pub(super) len: u64,
}

impl Reader {
    /// Opens a segment by its number.
    pub(super) fn open(segments: &Segments, number: u64) -> Result<Self> {
        let path = segments.path(number);
        let file = segments.files.open(&path, false).map_err(|error| during("reading", &path, error))?;
        Ok(Reader { number, ..Reader::on(file, path)? })
    }

    /// Reads an open file of frames without a seed.
    pub(super) fn on(file: Arc<dyn File>, path: PathBuf) -> Result<Self> {
        let len = file.len().map_err(|error| during("reading", &path, error))?;
        Ok(Reader { number: 0, seed: NO_SEED, file, path, len, piece: Vec::new(), start: 0 })
    }

    /// Opens a segment. Returns `None` for a directory, or for a file with neither a segment's header nor any frame.
    /// The positions show whether a segment is missing.
    pub(super) fn open_segment(segments: &Segments, number: u64) -> Result<Option<Self>> {
        let mut reader = match Reader::open(segments, number) {
            Err(Error::Io { kind: ErrorKind::IsADirectory, .. }) => return Ok(None),
            opened => opened?,
        };
        let begin = reader.bytes(0, SEGMENT_HEADER_BYTES)?;
        let begins_otherwise = Segments::begins_otherwise(begin);
        let header = begin.first_chunk().copied().filter(journal::is_intact);
        reader.seed = header.map_or_else(|| segments.seed(number), |header| journal::seed(&header));
        // A damaged header can be of either version.
        if header.is_none() && reader.find(0)?.is_none() {
            reader.seed = NO_SEED;
            if begins_otherwise && reader.find(0)?.is_none() {
                return Ok(None);
            }
        }
        reader.rest();
        Ok(Some(reader))
    }

    /// Returns the length of the segment.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes from an offset: at least `length`, unless the segment ends before.
    pub(super) fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let left = self.len.saturating_sub(offset);
        let length = (length as u64).min(left);
        let end = self.start + self.piece.len() as u64;
        if offset < self.start || offset + length > end {
            let size = length.max(PIECE as u64).min(left) as usize;
            if self.piece.capacity() > 4 * PIECE && size <= PIECE {
                self.piece = Vec::new();
            }
            self.piece.resize(size, 0);
            self.start = offset;
            let read = self.file.read_at(&mut self.piece, offset);
            read.map_err(|error| during("reading", &self.path, error))?;
        }
        let found = self.piece.get((offset - self.start) as usize..).unwrap_or_default();
        debug_assert!(found.len() as u64 >= length, "{} bytes of {length} at {offset}", found.len());
        debug_assert!(found.len() as u64 <= left, "bytes behind the end of the segment");
        Ok(found)
    }

    /// Frees the memory.
    pub(super) fn rest(&mut self) {
        (self.piece, self.start) = (Vec::new(), 0);
    }

    /// Returns the frame at an offset, if it is complete and valid.
    pub(super) fn frame(&mut self, offset: u64) -> Result<Option<Frame<'_>>> {
        let Some(header) = Header::read(self.bytes(offset, HEADER_BYTES)?) else { return Ok(None) };
        let len = header.frame_len();
        if len as u64 > self.len.saturating_sub(offset) || len > PIECE && !self.is_sound(offset, &header)? {
            return Ok(None);
        }
        let seed = self.seed;
        Ok(Frame::read(self.bytes(offset, len)?, seed))
    }

    /// Verifies a frame's checksum chunk by chunk.
    fn is_sound(&mut self, offset: u64, header: &Header) -> Result<bool> {
        let (mut at, end) = (offset + HEADER_BYTES as u64, offset + header.frame_len() as u64);
        let mut checksum = 0;
        while at < end {
            let length = (end - at).min(PIECE as u64) as usize;
            let bytes = self.bytes(at, length)?;
            let bytes = bytes.get(..length).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(false);
            }
            checksum = crc32c::crc32c_append(checksum, bytes);
            at += bytes.len() as u64;
            debug_assert!(at <= end, "the checksum covers bytes of the next frame");
        }
        Ok(header.matches_checksum(checksum, self.seed))
    }

    /// Returns the next valid frame from an offset on, and skips other bytes. Without a seed, frames within an
    /// incomplete frame are skipped too, since a value can contain them.
    pub(super) fn find(&mut self, from: u64) -> Result<Option<FrameLocation>> {
        let mut at = from.min(self.len);
        if self.seed == NO_SEED
            && let Some(incomplete) = Header::read(self.bytes(at, HEADER_BYTES)?)
            && self.frame(at)?.is_none()
        {
            mark!("a search passes over an incomplete frame without a seed");
            at = self.len.min(at + incomplete.frame_len() as u64);
        }
        loop {
            let bytes = self.bytes(at, HEADER_BYTES)?;
            if bytes.len() < MAGIC_PREFIX.len() {
                return Ok(None);
            }
            let ahead = bytes.windows(MAGIC_PREFIX.len()).position(|window| window == MAGIC_PREFIX);
            let Some(ahead) = ahead else {
                // The mark may cross the end of the chunk.
                at += (bytes.len() - (MAGIC_PREFIX.len() - 1)) as u64;
                continue;
            };
            at += ahead as u64;
            if let Some(frame) = self.frame(at)? {
                let (position, durable, len) = (frame.position, frame.durable, frame.len() as u64);
                debug_assert!(at >= from && at + len <= self.len, "a frame at {at} of {len} bytes");
                return Ok(Some(FrameLocation { offset: at, position, durable, len }));
            }
            at += 1;
        }
    }

    /// Returns true if a valid frame after a position exists from an offset on.
    pub(super) fn find_after(&mut self, position: u64, mut from: u64) -> Result<bool> {
        while let Some(frame) = self.find(from)? {
            if frame.position > position {
                return Ok(true);
            }
            from = frame.offset + frame.len;
        }
        Ok(false)
    }

    /// Returns true if only zeros follow an offset, as after an extension in advance.
    pub(super) fn is_zero_from(&mut self, offset: u64) -> Result<bool> {
        let mut at = offset;
        while at < self.len {
            let bytes = self.bytes(at, 1)?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Returns true for zeros from an offset to the end of its block, or for a whole block of zeros before another
    /// offset.
    pub(super) fn has_zero_block(&mut self, from: u64, to: u64) -> Result<bool> {
        let (mut at, block) = (from, BLOCK_BYTES as u64);
        while at < to {
            let end = at - at % block + block;
            if end > to {
                break;
            }
            let length = (end - at) as usize;
            let bytes = self.bytes(at, length)?.get(..length).unwrap_or_default();
            if !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            at = end;
        }
        Ok(false)
    }
}
