//! The experiments: what each measures.

mod all;
mod parts;
mod suite;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

pub(crate) use all::All;
pub(crate) use suite::Suite;
pub(crate) use workload::Run;

use crate::error::Result;
use crate::load::Lab;
use crate::options::Common;

/// One experiment of the command line.
pub(crate) trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What a report is headed with.
    fn title(&self) -> String;

    /// What is measured and why, in a few sentences.
    fn about(&self) -> String;

    /// Refuses options that it cannot honour, before anything is started.
    fn check(&self, _: &Common) -> Result<()> {
        Ok(())
    }

    /// Measures, into the lab's report. What one target refuses or dies of is written down and the
    /// others go on; an error is what ends the whole.
    async fn measure(&self, lab: &mut Lab) -> Result<()>;
}
