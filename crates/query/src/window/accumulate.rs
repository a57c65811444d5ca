//! Accumulators as window functions: each frame's documents are folded.
//!
//! The accumulator determines the method ([`WindowMethod`]). Small states slide. Accumulators that need only an end of
//! the frame receive only that. Results as long as the frame are folded again for each frame, unless the frame only
//! grew at its end.

use super::frame::{Bounds, bounds_of};
use super::sliding::{self, Fold, Sliding};
use super::{Function, FunctionSpec, Partition, Results};
use crate::accumulator::Accumulation;
use crate::accumulator_state::{Accumulator, WindowMethod};
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Context};
use base::Result;
use base::bson::{Decimal128, DecimalParts, Number, Value, ValueBuf};
use std::ops::Range;

/// An accumulator over a window.
struct Accumulate {
    accumulation: Accumulation,
    bounds: Bounds,
}

/// Parses an accumulator with its window; the whole partition by default.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let bounds = bounds_of(spec, sort_by, context)?;
    let accumulation = Accumulation::parse_in_window(function, context)?;
    Ok(Box::new(Accumulate { accumulation, bounds }))
}

/// The arguments of all documents, with the accumulator.
struct Arguments<'a> {
    accumulation: &'a Accumulation,
    context: &'a Context,
    values: Vec<Option<ValueBuf>>,
    /// True if frames lose documents.
    removes: bool,
}

impl<'a> Arguments<'a> {
    /// Computes the argument of each document.
    fn new(accumulate: &'a Accumulate, partition: &Partition<'a>) -> Result<Arguments<'a>> {
        let accumulation = &accumulate.accumulation;
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(partition.len());
        partition.each(&mut |row| {
            arena.reset();
            let argument = accumulation.argument(row, partition.context, &arena)?;
            let argument = argument.map(|value| value.to_owned());
            partition.track_value(argument.as_ref())?;
            values.push(argument);
            Ok(())
        })?;
        Ok(Arguments {
            accumulation,
            context: partition.context,
            values,
            removes: accumulate.bounds.has_lower_bound(),
        })
    }

    fn get(&self, at: usize) -> Option<Value<'_>> {
        self.values.get(at)?.as_ref().map(ValueBuf::view)
    }

    fn start(&self) -> Result<Box<dyn Accumulator>> {
        let mut running = self.accumulation.start(Value::Null, self.context)?;
        if self.removes && matches!(running.window_method(), WindowMethod::Merge) {
            running.allow_removals();
        }
        Ok(running)
    }

    /// Computes each frame from scratch, unless it only grew at its end.
    fn recomputed(&self, frames: &[Range<usize>], interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let mut results = Results::new(frames.len(), self.context);
        // The state of the last frame, and that frame.
        let mut state: Option<(Box<dyn Accumulator>, Range<usize>)> = None;
        for frame in frames {
            interrupts.check()?;
            let (mut running, mut done) = match state.take() {
                Some((running, before)) if before.start == frame.start && before.end <= frame.end => {
                    if before.end == frame.end && results.repeat()? {
                        state = Some((running, before));
                        continue;
                    }
                    (running, before.end)
                }
                _ => (self.start()?, frame.start),
            };
            while done < frame.end {
                interrupts.check()?;
                running.add(self.get(done))?;
                done += 1;
            }
            results.push(running.finish()?)?;
            state = Some((running, frame.clone()));
        }
        Ok(results.finish())
    }

    /// Slides with states that can be merged.
    fn merged(&self, frames: &[Range<usize>], interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let mut sliding = Sliding::new(self);
        let mut results = Results::new(frames.len(), self.context);
        for frame in frames {
            interrupts.check()?;
            let mut running = self.start()?;
            if let Some(state) = sliding.slide(frame, interrupts)? {
                running.merge(state.view())?;
            }
            results.push(running.finish()?)?;
        }
        Ok(results.finish())
    }

    /// Slides with states from which arguments can be removed.
    fn removed(&self, frames: &[Range<usize>], interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let mut results = Results::new(frames.len(), self.context);
        let start = || {
            let mut running = self.start()?;
            running.allow_removals();
            Ok::<_, base::Error>(running)
        };
        let (mut running, mut previous) = (start()?, 0..0);
        for frame in frames {
            if frame.start < previous.start || frame.end < previous.end || frame.start >= previous.end {
                (running, previous) = (start()?, frame.start..frame.start);
            }
            for at in previous.end..frame.end {
                interrupts.check()?;
                running.add(self.get(at))?;
            }
            for at in previous.start..frame.start {
                interrupts.check()?;
                running.remove(self.get(at));
            }
            previous = frame.clone();
            interrupts.check()?;
            results.push(running.finish()?)?;
        }
        Ok(results.finish())
    }

    /// Whether sums are independent of the order of addition. This holds without decimals, or if all values are
    /// decimals and integers whose sums need no rounding.
    fn add_exactly(&self) -> bool {
        let (mut least, mut greatest, mut doubles) = (0, 0, false);
        let mut decimals = false;
        for value in self.values.iter().flatten() {
            match value.view().as_number() {
                Some(Number::Decimal128(decimal)) => {
                    let Some((exponent, end)) = digits(decimal) else { return false };
                    decimals = true;
                    (least, greatest) = (least.min(exponent), greatest.max(end));
                }
                Some(Number::Double(_)) => doubles = true,
                _ => {}
            }
        }
        // Integers have up to 19 digits. Sums of n numbers have as many more digits as n has.
        let more = i32::try_from(self.values.len().to_string().len()).unwrap_or(i32::MAX);
        !decimals || !doubles && greatest.max(19) - least + more <= 34
    }
}

