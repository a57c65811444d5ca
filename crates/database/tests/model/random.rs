//! Random numbers from a seed, so that what failed can be run again.

use std::cell::Cell;

/// A generator (splitmix64).
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Mixed, so that neighbouring seeds don't give parts of one sequence.
        Random(Cell::new(mix(seed ^ 0x5DEE_CE66_D1CE_4E5B)))
    }

    pub(crate) fn draw(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        mix(self.0.get())
    }

    /// A number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
