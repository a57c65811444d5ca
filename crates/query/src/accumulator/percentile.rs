//! `$percentile` and `$median`: values by rank among the numbers.
//!
//! MongoDB's "approximate" method is a digest, which returns a value of the data for small groups. This implementation
//! looks up the exact rank, which meets MongoDB's precision for all sizes.
//!
//! ```text
//! {$percentile: {input: <expression>, p: [<rank>, …], method: "approximate"}}
//! {$median: {input: <expression>, method: "approximate"}}
//! ```

use super::{Accumulation, Accumulator, Argument, Folding, array, check_memory};
use crate::Context;
use crate::expression::Expression;
use crate::limits::DEFAULT_BYTES;
use base::bson::{Array, Element, Value, ValueBuf};
use base::{Error, ErrorCode, Result, err};
use std::borrow::Cow;
use std::sync::Arc;

/// Parses both accumulators.
///
/// Errors: 7436100 and 7429703 for a value that is not an object, 40415 and 40414 for unknown and missing fields.
/// 7750300 to 7750303 for an invalid `p`, BadValue for a method other than "approximate".
pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let Value::Document(fields) = spec.value() else {
        let code = if name == "$median" { 7436100 } else { 7429703 };
        return Err(Error::new(
            ErrorCode::Location(code),
            format!("specification must be an object; found {spec}"),
        ));
    };
    let median = name == "$median";
    let (mut input, mut ranks, mut method) = (None, median.then(|| vec![0.5]), false);
    for field in fields {
        match field.name() {
            "input" => input = Some(Expression::parse(field.value(), context)?),
            "p" if !median => ranks = Some(parse_ranks(&field, context)?),
            "method" => method = check_method(&field)?,
            other => return Err(err!(40415, "BSON field '{name}.{other}' is an unknown field.")),
        }
    }
    let missing = |field: &str| err!(40414, "BSON field '{name}.{field}' is missing but a required field");
    let input = input.ok_or_else(|| missing("input"))?;
    let ranks = ranks.ok_or_else(|| missing("p"))?;
    if !method {
        return Err(missing("method"));
    }
    let limit = context.limits.several;
    let make = move |_| -> Box<dyn Accumulator> {
        Box::new(Ranked { name, median, ranks: ranks.clone(), numbers: Vec::new(), sorted: false, limit })
    };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)))
}

/// Parses `p`. Errors: 7750300 unless it is constant, 7750301 unless it is a non-empty array, and the errors of
/// [`parse_rank`].
fn parse_ranks(field: &Element<'_>, context: &Context) -> Result<Vec<f64>> {
    let expression = Expression::parse(field.value(), context)?;
    if !expression.is_constant() {
        return Err(err!(
            7750300,
            "The $percentile 'p' field must be an array of constant values, but found value: {}.",
            field.value()
        ));
    }
    let Some(Value::Array(ranks)) =
        expression.constant().filter(|value| value.as_array().is_some_and(|ranks| !ranks.is_empty()))
    else {
        return Err(err!(
            7750301,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
            field.value()
        ));
    };
    ranks.iter().map(parse_rank).collect()
}

/// Parses one rank. Errors: 7750302 for a value that is not a number, 7750303 outside 0 to 1.
fn parse_rank(value: Value<'_>) -> Result<f64> {
    let Some(number) = value.as_number() else {
        return Err(err!(
            7750302,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {value}"
        ));
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

fn check_method(field: &Element<'_>) -> Result<bool> {
    match field.value() {
        Value::String("approximate") => Ok(true),
        _ => Err(err!(BadValue, "Currently only 'approximate' can be used as a percentile 'method'.")),
    }
}

/// The numbers so far, and the requested ranks.
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
        Ranked {
            name: "$median",
            median: true,
            ranks: vec![0.5],
            numbers: Vec::new(),
            sorted: false,
            limit: DEFAULT_BYTES,
        }
    }

    /// Returns an accumulator of these ranks.
    ///
    /// Errors: 7750302 and 7750303 for an invalid rank.
    pub(crate) fn percentiles(ranks: Array<'_>) -> Result<Ranked> {
        let ranks = ranks.iter().map(parse_rank).collect::<Result<_>>()?;
        Ok(Ranked {
            name: "$percentile",
            median: false,
            ranks,
            numbers: Vec::new(),
            sorted: false,
            limit: DEFAULT_BYTES,
        })
    }
}

impl Ranked {
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

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        if let Value::Binary { bytes, .. } = saved {
            bytes.as_chunks().0.iter().for_each(|number| self.push(f64::from_le_bytes(*number)));
        }
        check_memory(self.name, self.memory(), self.limit)
    }

    fn folding(&self) -> Folding {
        Folding::Removes
    }

    fn expect_removals(&mut self) {
        self.numbers.sort_by(f64::total_cmp);
        self.sorted = true;
    }

    fn remove(&mut self, argument: Option<Value<'_>>) {
        let Some(number) = argument.and_then(|value| value.as_number()) else { return };
        if !self.sorted {
            self.expect_removals();
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

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn looks_ranks_up() {
        folds("{$median: {input: '$a', method: 'approximate'}}", "[4, 1, 3, 'x', 2]", "2.0");
        folds("{$median: {input: '$a', method: 'approximate'}}", "['x']", "null");
        let ranks = "{$percentile: {input: '$a', p: [0, 0.9, 1], method: 'approximate'}}";
        folds(ranks, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[1.0, 9.0, 10.0]");
        folds(ranks, "[]", "[null, null, null]");
    }

    #[test]
    fn refuses_bad_ranks_and_methods() {
        refuses("{$percentile: {input: 1, p: [2], method: 'approximate'}}", 7750303, "from [0.0, 1.0]");
        refuses("{$percentile: {input: 1, p: [], method: 'approximate'}}", 7750301, "from [0.0, 1.0]");
        refuses("{$percentile: {input: 1, p: ['x'], method: 'approximate'}}", 7750302, "from [0.0, 1.0]");
        refuses("{$median: {input: 1, method: 'exact'}}", 2, "only 'approximate'");
        refuses("{$median: {input: 1}}", 40414, "'$median.method' is missing");
    }
}
