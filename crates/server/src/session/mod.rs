//! Logical sessions: their last use, and the results of their retryable writes.
//!
//! A session is created on first use and expires half an hour after its last use. A retryable write
//! has a number. The server keeps the results of the newest number's statements, so a retry does
//! not run twice. The memory for results is limited. If results were evicted, a retry fails instead
//! of running again.
//!
//! [`Session`] is the state of one session, [`Sessions`] the registry. [`transaction`] has the transactions of a
//! session. The records of retryable writes on disk are in the database (`write/retryable.rs`).

use crate::protocol::session_id;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::random::Random;
use base::{Result, bail, err};
use database::time;
use database::{Clock, Committed, Database, Queue, RetryKey, SessionId, StoredRetry};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

mod transaction;

pub(crate) use transaction::Start;
use transaction::{Transaction, TransactionCounters};

/// Idle timeout of a session in minutes, which hello reports.
pub(crate) const TIMEOUT_MINUTES: i32 = 30;

/// Idle timeout in seconds. The registry's clock starts at this value, so that earlier times exist.
const TIMEOUT_SECONDS: u64 = TIMEOUT_MINUTES as u64 * 60;

/// Maximum number of sessions, as MongoDB's maxSessions.
const SESSIONS_MAX: usize = 1_000_000;

/// Share of the memory limit for sessions, and the bytes of a session.
const SESSIONS_SHARE: u64 = 8;
const SESSION_BYTES: u64 = 700;

/// Maximum memory of all results of retryable writes, in bytes.
const RESULTS_MAX: usize = 64 * 1024 * 1024;

/// Approximate overhead of a result in bytes.
const RESULT_OVERHEAD: usize = 40;

/// A logical session.
pub(crate) struct Session {
    /// Id of the session.
    pub(crate) id: SessionId,
    /// Time of the last use in seconds of the registry's clock.
    last_use: AtomicU64,
    /// Set when the registry removes the session. Connections with a reference must look it up again.
    ended: AtomicBool,
    writes: Mutex<RetryableWrite>,
    /// The latest transaction.
    pub(crate) transaction: Mutex<Transaction>,
    /// Queue of statements.
    pub(crate) queue: Arc<Queue>,
    /// Bytes of results in all sessions.
    result_bytes: Arc<AtomicUsize>,
}

/// The retryable write with the highest number.
#[derive(Default)]
struct RetryableWrite {
    number: Option<i64>,
    /// Results by statement. `None` is the empty document, the result of inserts.
    statements: BTreeMap<i32, Option<Box<[u8]>>>,
    bytes: usize,
    /// True if results were dropped because of the memory limit.
    evicted: bool,
}

