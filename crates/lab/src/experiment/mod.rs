//! The experiments: what each measures.
//!
//! `all`: every experiment that is a workload, one after the other on the same targets, in one report.
//!
//! What several experiments need of a target: its collections, and errors that name it.

mod suite;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

pub(crate) use suite::Suite;
pub(crate) use workload::Run;

use crate::Result;
use crate::load::Lab;
use crate::options::Common;
use crate::result::Part;
use crate::target::{Sources, Target};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection, Database};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

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

/// A connection to a target of MongoDB's protocol, at the run's own database.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) database: Database,
}

impl Link {
    /// A connection of its own.
    pub(super) async fn open(target: &Target) -> Result<Link> {
        let client = target.mongo().await?;
        let database = client.database(target.database()?);
        Ok(Link { target: target.clone(), client, database })
    }

    pub(super) fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.database.collection(name)
    }

    /// A result with the target's name in its error.
    pub(super) fn named<T>(&self, result: std::result::Result<T, impl Display>) -> Result<T> {
        result.map_err(|error| self.target.error(error))
    }

    /// Runs a command on the run's own database.
    pub(super) async fn run(&self, command: Document) -> Result<Document> {
        self.named(self.database.run_command(command).await)
    }

    /// Runs a command on `admin`.
    pub(super) async fn admin(&self, command: Document) -> Result<Document> {
        self.named(self.client.database("admin").run_command(command).await)
    }

    /// Fills a collection with documents numbered from 0, in batches of 1,000.
    pub(super) async fn fill(
        &self,
        collection: &str,
        count: u64,
        make: impl Fn(u64) -> Document,
    ) -> Result<()> {
        const BATCH: u64 = 1000;
        let collection = self.collection::<Document>(collection);
        for first in (0..count).step_by(BATCH as usize) {
            let documents = (first..(first + BATCH).min(count)).map(&make);
            self.named(collection.insert_many(documents).await)?;
        }
        Ok(())
    }

    /// Whether it says that it is Vellum, and so has commands of its own; the floor answers anything.
    pub(super) async fn is_vellum(&self) -> Result<bool> {
        let info = self.admin(doc! { "buildInfo": 1 }).await?;
        Ok(self.target.is_floor || info.contains_key("vellum"))
    }
}

/// Which places have what a section needs, so that it is loaded once and not in every round.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<BTreeSet<String>>>);

impl Loaded {
    /// Whether this place is asked for the first time; it counts as loaded from now on.
    pub(super) fn first_time(&self, place: &str) -> bool {
        self.0.lock().insert(place.to_string())
    }

    /// It no longer holds what was loaded.
    pub(super) fn forget(&self, place: &str) {
        self.0.lock().remove(place);
    }
}

/// PostgreSQL's result with the target's name in its error.
pub(super) fn named<T>(target: &Target, result: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
    result.map_err(|error| target.error(Sources(&error)))
}
