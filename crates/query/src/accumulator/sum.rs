//! `$sum`: adds numbers and ignores all other values.
//!
//! Integers are added exactly (in 128 bits), doubles with compensation, decimals as decimals. The result has the widest
//! type of the operands, or a wider type if necessary.
//!
//! `$avg`: the mean of the numbers, null without numbers.
//!
//! `$count`: the number of documents.
//!
//! `$stdDevPop` and `$stdDevSamp`: the standard deviation of the numbers (Welford's method).

use super::parse::count_value;
use super::{Accumulation, Accumulator, Argument, Folding};
use crate::Context;
use base::bson::{Decimal128, Element, Number, Value, ValueBuf};
use base::{Result, err};
use std::sync::Arc;

pub(super) fn parse_sum(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Total::default()))
}

/// A running sum.
#[derive(Clone, Default)]
pub(crate) struct Total {
    integers: i128,
    wide: bool,
    doubles: Option<Compensated>,
    decimals: Option<Decimal128>,
}

/// Size of a saved sum in bytes: flags, integers, doubles, decimals.
const STATE_BYTES: usize = 1 + 16 + 16 + 16;

/// A sum of doubles with its rounding error (Neumaier's algorithm).
#[derive(Clone, Copy, Default)]
struct Compensated {
    sum: f64,
    lost: f64,
}

impl Compensated {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_finite() {
            self.lost += if self.sum.abs() >= value.abs() {
                (self.sum - sum) + value
            } else {
                (value - sum) + self.sum
            };
        }
        self.sum = sum;
    }

    fn join(&mut self, other: Compensated) {
        self.add(other.sum);
        self.lost += other.lost;
    }

    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl Total {
    /// Adds one number.
    pub(crate) fn add(&mut self, number: Number) {
        match number {
            Number::Int32(v) => self.integers += i128::from(v),
            Number::Int64(v) => {
                self.integers += i128::from(v);
                self.wide = true;
            }
            Number::Double(v) => self.doubles.get_or_insert_default().add(v),
            Number::Decimal128(v) => self.decimals = Some(self.decimals.map_or(v, |sum| sum.plus(v))),
        }
    }

    /// Returns the state as bytes, for [`join`](Self::join).
    pub(crate) fn to_bytes(&self) -> [u8; STATE_BYTES] {
        let doubles = self.doubles.unwrap_or_default();
        let decimals = self.decimals.map(Decimal128::bytes);
        let mut bytes = [0; STATE_BYTES];
        let flags =
            u8::from(self.wide) | u8::from(self.doubles.is_some()) << 1 | u8::from(decimals.is_some()) << 2;
        let parts = [flags].into_iter().chain(self.integers.to_le_bytes());
        let parts = parts.chain(doubles.sum.to_le_bytes()).chain(doubles.lost.to_le_bytes());
        let parts = parts.chain(decimals.unwrap_or_default());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Adds another sum, given as its bytes.
    pub(crate) fn join(&mut self, bytes: &[u8]) {
        let Some((&flags, rest)) = bytes.split_first() else { return };
        let Some((integers, rest)) = rest.split_first_chunk() else { return };
        let Some((sum, rest)) = rest.split_first_chunk() else { return };
        let Some((lost, rest)) = rest.split_first_chunk() else { return };
        self.integers += i128::from_le_bytes(*integers);
        self.wide |= flags & 1 != 0;
        if flags & 2 != 0 {
            let other = Compensated { sum: f64::from_le_bytes(*sum), lost: f64::from_le_bytes(*lost) };
            match &mut self.doubles {
                Some(doubles) => doubles.join(other),
                None => self.doubles = Some(other),
            }
        }
        if flags & 4 != 0
            && let Some(decimals) = rest.first_chunk()
        {
            self.add(Number::Decimal128(Decimal128::from_bytes(*decimals)));
        }
    }

    /// Returns the sum of doubles and integers before the final rounding.
    fn binary(&self) -> Compensated {
        let mut sum = self.doubles.unwrap_or_default();
        if self.integers != 0 {
            let high = self.integers as f64;
            sum.add(high);
            sum.add((self.integers - high as i128) as f64);
        }
        sum
    }

    /// Returns the sum without decimals as a double.
    pub(crate) fn as_double(&self) -> f64 {
        self.binary().value()
    }

    /// Returns the sum as a decimal, if any number was a decimal.
    pub(crate) fn as_decimal(&self) -> Option<Decimal128> {
        let decimals = self.decimals?;
        let sum = if self.doubles.is_none() {
            let whole = i64::try_from(self.integers).map(Decimal128::from_i64);
            decimals.plus(whole.unwrap_or_else(|_| Decimal128::from_f64_exact(self.integers as f64)))
        } else {
            let binary = self.binary();
            let decimals = decimals.plus(Decimal128::from_f64_exact(binary.sum));
            if binary.lost == 0.0 || !binary.sum.is_finite() {
                decimals
            } else {
                decimals.plus(Decimal128::from_f64_exact(binary.lost))
            }
        };
        Some(sum)
    }

    /// Returns the sum in MongoDB's type.
    pub(crate) fn number(&self) -> Number {
        if let Some(decimal) = self.as_decimal() {
            return Number::Decimal128(decimal);
        }
        if self.doubles.is_some() {
            return Number::Double(self.as_double());
        }
        match (i32::try_from(self.integers), i64::try_from(self.integers)) {
            (Ok(narrow), _) if !self.wide => Number::Int32(narrow),
            (_, Ok(whole)) => Number::Int64(whole),
            _ => Number::Double(self.integers as f64),
        }
    }
}

impl Accumulator for Total {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(number) = argument.and_then(|value| value.as_number()) {
            Total::add(self, number);
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(Value::from(self.number()).to_owned())
    }

    fn save(&self) -> ValueBuf {
        Value::Binary { subtype: 0, bytes: &self.to_bytes() }.to_owned()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved {
            self.join(bytes);
        }
        Ok(())
    }

    fn folding(&self) -> Folding {
        Folding::Joins
    }

    fn memory(&self) -> usize {
        size_of::<Total>()
    }

    fn grows(&self) -> bool {
        false
    }
}

pub(super) fn parse_avg(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Mean::default()))
}

