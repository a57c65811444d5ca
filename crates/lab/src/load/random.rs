//! Random numbers that a seed and an operation's number decide alone, so that a run replays
//! whichever connection an operation happens to go over.

use base::random::Random;

/// A stream of random numbers.
#[derive(Debug)]
pub(crate) struct Dice(Random);

impl Dice {
    /// The stream of one operation, or of one document.
    pub(crate) fn of(seed: u64, number: u64) -> Dice {
        // Seeds one apart would give the same sequence shifted by one: so they are mixed first.
        let mixed = Random::new(number ^ Random::new(seed).draw()).draw();
        Dice(Random::new(mixed))
    }

    /// Any number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number from 0 up to, not including, `end`; 0 if `end` is.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: as even as 64 bits allow, without a division.
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 up to, not including, 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Lowercase letters.
    pub(crate) fn letters(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length + 8);
        while text.len() < length {
            // Eight letters from one number: long texts must not cost the generator its time.
            text.extend(
                self.draw().to_le_bytes().map(|byte| char::from(b'a' + (u16::from(byte) * 26 / 256) as u8)),
            );
        }
        text.truncate(length);
        text
    }

    /// Words of two to nine letters with spaces between them, cut at this many bytes.
    pub(crate) fn words(&mut self, length: usize) -> String {
        let mut text = self.letters(length).into_bytes();
        let mut at = 0;
        loop {
            for gap in self.draw().to_le_bytes() {
                at += 2 + usize::from(gap % 8);
                match text.get_mut(at) {
                    Some(letter) => *letter = b' ',
                    None => return String::from_utf8(text).unwrap_or_default(),
                }
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_number_give_the_same_stream_again() {
        let stream = |seed, number| Dice::of(seed, number).words(100);
        assert_eq!(stream(7, 3), stream(7, 3));
        assert_ne!(stream(7, 3), stream(7, 4));
        assert_ne!(stream(7, 3), stream(8, 3));
        assert_eq!(stream(7, 3).len(), 100);
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut dice = Dice::of(1, 1);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[dice.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&dice.share()));
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(dice.below(0), 0);
    }
}
