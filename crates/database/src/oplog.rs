//! The oplog: for change streams, `local.oplog.rs`, and whoever goes back to a moment. A standalone has none.

use crate::collection::Collection;
use crate::database::Database;
use crate::logged::{self, Logged, LoggedCommand};
use crate::retry_record::RetryKey;
use crate::storage_error;
use base::Result;
use std::ops::Bound;
use std::sync::Arc;
use storage::Direction;
use storage::store::{Change, LogCursor};

impl Database {
    /// Puts the entry of changes to documents beside their batch.
    pub(crate) fn log_changes(&self, change: &mut Change, logged: Vec<Logged>, retry: Option<RetryKey>) {
        if self.logs {
            logged::put_changes(change, self.now_millis(), logged, retry);
        }
    }

    /// Puts the entry of a transaction beside its batch: the collections that it has made come first.
    pub(crate) fn log_transaction(
        &self,
        change: &mut Change,
        created: &[Arc<Collection>],
        logged: Vec<Logged>,
        retry: Option<RetryKey>,
    ) {
        if self.logs {
            logged::put_transaction(change, self.now_millis(), created, logged, retry);
        }
    }

    /// Puts the entry of a change of the catalog beside its batch.
    pub(crate) fn log_commands(&self, change: &mut Change, commands: &[LoggedCommand]) {
        if self.logs {
            logged::put_commands(change, self.now_millis(), commands);
        }
    }

    /// The log's entries from a time on, and the time up to which they are all there: no entry after it will
    /// have an earlier one. What wouldn't survive a crash yet is left out.
    ///
    /// Errors: the engine's.
    pub fn log_cursor(&self, from: Bound<u64>) -> Result<(LogCursor, u64)> {
        let (sight, end) = self.store.log_sight(self.earliest_cluster_time());
        let bounds = (from, Bound::Included(end));
        let cursor = LogCursor::new(sight.snapshot, bounds, Direction::Forward).map_err(storage_error)?;
        Ok((cursor, end))
    }

    /// All entries from a time on in either direction, and the time of now: those that a crash would still
    /// undo, too, as reads of collections see such documents.
    ///
    /// Errors: the engine's.
    pub fn log_cursor_local(&self, from: Bound<u64>, direction: Direction) -> Result<(LogCursor, u64)> {
        let (sight, now) = self.store.sight_with_time(self.earliest_cluster_time());
        let bounds = (from, Bound::Included(now));
        let cursor = LogCursor::new(sight.snapshot, bounds, direction).map_err(storage_error)?;
        Ok((cursor, now))
    }

    /// The time of the oldest entry that the log keeps; `None` where there is none.
    ///
    /// Errors: the engine's.
    pub fn log_begin(&self) -> Result<Option<u64>> {
        self.store.log_begin().map_err(storage_error)
    }

    /// The times of the oldest and the latest entry that the log keeps; `None` where there is none.
    ///
    /// Errors: the engine's.
    pub fn log_window(&self) -> Result<Option<(u64, u64)>> {
        let Some(begin) = self.log_begin()? else { return Ok(None) };
        let (mut cursor, _) = self.log_cursor_local(Bound::Included(begin), Direction::Backward)?;
        let latest = cursor.next_entry().map_err(storage_error)?;
        Ok(latest.map(|latest| (begin, latest.time)))
    }

    /// The most bytes that the log takes; `None` where none is kept.
    pub fn log_limit(&self) -> Option<u64> {
        self.store.log_limit()
    }

    /// The bytes that the log takes; `None` where none is kept.
    pub fn log_bytes(&self) -> Option<u64> {
        self.store.log_bytes()
    }

    /// Asks for what is committed to be made durable soon, without waiting: streams show nothing before.
    pub fn sync_soon(&self) {
        self.engine().sync_soon();
    }

    /// Begins the log of a new set, so that streams may begin at any time until it is first trimmed.
    pub(crate) fn begin_log(&self) -> Result<()> {
        if !self.logs || self.log_begin()?.is_some() {
            return Ok(());
        }
        let mut change = Change { earliest: self.earliest_cluster_time(), ..Change::default() };
        logged::put_note(&mut change, self.now_millis(), "initiating set");
        self.store.commit(change).map(drop).map_err(storage_error)
    }
}
