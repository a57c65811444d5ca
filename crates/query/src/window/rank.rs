//! Window functions of a document's position in its partition: its rank, and a value of a document at a distance.
//!
//! ```text
//! {$rank: {}}    {$denseRank: {}}    {$documentNumber: {}}
//! {$shift: {output: <expression>, by: <integer>, default: <constant>}}    the default is null
//! ```
//!
//! A sort pattern is required, of one field for the ranks. A window is not allowed.

use super::frame::window_of;
use super::{Function, FunctionSpec, Partition};
use crate::interrupt_check::InterruptCheck;
use crate::{Context, Expression};
use base::bson::{Value, ValueBuf};
use base::{Result, bail, err};

/// The kind of rank.
#[derive(Clone, Copy)]
enum Rank {
    /// Equal documents share a rank, and the following ranks are skipped.
    Standard,
    /// Equal documents share a rank.
    Dense,
    /// Each document has a distinct rank.
    Number,
}

/// Parses the function.
///
/// Errors: 5371603 for arguments, 5371601 for a window or another field, 5371602 without a sort pattern of one field.
pub(super) fn parse_rank(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, .. } = *given;
    let rank = match function.name() {
        "$rank" => Rank::Standard,
        "$denseRank" => Rank::Dense,
        _ => Rank::Number,
    };
    if spec.iter().count() > 1 {
        bail!(5371601, "Rank style window functions take no other arguments");
    }
    if !function.value().as_document().is_some_and(|arguments| arguments.is_empty()) {
        // MongoDB does not know the name at this point.
        bail!(5371603, "(None) must be specified with '{{}}' as the value");
    }
    if sort_by.is_none_or(|sort_by| sort_by.pattern.len() != 1) {
        bail!(
            5371602,
            "{} must be specified with a top level sortBy expression with exactly one element",
            function.name()
        );
    }
    Ok(Box::new(rank))
}

impl Function for Rank {
    fn compute(&self, partition: &Partition<'_>, _interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let mut ranks = Vec::with_capacity(partition.len());
        let mut rank = 0i64;
        for (at, tie) in partition.ties()?.into_iter().enumerate() {
            match self {
                Rank::Standard if !tie => rank = at as i64 + 1,
                Rank::Dense if !tie => rank += 1,
                Rank::Number => rank = at as i64 + 1,
                _ => {}
            }
            let rank = i32::try_from(rank).map_or(Value::Int64(rank), Value::Int32);
            ranks.push(rank.to_owned());
        }
        Ok(ranks)
    }
}

/// A parsed `$shift`. `by` is negative for earlier documents.
struct Shift {
    output: Expression,
    by: i64,
    default: ValueBuf,
}

/// Parses the function. Errors: FailedToParse for bad and missing arguments.
pub(super) fn parse_shift(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    if spec.find("window").is_some() {
        bail!(FailedToParse, "$shift does not accept a 'window' field");
    }
    window_of(spec, false)?;
    if sort_by.is_none() {
        bail!(FailedToParse, "'$shift' requires a sortBy");
    }
    let Value::Document(arguments) = function.value() else {
        bail!(FailedToParse, "Argument to $shift must be an object");
    };
    let (mut output, mut by, mut default) = (None, None, ValueBuf::null());
    for argument in arguments {
        match argument.name() {
            "output" => output = Some(Expression::parse(argument.value(), context)?),
            "by" => by = Some(offset(argument.value())?),
            "default" => default = constant(argument.value(), context)?,
            _ => bail!(FailedToParse, "Unknown argument in $shift"),
        }
    }
    let output = output.ok_or_else(|| err!(FailedToParse, "$shift requires an 'output' expression."))?;
    let by = by.ok_or_else(|| err!(FailedToParse, "$shift requires 'by' as an integer value."))?;
    Ok(Box::new(Shift { output, by, default }))
}

fn offset(value: Value<'_>) -> Result<i64> {
    let offset = value.as_i64().filter(|offset| i32::try_from(*offset).is_ok());
    offset.ok_or_else(|| err!(FailedToParse, "'$shift:by' field must be an integer, but found  by: {value}"))
}

fn constant(value: Value<'_>, context: &Context) -> Result<ValueBuf> {
    let expression = Expression::parse(value, context)?;
    if !expression.is_constant() {
        bail!(FailedToParse, "'$shift:default' expression must yield a constant value.");
    }
    Ok(expression.constant().map_or_else(ValueBuf::null, |value| value.to_owned()))
}

impl Function for Shift {
    fn compute(&self, partition: &Partition<'_>, _interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let values = partition.values(&self.output)?;
        let shifted = |at: usize| {
            let from = usize::try_from((at as i64).saturating_add(self.by)).ok();
            // The default also stands for a missing value.
            from.and_then(|from| values.get(from)?.clone()).unwrap_or_else(|| self.default.clone())
        };
        Ok((0..partition.len()).map(shifted).collect())
    }
}
