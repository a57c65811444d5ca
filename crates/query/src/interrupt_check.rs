//! Interruption of long work in memory: periodic checks in the loops of stages, and sorts in runs.

use crate::{Context, Interrupt};
use base::Result;
use std::cmp::Ordering;
use std::sync::Arc;

/// Steps between two checks.
const EVERY: u32 = 128;

/// A counter that checks for interruption every 128 steps.
#[derive(Clone)]
pub(crate) struct InterruptCheck {
    interrupt: Arc<dyn Interrupt>,
    steps: u32,
}

impl InterruptCheck {
    pub(crate) fn new(context: &Context) -> InterruptCheck {
        InterruptCheck::of(&context.interrupt)
    }

    pub(crate) fn of(interrupt: &Arc<dyn Interrupt>) -> InterruptCheck {
        InterruptCheck { interrupt: Arc::clone(interrupt), steps: 0 }
    }

    /// The interrupt to check.
    pub(crate) fn interrupt(&self) -> &dyn Interrupt {
        &*self.interrupt
    }

    /// Counts a step. Errors: interruption.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<()> {
        self.check_bytes(0)
    }

    /// Counts a step for each kilobyte, for work proportional to a size.
    ///
    /// Errors: interruption.
    #[inline]
    pub(crate) fn check_bytes(&mut self, bytes: usize) -> Result<()> {
        self.steps += 1 + (bytes / 1024) as u32;
        if self.steps < EVERY {
            return Ok(());
        }
        self.steps = 0;
        self.interrupt.check()
    }
}

/// Number of elements sorted without an interruption check.
const RUN: usize = 1 << 13;

/// Sorts stably with interruption checks. Runs are sorted first and then merged in pairs; the standard sort detects
/// runs and merges them in one pass.
///
/// Errors: interruption.
pub(crate) fn sort_in_runs<T>(
    elements: &mut [T],
    interrupt: &dyn Interrupt,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    let mut width = RUN;
    loop {
        for run in elements.chunks_mut(width) {
            run.sort_by(&mut compare);
            if elements_are_many(run) {
                interrupt.check()?;
            }
        }
        if width >= elements.len() {
            return Ok(());
        }
        width *= 2;
    }
}

/// Whether sorting these elements takes noticeable time.
fn elements_are_many<T>(run: &[T]) -> bool {
    run.len() > RUN / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Uninterrupted;
    use base::err;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn long_lists_are_sorted_stably() {
        for length in [0, 1, RUN - 1, RUN, 5 * RUN + 7] {
            let mut list: Vec<(u64, usize)> = (0..length).map(|at| (at as u64 * 7919 % 101, at)).collect();
            let mut expected = list.clone();
            expected.sort();
            sort_in_runs(&mut list, &Uninterrupted, |a, b| a.0.cmp(&b.0)).unwrap();
            assert_eq!(list, expected);
        }
    }

    #[test]
    fn sorting_ends_at_an_interrupt() {
        struct Third(AtomicUsize);
        impl Interrupt for Third {
            fn check(&self) -> Result<()> {
                match self.0.fetch_add(1, Relaxed) {
                    0..2 => Ok(()),
                    _ => Err(err!(Interrupted, "operation was interrupted")),
                }
            }
        }
        let (mut list, compared) = (vec![1; 100 * RUN], AtomicUsize::new(0));
        let sorted = sort_in_runs(&mut list, &Third(AtomicUsize::new(0)), |a, b| {
            compared.fetch_add(1, Relaxed);
            b.cmp(a)
        });
        assert!(sorted.is_err() && compared.load(Relaxed) < 4 * RUN * 13);
    }
}
