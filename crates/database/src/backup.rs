//! Backups of everything, as a cursor of pieces of bytes: see `storage`'s module of the same name.
//!
//! The first document tells which kind of backup it is, the others have the bytes, in order. A cursor holds the snapshot
//! and no lock, so that it may take its time.

use crate::cursor::Cursor;
use crate::database::Database;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, DocumentCow, Value};
use base::{Namespace, Result, err};
use query::{Interrupt, Stage};
use std::sync::Arc;
use storage::{Backup, Since};

impl Database {
    /// Begins a backup of everything that is committed, or of the commits behind an earlier backup that has come to a
    /// position of the data directory with an id, where these are still there.
    ///
    /// Errors: CommandNotSupported on a store that is backed up by other means; the engine's.
    pub fn backup_cursor(&self, operation: &Arc<Operation>, since: Option<(u64, u64)>) -> Result<Cursor> {
        let since = since.map(|(id, position)| Since { id, position });
        // No commit is under way at that moment: those that aren't in the backup come behind it.
        let (_, covers) = self.store.sight_with_time(self.earliest_cluster_time());
        let backup = self.engine().backup(since, covers).map_err(|error| match error {
            storage::Error::Unavailable(_) => err!(
                CommandNotSupported,
                "the engine {} makes no backups of its own: its server's are those of the documents, too (pg_basebackup, \
                 and an archive of its log for a moment in time)",
                self.engine().name()
            ),
            error => storage_error(error),
        })?;
        operation.expect_long();
        let pieces = Pieces { backup, told: false, operation: operation.clone() };
        let namespace = Namespace::new("admin", "$cmd.vellumBackup")?;
        let mut cursor = Cursor::new(namespace, Box::new(pieces), operation.clone());
        cursor.looks_ahead = true;
        Ok(cursor)
    }
}

struct Pieces {
    backup: Backup,
    told: bool,
    operation: Arc<Operation>,
}

impl Stage for Pieces {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        self.operation.check()?;
        let mut document = Builder::new();
        if !self.told {
            self.told = true;
            document.append(c"kind", self.backup.kind().name());
            document.append_optional(c"why", self.backup.why_full());
            return Ok(Some(document.finish().into()));
        }
        let Some(piece) = self.backup.piece().map_err(storage_error)? else { return Ok(None) };
        document.append(c"data", Value::Binary { subtype: 0, bytes: &piece });
        Ok(Some(document.finish().into()))
    }
}
