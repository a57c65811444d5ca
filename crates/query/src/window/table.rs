//! The table of window functions, sorted by name.

use super::{
    Function, FunctionSpec, SortBy, accumulate, covariance, derivative, exp_moving_avg, fill, min_max_scaler,
    rank,
};
use crate::Context;
use base::bson::{Element, Value};
use base::{Result, bail, err};

/// Parses a window function.
type Parse = fn(&FunctionSpec<'_>) -> Result<Box<dyn Function>>;

/// All window functions, sorted by name.
const FUNCTIONS: &[(&str, Parse)] = &[
    ("$addToSet", accumulate::parse),
    ("$avg", accumulate::parse),
    ("$bottom", accumulate::parse),
    ("$bottomN", accumulate::parse),
    ("$concatArrays", accumulate::parse),
    ("$count", accumulate::parse),
    ("$covariancePop", covariance::parse),
    ("$covarianceSamp", covariance::parse),
    ("$denseRank", rank::parse_rank),
    ("$derivative", derivative::parse_derivative),
    ("$documentNumber", rank::parse_rank),
    ("$expMovingAvg", exp_moving_avg::parse),
    ("$first", accumulate::parse),
    ("$firstN", accumulate::parse),
    ("$integral", derivative::parse_integral),
    ("$last", accumulate::parse),
    ("$lastN", accumulate::parse),
    ("$linearFill", fill::parse_linear),
    ("$locf", fill::parse_locf),
    ("$max", accumulate::parse),
    ("$maxN", accumulate::parse),
    ("$median", accumulate::parse),
    ("$mergeObjects", accumulate::parse),
    ("$min", accumulate::parse),
    ("$minMaxScaler", min_max_scaler::parse),
    ("$minN", accumulate::parse),
    ("$percentile", accumulate::parse),
    ("$push", accumulate::parse),
    ("$rank", rank::parse_rank),
    ("$setUnion", accumulate::parse),
    ("$shift", rank::parse_shift),
    ("$stdDevPop", accumulate::parse),
    ("$stdDevSamp", accumulate::parse),
    ("$sum", accumulate::parse),
    ("$top", accumulate::parse),
    ("$topN", accumulate::parse),
];

/// Returns the names, sorted.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(name, _)| *name)
}

/// Parses the value of one output field: `{$function: …, window: …}`.
///
/// Errors: FailedToParse for an unknown window function, and the errors of each function.
pub(crate) fn parse_output(
    field: &Element<'_>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Box<dyn Function>> {
    let Value::Document(spec) = field.value() else {
        bail!(FailedToParse, "The field '{}' must be an object", field.name());
    };
    let mut functions = spec.iter().filter(|part| part.name().starts_with('$'));
    let Some(function) = functions.next() else {
        let first = spec.first().map_or_else(String::new, |first| format!(", {}", first.name()));
        bail!(FailedToParse, "Expected a $-prefixed window function{first}");
    };
    let ranks = matches!(function.name(), "$rank" | "$denseRank" | "$documentNumber");
    // Ranks take no other arguments and return their own errors.
    if !ranks && functions.next().is_some() {
        bail!(FailedToParse, "Cannot specify two functions in window function spec");
    }
    let known = FUNCTIONS.binary_search_by_key(&function.name(), |(name, _)| name).ok();
    match known.and_then(|at| FUNCTIONS.get(at)) {
        Some((_, parse)) => parse(&FunctionSpec { function: &function, spec, sort_by, context }),
        None => Err(err!(FailedToParse, "Unrecognized window function, {}", function.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
