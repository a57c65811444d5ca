//! Settings that lie in collections of the server's own, one document each, as MongoDB keeps them.

use crate::direct;
use crate::server::Server;
use base::Result;
use base::bson::{Builder, DocumentBuf};

/// Where a setting lies.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The database.
    pub(crate) database: &'static str,
    /// The collection.
    pub(crate) collection: &'static str,
    /// The document's `_id`.
    pub(crate) id: &'static str,
}

impl Place {
    /// The stored document, if there is one.
    ///
    /// Errors: those of the read.
    pub(crate) fn read(&self, server: &Server) -> Result<Option<DocumentBuf>> {
        let mut find = Builder::new();
        find.append(c"find", self.collection).begin_document(c"filter").append(c"_id", self.id).end();
        find.append(c"limit", 1).append(c"$db", self.database);
        let reply = direct::run(server, find.finish().view())?;
        let batch = reply.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
        let first = batch.and_then(|batch| batch.as_array()?.iter().next());
        Ok(first.and_then(|first| first.as_document()).map(|stored| stored.to_owned()))
    }

    /// Stores a document whose fields after `_id` are appended by `append`.
    ///
    /// Errors: those of the write.
    pub(crate) fn write(&self, server: &Server, append: impl FnOnce(&mut Builder)) -> Result<()> {
        let mut update = Builder::new();
        update.append(c"update", self.collection).begin_array(c"updates").push_document();
        update.begin_document(c"q").append(c"_id", self.id).end();
        append(update.begin_document(c"u").append(c"_id", self.id));
        update.end().append(c"upsert", true).end().end();
        update.begin_document(c"writeConcern").append(c"w", 1).end().append(c"$db", self.database);
        direct::run(server, update.finish().view()).map(drop)
    }
}
