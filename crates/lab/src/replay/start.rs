//! What a recording began with, copied to each target before each round: collections with their options, documents in
//! their natural order, indexes, and views last, since they stand on collections.

use crate::error::{Error, Result};
use crate::options::Given;
use crate::target::{Target, restored};
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::InsertManyOptions;
use mongodb::{Client, Collection};
use std::collections::BTreeSet;
use std::path::Path;

/// What is sent at once, bytes and documents at the most.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_DOCUMENTS: usize = 10_000;

/// The scheme that tells a server from a directory.
const SCHEME: &str = "mongodb";

/// Looks at what can be told wrong before anything is started.
///
/// # Errors
/// It is neither a server nor a directory.
pub(super) fn check(start: &str) -> Result<()> {
    if start.starts_with(SCHEME) || Path::new(start).is_dir() {
        return Ok(());
    }
    Err(Error::Input(format!("--start: {start} is neither a directory nor a connection string")))
}

/// The server that has it: one that is there, or one that is started on what a backup holds.
///
/// # Errors
/// It can't be reached, restored or started.
pub(super) async fn open(start: &str) -> Result<Target> {
    if start.starts_with(SCHEME) {
        return Target::connect(&Given { name: "start".to_string(), uri: start.to_string() }).await;
    }
    restored(Path::new(start)).await
}

/// Copies these databases, as far as they are there.
///
/// # Errors
/// Either server refuses, or is gone.
pub(super) async fn copy(from: &Target, to: &Target, databases: &BTreeSet<String>) -> Result<()> {
    let (source, sink) = (from.mongo().await?, to.mongo().await?);
    for database in databases {
        let copying = Copying { from, to, source: &source, sink: &sink, database };
        copying.database().await?;
    }
    Ok(())
}

struct Copying<'a> {
    from: &'a Target,
    to: &'a Target,
    source: &'a Client,
    sink: &'a Client,
    database: &'a str,
}

impl Copying<'_> {
    async fn database(&self) -> Result<()> {
        let mut views = Vec::new();
        for listed in self.listed(doc! { "listCollections": 1 }).await? {
            let name = listed.get_str("name").unwrap_or_default().to_string();
            // Those are made by what they belong to.
            if name.starts_with("system.") {
                continue;
            }
            let mut create = doc! { "create": &name };
            create.extend(listed.get_document("options").cloned().unwrap_or_default());
            if listed.get_str("type").is_ok_and(|kind| kind == "view") {
                views.push(create);
                continue;
            }
            let has_collation = create.contains_key("collation");
            self.make(create).await?;
            self.documents(&name).await?;
            self.indexes(&name, has_collation).await?;
        }
        for view in views {
            self.make(view).await?;
        }
        Ok(())
    }

    /// All documents of a command's cursor.
    async fn listed(&self, command: Document) -> Result<Vec<Document>> {
        let wrong = |error| self.from.error(error);
        let mut cursor =
            self.source.database(self.database).run_cursor_command(command).await.map_err(wrong)?;
        let mut all = Vec::new();
        while cursor.advance().await.map_err(wrong)? {
            all.push(cursor.deserialize_current().map_err(wrong)?);
        }
        Ok(all)
    }

    async fn make(&self, command: Document) -> Result<()> {
        let made = self.sink.database(self.database).run_command(command).await;
        made.map(drop).map_err(|error| self.to.error(error))
    }

    async fn documents(&self, name: &str) -> Result<()> {
        let wrong = |error| self.from.error(error);
        let source: Collection<RawDocumentBuf> = self.source.database(self.database).collection(name);
        let mut cursor = source.find(doc! {}).sort(doc! { "$natural": 1 }).await.map_err(wrong)?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while cursor.advance().await.map_err(wrong)? {
            let document = cursor.current().to_owned();
            bytes += document.as_bytes().len();
            batch.push(document);
            if bytes > BATCH_BYTES || batch.len() >= BATCH_DOCUMENTS {
                self.insert(name, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        self.insert(name, batch).await
    }

    async fn insert(&self, name: &str, batch: Vec<RawDocumentBuf>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let sink: Collection<RawDocumentBuf> = self.sink.database(self.database).collection(name);
        // What is there was let in once, by rules that may have changed since.
        let as_it_is = InsertManyOptions::builder().bypass_document_validation(true).build();
        let inserted = sink.insert_many(batch).with_options(as_it_is).await;
        inserted.map(drop).map_err(|error| self.to.error(error))
    }

    /// All but those that come with a collection. Those that name no collation would get the collection's.
    async fn indexes(&self, name: &str, has_collation: bool) -> Result<()> {
        let own = |index: &Document| {
            index.get_str("name").is_ok_and(|name| name == "_id_")
                || index.get_bool("clustered").unwrap_or(false)
        };
        let listed = self.listed(doc! { "listIndexes": name }).await?;
        let as_listed = |mut index: Document| {
            if has_collation && !index.contains_key("collation") {
                index.insert("collation", doc! { "locale": "simple" });
            }
            Bson::from(index)
        };
        let indexes: Vec<Bson> = listed.into_iter().filter(|index| !own(index)).map(as_listed).collect();
        if indexes.is_empty() {
            return Ok(());
        }
        self.make(doc! { "createIndexes": name, "indexes": indexes }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_server_or_a_directory() {
        assert_eq!(check("mongodb://127.0.0.1:1/"), Ok(()));
        assert_eq!(check("/tmp"), Ok(()));
        assert!(check("/nowhere/at/all").is_err());
    }
}
