//! `all`: every experiment, one after the other on the same targets, in one report.

use super::{Clean, ErrorTracker, Experiment, Inserts, Micro, WorkingSet, WriteConcern};
use crate::error::Result;
use crate::options::Common;
use crate::report::headlines;
use crate::result::{Part, Report};
use crate::run::Lab;

/// The experiment.
pub(crate) struct All;

impl Experiment for All {
    fn name(&self) -> &'static str {
        "all"
    }

    fn title(&self) -> String {
        "How fast, and how safe".to_string()
    }

    fn about(&self) -> String {
        "Every experiment of the lab on the same servers: writes and what waiting for the disk costs, clean databases for \
         tests, reads as the data outgrows the memory, an application's life, and single operations."
            .to_string()
    }

    fn check(&self, common: &Common) -> Result<()> {
        let sizes = ["--rate", "--find-rate", "--duration", "--connections"];
        common.refuse(&sizes, "each experiment has sizes of its own")
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        part(lab, Inserts).await;
        part(lab, WriteConcern).await;
        part(lab, Clean).await;
        part(lab, WorkingSet).await;
        part(lab, ErrorTracker).await;
        part(lab, Micro).await;
        Ok(())
    }

    /// The sentences of the first screen.
    fn findings(&self, report: &Report) -> Vec<String> {
        headlines::of(report).into_iter().map(|headline| headline.sentence).collect()
    }
}

/// One of them; what goes wrong in it doesn't keep the others from being measured.
async fn part<E: Experiment>(lab: &mut Lab, experiment: E) {
    if lab.progress.stopped() {
        return;
    }
    lab.experiment = experiment.name().to_string();
    let first = lab.report.sections.len();
    if let Err(error) = experiment.measure(lab).await {
        lab.fail(error);
    }
    // Its sentences are about its own sections.
    let sections = lab.report.sections.get(first..).unwrap_or_default().to_vec();
    let own = Report { sections, ..lab.report.clone() };
    lab.report.parts.push(Part {
        experiment: experiment.name().to_string(),
        title: experiment.title(),
        about: experiment.about(),
        findings: experiment.findings(&own),
    });
    lab.experiment.clear();
}
