//! The load generator: one worker per connection sends operations in sequence, at the pace of the answers (closed loop)
//! or of a schedule (open loop).
//!
//! In a closed loop, a server that stalls for a second delays one operation per connection and hides the operations
//! that would have arrived meanwhile. In an open loop every operation has a due time and is timed from it, so all
//! delayed operations show the stall.
//!
//! The module also holds the state of an experiment: options, targets, and the growing report.

mod find_rate;
pub(crate) mod keys;
pub(crate) mod measure;
mod run_load;
mod schedule;
#[cfg(test)]
mod tests;
mod warnings;

use self::warnings::LoadWarnings;
use crate::options::Common;
use crate::progress::Progress;
use crate::result::Report;
use crate::target::Target;
use crate::{Error, Result};
#[cfg(test)]
use run_load::{EndReason, LoadResult, run_load};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

/// The worker of one connection.
pub(crate) trait Worker: Send + 'static {
    /// Time without an answer after which the target counts as hung.
    const SILENCE_MAX: Duration = Duration::from_secs(120);

    /// Sends one operation and waits for its answer. Numbers count from [`Load::first`] over all workers. An operation
    /// depends only on its number and the seed of the run, so that a run can be repeated.
    fn operation(&mut self, number: u64) -> impl Future<Output = Result<()>> + Send;
}

/// End of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LoadEnd {
    Operations(u64),
    Seconds(f64),
}

/// The task of the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Offered operations per second over all connections, each due at its time. `None`: a connection sends its next
    /// operation after the answer to its previous one.
    pub(crate) rate: Option<f64>,
    pub(crate) until: LoadEnd,
    /// Number of the first operation.
    pub(crate) first: u64,
}

/// State of an experiment.
pub(crate) struct Lab {
    pub(crate) common: Common,
    pub(crate) targets: Vec<Target>,
    /// Grows during the experiment, and is valid at any time.
    pub(crate) report: Report,
    pub(crate) progress: Progress,
    pub(crate) load_warnings: LoadWarnings,
    /// Name of the current experiment of several; empty for a single one.
    pub(crate) experiment: String,
    /// Dead targets, with the reason.
    dead: BTreeMap<String, String>,
}

impl Lab {
    /// Creates the state with these targets and an empty report.
    pub(crate) fn new(common: &Common, targets: Vec<Target>, report: Report, progress: Progress) -> Lab {
        let common = common.clone();
        let (load_warnings, experiment, dead) = Default::default();
        Lab { common, targets, report, progress, load_warnings, experiment, dead }
    }

    /// Returns the experiment's numbers of connections, or the one of the options.
    pub(crate) fn connections(&self, own: &[u32]) -> Vec<u32> {
        self.common.connections.map_or_else(|| own.to_vec(), |one| vec![one])
    }

    /// Adds a warning about figures to the report.
    pub(crate) fn warn(&mut self, warning: String) {
        if !self.report.warnings.contains(&warning) {
            self.report.warnings.push(warning);
        }
    }

    /// Records an error. The run continues, and its exit code shows the failure.
    pub(crate) fn fail(&mut self, error: Error) {
        let error = error.to_string();
        if !self.report.errors.contains(&error) {
            self.report.errors.push(error);
        }
    }

    /// Returns the reason why a target was lost, if it was.
    pub(crate) fn reason_of_death(&self, target: &Target) -> Option<String> {
        self.dead.get(&target.name).cloned()
    }

    /// Marks a target as lost: later measurements skip it.
    pub(crate) fn mark_dead(&mut self, target: &Target, how: &str) {
        self.dead.insert(target.name.clone(), how.to_string());
    }
}
