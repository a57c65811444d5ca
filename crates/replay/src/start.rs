//! Copies the initial data of a recording between servers: collections with options, documents in natural order, and
//! indexes. Views come last, since views need their collections.

use super::select_server;
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::client::Client;
use wire::uri::ConnectionString;

/// Timeout of one command: an index build may take long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);

/// Maximum number of documents in one insert. A server's batch also has at most 16 MB.
const BATCH_SIZE: i32 = 10_000;

/// Copies the databases that exist. Blocks.
///
/// # Errors
/// The error text of a server that refuses or is unreachable.
pub fn copy(
    from: &ConnectionString,
    to: &ConnectionString,
    databases: &BTreeSet<String>,
) -> Result<(), String> {
    let connect = |uri| Client::connect(&select_server(uri)?.host, uri, Instant::now() + REPLY_TIMEOUT);
    let (mut source, mut target) = (connect(from)?, connect(to)?);
    for database in databases {
        DatabaseCopy { source: &mut source, target: &mut target, database }.database()?;
    }
    Ok(())
}

/// State of a copy: both servers, and the database under way.
struct DatabaseCopy<'a> {
    source: &'a mut Client,
    target: &'a mut Client,
    database: &'a str,
}

/// Runs a command, given by its name, its value and its other fields.
fn run(
    client: &mut Client,
    database: &str,
    (name, value): (&str, &str),
    add_fields: impl FnOnce(&mut Builder),
) -> Result<DocumentBuf, String> {
    client.set_deadline(Instant::now() + REPLY_TIMEOUT);
    let mut command = Builder::new();
    match value {
        "" => command.append(FieldName::trusted(name), 1),
        value => command.append(FieldName::trusted(name), value),
    };
    add_fields(&mut command);
    command.append(c"$db", database);
    let reply = client.command(&command.finish())?;
    let errors = reply.view().get("writeErrors").and_then(|errors| errors.as_array());
    match errors.and_then(|errors| errors.get(0)?.as_document()?.get("errmsg")?.as_str()) {
        Some(error) => Err(error.to_string()),
        None => Ok(reply),
    }
}

impl DatabaseCopy<'_> {
    /// Copies the collections of a database, then its views.
    fn database(&mut self) -> Result<(), String> {
        let mut views = Vec::new();
        for listed in self.list(("listCollections", ""))? {
            let text = |name| {
                listed.view().get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string()
            };
            let (name, is_view) = (text("name"), text("type") == "view");
            // The server creates system collections itself.
            if name.starts_with("system.") {
                continue;
            }
            if is_view {
                views.push((name, listed));
                continue;
            }
            let collation = self.create(&name, listed.view())?;
            self.documents(&name)?;
            self.indexes(&name, collation)?;
        }
        views.iter().try_for_each(|(name, listed)| self.create(name, listed.view()).map(drop))
    }

    /// Creates a collection or a view. Returns whether it has a collation.
    fn create(&mut self, name: &str, listed: Document<'_>) -> Result<bool, String> {
        let options =
            listed.get("options").and_then(|options| options.as_document()).unwrap_or(Document::EMPTY);
        run(self.target, self.database, ("create", name), |command| {
            command.append_all(options);
        })?;
        Ok(options.get("collation").is_some())
    }

    /// Calls a function for each batch of a command's cursor.
    fn for_each_batch(
        &mut self,
        command: (&str, &str),
        add_fields: impl FnOnce(&mut Builder),
        mut visit: impl FnMut(&mut Self, Array<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut reply = run(self.source, self.database, command, add_fields)?;
        loop {
            let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
            let cursor = cursor.ok_or_else(|| format!("{} returns no cursor", command.0))?;
            let batch =
                cursor.get("firstBatch").or(cursor.get("nextBatch")).and_then(|batch| batch.as_array());
            visit(self, batch.unwrap_or(Array::EMPTY))?;
            let id = cursor.get("id").and_then(|id| id.as_i64()).unwrap_or(0);
            let namespace = cursor.get("ns").and_then(|ns| ns.as_str()).unwrap_or_default().to_string();
            if id == 0 {
                return Ok(());
            }
            let collection = namespace.split_once('.').map_or("", |(_, collection)| collection);
            self.source.set_deadline(Instant::now() + REPLY_TIMEOUT);
            let mut next = Builder::new();
            next.append(c"getMore", id).append(c"collection", collection).append(c"$db", self.database);
            reply = self.source.command(&next.finish())?;
        }
    }

    /// Returns all documents of a command's cursor.
    fn list(&mut self, command: (&str, &str)) -> Result<Vec<DocumentBuf>, String> {
        let mut all = Vec::new();
        self.for_each_batch(
            command,
            |_| (),
            |_, batch| {
                all.extend(batch.iter().filter_map(|value| value.as_document()).map(Document::to_owned));
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// Copies documents in natural order, without validation.
    fn documents(&mut self, name: &str) -> Result<(), String> {
        let natural = |command: &mut Builder| {
            command.begin_document(c"sort").append(c"$natural", 1).end().append(c"batchSize", BATCH_SIZE);
        };
        self.for_each_batch(("find", name), natural, |copy, batch| {
            if batch.is_empty() {
                return Ok(());
            }
            // The validator may have changed after these documents were inserted.
            let insert = |command: &mut Builder| {
                command.append(c"documents", batch).append(c"bypassDocumentValidation", true);
            };
            run(copy.target, copy.database, ("insert", name), insert).map(drop)
        })
    }

    /// Copies all indexes except the automatic ones. An index without a collation needs `simple`, or the server would
    /// add the collation of the collection.
    fn indexes(&mut self, name: &str, has_collation: bool) -> Result<(), String> {
        let mut listed = self.list(("listIndexes", name))?;
        listed.retain(|index| {
            let is = |name: &str| index.view().get(name);
            let is_clustered = is("clustered").and_then(|value| value.as_bool()) == Some(true);
            !is_clustered && is("name").and_then(|value| value.as_str()) != Some("_id_")
        });
        if listed.is_empty() {
            return Ok(());
        }
        let create = |command: &mut Builder| {
            command.begin_array(c"indexes");
            for index in &listed {
                command.push_document().append_all(index.view());
                if has_collation && index.view().get("collation").is_none() {
                    command.begin_document(c"collation").append(c"locale", "simple").end();
                }
                command.end();
            }
            command.end();
        };
        run(self.target, self.database, ("createIndexes", name), create).map(drop)
    }
}
