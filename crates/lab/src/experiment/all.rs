//! `all`: every experiment that is a workload, one after the other on the same targets, in one report.

use super::{Experiment, Run};
use crate::error::Result;
use crate::load::Lab;
use crate::options::Common;
use crate::result::Part;

/// The experiment.
pub(crate) struct All;

/// In the order of the report.
const PARTS: [&str; 6] = ["inserts", "write-concern", "clean", "working-set", "error-tracker", "micro"];

impl Experiment for All {
    fn name(&self) -> &'static str {
        "all"
    }

    fn title(&self) -> String {
        "All experiments".to_string()
    }

    fn about(&self) -> String {
        format!("On the same servers, one after the other: {}.", PARTS.join(", "))
    }

    fn check(&self, common: &Common) -> Result<()> {
        let sizes = ["--rate", "--find-rate", "--duration", "--connections"];
        common.refuse(&sizes, "each experiment has sizes of its own")
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        for name in PARTS {
            if lab.progress.stopped() {
                break;
            }
            let experiment = Run::own(name)?;
            lab.experiment = name.to_string();
            // What goes wrong in one doesn't keep the others from being measured.
            if let Err(error) = experiment.measure(lab).await {
                lab.fail(error);
            }
            let (title, about) = (experiment.title(), experiment.about());
            lab.report.parts.push(Part { experiment: name.to_string(), title, about });
            lab.experiment.clear();
        }
        Ok(())
    }
}
