//! What several experiments need of a target: its collections, and errors that name it.

use crate::error::Result;
use crate::target::{Sources, Target};
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::{Client, Collection, Database, IndexModel};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

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

    /// One for each worker.
    pub(super) async fn open_all(target: &Target, connections: u32) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for _ in 0..connections {
            links.push(Link::open(target).await?);
        }
        Ok(links)
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

    /// Drops a collection of the run's own, if it is there.
    pub(super) async fn drop(&self, collection: &str) -> Result<()> {
        let dropped = self.collection::<Document>(collection).drop().await;
        // The driver knows MongoDB's error for a collection that isn't there, and passes over it.
        // mongo-java-server's has no code, so that the driver can't even read it.
        let unread = |error: &mongodb::error::Error| matches!(*error.kind, ErrorKind::InvalidResponse { .. });
        if dropped.as_ref().is_err_and(unread) {
            let names = self.named(self.database.list_collection_names().await)?;
            if !names.iter().any(|name| name == collection) {
                return Ok(());
            }
        }
        self.named(dropped)
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

/// Which targets have what a section needs, so that it is loaded once and not in every round.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<BTreeSet<String>>>);

impl Loaded {
    /// Whether this target is asked for the first time; it counts as loaded from now on.
    pub(super) fn first_time(&self, target: &Target) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(target.name.clone())
    }
}

/// An ascending or descending index on these fields.
pub(super) fn index(keys: Document) -> IndexModel {
    IndexModel::builder().keys(keys).build()
}

/// PostgreSQL's result with the target's name in its error.
pub(super) fn named<T>(target: &Target, result: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
    result.map_err(|error| target.error(Sources(&error)))
}
