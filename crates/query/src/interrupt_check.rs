//! Periodic interruption checks for the loops of stages.
//!
//! [`Context::steps`] is the counter of expressions. This counter needs no atomic operation.

use crate::{Context, Interrupt};
use base::Result;
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
