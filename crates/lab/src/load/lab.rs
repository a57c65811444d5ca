//! What an experiment works with: its options, its targets, and the report that grows.

use super::suspicion::Suspicions;
use crate::error::Error;
use crate::options::Common;
use crate::progress::Progress;
use crate::result::Report;
use crate::target::Target;
use std::collections::BTreeMap;

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
