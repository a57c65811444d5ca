//! Which of the keys an operation asks for: evenly, few of them mostly (Zipf), the latest mostly,
//! or most of the time those in a focus.
//!
//! They are drawn from random numbers that a seed and an operation's number decide alone, so that a run replays
//! whichever connection an operation happens to go over.

use base::random::Random;
use serde::Deserialize;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A number more than 0, and at most this.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct UpTo<const MOST: u32>(pub(crate) f64);

impl<const MOST: u32> TryFrom<f64> for UpTo<MOST> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let fits = number > 0.0 && number <= f64::from(MOST);
        fits.then_some(UpTo(number)).ok_or_else(|| format!("must be more than 0 and at most {MOST}"))
    }
}

/// How keys, numbered from 0, are chosen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Keys {
    /// Each as often as any other.
    #[default]
    Uniform,
    /// The popular ones lie scattered among the others.
    Zipfian {
        #[serde(default)]
        theta: Zipf,
    },
    /// The last ones inserted are the popular ones.
    Latest {
        #[serde(default)]
        theta: Zipf,
    },
    /// This share of operations goes to a share of the keys: to the first, or to some here and there.
    Focused {
        keys: UpTo<1>,
        operations: UpTo<1>,
        #[serde(default)]
        scattered: bool,
    },
    /// Every so many operations add a key, the others repeat one: the count is the operation's number.
    Growing { every: NonZeroU64 },
}

impl Keys {
    /// One of `count` keys; 0 if there are none.
    pub(crate) fn pick(&self, dice: &mut Dice, count: u64) -> u64 {
        let last = count.saturating_sub(1);
        match self {
            Keys::Uniform => dice.below(count),
            Keys::Zipfian { theta } => scatter(theta.rank(dice, count), count),
            Keys::Latest { theta } => last - theta.rank(dice, count).min(last),
            Keys::Focused { keys, operations, scattered } => {
                let focus = ((count as f64 * keys.0).ceil() as u64).clamp(1, count.max(1));
                let inside = focus == count || dice.share() < operations.0;
                let key = if inside { dice.below(focus) } else { focus + dice.below(count - focus) };
                if *scattered { scatter(key.min(last), count) } else { key.min(last) }
            }
            Keys::Growing { every } => {
                let newest = count / *every;
                if count.is_multiple_of(every.get()) { newest } else { dice.below(newest + 1) }
            }
        }
    }
}

/// Spreads ranks over the keys, each to one of its own: a prime that divides no count of keys in
/// reach.
pub(crate) fn scatter(rank: u64, count: u64) -> u64 {
    const PRIME: u128 = 18_446_744_073_709_551_557;
    if count == 0 { 0 } else { (u128::from(rank) * PRIME % u128::from(count)) as u64 }
}

/// Zipf's law: rank r comes up in proportion to 1 / (r + 1)^theta.
///
/// Drawn as Gray and others describe in "Quickly generating billion-record synthetic databases"
/// (SIGMOD 1994): exact for the first two ranks, close for the rest.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Zipf {
    theta: f64,
    /// The sum of 1 / i^theta for i from 1 to each of the first counts.
    sums: Arc<[f64]>,
}

/// With this skew, which lies between 0 and 1, both excluded.
impl TryFrom<f64> for Zipf {
    type Error = &'static str;

    fn try_from(theta: f64) -> Result<Zipf, &'static str> {
        let fits = theta > 0.0 && theta <= 0.999;
        fits.then(|| Zipf::new(theta)).ok_or("must be more than 0 and at most 0.999")
    }
}

/// The customary skew, that of YCSB.
impl Default for Zipf {
    fn default() -> Zipf {
        Zipf::new(0.99)
    }
}

impl Zipf {
    /// Sums of more terms are close to an integral.
    const EXACT: u64 = 10_000;

