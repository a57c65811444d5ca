//! The experiments. A new one is a workload file, or a type that implements [`Experiment`].
//!
//! `all` runs every experiment that is a workload, in turn on the same targets, into one report.
//!
//! The module also has helpers for several experiments: access to collections, and errors with the target's name.

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
use crate::target::{ErrorChain, Target};
use mongodb::bson::{Document, doc};
use mongodb::{Collection, Database};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

/// An experiment of the command line.
pub(crate) trait Experiment {
    /// Returns its name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the title of the report.
    fn title(&self) -> String;

    /// Returns a description of a few sentences: subject and purpose.
    fn about(&self) -> String;

    /// Refuses unsupported options before any server is started.
    fn check(&self, _: &Common) -> Result<()> {
        Ok(())
    }

    /// Measures into the lab's report. If a target refuses or dies, the report records it and other targets continue.
    /// An error ends the whole experiment.
    async fn measure(&self, lab: &mut Lab) -> Result<()>;
}

/// The experiment `all`.
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
        common.refuse(&sizes, "each experiment has its own sizes")
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        for name in PARTS {
            if lab.progress.stopped() {
                break;
            }
            let experiment = Run::own(name)?;
            lab.experiment = name.to_string();
            // A failed experiment does not stop the next one.
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

/// A connection to a target of MongoDB's protocol, on the database of the run.
#[derive(Clone)]
pub(super) struct MongoConnection {
    pub(super) target: Target,
    pub(super) database: Database,
}

impl MongoConnection {
    /// Opens a new connection.
    pub(super) async fn open(target: &Target) -> Result<MongoConnection> {
        let database = target.mongo().await?.database(target.database()?);
        Ok(MongoConnection { target: target.clone(), database })
    }

    pub(super) fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.database.collection(name)
    }

    /// Adds the target's name to an error.
    pub(super) fn named<T>(&self, result: std::result::Result<T, impl Display>) -> Result<T> {
        result.map_err(|error| self.target.error(error))
    }

    /// Runs a command on the database of the run.
    pub(super) async fn run(&self, command: Document) -> Result<Document> {
        self.named(self.database.run_command(command).await)
    }

    /// Runs a command on `admin`.
    pub(super) async fn admin(&self, command: Document) -> Result<Document> {
        self.named(self.database.client().database("admin").run_command(command).await)
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

    /// Returns true if the server identifies as Vellum and has its commands. The null server answers any command.
    pub(super) async fn is_vellum(&self) -> Result<bool> {
        let info = self.admin(doc! { "buildInfo": 1 }).await?;
        Ok(self.target.is_null_server || info.contains_key("vellum"))
    }
}

/// Places that already hold the data of a section, so that it is loaded once and not in every round.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedData(Arc<Mutex<BTreeSet<String>>>);

impl LoadedData {
    /// Returns true at the first call for a place, and marks the place as loaded.
    pub(super) fn first_time(&self, place: &str) -> bool {
        self.0.lock().insert(place.to_string())
    }

    /// Marks a place as not loaded.
    pub(super) fn forget(&self, place: &str) {
        self.0.lock().remove(place);
    }
}

/// Adds the target's name to an error of PostgreSQL.
pub(super) fn named<T>(target: &Target, result: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
    result.map_err(|error| target.error(ErrorChain(&error)))
}
