//! The experiments: what each measures, and the sentences that it makes of its figures.

mod all;
mod bare;
mod clean;
mod error_tracker;
mod inserts;
mod micro;
mod parts;
mod sentences;
mod suite;
#[cfg(test)]
pub(crate) mod tests;
mod working_set;
mod workload;
mod write_concern;

pub(crate) use all::All;
pub(crate) use clean::Clean;
pub(crate) use error_tracker::ErrorTracker;
pub(crate) use inserts::Inserts;
pub(crate) use micro::Micro;
pub(crate) use suite::Suite;
pub(crate) use working_set::WorkingSet;
pub(crate) use workload::Run;
pub(crate) use write_concern::WriteConcern;

use crate::error::Result;
use crate::options::Common;
use crate::result::Report;
use crate::run::Lab;

/// One experiment of the command line.
pub(crate) trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What a report is headed with.
    fn title(&self) -> String;

    /// What is measured and why, in a few sentences for people.
    fn about(&self) -> String;

    /// Refuses options that it cannot honour, before anything is started.
    fn check(&self, _: &Common) -> Result<()> {
        Ok(())
    }

    /// Measures, into the lab's report. What one target refuses or dies of is written down and the
    /// others go on; an error is what ends the whole.
    async fn measure(&self, lab: &mut Lab) -> Result<()>;

    /// What the figures mean, in plain sentences; there may be figures missing.
    fn findings(&self, report: &Report) -> Vec<String>;
}
