//! The sum of numbers.
//!
//! Integers are added exactly (in 128 bits), doubles with compensation, decimals as decimals. The result has the widest
//! type of the operands, or a wider type if necessary.

use super::{Accumulator, WindowMethod};
use base::Result;
use base::bson::{Decimal128, Number, Value, ValueBuf};

/// A running sum.
#[derive(Clone, Default)]
pub(crate) struct Total {
    integers: i128,
    wide: bool,
    /// True if a long that fits becomes an int, as in MongoDB's sums over frames that lose documents.
    narrows: bool,
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
            let integers = i64::try_from(self.integers).map(Decimal128::from_i64);
            decimals.plus(integers.unwrap_or_else(|_| Decimal128::from_f64_exact(self.integers as f64)))
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
            (Ok(narrow), _) if self.narrows || !self.wide => Number::Int32(narrow),
            (_, Ok(integer)) => Number::Int64(integer),
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

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved {
            self.join(bytes);
        }
        Ok(())
    }

    fn allow_removals(&mut self) {
        self.narrows = true;
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Merge
    }

    fn memory(&self) -> usize {
        size_of::<Total>()
    }

    fn grows(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Sums of doubles are precise to 106 bits, so the last bit of the result does not depend on the parts.
        #[test]
        fn sums_of_parts_join_exactly(
            numbers in prop::collection::vec((-1.0e9..1.0e9f64, 0..4u32), 1..200),
            ends in prop::collection::vec(0..200usize, 0..4),
        ) {
            let number = |(double, kind): &(f64, u32)| match kind {
                0 => Number::Int64(*double as i64),
                1 => Number::Double(double.trunc() / 100.0),
                _ => Number::Double(*double),
            };
            let mut total = Total::default();
            numbers.iter().for_each(|of| total.add(number(of)));
            let mut joined = Total::default();
            let mut ends: Vec<usize> = ends.iter().map(|end| end % numbers.len()).collect();
            ends.extend([0, numbers.len()]);
            ends.sort_unstable();
            for range in ends.windows(2) {
                let mut part = Total::default();
                numbers[range[0]..range[1]].iter().for_each(|of| part.add(number(of)));
                joined.join(&part.to_bytes());
            }
            prop_assert_eq!(total.finish().unwrap(), joined.finish().unwrap());
        }
    }
}
