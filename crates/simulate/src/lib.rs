//! A deterministic simulation of the server: one process, one thread, one seed.
//!
//! The simulation opens the disk engine on a simulated file system and runs connections, sessions, dispatch,
//! transactions, recovery, checkpoints and background work without sockets and threads. Simulated clients send commands
//! and repeat them after lost replies, as drivers do. The machine stops at random points and starts again. A model
//! checks every reply, and all data after each start.
//!
//! - `world.rs` has the scheduler: clients, time, faults, and the hooks by which waiting work lets other clients run.
//! - `client.rs` has the clients' commands, `watcher.rs` the client of a change stream.
//! - `model.rs` has the expected state after each commit, `check.rs` the checks.
//!
//! ARCHITECTURE.md lists the seams of the server that the simulation uses.

mod action;
mod check;
mod client;
mod model;
mod trace;
mod watcher;
mod world;

pub use trace::Report;

use std::collections::BTreeSet;

/// What to simulate.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The seed of all decisions.
    pub seed: u64,
    /// Number of steps of the scheduler.
    pub steps: u64,
    /// Numbers of the clients' operations that are left out.
    pub dropped: BTreeSet<u64>,
    /// True to print every event.
    pub is_shown: bool,
}

impl Script {
    /// Returns the script of a seed.
    pub fn new(seed: u64) -> Script {
        Script { seed, steps: 400, ..Script::default() }
    }

    /// Runs the script.
    ///
    /// Errors: a description of the first violation, or the text of a panic.
    pub fn run(&self) -> Result<Report, String> {
        std::panic::catch_unwind(|| world::run(self)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or_default()))
        })
    }

    /// Returns a shorter script that fails too. Operations are dropped in ever smaller groups, and steps at the end.
    pub fn shrink(&self) -> Script {
        let mut best = self.clone();
        let fails = |script: &Script| script.run().is_err();
        while best.steps > 10 {
            let shorter = Script { steps: best.steps - best.steps / 4, ..best.clone() };
            if !fails(&shorter) {
                break;
            }
            best = shorter;
        }
        let mut size = best.steps;
        while size > 0 {
            for from in (0..best.steps).step_by(size as usize) {
                let dropped = best.dropped.iter().copied().chain(from..from + size).collect();
                let fewer = Script { dropped, ..best.clone() };
                if fewer.dropped != best.dropped && fails(&fewer) {
                    best = fewer;
                }
            }
            size /= 2;
        }
        best
    }
}
