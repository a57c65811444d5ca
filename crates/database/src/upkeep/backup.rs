//! Backups of everything, as a cursor over byte chunks: see the module `backup` of `storage`.
//!
//! The first document names the kind of backup. Later documents contain the bytes in order. A cursor holds a snapshot
//! and no lock, so a slow reader blocks nothing.

use crate::cursor::Cursor;
use crate::database::Database;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Value};
use base::{Namespace, Result, err};
use query::{Interrupt, Row, Stage};
use std::sync::Arc;
use storage::{Backup, Since};

impl Database {
    /// Begins a backup of everything committed, or of the commits after an earlier backup. The earlier backup is named
    /// by the id of the data directory and its end position; its later commits must still exist.
    ///
    /// Errors: CommandNotSupported on a store with its own means of backup; errors of the engine.
    pub fn backup_cursor(&self, operation: &Arc<Operation>, since: Option<(u64, u64)>) -> Result<Cursor> {
        let since = since.map(|(id, position)| Since { id, position });
        // No commit is under way at that moment: later commits are not in the backup and come after it.
        let (_, covers) = self.store.read_view_with_time(self.earliest_cluster_time());
        let backup = self.engine().backup(since, covers).map_err(|error| match error {
            storage::Error::Unavailable(_) => err!(
                CommandNotSupported,
                "the engine {} has no backups of its own: back up its server (pg_basebackup, and a WAL \
                 archive for point-in-time recovery)",
                self.engine().name()
            ),
            error => storage_error(error),
        })?;
        operation.mark_long();
        let pieces = Pieces { backup, started: false, operation: operation.clone() };
        let namespace = Namespace::new("admin", "$cmd.vellumBackup")?;
        let mut cursor = Cursor::new(namespace, Box::new(pieces), operation.clone());
        cursor.looks_ahead = true;
        Ok(cursor)
    }
}

/// The stage of a backup's cursor: one document about the kind, then one for each chunk.
struct Pieces {
    backup: Backup,
    started: bool,
    operation: Arc<Operation>,
}

impl Stage for Pieces {
    fn next(&mut self) -> Result<Option<Row>> {
        self.operation.check()?;
        let mut document = Builder::new();
        if !self.started {
            self.started = true;
            document.append(c"kind", self.backup.kind().name());
            document.append_optional(c"why", self.backup.why_full());
            return Ok(Some(document.finish().into()));
        }
        let Some(piece) = self.backup.piece().map_err(storage_error)? else { return Ok(None) };
        document.append(c"data", Value::Binary { subtype: 0, bytes: &piece });
        Ok(Some(document.finish().into()))
    }
}