impl Session {
    /// Begins the retryable write `number` and drops older results. Returns true for a new write.
    /// Some statements of a repeated write may have run.
    ///
    /// Errors: TransactionTooOld if a newer write has begun; IncompleteTransactionHistory if
    /// results were dropped.
    pub(crate) fn begin_write(&self, number: i64) -> Result<bool> {
        let mut writes = self.writes.lock();
        match writes.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Retryable write with txnNumber {number} is prohibited on session {} because a newer retryable \
                 write with txnNumber {newest} has already started on this session.",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number && writes.evicted => Err(err!(
                IncompleteTransactionHistory,
                "Incomplete history detected for transaction {number} on session {}",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number => Ok(false),
            _ => {
                self.evict(&mut writes);
                *writes = RetryableWrite { number: Some(number), ..RetryableWrite::default() };
                Ok(true)
            }
        }
    }

    /// Adds the records of other processes for this write. Returns true if any exist.
    ///
    /// Errors: TransactionTooOld if another process has a newer write.
    pub(crate) fn add_stored(&self, records: Vec<StoredRetry>, number: i64) -> Result<bool> {
        let mut any_exist = false;
        for StoredRetry { key, answer, .. } in records {
            if key.number > number {
                self.begin_write(key.number)?;
                return self.begin_write(number);
            }
            if key.number == number {
                self.record(number, key.statement, answer);
                any_exist = true;
            }
        }
        Ok(any_exist)
    }

    /// Replaces the session's results by the stored records of this write. Returns true if any
    /// exist.
    ///
    /// Errors: as [`add_stored`](Self::add_stored).
    pub(crate) fn replace_with_stored(&self, records: Vec<StoredRetry>, number: i64) -> Result<bool> {
        let mut writes = self.writes.lock();
        self.evict(&mut writes);
        writes.evicted = false;
        drop(writes);
        self.add_stored(records, number)
    }

    /// Returns the result of a statement that has run.
    pub(crate) fn executed(&self, number: i64, statement: i32) -> Option<DocumentBuf> {
        let writes = self.writes.lock();
        let answer = writes.statements.get(&statement).filter(|_| writes.number == Some(number))?;
        Some(answer.as_ref().map_or_else(DocumentBuf::empty, |bytes| DocumentBuf::from_valid(bytes.to_vec())))
    }

    /// Records the result of a statement.
    pub(crate) fn record(&self, number: i64, statement: i32, answer: DocumentBuf) {
        let mut writes = self.writes.lock();
        if writes.number != Some(number) || writes.evicted {
            return;
        }
        let answer = (answer.view() != Document::EMPTY).then(|| answer.into_bytes().into_boxed_slice());
        let bytes = RESULT_OVERHEAD + answer.as_ref().map_or(0, |bytes| bytes.len());
        writes.bytes += bytes;
        writes.statements.insert(statement, answer);
        // The registry frees memory once a second. Until then the results may take up to twice the
        // limit.
        if self.result_bytes.fetch_add(bytes, Ordering::Relaxed) > 2 * RESULTS_MAX {
            self.evict(&mut writes);
        }
    }

    /// Returns the number of the newest retryable write.
    pub(crate) fn newest_write(&self) -> Option<i64> {
        self.writes.lock().number
    }

    /// Returns true if any statement of this write has run.
    pub(crate) fn has_executed(&self, number: i64) -> bool {
        let writes = self.writes.lock();
        writes.number == Some(number) && !writes.statements.is_empty()
    }

    fn evict(&self, writes: &mut RetryableWrite) {
        self.result_bytes.fetch_sub(writes.bytes, Ordering::Relaxed);
        writes.evicted |= !writes.statements.is_empty();
        writes.statements = BTreeMap::new();
        writes.bytes = 0;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.result_bytes.fetch_sub(self.writes.get_mut().bytes, Ordering::Relaxed);
    }
}

/// The registry of all sessions.
pub(crate) struct Sessions {
    start: Instant,
    /// Clock of session timeouts, which tests may set.
    clock: Arc<dyn Clock>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Maximum number of sessions.
    max: usize,
    result_bytes: Arc<AtomicUsize>,
    random: Random,
    /// Counts of transactions.
    pub(crate) transactions: TransactionCounters,
}

impl Sessions {
    /// Ends a session with its transaction. Its cursors stay.
    pub(crate) fn end_and_abort(&self, id: &SessionId, database: &Database) {
        if let Some(session) = self.end(id) {
            session.abort_any_transaction(database, &self.transactions);
        }
    }

    /// Aborts the open transaction of a session.
    pub(crate) fn abort_transaction_of(&self, id: &SessionId, database: &Database) {
        if let Some(session) = self.get(id) {
            session.abort_any_transaction(database, &self.transactions);
        }
    }

    /// Aborts all open transactions.
    pub(crate) fn abort_transactions(&self, database: &Database) {
        for session in self.all() {
            session.abort_any_transaction(database, &self.transactions);
            database.cursors.kill_transaction(&session.id);
        }
    }

    /// Creates an empty registry for a server with this memory limit in bytes. `seed` starts the random ids of
    /// startSession.
    pub(crate) fn new(seed: u64, clock: Arc<dyn Clock>, memory_limit: Option<u64>) -> Sessions {
        let within = memory_limit.map(|limit| limit / SESSIONS_SHARE / SESSION_BYTES);
        Sessions {
            start: time::now(),
            clock,
            sessions: Mutex::default(),
            max: within.map_or(SESSIONS_MAX, |within| SESSIONS_MAX.min(within as usize)),
            result_bytes: Arc::default(),
            random: Random::new(seed),
            transactions: TransactionCounters::default(),
        }
    }

