//! Random numbers from a seed number, and mutations of inputs.

/// A reproducible sequence.
pub(crate) struct Random(base::random::Random);

impl Random {
    /// Returns the sequence of this number.
    pub(crate) fn new(number: u64) -> Random {
        Random(base::random::Random::new(number.wrapping_mul(0xD129_0000_0BAD_5EED)))
    }

    /// Returns the next number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below `bound`; zero if the bound is zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }
}

/// Boundary values of lengths and counts.
const INTERESTING: [i32; 10] = [0, 1, -1, 4, 5, 127, 255, 65_535, i32::MAX, i32::MIN];

/// Length limit of a generated input.
const LENGTH_MAX: usize = 4096;

/// Returns a seed with some bytes changed, or random bytes.
pub(crate) fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = match random.below(8) {
        0 => (0..random.below(256)).map(|_| random.draw() as u8).collect(),
        _ => seeds.get(random.below(seeds.len())).cloned().unwrap_or_default(),
    };
    for _ in 0..random.below(6) {
        change(&mut input, seeds, random);
    }
    input.truncate(LENGTH_MAX);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.draw() as u8;
            }
        }
        2 => input.insert(at, random.draw() as u8),
        3 => {
            let end = (at + random.below(16)).min(input.len());
            input.drain(at..end);
        }
        4 => {
            let value = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
            if let Some(place) = input.get_mut(at..at + 4) {
                place.copy_from_slice(&value);
            }
        }
        5 => {
            let other = seeds.get(random.below(seeds.len())).cloned().unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.splice(at..at, other.get(from..).unwrap_or_default().iter().copied().take(64));
        }
        _ => input.truncate(at),
    }
}
