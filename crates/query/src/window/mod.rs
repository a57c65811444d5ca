//! Window functions of `$setWindowFields`, which compute a value for each document from the documents around it.
//!
//! A function receives the whole sorted partition and returns a value for each of its documents. Accumulators become
//! window functions by folding the documents of each frame ([`frame`]).

mod accumulate;
mod covariance;
mod derivative;
mod exp_moving_avg;
mod fill;
mod frame;
mod min_max_scaler;
mod partition;
mod rank;
mod sliding;
mod table;

pub(crate) use partition::{BufferedRows, Partition, PartitionBuffer, Results, SortBy};
pub(crate) use table::parse_output;

use crate::Context;
use crate::interrupt_check::InterruptCheck;
use base::Result;
use base::bson::{Document, Element, ValueBuf};

/// A parsed window function.
pub(crate) trait Function: Send + Sync {
    /// Returns a value for each document of the partition, in order.
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>>;
}

/// A window function to parse.
#[derive(Clone, Copy)]
struct FunctionSpec<'a> {
    /// The function's own element.
    function: &'a Element<'a>,
    /// The whole output field, which also has the window.
    spec: Document<'a>,
    sort_by: Option<&'a SortBy>,
    context: &'a Context,
}

/// The names of all window functions, sorted.
pub fn window_functions() -> impl Iterator<Item = &'static str> {
    table::names()
}
