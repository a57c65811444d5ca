//! The standard deviation of numbers (Welford's method).

use super::{Accumulator, WindowMethod};
use base::Result;
use base::bson::{Value, ValueBuf};

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