    /// Returns seconds since the start. Corrections of the machine's clock have no effect, changes
    /// by `vellumClock` do.
    fn seconds(&self) -> u64 {
        let shift = self.clock.settable().map_or(0, |clock| clock.shift_millis());
        TIMEOUT_SECONDS + (time::since(self.start).as_millis() as i64 + shift).max(0) as u64 / 1000
    }

    /// Restores the session of an earlier process from one of its records. Its age is the time of its last write.
    ///
    /// On a shared store only the number of a committed transaction is restored. Its outcome is
    /// read from the store.
    pub(crate) fn restore(&self, record: StoredRetry, shared: bool) {
        let StoredRetry { key, millis, answer, time } = record;
        let now = self.seconds();
        let unused = self.clock.now_millis().saturating_sub(millis).max(0) as u64 / 1000;
        if unused >= TIMEOUT_SECONDS {
            return;
        }
        // Sessions above the limit are dropped as if they had ended.
        let Ok(session) = self.touch(key.session) else { return };
        let newest = session.newest_write();
        if newest.is_none() && !session.has_transaction() {
            session.last_use.store(now - unused, Ordering::Relaxed);
        }
        session.last_use.fetch_max(now - unused, Ordering::Relaxed);
        if key.is_commit() && !shared {
            let cluster_time = time.unwrap_or_default();
            session.restore_transaction(key.number, Committed { cluster_time, ..Committed::default() });
            return;
        }
        if newest.is_none_or(|newest| newest <= key.number) && session.begin_write(key.number).is_ok() {
            session.record(key.number, key.statement, answer);
        }
    }

    /// Returns true if the record of this statement is still needed. The record of a transaction is
    /// needed while its session exists.
    pub(crate) fn needs_record(&self, key: &RetryKey) -> bool {
        let Some(session) = self.get(&key.session) else { return false };
        key.is_commit() || session.newest_write().is_some_and(|newest| newest <= key.number)
    }

    /// Returns the session with this id, creates it if missing, and marks it as used.
    ///
    /// Errors: TooManyLogicalSessions.
    pub(crate) fn touch(&self, id: SessionId) -> Result<Arc<Session>> {
        let now = self.seconds();
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(&id) {
            session.last_use.store(now, Ordering::Relaxed);
            return Ok(session.clone());
        }
        if sessions.len() >= self.max {
            bail!(TooManyLogicalSessions, "cannot add session into the cache: too many sessions");
        }
        let session = Arc::new(Session {
            id,
            last_use: AtomicU64::new(now),
            ended: AtomicBool::new(false),
            writes: Mutex::default(),
            transaction: Mutex::default(),
            queue: Arc::default(),
            result_bytes: self.result_bytes.clone(),
        });
        sessions.insert(id, session.clone());
        Ok(session)
    }

    /// Marks a session as used. Returns false if it has ended meanwhile.
    pub(crate) fn refresh(&self, session: &Session) -> bool {
        session.last_use.store(self.seconds(), Ordering::Relaxed);
        !session.ended.load(Ordering::Acquire)
    }

    /// Starts a session with a random id for the user with this digest.
    pub(crate) fn start(&self, user: [u8; 32]) -> Result<SessionId> {
        let id = SessionId::new(self.random.uuid(), user);
        self.touch(id).map(|session| session.id)
    }

