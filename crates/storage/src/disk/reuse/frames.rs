//! A table of bits that tells at once of most addresses that they belong to no page of the sample.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory is told apart by frames of 4 KiB; a page lies across two, since nothing aligns it.
const FRAME_BITS: u32 = 12;
const BITS: usize = 1 << 19;
/// Of a longer page only the beginning is noted: it has one entry, which begins there.
const FRAMES_MAX: usize = 32;

/// A bit for each frame, shared by those that come to the same number.
pub(super) struct Frames {
    words: Box<[AtomicU64]>,
}

impl Default for Frames {
    fn default() -> Self {
        Frames { words: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Frames {
    /// Whether an address may lie in memory that was noted.
    pub(super) fn may_hold(&self, address: usize) -> bool {
        self.has(address >> FRAME_BITS)
    }

    /// Whether some of this memory may have been noted.
    pub(super) fn may_hold_any(&self, address: usize, len: usize) -> bool {
        frames(address, len).any(|frame| self.has(frame))
    }

    /// Notes memory.
    pub(super) fn note(&self, address: usize, len: usize) {
        for frame in frames(address, len) {
            let (word, bit) = place(frame);
            if let Some(word) = self.words.get(word) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn has(&self, frame: usize) -> bool {
        let (word, bit) = place(frame);
        self.words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }
}

fn frames(address: usize, len: usize) -> impl Iterator<Item = usize> {
    let last = address.saturating_add(len.saturating_sub(1)) >> FRAME_BITS;
    (address >> FRAME_BITS..=last).take(FRAMES_MAX)
}

fn place(frame: usize) -> (usize, u64) {
    let bit = (frame ^ frame >> 19) & (BITS - 1);
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_frames() {
        let frames = Frames::default();
        frames.note(0x7f00_0000_0ff0, 4096);
        assert!(frames.may_hold(0x7f00_0000_0ff8) && frames.may_hold(0x7f00_0000_1fe0));
        assert!(!frames.may_hold(0x7f00_0000_2000) && !frames.may_hold(0));
        assert!(frames.may_hold_any(0x7f00_0000_1ff0, 4096) && !frames.may_hold_any(0x7f00_0000_2000, 4096));
        frames.clear();
        assert!(!frames.may_hold(0x7f00_0000_0ff8));
    }
}
