//! The write buffer of the journal: if every commit waits for a sync, syncs write the frames.
//!
//! A sync writes whole blocks by direct I/O and has them durable in the same call. This takes a fraction of a write
//! into the system's cache followed by a sync. The last, partial block is written again by the next sync with unchanged
//! earlier bytes. Files are extended with zeros in advance. Committed frames therefore have space, and no write changes
//! the file length.

use std::io;
use std::sync::Arc;

use super::files::{BLOCK, File};

/// Maximum capacity kept after a long frame.
const RETAINED_BYTES: usize = 1 << 20;

/// Whole blocks at an aligned address.
pub(super) struct Blocks {
    bytes: Vec<u8>,
    /// Offset of the aligned address in `bytes`.
    from: usize,
}

impl Blocks {
    /// Returns bytes padded with zeros to a whole block.
    fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().next_multiple_of(BLOCK);
        let mut buffer = vec![0; len + BLOCK];
        let from = buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
        if let Some(to) = buffer.get_mut(from..from + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        debug_assert!(from + len <= buffer.len(), "the blocks have no room behind their aligned address");
        buffer.truncate(from + len);
        Blocks { bytes: buffer, from }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }
}

/// The end of a segment, from the first block that is not complete on disk.
struct Tail {
    file: Arc<dyn File>,
    /// Offset of this block.
    start: u64,
    /// Bytes from `start` to the end of the segment.
    bytes: Vec<u8>,
    /// True if zeros were written in advance that a sync must still make durable.
    zeros: bool,
}

/// The buffer that the next sync writes.
pub(super) struct WriteBuffer {
    /// Ends of complete segments.
    older: Vec<Tail>,
    /// End of the present segment.
    last: Tail,
}

/// One write of a sync.
pub(super) struct Part {
    file: Arc<dyn File>,
    start: u64,
    blocks: Blocks,
    zeros: bool,
}

impl Part {
    /// Writes it durably.
    pub(super) fn write(&self) -> io::Result<()> {
        debug_assert!(
            self.start.is_multiple_of(BLOCK as u64),
            "a write begins within a block: {}",
            self.start
        );
        debug_assert!(self.blocks.bytes().len().is_multiple_of(BLOCK), "a write ends within a block");
        if self.zeros {
            self.file.sync()?;
        }
        self.file.write_durably(self.blocks.bytes(), self.start)
    }
}

impl WriteBuffer {
    /// Creates a buffer after the contents of a file with length `len`.
    ///
    /// Errors: a failed read of its last block.
    pub(super) fn new(file: Arc<dyn File>, len: u64) -> io::Result<Self> {
        let start = len - len % BLOCK as u64;
        let mut bytes = vec![0; (len - start) as usize];
        debug_assert!(bytes.len() < BLOCK, "a whole block would be written again");
        file.read_at(&mut bytes, start)?;
        Ok(WriteBuffer { older: Vec::new(), last: Tail { file, start, bytes, zeros: false } })
    }

    /// Adds a frame.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.last.bytes.extend_from_slice(frame);
    }

    /// Records that the file has been extended with zeros.
    pub(super) fn has_zeros(&mut self) {
        self.last.zeros = true;
    }

    /// Switches to a new file, which already contains these bytes.
    pub(super) fn switch(&mut self, file: Arc<dyn File>, bytes: &[u8]) {
        let next = Tail { file, start: 0, bytes: bytes.to_vec(), zeros: false };
        debug_assert!(!Arc::ptr_eq(&next.file, &self.last.file), "the segment is the one before");
        self.older.push(std::mem::replace(&mut self.last, next));
    }

    /// Removes complete segments: they are not needed any more.
    pub(super) fn forget_older(&mut self) {
        self.older.clear();
    }

    /// Returns the pending writes in order.
    pub(super) fn take(&mut self) -> Vec<Part> {
        let part = |tail: &Tail| Part {
            file: Arc::clone(&tail.file),
            start: tail.start,
            blocks: Blocks::of(&tail.bytes),
            zeros: tail.zeros,
        };
        let mut parts: Vec<Part> = self.older.drain(..).map(|tail| part(&tail)).collect();
        parts.push(part(&self.last));
        self.last.zeros = false;
        parts
    }

    /// Records that the writes succeeded or failed.
    pub(super) fn written(&mut self, parts: &[Part], is_durable: bool) {
        let Some(part) = parts.last().filter(|part| Arc::ptr_eq(&part.file, &self.last.file)) else { return };
        debug_assert_eq!(part.start, self.last.start, "another sync has written the same blocks");
        if !is_durable {
            self.last.zeros |= part.zeros;
            return;
        }
        // Later frames may have arrived. The last block is then written again.
        let full_blocks = part.blocks.bytes().len().saturating_sub(BLOCK).min(self.last.bytes.len());
        debug_assert!(full_blocks.is_multiple_of(BLOCK), "a part of a block is removed");
        self.last.bytes.drain(..full_blocks);
        self.last.start += full_blocks as u64;
        self.last.bytes.shrink_to(RETAINED_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Files;
    use crate::testing::FaultyFiles;
    use std::path::Path;

    #[test]
    fn blocks_are_whole_and_aligned() {
        for len in [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK] {
            let blocks = Blocks::of(&vec![7; len]);
            let bytes = blocks.bytes();
            assert_eq!((bytes.len() % BLOCK, bytes.as_ptr().align_offset(BLOCK)), (0, 0));
            assert!(bytes.len() >= len && bytes.len() < len + BLOCK);
            assert!(bytes[..len].iter().all(|byte| *byte == 7) && bytes[len..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn written_bytes_equal_pushed_bytes_under_concurrency() {
        let files = FaultyFiles::new();
        let file = files.open(Path::new("/journal"), true).unwrap();
        let mut model = vec![1; 32];
        file.write_at(&model, 0).unwrap();
        file.sync().unwrap();
        let mut write_buffer = WriteBuffer::new(Arc::clone(&file), model.len() as u64).unwrap();
        for round in 2..60u8 {
            let frame = vec![round; 137 * usize::from(round % 13) + 1];
            write_buffer.push(&frame);
            model.extend(&frame);
            let parts = write_buffer.take();
            let meanwhile = vec![round | 0x80; usize::from(round % 7) * 900];
            write_buffer.push(&meanwhile);
            let is_durable = round % 5 != 0;
            if is_durable {
                parts.iter().for_each(|part| part.write().unwrap());
                let read = files.read_durable(Path::new("/journal")).unwrap();
                assert_eq!(read.get(..model.len()), Some(&model[..]), "round {round}");
            }
            write_buffer.written(&parts, is_durable);
            model.extend(&meanwhile);
            assert!(write_buffer.last.bytes.len() < 3 * 13 * 137 + 3 * 7 * 900);
        }
        write_buffer.push(&vec![1; 3 * RETAINED_BYTES]);
        let parts = write_buffer.take();
        parts.iter().for_each(|part| part.write().unwrap());
        write_buffer.written(&parts, true);
        assert!(
            write_buffer.last.bytes.capacity() <= RETAINED_BYTES,
            "the capacity of a long frame is retained"
        );
    }
}