/// The state of `$avg`.
#[derive(Default)]
struct Mean {
    total: Total,
    count: i64,
}

impl Accumulator for Mean {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(number) = argument.and_then(|value| value.as_number()) {
            self.total.add(number);
            self.count += 1;
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        if self.count == 0 {
            return Ok(ValueBuf::null());
        }
        Ok(match self.total.as_decimal() {
            Some(sum) => Value::Decimal128(sum.divided_by(Decimal128::from_i64(self.count))).to_owned(),
            None => Value::Double(self.total.as_double() / self.count as f64).to_owned(),
        })
    }

    fn save(&self) -> ValueBuf {
        let mut bytes = self.total.to_bytes().to_vec();
        bytes.extend_from_slice(&self.count.to_le_bytes());
        Value::Binary { subtype: 0, bytes: &bytes }.to_owned()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved
            && let Some((total, count)) = bytes.split_last_chunk()
        {
            self.total.join(total);
            self.count += i64::from_le_bytes(*count);
        }
        Ok(())
    }

    fn folding(&self) -> Folding {
        Folding::Joins
    }

    fn memory(&self) -> usize {
        size_of::<Mean>()
    }

    fn grows(&self) -> bool {
        false
    }
}

/// Parses `$count`. Errors: TypeMismatch unless the argument is `{}`.
pub(super) fn parse_count(
    _name: &'static str,
    spec: &Element<'_>,
    _context: &Context,
) -> Result<Accumulation> {
    if !spec.value().as_document().is_some_and(|argument| argument.is_empty()) {
        return Err(err!(TypeMismatch, "$count takes no arguments, i.e. $count:{{}}"));
    }
    Ok(Accumulation::of(Argument::Nothing, Arc::new(|_| Box::new(Count(0)))))
}

