//! The oplog: for change streams, `local.oplog.rs`, and whoever goes back to a moment. A standalone has none.

use crate::collection::Collection;
use crate::database::Database;
use crate::logged::{self, Logged, LoggedCommand};
use crate::retry_record::RetryKey;
use crate::storage_error;
use base::{Result, err};
use query::change::{Entry, Moment};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Direction;
use storage::store::{Change, LogCursor};

/// What the first entry of a log says that tells all there is.
pub(crate) const INITIATING: &str = "initiating set";

impl Database {
    /// Puts the entry of changes to documents beside their batch.
    pub(crate) fn log_changes(&self, change: &mut Change, logged: Vec<Logged>, retry: Option<RetryKey>) {
        if self.logs {
            logged::put_changes(change, self.log_moment(), logged, retry);
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
            logged::put_transaction(change, self.log_moment(), created, logged, retry);
        }
    }

    /// Puts the entry of a change of the catalog beside its batch.
    pub(crate) fn log_commands(&self, change: &mut Change, commands: &[LoggedCommand]) {
        if self.logs {
            logged::put_commands(change, self.log_moment(), commands);
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

    /// The time up to which the log can be read now, where that is known without asking.
    pub(crate) fn log_end(&self) -> Option<u64> {
        self.store.log_end()
    }

    /// A time that all commits from now on come behind.
    ///
    /// Errors: the store's.
    pub(crate) fn log_now(&self) -> Result<u64> {
        self.store.log_now(self.earliest_cluster_time()).map_err(storage_error)
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

    /// Keeps at most so many bytes of the log from now on.
    ///
    /// Errors: NotImplemented where the store can't.
    pub fn set_log_limit(&self, bytes: u64) -> Result<()> {
        match self.store.set_log_limit(bytes) {
            true => Ok(()),
            false => Err(err!(NotImplemented, "this store's log can't be resized")),
        }
    }

    /// The bytes that the log takes; `None` where none is kept.
    pub fn log_bytes(&self) -> Option<u64> {
        self.store.log_bytes()
    }

    /// Asks for what is committed to be made durable soon, without waiting: streams show nothing before.
    pub fn sync_soon(&self) {
        self.engine().sync_soon();
    }

    /// When an entry is written that is being put together now, and in which term.
    fn log_moment(&self) -> Moment {
        Moment { wall: self.now_millis(), term: self.term.load(Relaxed).max(1) }
    }

    /// The term of the latest entry; `None` where there is none.
    ///
    /// Errors: DataCorruptionDetected, and the engine's.
    fn log_term(&self) -> Result<Option<u32>> {
        let (mut cursor, _) = self.log_cursor_local(Bound::Unbounded, Direction::Backward)?;
        let Some(latest) = cursor.next_entry().map_err(storage_error)? else { return Ok(None) };
        Ok(Some(Entry::read(latest.time, &latest.parts)?.term))
    }

    /// The number that a new election gets: one more than that of the latest entry from an earlier process, and
    /// than `known`, which others remember.
    pub fn next_term(&self, known: u32) -> u32 {
        self.term.load(Relaxed).max(known) + 1
    }

    /// Begins a term: entries have its number from now on, of which a note is the first. The first term begins
    /// with the set.
    ///
    /// Errors: the engine's.
    pub fn begin_term(&self, term: u32) -> Result<()> {
        self.term.store(term, Relaxed);
        if self.logs && term > 1 {
            self.log_note("new primary")?;
            self.watchers.notify_everybody();
        }
        Ok(())
    }

    fn log_note(&self, message: &str) -> Result<()> {
        let mut change = Change { earliest: self.earliest_cluster_time(), ..Change::default() };
        logged::put_note(&mut change, self.log_moment(), message);
        self.store.commit(change).map(drop).map_err(storage_error)
    }

    /// Takes up the log that an earlier process has left, or begins one. `is_new` says that nothing was ever
    /// committed: then the log tells all that there is, and streams may begin at any time until it is first
    /// trimmed.
    pub(crate) fn open_log(&self, is_new: bool) -> Result<()> {
        if !self.logs {
            return Ok(());
        }
        match self.log_term()? {
            Some(term) => self.term.store(term, Relaxed),
            None => {
                self.log_note(if is_new { INITIATING } else { "the log begins anew" })?;
                self.term.store(0, Relaxed);
            }
        }
        Ok(())
    }
}
