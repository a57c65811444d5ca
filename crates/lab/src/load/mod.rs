//! The load engine: workers, one per connection, that send operations one after the other, at the
//! pace of the answers (closed loop) or at that of a schedule (open loop).
//!
//! In a closed loop a server that stalls for a second delays one operation for each connection and
//! is forgiven all those that would have come meanwhile. In an open loop operations are due when
//! they are due, and each is timed from then: the stall is in as many of them as it held up.
//!
//! What an experiment works with: its options, its targets, and the report that grows.

mod drive;
mod find_rate;
pub(crate) mod keys;
pub(crate) mod measure;
mod schedule;
mod suspicion;
#[cfg(test)]
mod tests;

use self::suspicion::Suspicions;
use crate::options::Common;
use crate::progress::Progress;
use crate::result::Report;
use crate::target::Target;
use crate::{Error, Result};
#[cfg(test)]
use drive::{Ended, Outcome, drive};
use std::collections::BTreeMap;
use std::future::Future;

/// One connection's side of a workload.
pub(crate) trait Worker: Send + 'static {
    /// Sends one operation and waits for its answer. Numbers count from [`Load::first`] over all
    /// workers together; what an operation does must follow from its number (and the run's seed)
    /// alone, so that a run can be replayed.
    fn operation(&mut self, number: u64) -> impl Future<Output = Result<()>> + Send;
}

/// When the next operation is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// When this connection's last one was answered.
    Closed,
    /// When it is due: so many a second, over all connections together.
    Open { rate: f64 },
}

/// When it is enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Until {
    Operations(u64),
    Seconds(f64),
}

/// What workers are asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) pace: Pace,
    pub(crate) until: Until,
    /// The number of the first operation.
    pub(crate) first: u64,
}

/// What an experiment works with.
pub(crate) struct Lab {
    pub(crate) common: Common,
    pub(crate) seed: u64,
    pub(crate) targets: Vec<Target>,
    /// Grows while the experiment runs, so that it is worth reading whenever that ends.
    pub(crate) report: Report,
    pub(crate) progress: Progress,
    pub(crate) suspicions: Suspicions,
    /// Which of several experiments is being measured; empty where there is one.
    pub(crate) experiment: String,
    /// Targets that died, and how.
    lost: BTreeMap<String, String>,
}

impl Lab {
    /// With these targets, and a report that nothing has been measured for.
    pub(crate) fn new(
        common: &Common,
        seed: u64,
        targets: Vec<Target>,
        report: Report,
        progress: Progress,
    ) -> Lab {
        let (suspicions, lost) = (Suspicions::default(), BTreeMap::new());
        let experiment = String::new();
        Lab { common: common.clone(), seed, targets, report, progress, suspicions, experiment, lost }
    }

    /// The experiment's own numbers of connections, unless the options say one.
    pub(crate) fn connections(&self, own: &[u32]) -> Vec<u32> {
        self.common.connections.map_or_else(|| own.to_vec(), |one| vec![one])
    }

    /// What a reader must know before believing a figure.
    pub(crate) fn warn(&mut self, warning: String) {
        if !self.report.warnings.contains(&warning) {
            self.report.warnings.push(warning);
        }
    }

    /// What went wrong; the run goes on with the rest, and its exit code tells.
    pub(crate) fn fail(&mut self, error: Error) {
        let error = error.to_string();
        if !self.report.errors.contains(&error) {
            self.report.errors.push(error);
        }
    }

    /// How a target was lost, if it was.
    pub(crate) fn lost(&self, target: &Target) -> Option<String> {
        self.lost.get(&target.name).cloned()
    }

    /// This target is gone: nothing more is measured on it.
    pub(crate) fn lose(&mut self, target: &Target, how: &str) {
        self.lost.insert(target.name.clone(), how.to_string());
    }
}
