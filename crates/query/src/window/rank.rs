//! `$rank`, `$denseRank`, `$documentNumber`: the rank of a document in its partition.
//!
//! ```text
//! {$rank: {}}    {$denseRank: {}}    {$documentNumber: {}}
//! ```
//!
//! A sort pattern of one field is required, and a window is not allowed.

use super::{Function, FunctionSpec, Partition};
use crate::interrupt_check::InterruptCheck;
use base::bson::{Value, ValueBuf};
use base::{Result, bail};

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
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
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
