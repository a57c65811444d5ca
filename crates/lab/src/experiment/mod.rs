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
use mongodb::Database;
use mongodb::bson::Document;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

/// An experiment of the command line.
pub(crate) trait Experiment {
    /// Returns its name on the command line, its title, and a description of a few sentences.
    fn describe(&self) -> Part;

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
    fn describe(&self) -> Part {
        let about = format!("On the same servers, one after the other: {}.", PARTS.join(", "));
        Part::new("all", "All experiments", about)
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
            lab.report.parts.push(experiment.describe());
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
}

/// Places that already hold the data of a section, so that it is loaded once and not in every round.
type LoadedData = Arc<Mutex<BTreeSet<String>>>;

/// Adds the target's name to an error of PostgreSQL.
pub(super) fn named<T>(target: &Target, result: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
    result.map_err(|error| target.error(ErrorChain(&error)))
}
