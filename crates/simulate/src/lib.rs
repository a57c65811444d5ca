//! A deterministic simulation of the server: one process, one thread, one seed.
//!
//! The simulation opens the disk engine on a simulated file system and runs connections, sessions, dispatch,
//! transactions, recovery, checkpoints and background work without sockets and threads. Simulated clients send commands
//! and repeat them after lost replies, as drivers do. The machine stops at random points and starts again. A model
//! checks every reply, and all data after each start.
//!
//! The modules, from the lowest up. A module imports only modules above it in this list.
//!
//! - `action.rs` has the statements and what a correct server answers.
//! - `model.rs` has the expected state after each commit, `trace.rs` the events of a run.
//! - `client.rs` has the clients' commands, `watcher.rs` the client of a change stream.
//! - `check.rs` checks replies. `process.rs` has a server process, and compares its data with the model.
//! - `world.rs` has the state of a simulation.
//! - `logins.rs` has the users and their logins.
//! - `commits.rs` applies the engine's commits to the model, and lets other clients run while the server waits.
//! - `requests.rs` runs the clients' requests.
//! - `machine.rs` has time, stops and starts, `backup.rs` backups and restores.
//! - `run.rs` has the scheduler, which draws the next step and the faults.
//! - `marks.rs` lists the code marks and the faults of the server.
//!
//! ARCHITECTURE.md lists the seams of the server that the simulation uses.

mod action;
mod backup;
mod check;
mod client;
mod commits;
mod logins;
mod machine;
mod marks;
mod model;
mod process;
mod requests;
mod run;
mod trace;
mod watcher;
mod world;

pub use marks::{UNREACHED, all_marks, all_mutants};
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
    /// True if clients log in, in one seed of eight.
    pub has_logins: bool,
}

impl Script {
    /// Returns the script of a seed.
    pub fn new(seed: u64) -> Script {
        Script { seed, steps: 320, ..Script::default() }
    }

    /// Runs the script.
    ///
    /// Errors: a description of the first violation, or the text of a panic.
    pub fn run(&self) -> Result<Report, String> {
        std::panic::catch_unwind(|| run::run(self)).unwrap_or_else(|panic| {
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
