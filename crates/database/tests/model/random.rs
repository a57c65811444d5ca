//! Random numbers from a seed, so that a failure can be reproduced.

/// A random number generator.
pub(crate) struct Random(base::random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Mixed, so that neighbouring seeds do not give parts of one sequence.
        Random(base::random::Random::new(base::random::Random::new(seed).draw()))
    }

    pub(crate) fn draw(&self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Returns true with this probability in percent.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of several values.
    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
