//! `$avg`: the mean of the numbers, null where there are none.

use super::sum::Total;
use super::{Accumulation, Accumulator, Folding};
use crate::Context;
use base::Result;
use base::bson::{Decimal128, Element, Value, ValueBuf};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Mean::default()))
}

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

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn gives_the_mean_of_numbers() {
        folds("{$avg: '$a'}", "[1, 2]", "1.5");
        folds("{$avg: '$a'}", "[1, 'x', null, 3]", "2.0");
        folds("{$avg: '$a'}", "['x']", "null");
        folds("{$avg: '$a'}", "[NumberDecimal('1'), 2]", "NumberDecimal('1.5')");
    }
}