    fn new(theta: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=Self::EXACT).map(|i| {
            sum += (i as f64).powf(-theta);
            sum
        });
        Zipf { theta, sums: sums.collect() }
    }

    /// The sum of 1 / i^theta for i from 1 to `count`: the first by themselves, the rest by integral.
    fn zeta(&self, count: u64) -> f64 {
        let exact = count.clamp(1, Self::EXACT);
        let integral = |at: u64| (at as f64 + 0.5).powf(1.0 - self.theta) / (1.0 - self.theta);
        let first = self.sums.get(exact as usize - 1).copied().unwrap_or(1.0);
        first + integral(count.max(exact)) - integral(exact)
    }

    /// A rank below `count`.
    pub(crate) fn rank(&self, dice: &mut Dice, count: u64) -> u64 {
        let count = count.max(1);
        let zeta = self.zeta(count);
        let drawn = dice.share() * zeta;
        let second = 1.0 + 0.5f64.powf(self.theta);
        if drawn < 1.0 || count == 1 {
            return 0;
        }
        if drawn < second {
            return 1;
        }
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - self.theta)) / (1.0 - second / zeta);
        let share = (eta * drawn / zeta - eta + 1.0).max(0.0).powf(1.0 / (1.0 - self.theta));
        ((count as f64 * share) as u64).min(count - 1)
    }
}

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

    fn counts(keys: &Keys, count: u64, draws: u64) -> Vec<u64> {
        let mut seen = vec![0; count as usize];
        for number in 0..draws {
            seen[keys.pick(&mut Dice::of(5, number), count) as usize] += 1;
        }
        seen
    }

    #[test]
    fn a_focus_gets_its_share() {
        let seen = counts(
            &Keys::Focused { keys: UpTo(0.1), operations: UpTo(0.99), scattered: false },
            1000,
            20_000,
        );
        let inside: u64 = seen[..100].iter().sum();
        assert!((19_700..19_900).contains(&inside), "{inside}");
        assert!(seen[100..].iter().any(|&count| count > 0));
        let all =
            counts(&Keys::Focused { keys: UpTo(1.0), operations: UpTo(0.99), scattered: true }, 10, 10_000);
        assert!(all.iter().all(|&count| count > 800), "{all:?}");
    }

    #[test]
    fn one_operation_in_ten_adds_a_key_and_the_others_repeat_one() {
        let keys = Keys::Growing { every: NonZeroU64::new(10).unwrap() };
        let picked = |number| keys.pick(&mut Dice::of(5, number), number);
        assert_eq!([0, 10, 990].map(picked), [0, 1, 99]);
        assert!((1..1000).filter(|number| number % 10 != 0).all(|number| picked(number) <= number / 10));
    }

    #[test]
    fn a_scattered_focus_has_as_many_keys_as_one_at_the_beginning() {
        let seen =
            counts(&Keys::Focused { keys: UpTo(0.01), operations: UpTo(1.0), scattered: true }, 1000, 5000);
        let hit: Vec<usize> = (0..1000).filter(|at| seen[*at] > 0).collect();
        assert_eq!(hit.len(), 10);
        assert!(hit.last() > Some(&500), "{hit:?}");
    }

    #[test]
    fn popular_keys_follow_the_law() {
        let zipf = Zipf::default();
        let mut seen = counts(&Keys::Zipfian { theta: zipf.clone() }, 1000, 100_000);
        assert!(seen[1..].iter().max() > Some(&1000), "they lie scattered");
        seen.sort_unstable();
        seen.reverse();
        let expected = 100_000.0 / zipf.zeta(1000);
        assert!((seen[0] as f64 / expected - 1.0).abs() < 0.1, "{} {expected}", seen[0]);
        let tenth: u64 = seen[..100].iter().sum();
        assert!((62_000..75_000).contains(&tenth), "{tenth}");
    }

    #[test]
    fn the_latest_stay_popular_while_keys_are_added() {
        let keys = Keys::Latest { theta: Zipf::default() };
        for count in [1, 2, 100, 5000] {
            let seen = counts(&keys, count, 2000);
            assert_eq!(seen.iter().max(), seen.last(), "{count}");
        }
    }

    #[test]
    fn sums_by_integral_are_close() {
        let exact: f64 = (1..=50_000).map(|i| f64::from(i).powf(-0.99)).sum();
        assert!((Zipf::default().zeta(50_000) / exact - 1.0).abs() < 1e-6);
    }
}

#[cfg(test)]
mod random_tests {
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
