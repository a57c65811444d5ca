//! Whether the generator itself was the bottleneck: how much processor time this process and the
//! whole machine used meanwhile. Linux tells; elsewhere nothing is said.

use crate::target::machine::{Clocks, clocks};
use std::time::Instant;

/// The state of the clocks at one moment.
pub(crate) struct Effort {
    at: Instant,
    clocks: Option<Clocks>,
}

/// Shares, 0 to 1, of all processors' time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    /// What this process used.
    pub(crate) own: f64,
    /// What anyone used.
    pub(crate) machine: f64,
}

impl Effort {
    /// Reads the clocks.
    pub(crate) fn now() -> Effort {
        Effort { at: Instant::now(), clocks: clocks() }
    }

    /// What was used since; nothing where it can't be told, or the time was too short to tell.
    pub(super) fn since(&self) -> Shares {
        let now = Effort::now();
        let elapsed = now.at.duration_since(self.at).as_secs_f64();
        let (Some(before), Some(after), 0.3..) = (self.clocks, now.clocks, elapsed) else {
            return Shares::default();
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let own = (after.own - before.own) / elapsed / cores;
        let machine = (after.busy - before.busy) / (after.all - before.all).max(0.01);
        Shares { own: own.clamp(0.0, 1.0), machine: machine.clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_short_a_time_says_nothing() {
        assert_eq!(Effort::now().since(), Shares::default());
    }
}
