//! Retryable writes where several processes share a store: a write may be sent again to another process than
//! the one that has carried it out.
//!
//! Before a session's write begins, the records that anybody has left of its statements are read: those of a
//! larger write before it are none of its business. Its commit
//! expects that they are still what was read: so one of two processes that carry out the same statement at a
//! time is refused.

use crate::changes::Changes;
use crate::database::Database;
use crate::keys::RETRIES;
use crate::retry_record::{RetryKey, StoredRetry, from_entry};
use crate::session_id::SessionId;
use crate::storage_error;
use base::Result;
use storage::{Direction, Key, Range};

/// How long records are kept that no session of this process remembers, in milliseconds: as long as sessions.
const KEPT_MILLIS: i64 = 30 * 60 * 1000;

impl Database {
    /// The records of a session's statements, from the one number to the other, that other processes may have
    /// left: none where nobody else can. To be asked for before a write of these statements begins.
    ///
    /// Errors: DataCorruptionDetected, and the store's.
    pub fn stored_retries(&self, session: SessionId, (first, last): (i32, i32)) -> Result<Vec<StoredRetry>> {
        if !self.shares_retries() {
            return Ok(Vec::new());
        }
        let snapshot = self.engine().snapshot();
        let place = |statement: i32| [&session.uuid[..], &statement.to_be_bytes()].concat();
        let range = match last.checked_add(1) {
            Some(end) if first >= 0 => Range::half_open(place(first), place(end)),
            _ => Range::prefix(&session.uuid),
        };
        let mut records = snapshot.scan(RETRIES, range, Direction::Forward).map_err(storage_error)?;
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            let record = from_entry(key, &value)?;
            if record.key.session == session {
                seen.push((Key::from(key), value.to_value()));
                found.push(record);
            }
        }
        self.seen_retries.lock().insert(session, seen);
        Ok(found)
    }

    /// Expects of a statement's commit that nobody else has carried the statement out since.
    pub(crate) fn expect_retry(&self, changes: &mut Changes, retry: RetryKey) {
        if !self.shares_retries() {
            return;
        }
        let key = retry.to_key();
        let seen = self.seen_retries.lock();
        let seen = seen.get(&retry.session).and_then(|seen| {
            // They were read in the order of their keys.
            let at = seen.binary_search_by(|(at, _)| at[..].cmp(&key)).ok()?;
            seen.get(at)
        });
        changes.expect_retry(key, seen.map(|(_, value)| value.clone()));
    }

    /// Whether a record that no session of this process remembers may be another process's.
    pub(crate) fn may_be_anothers(&self, record: &StoredRetry) -> bool {
        self.shares_retries() && self.now_millis().saturating_sub(record.millis) < KEPT_MILLIS
    }

    /// Forgets what has been read of sessions that are no more.
    pub(crate) fn forget_seen_retries(&self, is_live: &dyn Fn(&RetryKey) -> bool) {
        self.seen_retries.lock().retain(|_, seen| {
            let records = seen.iter().filter_map(|(key, value)| from_entry(key, value).ok());
            records.map(|record| record.key).any(|key| is_live(&key))
        });
    }
}