/// The state of `$count`.
struct Count(u64);

impl Accumulator for Count {
    fn add(&mut self, _argument: Option<Value<'_>>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(Value::from(count_value(self.0)).to_owned())
    }

    fn save(&self) -> ValueBuf {
        Value::Int64(i64::try_from(self.0).unwrap_or(i64::MAX)).to_owned()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.0 += saved.as_i64().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Ok(())
    }

    fn folding(&self) -> Folding {
        Folding::Joins
    }

    fn memory(&self) -> usize {
        size_of::<Count>()
    }

    fn grows(&self) -> bool {
        false
    }
}

/// Parses `$stdDevPop` and `$stdDevSamp`.
pub(super) fn parse_std_dev(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    if name == "$stdDevPop" {
        Accumulation::unary(name, spec, context, || Box::new(Deviation::default()))
    } else {
        Accumulation::unary(name, spec, context, || Box::new(Deviation::of_sample()))
    }
}

/// A running standard deviation, of a population by default.
#[derive(Default)]
pub(crate) struct Deviation {
    sample: bool,
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
        if over == 0 {
            return Ok(ValueBuf::null());
        }
        Ok(Value::Double((self.squares / over as f64).sqrt()).to_owned())
    }

    fn save(&self) -> ValueBuf {
        let parts = [self.count.to_le_bytes(), self.mean.to_le_bytes(), self.squares.to_le_bytes()];
        Value::Binary { subtype: 0, bytes: parts.as_flattened() }.to_owned()
    }

    /// Joins two states (Chan's method).
    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
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

    fn folding(&self) -> Folding {
        Folding::Joins
    }

    fn memory(&self) -> usize {
        size_of::<Deviation>()
    }

    fn grows(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn adds_numbers_of_the_widest_type() {
        folds("{$sum: '$a'}", "[1, 2, 'x', null]", "3");
        folds("{$sum: '$a'}", "[1, 2.5]", "3.5");
        folds("{$sum: '$a'}", "[1, NumberLong(2)]", "NumberLong(3)");
        folds("{$sum: '$a'}", "[2147483647, 1]", "NumberLong(2147483648)");
        folds("{$sum: '$a'}", "[NumberLong('9223372036854775807'), 1]", "9223372036854775808.0");
        folds(
            "{$sum: '$a'}",
            "[NumberLong('9223372036854775807'), 1, -1]",
            "NumberLong('9223372036854775807')",
        );
        folds("{$sum: '$a'}", "[1, NumberDecimal('2.5')]", "NumberDecimal('3.5')");
        folds("{$sum: '$a'}", "[]", "0");
        folds("{$sum: '$a'}", "[0.1, 0.2, 0.3, -0.6]", "2.7755575615628914e-17");
        folds("{$sum: '$a'}", "[1, NaN]", "NaN");
    }
}

#[cfg(test)]
mod avg_tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn gives_the_mean_of_numbers() {
        folds("{$avg: '$a'}", "[1, 2]", "1.5");
        folds("{$avg: '$a'}", "[1, 'x', null, 3]", "2.0");
        folds("{$avg: '$a'}", "['x']", "null");
        folds("{$avg: '$a'}", "[NumberDecimal('1'), 2]", "NumberDecimal('1.5')");
    }
}

#[cfg(test)]
mod count_tests {
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn counts_documents() {
        folds("{$count: {}}", "[1, null, 'x']", "3");
        refuses("{$count: 1}", 14, "$count takes no arguments");
    }
}

#[cfg(test)]
mod std_dev_tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn population_and_sample() {
        folds("{$stdDevPop: '$a'}", "[1, 3, 'x']", "1.0");
        folds("{$stdDevSamp: '$a'}", "[1, 3, 5]", "2.0");
        folds("{$stdDevSamp: '$a'}", "[1]", "null");
        folds("{$stdDevPop: '$a'}", "[1]", "0.0");
        folds("{$stdDevPop: '$a'}", "[]", "null");
    }
}