/// Returns the powers of ten that enclose a decimal's digits; `None` for infinities and NaN.
fn digits(decimal: Decimal128) -> Option<(i32, i32)> {
    let DecimalParts::Finite { coefficient, exponent, .. } = decimal.parts() else { return None };
    let count = i32::try_from(coefficient.checked_ilog10().map_or(0, |log| log + 1)).unwrap_or(0);
    Some((exponent, exponent + count))
}

impl Fold for &Arguments<'_> {
    /// The saved state of an accumulator.
    type State = ValueBuf;

    fn single(&self, at: usize) -> Result<ValueBuf> {
        let mut running = self.start()?;
        running.add(self.get(at))?;
        Ok(running.save())
    }

    fn merge(&self, earlier: &ValueBuf, later: &ValueBuf) -> Result<ValueBuf> {
        let mut running = self.start()?;
        running.merge(earlier.view())?;
        running.merge(later.view())?;
        Ok(running.save())
    }
}

impl Function for Accumulate {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let arguments = Arguments::new(self, partition)?;
        let mut frames = self.bounds.frames(partition)?;
        let method = arguments.start()?.window_method();
        match method {
            WindowMethod::FirstN(count) => {
                frames
                    .iter_mut()
                    .for_each(|frame| frame.end = frame.end.min(frame.start.saturating_add(count)));
            }
            WindowMethod::LastN(count) => {
                frames
                    .iter_mut()
                    .for_each(|frame| frame.start = frame.start.max(frame.end.saturating_sub(count)));
            }
            WindowMethod::Merge if sliding::is_worthwhile(&frames) && arguments.add_exactly() => {
                return arguments.merged(&frames, interrupts);
            }
            WindowMethod::Remove if sliding::is_worthwhile(&frames) => {
                return arguments.removed(&frames, interrupts);
            }
            WindowMethod::Merge | WindowMethod::Remove | WindowMethod::Recompute => {}
        }
        arguments.recomputed(&frames, interrupts)
    }
}

#[cfg(test)]
#[path = "accumulate_tests.rs"]
mod tests;
