//! `$sum`: adds numbers and ignores all other values.
//!
//! `$avg`: the mean of the numbers, null without numbers.
//!
//! `$count`: the number of documents.
//!
//! `$stdDevPop` and `$stdDevSamp`: the standard deviation of the numbers.

use super::parse::count_value;
use super::{Accumulation, Argument};
use crate::Context;
use crate::accumulator_state::{Accumulator, Deviation, Total, WindowMethod};
use base::bson::{Decimal128, Element, Value, ValueBuf};
use base::{Result, bail};
use std::sync::Arc;

pub(super) fn parse_sum(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Total::default()))
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

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved
            && let Some((total, count)) = bytes.split_last_chunk()
        {
            self.total.join(total);
            self.count += i64::from_le_bytes(*count);
        }
        Ok(())
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Merge
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
        bail!(TypeMismatch, "$count takes no arguments, i.e. $count:{{}}");
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

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.0 += saved.as_i64().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Ok(())
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Merge
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
