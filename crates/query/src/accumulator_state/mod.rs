//! The states of accumulators, which take values and return a result.
//!
//! Expressions use the states in this module, too (`{$sum: [1, 2]}`), so the module lies below both. The other states
//! are beside the accumulators that they belong to.

mod statistics;
mod total;

pub(crate) use statistics::{Deviation, Ranked};
pub(crate) use total::Total;

use base::bson::{Builder, Value, ValueBuf};
use base::{Result, err};

/// Method of computing an accumulator over sliding windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowMethod {
    /// Each window from scratch, because the result is about as long as the window.
    Recompute,
    /// By merging states, which stay small.
    Merge,
    /// By removing arguments.
    Remove,
    /// Each window from scratch; only this number of documents at its start matters.
    FirstN(usize),
    /// Each window from scratch; only this number of documents at its end matters.
    LastN(usize),
}

/// Maximum number of values in a small state.
pub(crate) const FEW: usize = 16;

/// The state of an accumulator for one group.
pub(crate) trait Accumulator: Send {
    /// Adds the argument of one document; `None` means missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()>;

    /// Returns the result so far: the saved state by default.
    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.save())
    }

    /// Returns the state as a value for [`merge`](Self::merge), to spill groups and to merge partial results.
    fn save(&self) -> ValueBuf;

    /// Adds a saved state, as if its arguments had been added after the present ones. By default, a saved state is an
    /// argument.
    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    /// Announces, before any argument is added, the frames of a sliding window: arguments will be removed and
    /// intermediate results read.
    fn allow_removals(&mut self) {}

    /// Removes the oldest argument. Only for accumulators of the method [`Remove`](WindowMethod::Remove).
    fn remove(&mut self, _argument: Option<Value<'_>>) {}

    /// The best method over a sliding window.
    fn window_method(&self) -> WindowMethod {
        WindowMethod::Recompute
    }

    /// Whether states of parts, joined in their order, give the result of all arguments in one state, at a low cost.
    fn joins_exactly(&self) -> bool {
        !matches!(self.window_method(), WindowMethod::Recompute | WindowMethod::Remove)
    }

    /// Approximate memory in bytes.
    fn memory(&self) -> usize;

    /// Whether adding may increase the memory.
    fn grows(&self) -> bool {
        true
    }
}

/// Returns an array of these values.
pub(crate) fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> ValueBuf {
    let mut builder = Builder::new();
    builder.begin_array(c"");
    for value in values {
        builder.push(value);
    }
    only_value(builder)
}

/// Returns the value of the only field in a builder.
pub(crate) fn only_value(builder: Builder) -> ValueBuf {
    let document = builder.finish();
    document.view().first().map_or_else(ValueBuf::null, |element| element.value().to_owned())
}

/// Adds each element of a saved array.
pub(crate) fn merge_each(accumulator: &mut dyn Accumulator, saved: Value<'_>) -> Result<()> {
    let Value::Array(arguments) = saved else { return Ok(()) };
    arguments.iter().try_for_each(|argument| accumulator.add(Some(argument)))
}

/// Checks the memory limit of an accumulator. Errors: ExceededMemoryLimit.
pub(crate) fn check_memory(name: &str, used: usize, limit: usize) -> Result<()> {
    if used <= limit {
        return Ok(());
    }
    Err(err!(
        ExceededMemoryLimit,
        "{name} used too much memory and spilling to disk cannot reduce memory consumption any further. \
         Memory limit: {limit} bytes"
    ))
}
