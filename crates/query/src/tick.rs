//! Asks for interruption now and then, so that loops needn't count.

use crate::{Context, Interrupt};
use base::Result;
use std::sync::Arc;

/// Steps between two questions.
const EVERY: u32 = 128;

/// A counter that asks the operation's interrupt every 128 steps.
#[derive(Clone)]
pub(crate) struct Tick {
    interrupt: Arc<dyn Interrupt>,
    steps: u32,
}

impl Tick {
    pub(crate) fn new(context: &Context) -> Tick {
        Tick { interrupt: Arc::clone(&context.interrupt), steps: 0 }
    }

    /// Whom it asks.
    pub(crate) fn interrupt(&self) -> &dyn Interrupt {
        &*self.interrupt
    }

    /// Errors: what the interrupt says.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<()> {
        self.weigh(0)
    }

    /// The same for what takes longer the larger it is: a step for each kilobyte.
    ///
    /// Errors: what the interrupt says.
    #[inline]
    pub(crate) fn weigh(&mut self, bytes: usize) -> Result<()> {
        self.steps += 1 + (bytes / 1024) as u32;
        if self.steps < EVERY {
            return Ok(());
        }
        self.steps = 0;
        self.interrupt.check()
    }
}
