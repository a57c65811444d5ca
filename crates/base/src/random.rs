//! Random numbers that must be unique but not secret: ids of cursors, collections and sessions. Tests use a seed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A thread-safe sequence of random numbers (splitmix64).
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// Starts the sequence from a seed.
    pub const fn new(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut mixed = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; zero if `bound` is zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// Returns a random position in a list of this length.
    pub fn index(&self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A random UUID (version 4).
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = ((u128::from(self.draw()) << 64) | u128::from(self.draw())).to_be_bytes();
        uuid[6] = (uuid[6] & 0x0F) | 0x40;
        uuid[8] = (uuid[8] & 0x3F) | 0x80;
        uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        let random = Random::new(0);
        assert_eq!(random.draw(), 0xE220_A839_7B1D_CDAF);
        let uuid = random.uuid();
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        assert_ne!(uuid, random.uuid());
    }
}
