//! The oplog: for change streams, `local.oplog.rs`, and restores to a point in time. A standalone has none.

pub(crate) mod change_stream;

use crate::catalog::collection::Collection;
use crate::changes::logged::{self, Logged, LoggedCommand};
use crate::changes::retry_record::RetryKey;
use crate::database::Database;
use crate::storage_error;
use base::{Result, err};
use query::change::{Entry, EntryTime};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Direction;
use storage::store::{Change, LogCursor};

/// Message of the first entry of a complete log.
pub(crate) const INITIATING: &str = "initiating set";

impl Database {
    /// Adds the log entry of document changes to their batch.
    pub(crate) fn log_changes(&self, change: &mut Change, logged: Vec<Logged>, retry: Option<RetryKey>) {
        if self.logs {
            logged::put_changes(change, self.log_moment(), logged, retry);
        }
    }

    /// Adds the log entry of a transaction to its batch. Collections that it created come first.
    pub(crate) fn log_transaction(
        &self,
        change: &mut Change,
        created: &[Arc<Collection>],
        logged: Vec<Logged>,
        retry: Option<RetryKey>,
    ) {
        if self.logs {
            logged::put_transaction(change, self.log_moment(), created, logged, retry);
        }
    }

    /// Adds the log entry of a change of the catalog to its batch.
    pub(crate) fn log_commands(&self, change: &mut Change, commands: &[LoggedCommand]) {
        if self.logs {
            logged::put_commands(change, self.log_moment(), commands);
        }
    }

    /// Returns the log entries from a time on, and the time up to which they are complete: no later entry gets an
    /// earlier time. Omits entries that would not survive a crash yet.
    ///
    /// Errors: errors of the engine.
    pub fn log_cursor(&self, from: Bound<u64>) -> Result<(LogCursor, u64)> {
        let (read_view, end) = self.store.log_read_view(self.earliest_cluster_time());
        let bounds = (from, Bound::Included(end));
        let cursor = LogCursor::new(read_view.snapshot, bounds, Direction::Forward).map_err(storage_error)?;
        Ok((cursor, end))
    }

    /// Returns the time up to which the log can be read, if known without a query.
    pub(crate) fn log_end(&self) -> Option<u64> {
        self.store.log_end()
    }

    /// Returns a time before all future commits.
    ///
    /// Errors: errors of the store.
    pub(crate) fn log_now(&self) -> Result<u64> {
        self.store.log_now(self.earliest_cluster_time()).map_err(storage_error)
    }

    /// Returns all log entries from a time on in either direction, and the present time. Includes entries that a crash
    /// would still lose, like reads of collections.
    ///
    /// Errors: errors of the engine.
    pub fn log_cursor_local(&self, from: Bound<u64>, direction: Direction) -> Result<(LogCursor, u64)> {
        let (read_view, now) = self.store.read_view_with_time(self.earliest_cluster_time());
        let bounds = (from, Bound::Included(now));
        let cursor = LogCursor::new(read_view.snapshot, bounds, direction).map_err(storage_error)?;
        Ok((cursor, now))
    }

    /// Returns the time of the oldest log entry; `None` without entries.
    ///
    /// Errors: errors of the engine.
    pub fn log_begin(&self) -> Result<Option<u64>> {
        self.store.log_begin().map_err(storage_error)
    }

    /// Returns the times of the oldest and the latest log entry; `None` without entries.
    ///
    /// Errors: errors of the engine.
    pub fn log_window(&self) -> Result<Option<(u64, u64)>> {
        let Some(begin) = self.log_begin()? else { return Ok(None) };
        let (mut cursor, _) = self.log_cursor_local(Bound::Included(begin), Direction::Backward)?;
        let latest = cursor.next_entry().map_err(storage_error)?;
        debug_assert!(latest.as_ref().is_none_or(|latest| latest.time >= begin), "the log goes back");
        Ok(latest.map(|latest| (begin, latest.time)))
    }

    /// Returns the size limit of the log in bytes; `None` without a log.
    pub fn log_limit(&self) -> Option<u64> {
        self.store.log_limit()
    }

    /// Sets the size limit of the log.
    ///
    /// Errors: NotImplemented if the store does not support it.
    pub fn set_log_limit(&self, bytes: u64) -> Result<()> {
        match self.store.set_log_limit(bytes) {
            true => Ok(()),
            false => Err(err!(NotImplemented, "the oplog of this store cannot be resized")),
        }
    }

    /// Returns the size of the log in bytes; `None` without a log.
    pub fn log_bytes(&self) -> Option<u64> {
        self.store.log_bytes()
    }

    /// Requests a sync soon, without waiting, since streams show only durable commits.
    pub fn sync_soon(&self) {
        self.engine().sync_soon();
    }

    /// Returns the wall clock time and the term of a new entry.
    fn log_moment(&self) -> EntryTime {
        EntryTime { wall: self.now_millis(), term: self.term.load(Relaxed).max(1) }
    }

    /// Returns the term of the latest entry; `None` without entries.
    ///
    /// Errors: DataCorruptionDetected, and errors of the engine.
    fn log_term(&self) -> Result<Option<u32>> {
        let (mut cursor, _) = self.log_cursor_local(Bound::Unbounded, Direction::Backward)?;
        let Some(latest) = cursor.next_entry().map_err(storage_error)? else { return Ok(None) };
        Ok(Some(Entry::read(latest.time, &latest.parts)?.term))
    }

    /// Returns the term of a new election: one more than the term of the latest entry of an earlier process and than
    /// `known`, the latest term that other parts remember.
    pub fn next_term(&self, known: u32) -> u32 {
        self.term.load(Relaxed).max(known) + 1
    }

    /// Begins a term: later entries have its number, and a note is its first entry. The first term begins with the set.
    ///
    /// Errors: errors of the engine.
    pub fn begin_term(&self, term: u32) -> Result<()> {
        debug_assert!(term >= self.term.load(Relaxed), "the term {term} has ended");
        self.term.store(term, Relaxed);
        if self.logs && term > 1 {
            self.log_note("new primary")?;
            self.watchers.notify_all_watchers();
        }
        Ok(())
    }

    /// Commits a log entry that changes no data.
    fn log_note(&self, message: &str) -> Result<()> {
        let mut change = Change { earliest: self.earliest_cluster_time(), ..Change::default() };
        logged::put_note(&mut change, self.log_moment(), message);
        self.store.commit(&mut change).map(drop).map_err(storage_error)
    }

    /// Opens the log of an earlier process, or begins one. `is_new` says that nothing was ever committed. The new log
    /// is then complete, and streams may begin at any time until it is first trimmed.
    pub(crate) fn open_log(&self, is_new: bool) -> Result<()> {
        if !self.logs {
            return Ok(());
        }
        match self.log_term()? {
            Some(term) => self.term.store(term, Relaxed),
            None => {
                self.log_note(if is_new { INITIATING } else { "the oplog restarts" })?;
                self.term.store(0, Relaxed);
            }
        }
        Ok(())
    }
}
