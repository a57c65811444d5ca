//! Statistics of numbers: the standard deviation (Welford's method), and numbers at ranks, for percentiles.
//!
//! MongoDB's "approximate" method is a digest, which returns a value of the data for small groups. This implementation
//! looks up the exact rank, which meets MongoDB's precision for all sizes.

use super::{Accumulator, WindowMethod, array, check_memory};
use crate::limits::DEFAULT_BYTES;
use base::bson::{Array, Value, ValueBuf};
use base::{Result, bail, err};
use std::borrow::Cow;

/// A running standard deviation, of a population by default.
#[derive(Default)]
pub(crate) struct Deviation {
    sample: bool,
    /// True for a frame of a window that loses documents.
    removes: bool,
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl Deviation {
    /// Returns the standard deviation of a sample.
    pub(crate) fn of_sample() -> Deviation {
        Deviation { sample: true, ..Deviation::default() }
    }
}

impl Accumulator for Deviation {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(number) = argument.and_then(|value| value.as_number()) else { return Ok(()) };
        let number = number.to_f64();
        self.count += 1;
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        let over = self.count.saturating_sub(u64::from(self.sample));
        let deviation = (self.squares / over as f64).sqrt();
        Ok(match self.removes {
            _ if over == 0 => ValueBuf::null(),
            // MongoDB's sliding windows have these results of their own.
            true if !deviation.is_finite() => ValueBuf::null(),
            true if self.count == 1 => Value::Int32(0).to_owned(),
            _ => Value::Double(deviation).to_owned(),
        })
    }

    fn allow_removals(&mut self) {
        self.removes = true;
    }

    fn save(&self) -> ValueBuf {
        let parts = [self.count.to_le_bytes(), self.mean.to_le_bytes(), self.squares.to_le_bytes()];
        Value::Binary { subtype: 0, bytes: parts.as_flattened() }.to_owned()
    }

    /// Joins two states (Chan's method).
    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let Value::Binary { bytes, .. } = saved else { return Ok(()) };
        let ([count, mean, squares], _) = bytes.as_chunks::<8>() else { return Ok(()) };
        let (count, mean) = (u64::from_le_bytes(*count), f64::from_le_bytes(*mean));
        let squares = f64::from_le_bytes(*squares);
        if self.count == 0 || count == 0 {
            if count > 0 {
                (self.count, self.mean, self.squares) = (count, mean, squares);
            }
            return Ok(());
        }
        let (before, added) = (self.count as f64, count as f64);
        self.count += count;
        let distance = mean - self.mean;
        self.mean += distance * added / self.count as f64;
        self.squares += squares + distance * distance * before * added / self.count as f64;
        Ok(())
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Merge
    }

    /// Joined states are rounded in another way.
    fn joins_exactly(&self) -> bool {
        false
    }

    fn memory(&self) -> usize {
        size_of::<Deviation>()
    }

    fn grows(&self) -> bool {
        false
    }
}

/// The numbers so far, and the requested ranks.
#[derive(Clone)]
pub(crate) struct Ranked {
    name: &'static str,
    median: bool,
    ranks: Vec<f64>,
    numbers: Vec<f64>,
    /// Whether the numbers are kept sorted, for later removals.
    sorted: bool,
    limit: usize,
}

impl Ranked {
    /// Returns an accumulator of the median.
    pub(crate) fn median() -> Ranked {
        Ranked::of("$median", true, vec![0.5])
    }

    /// Returns an accumulator of these ranks.
    ///
    /// Errors: 7750302 and 7750303 for an invalid rank.
    pub(crate) fn percentiles(ranks: Array<'_>) -> Result<Ranked> {
        let ranks = ranks.iter().map(parse_rank).collect::<Result<_>>()?;
        Ok(Ranked::of("$percentile", false, ranks))
    }

    fn of(name: &'static str, median: bool, ranks: Vec<f64>) -> Ranked {
        Ranked { name, median, ranks, numbers: Vec::new(), sorted: false, limit: DEFAULT_BYTES }
    }

    /// Sets the limit of memory in bytes.
    pub(crate) fn limited(self, limit: usize) -> Ranked {
        Ranked { limit, ..self }
    }

    fn push(&mut self, number: f64) {
        match self.sorted {
            true => {
                let at = self.numbers.partition_point(|other| other.total_cmp(&number).is_lt());
                self.numbers.insert(at, number);
            }
            false => self.numbers.push(number),
        }
    }
}

impl Accumulator for Ranked {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(number) = argument.and_then(|value| value.as_number()) else { return Ok(()) };
        if !number.is_nan() {
            self.push(number.to_f64());
        }
        check_memory(self.name, self.memory(), self.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        let mut sorted = Cow::Borrowed(&self.numbers);
        if !self.sorted {
            sorted.to_mut().sort_by(f64::total_cmp);
        }
        if self.median {
            return Ok(at_rank(&sorted, 0.5).to_owned());
        }
        Ok(array(self.ranks.iter().map(|rank| at_rank(&sorted, *rank))))
    }

    fn save(&self) -> ValueBuf {
        let bytes: Vec<u8> = self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Value::Binary { subtype: 0, bytes: &bytes }.to_owned()
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved {
            bytes.as_chunks().0.iter().for_each(|number| self.push(f64::from_le_bytes(*number)));
        }
        check_memory(self.name, self.memory(), self.limit)
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Remove
    }

    fn allow_removals(&mut self) {
        self.numbers.sort_by(f64::total_cmp);
        self.sorted = true;
    }

    fn remove(&mut self, argument: Option<Value<'_>>) {
        let Some(number) = argument.and_then(|value| value.as_number()) else { return };
        if !self.sorted {
            self.allow_removals();
        }
        let number = number.to_f64();
        if let Ok(at) = self.numbers.binary_search_by(|other| other.total_cmp(&number)) {
            self.numbers.remove(at);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Ranked>() + self.numbers.len() * size_of::<f64>()
    }
}

/// Returns the smallest number such that at least this fraction of the numbers does not exceed it.
fn at_rank(sorted: &[f64], rank: f64) -> Value<'static> {
    let position = (rank * sorted.len() as f64).ceil() as usize;
    sorted.get(position.saturating_sub(1)).map_or(Value::Null, |number| Value::Double(*number))
}

/// Parses one rank. Errors: 7750302 for a value that is not a number, 7750303 outside 0 to 1.
fn parse_rank(value: Value<'_>) -> Result<f64> {
    let Some(number) = value.as_number() else {
        bail!(
            7750302,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {value}"
        );
    };
    let rank = number.to_f64();
    if (0.0..=1.0).contains(&rank) {
        return Ok(rank);
    }
    Err(err!(
        7750303,
        "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {value}"
    ))
}
