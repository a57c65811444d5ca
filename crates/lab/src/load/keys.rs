//! Distributions of the keys of operations: uniform, skewed (Zipf), latest first, or mostly within a focus.
//!
//! Keys are drawn from random numbers that depend only on a seed and on the number of an operation. A repeated run thus
//! uses the same keys, whichever connection runs an operation.
//!
//! A new distribution is a variant of [`Keys`] and an arm of [`Keys::pick`].

use base::random::Random;
use serde::Deserialize;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A number above 0 and at most `MOST`.
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

/// Distribution of keys, which are numbered from 0.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Keys {
    /// All keys are equally likely.
    #[default]
    Uniform,
    /// Zipf's law, with the popular keys scattered.
    Zipfian {
        #[serde(default)]
        theta: Zipf,
    },
    /// Zipf's law, with the last inserted keys popular.
    Latest {
        #[serde(default)]
        theta: Zipf,
    },
    /// A share of operations uses a share of the keys: the first keys, or scattered ones.
    Focused {
        keys: UpTo<1>,
        operations: UpTo<1>,
        #[serde(default)]
        scattered: bool,
    },
    /// One in `every` operations adds a key, and the others use an existing one. The count is the operation number.
    Growing { every: NonZeroU64 },
}

impl Keys {
    /// Returns one of `count` keys; 0 without keys.
    pub(crate) fn pick(&self, rng: &mut Rng, count: u64) -> u64 {
        let last = count.saturating_sub(1);
        match self {
            Keys::Uniform => rng.below(count),
            Keys::Zipfian { theta } => scramble(theta.rank(rng, count), count),
            Keys::Latest { theta } => last - theta.rank(rng, count).min(last),
            Keys::Focused { keys, operations, scattered } => {
                let focus = ((count as f64 * keys.0).ceil() as u64).clamp(1, count.max(1));
                let inside = focus == count || rng.share() < operations.0;
                let key = if inside { rng.below(focus) } else { focus + rng.below(count - focus) };
                if *scattered { scramble(key.min(last), count) } else { key.min(last) }
            }
            Keys::Growing { every } => {
                let newest = count / *every;
                if count.is_multiple_of(every.get()) { newest } else { rng.below(newest + 1) }
            }
        }
    }
}

/// Maps ranks to distinct keys: the prime divides no possible count of keys.
pub(crate) fn scramble(rank: u64, count: u64) -> u64 {
    const PRIME: u128 = 18_446_744_073_709_551_557;
    if count == 0 { 0 } else { (u128::from(rank) * PRIME % u128::from(count)) as u64 }
}

/// Zipf's law: rank r has a probability proportional to 1 / (r + 1)^theta.
///
/// The method is from Gray and others, "Quickly generating billion-record synthetic databases" (SIGMOD 1994). It is
/// exact for the first two ranks and close for further ranks.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Zipf {
    theta: f64,
    /// Sums of 1 / i^theta for i from 1 up to each of the first counts.
    sums: Arc<[f64]>,
}

/// Creates a distribution with a skew between 0 and 1, both excluded.
impl TryFrom<f64> for Zipf {
    type Error = &'static str;

    fn try_from(theta: f64) -> Result<Zipf, &'static str> {
        let fits = theta > 0.0 && theta <= 0.999;
        fits.then(|| Zipf::new(theta)).ok_or("must be more than 0 and at most 0.999")
    }
}

/// The default skew of YCSB.
impl Default for Zipf {
    fn default() -> Zipf {
        Zipf::new(0.99)
    }
}

impl Zipf {
    /// Number of exact terms. Sums of more terms are close to an integral.
    const EXACT: u64 = 10_000;

    fn new(theta: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=Self::EXACT).map(|i| {
            sum += (i as f64).powf(-theta);
            sum
        });
        Zipf { theta, sums: sums.collect() }
    }

    /// Returns the sum of 1 / i^theta for i from 1 to `count`: the first terms exactly, further terms by an integral.
    fn zeta(&self, count: u64) -> f64 {
        let exact = count.clamp(1, Self::EXACT);
        let integral = |at: u64| (at as f64 + 0.5).powf(1.0 - self.theta) / (1.0 - self.theta);
        let first = self.sums.get(exact as usize - 1).copied().unwrap_or(1.0);
        first + integral(count.max(exact)) - integral(exact)
    }

    /// Returns a rank below `count`.
    pub(crate) fn rank(&self, rng: &mut Rng, count: u64) -> u64 {
        let count = count.max(1);
        let zeta = self.zeta(count);
        let drawn = rng.share() * zeta;
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
pub(crate) struct Rng(Random);

impl Rng {
    /// Creates the stream of one operation or document.
    pub(crate) fn of(seed: u64, number: u64) -> Rng {
        // Mixed first: adjacent seeds would give the same sequence shifted by one.
        let mixed = Random::new(number ^ Random::new(seed).draw()).draw();
        Rng(Random::new(mixed))
    }

    /// Returns any number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number from 0 up to `end`, excluded; 0 for `end` 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: as uniform as 64 bits allow, without a division.
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from 0 up to 1, excluded.
    pub(crate) fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns lowercase letters.
    pub(crate) fn letters(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length + 8);
        while text.len() < length {
            // Eight letters from one number, to make long texts cheap.
            text.extend(
                self.draw().to_le_bytes().map(|byte| char::from(b'a' + (u16::from(byte) * 26 / 256) as u8)),
            );
        }
        text.truncate(length);
        text
    }

    /// Returns words of two to nine letters, separated by spaces and cut at this many bytes.
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
            seen[keys.pick(&mut Rng::of(5, number), count) as usize] += 1;
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
        let picked = |number| keys.pick(&mut Rng::of(5, number), number);
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
        let stream = |seed, number| Rng::of(seed, number).words(100);
        assert_eq!(stream(7, 3), stream(7, 3));
        assert_ne!(stream(7, 3), stream(7, 4));
        assert_ne!(stream(7, 3), stream(8, 3));
        assert_eq!(stream(7, 3).len(), 100);
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut rng = Rng::of(1, 1);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.share()));
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
