//! Random numbers from a seed, so that what failed can be run again.

/// A generator.
pub(crate) struct Random(base::random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Mixed, so that neighbouring seeds don't give parts of one sequence.
        Random(base::random::Random::new(base::random::Random::new(seed).draw()))
    }

    pub(crate) fn draw(&self) -> u64 {
        self.0.draw()
    }

    /// A number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
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
