//! Which of the keys an operation asks for: evenly, few of them mostly (Zipf), the latest mostly,
//! or most of the time those in a focus.

use super::random::Dice;

/// How keys, numbered from 0, are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Each as often as any other.
    Uniform,
    /// The popular ones lie scattered among the others.
    Zipfian(Zipf),
    /// The last ones inserted are the popular ones.
    Latest(Zipf),
    /// This share of operations goes to a share of the keys: to the first, or to some here and there.
    Focused { keys: f64, operations: f64, scattered: bool },
    /// Every so many operations add a key, the others repeat one: the count is the operation's number.
    Growing { every: u64 },
}

impl Keys {
    /// One of `count` keys; 0 if there are none.
    pub(crate) fn pick(&self, dice: &mut Dice, count: u64) -> u64 {
        let last = count.saturating_sub(1);
        match self {
            Keys::Uniform => dice.below(count),
            Keys::Zipfian(zipf) => scatter(zipf.rank(dice, count), count),
            Keys::Latest(zipf) => last - zipf.rank(dice, count).min(last),
            Keys::Focused { keys, operations, scattered } => {
                let focus = ((count as f64 * keys).ceil() as u64).clamp(1, count.max(1));
                let inside = focus == count || dice.share() < *operations;
                let key = if inside { dice.below(focus) } else { focus + dice.below(count - focus) };
                if *scattered { scatter(key.min(last), count) } else { key.min(last) }
            }
            Keys::Growing { every } => {
                let newest = count / every;
                if count.is_multiple_of(*every) { newest } else { dice.below(newest + 1) }
            }
        }
    }
}

/// Spreads ranks over the keys, each to one of its own: a prime that divides no count of keys in
/// reach.
fn scatter(rank: u64, count: u64) -> u64 {
    const PRIME: u128 = 18_446_744_073_709_551_557;
    if count == 0 { 0 } else { (u128::from(rank) * PRIME % u128::from(count)) as u64 }
}

/// Zipf's law: rank r comes up in proportion to 1 / (r + 1)^theta.
///
/// Drawn as Gray and others describe in "Quickly generating billion-record synthetic databases"
/// (SIGMOD 1994): exact for the first two ranks, close for the rest, and no table.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    theta: f64,
    count: u64,
    zeta: f64,
}

impl Zipf {
    /// The customary skew, that of YCSB.
    pub(crate) const THETA: f64 = 0.99;

    /// Over this many keys; theta lies between 0 and 1, both excluded.
    pub(crate) fn new(count: u64, theta: f64) -> Zipf {
        Zipf { theta, count: count.max(1), zeta: zeta(count.max(1), theta) }
    }

    /// A rank below `count`. Keys that were added since cost no new sum: their part of it is an
    /// integral.
    fn rank(&self, dice: &mut Dice, count: u64) -> u64 {
        let count = count.max(1);
        let zeta = self.zeta + tail(self.count, count, self.theta);
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

/// The sum of 1 / i^theta for i from 1 to `count`: the first by themselves, the rest by integral.
fn zeta(count: u64, theta: f64) -> f64 {
    let exact = count.min(10_000);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    sum + tail(exact, count, theta)
}

/// What the terms between two counts add; negative where `to` is the smaller.
fn tail(from: u64, to: u64, theta: f64) -> f64 {
    let integral = |at: u64| (at as f64 + 0.5).powf(1.0 - theta) / (1.0 - theta);
    integral(to) - integral(from)
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
        let seen = counts(&Keys::Focused { keys: 0.1, operations: 0.99, scattered: false }, 1000, 20_000);
        let inside: u64 = seen[..100].iter().sum();
        assert!((19_700..19_900).contains(&inside), "{inside}");
        assert!(seen[100..].iter().any(|&count| count > 0));
        let all = counts(&Keys::Focused { keys: 1.0, operations: 0.99, scattered: true }, 10, 10_000);
        assert!(all.iter().all(|&count| count > 800), "{all:?}");
    }

    #[test]
    fn one_operation_in_ten_adds_a_key_and_the_others_repeat_one() {
        let keys = Keys::Growing { every: 10 };
        let picked = |number| keys.pick(&mut Dice::of(5, number), number);
        assert_eq!([0, 10, 990].map(picked), [0, 1, 99]);
        assert!((1..1000).filter(|number| number % 10 != 0).all(|number| picked(number) <= number / 10));
    }

    #[test]
    fn a_scattered_focus_has_as_many_keys_as_one_at_the_beginning() {
        let seen = counts(&Keys::Focused { keys: 0.01, operations: 1.0, scattered: true }, 1000, 5000);
        let hit: Vec<usize> = (0..1000).filter(|at| seen[*at] > 0).collect();
        assert_eq!(hit.len(), 10);
        assert!(hit.last() > Some(&500), "{hit:?}");
    }

    #[test]
    fn popular_keys_follow_the_law() {
        let zipf = Zipf::new(1000, Zipf::THETA);
        let mut seen = counts(&Keys::Zipfian(zipf.clone()), 1000, 100_000);
        assert!(seen[1..].iter().max() > Some(&1000), "they lie scattered");
        seen.sort_unstable();
        seen.reverse();
        let expected = 100_000.0 / zipf.zeta;
        assert!((seen[0] as f64 / expected - 1.0).abs() < 0.1, "{} {expected}", seen[0]);
        let tenth: u64 = seen[..100].iter().sum();
        assert!((62_000..75_000).contains(&tenth), "{tenth}");
    }

    #[test]
    fn the_latest_stay_popular_while_keys_are_added() {
        let keys = Keys::Latest(Zipf::new(100, Zipf::THETA));
        for count in [1, 2, 100, 5000] {
            let seen = counts(&keys, count, 2000);
            assert_eq!(seen.iter().max(), seen.last(), "{count}");
        }
    }

    #[test]
    fn sums_by_integral_are_close() {
        let exact: f64 = (1..=50_000).map(|i| f64::from(i).powf(-0.99)).sum();
        assert!((zeta(50_000, 0.99) / exact - 1.0).abs() < 1e-6);
    }
}
