//! Accumulators as window functions: each frame's documents folded.

use super::frame::{Bounds, window_of};
use super::{Function, Partition, SortBy};
use crate::accumulator::{Accumulation, Accumulator};
use crate::tick::Tick;
use crate::{Arena, Context};
use base::Result;
use base::bson::{Document, Element, Value, ValueBuf};
use std::ops::Range;

struct Accumulate {
    accumulation: Accumulation,
    bounds: Bounds,
}

pub(super) fn parse(
    function: &Element<'_>,
    spec: Document<'_>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Box<dyn Function>> {
    let bounds = match window_of(spec, true)? {
        Some(window) => Bounds::parse(window, sort_by)?,
        None => Bounds::ALL,
    };
    let accumulation = Accumulation::parse_in_window(function, context)?;
    Ok(Box::new(Accumulate { accumulation, bounds }))
}

impl Accumulate {
    fn arguments(&self, partition: &Partition<'_>) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut arguments = Vec::with_capacity(partition.len());
        for document in partition.documents {
            arena.reset();
            let argument = self.accumulation.argument(document.view(), partition.context, &arena)?;
            arguments.push(argument.map(|value| value.to_owned()));
        }
        Ok(arguments)
    }
}

impl Function for Accumulate {
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let arguments = self.arguments(partition)?;
        let mut results: Vec<ValueBuf> = Vec::with_capacity(partition.len());
        // The state that the last frame left, and that frame.
        let mut state: Option<(Box<dyn Accumulator>, Range<usize>)> = None;
        for frame in self.bounds.frames(partition)? {
            tick.check()?;
            let (mut running, mut done) = match state.take() {
                // A frame that grew at its end only goes on.
                Some((running, before)) if before.start == frame.start && before.end <= frame.end => {
                    if before.end == frame.end
                        && let Some(last) = results.last().cloned()
                    {
                        results.push(last);
                        state = Some((running, before));
                        continue;
                    }
                    (running, before.end)
                }
                _ => (self.accumulation.start(Value::Null, partition.context)?, frame.start),
            };
            while done < frame.end {
                tick.check()?;
                running.add(arguments.get(done).and_then(|value| value.as_ref()).map(ValueBuf::view))?;
                done += 1;
            }
            results.push(running.finish()?);
            state = Some((running, frame));
        }
        Ok(results)
    }
}