    /// Removes a session and returns it for the cleanup. A session with a running retryable write only expires: a retry
    /// of the write waits in its queue.
    pub(crate) fn end(&self, id: &SessionId) -> Option<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        let session = sessions.get(id)?.clone();
        if !session.queue.is_empty() {
            session.last_use.store(0, Ordering::Relaxed);
            return Some(session);
        }
        sessions.remove(id);
        session.ended.store(true, Ordering::Release);
        Some(session)
    }

    /// Returns the session with this id.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.sessions.lock().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    /// Returns the ids of all sessions.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.sessions.lock().keys().copied().collect()
    }

    /// Returns the number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Returns the sessions of these users for `$listLocalSessions`; `None` selects all users.
    pub(crate) fn documents(&self, users: Option<&[[u8; 32]]>) -> Vec<DocumentBuf> {
        let (now, now_millis) = (self.seconds(), self.clock.now_millis());
        let sessions = self.sessions.lock();
        let describe = |session: &Arc<Session>| {
            let unused = now.saturating_sub(session.last_use.load(Ordering::Relaxed));
            let mut document = Builder::new();
            session_id::append(document.begin_document(c"_id"), &session.id);
            document.end();
            document.append(c"lastUse", Value::DateTime(now_millis - unused as i64 * 1000));
            document.finish()
        };
        let matches = |session: &&Arc<Session>| users.is_none_or(|users| users.contains(session.id.user()));
        sessions.values().filter(matches).map(describe).collect()
    }

    /// Removes and returns expired sessions. The sessions of running operations are in use, however long those take.
    /// Drops results above the memory limit, starting with the longest unused sessions.
    pub(crate) fn remove_expired(&self, running: &[SessionId]) -> Vec<Arc<Session>> {
        self.remove_expired_at(self.seconds(), running)
    }

    fn remove_expired_at(&self, now: u64, running: &[SessionId]) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        let mut sessions = self.sessions.lock();
        // A session that was ended during its write has no last use.
        let is_open = |session: &&Arc<Session>| session.last_use.load(Ordering::Relaxed) != 0;
        for session in running.iter().filter_map(|id| sessions.get(id)).filter(is_open) {
            session.last_use.store(now, Ordering::Relaxed);
        }
        sessions.retain(|_, session| {
            let in_use = session.last_use.load(Ordering::Relaxed) + TIMEOUT_SECONDS > now;
            let is_alive = in_use || !session.queue.is_empty();
            if !is_alive {
                session.ended.store(true, Ordering::Release);
                expired.push(session.clone());
            }
            is_alive
        });
        if self.result_bytes.load(Ordering::Relaxed) > RESULTS_MAX {
            self.evict_results(sessions.values().cloned().collect());
        }
        expired
    }

    fn evict_results(&self, mut sessions: Vec<Arc<Session>>) {
        sessions.sort_by_cached_key(|session| session.last_use.load(Ordering::Relaxed));
        for session in sessions {
            if self.result_bytes.load(Ordering::Relaxed) <= RESULTS_MAX / 2 {
                return;
            }
            session.evict(&mut session.writes.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use database::SystemClock;

    fn id(number: u8) -> SessionId {
        SessionId::without_user([number; 16])
    }

    fn answer(size: usize) -> DocumentBuf {
        let mut answer = Builder::new();
        answer.append(c"text", &"x".repeat(size));
        answer.finish()
    }

    #[test]
    fn a_write_sent_again_finds_its_answer_and_an_older_one_is_refused() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        let session = sessions.touch(id(1)).unwrap();
        assert!(session.begin_write(5).unwrap());
        session.record(5, 0, DocumentBuf::empty());
        session.record(5, 1, answer(3));
        assert!(!session.begin_write(5).unwrap());
        assert!(session.has_executed(5));
        assert_eq!(session.executed(5, 0), Some(DocumentBuf::empty()));
        assert_eq!(session.executed(5, 1), Some(answer(3)));
        assert_eq!(session.executed(5, 2), None);
        assert_eq!(session.begin_write(4).unwrap_err().code().number(), 225);
        assert!(session.begin_write(6).unwrap());
        assert_eq!(session.executed(5, 0), None);
        assert_eq!(sessions.result_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sessions_stay_within_their_share_of_the_memory_limit() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), Some(2 * SESSIONS_SHARE * SESSION_BYTES));
        let codes = [1, 2, 3, 1].map(|number| sessions.touch(id(number)).map_err(|error| error.code()).err());
        assert_eq!(codes, [None, None, Some(base::ErrorCode::TooManyLogicalSessions), None]);
    }

    #[test]
    fn sessions_end_and_expire() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        let id = sessions.start(database::NO_USER).unwrap();
        assert_eq!((id.uuid[6] >> 4, id.uuid[8] >> 6, sessions.len()), (4, 2, 1));
        let session = sessions.touch(id).unwrap();
        assert!(sessions.refresh(&session));
        sessions.end(&id);
        assert!(!sessions.refresh(&session), "an ended session is refreshed");
        sessions.touch(self::id(2)).unwrap();
        assert!(sessions.documents(Some(&[[1; 32]])).is_empty());
        assert!(sessions.documents(None)[0].view().find("lastUse").is_some());
        assert!(sessions.remove_expired(&[]).is_empty());
        let late = sessions.seconds() + TIMEOUT_SECONDS + 1;
        assert!(sessions.remove_expired_at(late, &[self::id(2)]).is_empty(), "its operation runs");
        let expired = sessions.remove_expired_at(late + TIMEOUT_SECONDS, &[]);
        assert_eq!(expired.iter().map(|session| session.id).collect::<Vec<_>>(), [self::id(2)]);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_session_with_a_running_write_ends_after_the_write() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        let session = sessions.touch(id(1)).unwrap();
        let ticket = database::Ticket::take(session.queue.clone());
        sessions.end(&id(1));
        assert!(Arc::ptr_eq(&session, &sessions.get(&id(1)).unwrap()), "the retry gets another session");
        assert!(sessions.remove_expired(&[]).is_empty());
        drop(ticket);
        assert_eq!(sessions.remove_expired(&[]).len(), 1);
        assert!(!sessions.refresh(&session));
    }

    #[test]
    fn records_of_an_earlier_process_are_remembered_until_they_are_old() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        let now = SystemClock.now_millis();
        let record = |session, number, statement, minutes: i64| StoredRetry {
            key: RetryKey { session: id(session), number, statement },
            millis: now - minutes * 60_000,
            answer: answer(statement.max(0) as usize),
            time: Some(7),
        };
        let stale = record(1, 4, 2, 3);
        for stored in [record(1, 5, 0, 2), record(1, 5, 1, 1), stale.clone(), record(2, 9, 0, 31)] {
            sessions.restore(stored, false);
        }
        assert_eq!(sessions.len(), 1);
        let session = sessions.touch(id(1)).unwrap();
        assert!(!session.begin_write(5).unwrap());
        assert_eq!(session.executed(5, 1), Some(answer(1)));
        assert_eq!(session.executed(5, 2), None);
        assert!(session.begin_write(4).is_err());
        assert!(sessions.needs_record(&record(1, 5, 0, 2).key));
        assert!(!sessions.needs_record(&stale.key));
        assert!(!sessions.needs_record(&record(2, 9, 0, 31).key));
    }

    #[test]
    fn a_committed_transaction_of_an_earlier_process_is_known() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        let key = RetryKey { session: id(1), number: 3, statement: i32::MIN };
        let millis = SystemClock.now_millis() - 60_000;
        let record = StoredRetry { key, millis, answer: DocumentBuf::empty(), time: Some(7) };
        sessions.restore(record.clone(), true);
        assert!(!sessions.touch(id(1)).unwrap().has_transaction());
        sessions.end(&id(1));
        assert!(!sessions.needs_record(&key));
        sessions.restore(record, false);
        let session = sessions.touch(id(1)).unwrap();
        assert!(session.has_transaction() && session.newest_write().is_none());
        assert!(sessions.needs_record(&key));
    }

    #[test]
    fn answers_given_up_make_a_repetition_fail() {
        let sessions = Sessions::new(1, Arc::new(SystemClock), None);
        for at in 0..3 {
            let session = sessions.touch(id(at)).unwrap();
            session.last_use.store(sessions.seconds() + u64::from(at), Ordering::Relaxed);
            session.begin_write(1).unwrap();
            session.record(1, 0, answer(RESULTS_MAX / 2 - 1000));
        }
        sessions.remove_expired(&[]);
        assert!(sessions.result_bytes.load(Ordering::Relaxed) <= RESULTS_MAX);
        let oldest = sessions.touch(id(0)).unwrap();
        for _ in 0..2 {
            assert_eq!(oldest.begin_write(1).unwrap_err().code().number(), 217);
            // A later pass finds no results.
            oldest.evict(&mut oldest.writes.lock());
        }
        assert!(!sessions.touch(id(2)).unwrap().begin_write(1).unwrap());
    }
}
