//! `$rank`, `$denseRank`, `$documentNumber`: the place of a document in its partition.

use super::frame::window_of;
use super::{Function, Partition, SortBy};
use crate::Context;
use crate::tick::Tick;
use base::bson::{Document, Element, Value, ValueBuf};
use base::{Result, err};

#[derive(Clone, Copy)]
enum Rank {
    /// Equal documents share a place, and the places after are skipped.
    Standard,
    /// Equal documents share a place.
    Dense,
    /// Each document has its own place.
    Number,
}

/// Errors: 5371600 for arguments, 5371601 for a window, 5371602 without a sort pattern that fits.
pub(super) fn parse(
    function: &Element<'_>,
    spec: Document<'_>,
    sort_by: Option<&SortBy>,
    _context: &Context,
) -> Result<Box<dyn Function>> {
    let rank = match function.name() {
        "$rank" => Rank::Standard,
        "$denseRank" => Rank::Dense,
        _ => Rank::Number,
    };
    if spec.find("window").is_some() {
        return Err(err!(5371601, "Rank style window functions take no other arguments"));
    }
    window_of(spec, false)?;
    if !function.value().as_document().is_some_and(|arguments| arguments.is_empty()) {
        // The name isn't known to MongoDB at this place.
        return Err(err!(5371603, "(None) must be specified with '{{}}' as the value"));
    }
    let fits = match rank {
        Rank::Number => sort_by.is_some(),
        _ => sort_by.is_some_and(|sort_by| sort_by.pattern.len() == 1),
    };
    if !fits {
        return Err(err!(
            5371602,
            "{} must be specified with a top level sortBy expression with exactly one element",
            function.name()
        ));
    }
    Ok(Box::new(rank))
}

impl Function for Rank {
    fn compute(&self, partition: &Partition<'_>, _tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let mut places = Vec::with_capacity(partition.len());
        let mut place = 0i64;
        for (at, tie) in partition.ties()?.into_iter().enumerate() {
            match self {
                Rank::Standard if !tie => place = at as i64 + 1,
                Rank::Dense if !tie => place += 1,
                Rank::Number => place = at as i64 + 1,
                _ => {}
            }
            places.push(Value::Int64(place).to_owned());
        }
        Ok(places)
    }
}
