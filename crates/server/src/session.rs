//! Logical sessions: who used which when, and what their retryable writes answered.
//!
//! Sessions are made on first use and expire half an hour after the last. A retryable write
//! carries a number; the server remembers the replies of the newest number's statements, so that
//! the same write sent again after a broken connection isn't carried out twice. That memory is
//! bounded: where it had to be given up, a repetition is refused rather than carried out again.

use crate::session_id;
use crate::transaction::Transaction;
use crate::turn::{HasLine, Line};
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::random::Random;
use base::{Result, err};
use database::{Clock, Committed, RetryKey, SessionId, StoredRetry};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// How long a session lives unused, in minutes; hello tells clients.
pub(crate) const TIMEOUT_MINUTES: i32 = 30;

/// The same in seconds, at which the registry begins to count: so there is a time before its start.
const TIMEOUT_SECONDS: u64 = TIMEOUT_MINUTES as u64 * 60;

/// The most sessions kept, as MongoDB's maxSessions.
const SESSIONS_MAX: usize = 1_000_000;

/// The most memory that the answers of retryable writes take in all, in bytes.
const ANSWERS_MAX: usize = 64 * 1024 * 1024;

/// What one recorded answer takes beside its own bytes, about.
const ANSWER_OVERHEAD: usize = 40;

/// One logical session.
pub(crate) struct Session {
    /// Its id.
    pub(crate) id: SessionId,
    /// Seconds at which it was last used, as the registry counts them.
    last_use: AtomicU64,
    /// Set once the registry has forgotten it: whoever still holds it must look it up again.
    ended: AtomicBool,
    writes: Mutex<Writes>,
    /// The latest transaction.
    pub(crate) transaction: Mutex<Transaction>,
    /// The statements that wait for one another.
    line: Line,
    /// Bytes of answers that all sessions remember.
    answers: Arc<AtomicUsize>,
}

/// The retryable write of the highest number that the session has sent.
#[derive(Default)]
struct Writes {
    number: Option<i64>,
    /// What each statement answered; `None` is the empty document, which inserts answer.
    statements: BTreeMap<i32, Option<Box<[u8]>>>,
    bytes: usize,
    /// Whether answers were given up for lack of memory.
    forgotten: bool,
}

impl Session {
    /// Begins the retryable write `number`, forgetting older ones. Returns whether it is new:
    /// `false` is a repetition, some of whose statements may have been carried out.
    ///
    /// Errors: TransactionTooOld where a newer one has begun; IncompleteTransactionHistory where
    /// it isn't known any more which statements were carried out.
    pub(crate) fn begin_write(&self, number: i64) -> Result<bool> {
        let mut writes = self.writes.lock();
        match writes.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Retryable write with txnNumber {number} is prohibited on session {} because a newer retryable \
                 write with txnNumber {newest} has already started on this session.",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number && writes.forgotten => Err(err!(
                IncompleteTransactionHistory,
                "Incomplete history detected for transaction {number} on session {}",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number => Ok(false),
            _ => {
                self.forget(&mut writes);
                *writes = Writes { number: Some(number), ..Writes::default() };
                Ok(true)
            }
        }
    }

    /// Takes up what other processes have recorded of this write. Whether there was anything.
    ///
    /// Errors: TransactionTooOld where another process has seen a newer one.
    pub(crate) fn take_up(&self, records: Vec<StoredRetry>, number: i64) -> Result<bool> {
        let mut found = false;
        for StoredRetry { key, answer, .. } in records {
            if key.number > number {
                self.begin_write(key.number)?;
                return self.begin_write(number);
            }
            if key.number == number {
                self.record(number, key.statement, answer);
                found = true;
            }
        }
        Ok(found)
    }

    /// Takes up what is recorded of this write, in the place of what the session remembers. Whether there was
    /// anything.
    ///
    /// Errors: those of [`take_up`](Self::take_up).
    pub(crate) fn believe(&self, records: Vec<StoredRetry>, number: i64) -> Result<bool> {
        let mut writes = self.writes.lock();
        self.forget(&mut writes);
        writes.forgotten = false;
        drop(writes);
        self.take_up(records, number)
    }

    /// What the statement answered when it was carried out, if it was.
    pub(crate) fn executed(&self, number: i64, statement: i32) -> Option<DocumentBuf> {
        let writes = self.writes.lock();
        let answer = writes.statements.get(&statement).filter(|_| writes.number == Some(number))?;
        Some(answer.as_ref().map_or_else(DocumentBuf::empty, |bytes| DocumentBuf::from_valid(bytes.to_vec())))
    }

    /// Remembers what a statement answered.
    pub(crate) fn record(&self, number: i64, statement: i32, answer: DocumentBuf) {
        let mut writes = self.writes.lock();
        if writes.number != Some(number) || writes.forgotten {
            return;
        }
        let answer = (answer.view() != Document::EMPTY).then(|| answer.into_bytes().into_boxed_slice());
        let bytes = ANSWER_OVERHEAD + answer.as_ref().map_or(0, |bytes| bytes.len());
        writes.bytes += bytes;
        writes.statements.insert(statement, answer);
        // The registry frees memory once a second; until then one write may go beyond, not all.
        if self.answers.fetch_add(bytes, Ordering::Relaxed) > 2 * ANSWERS_MAX {
            self.forget(&mut writes);
        }
    }

    /// The number of the newest retryable write.
    pub(crate) fn newest_write(&self) -> Option<i64> {
        self.writes.lock().number
    }

    /// Whether this write has carried out any statement.
    pub(crate) fn has_executed(&self, number: i64) -> bool {
        let writes = self.writes.lock();
        writes.number == Some(number) && !writes.statements.is_empty()
    }

    fn forget(&self, writes: &mut Writes) {
        self.answers.fetch_sub(writes.bytes, Ordering::Relaxed);
        writes.forgotten = !writes.statements.is_empty();
        writes.statements = BTreeMap::new();
        writes.bytes = 0;
    }
}

impl HasLine for Session {
    fn line(&self) -> &Line {
        &self.line
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.answers.fetch_sub(self.writes.get_mut().bytes, Ordering::Relaxed);
    }
}

/// All sessions.
pub(crate) struct Sessions {
    start: Instant,
    /// Where tests may set it, it moves the sessions' time-outs along.
    clock: Arc<dyn Clock>,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    answers: Arc<AtomicUsize>,
    random: Random,
}

impl Sessions {
    /// No sessions yet; `seed` starts the numbers that startSession gives out.
    pub(crate) fn new(seed: u64, clock: Arc<dyn Clock>) -> Sessions {
        Sessions {
            start: Instant::now(),
            clock,
            sessions: Mutex::default(),
            answers: Arc::default(),
            random: Random::new(seed),
        }
    }

    /// Seconds since the start, never disturbed by corrections to the machine's clock, but moved by
    /// whoever sets the clock on purpose.
    fn seconds(&self) -> u64 {
        let shift = self.clock.settable().map_or(0, |clock| clock.shift_millis());
        TIMEOUT_SECONDS + (self.start.elapsed().as_millis() as i64 + shift).max(0) as u64 / 1000
    }

    /// Takes up the sessions that an earlier process left records of, as old as their last writes.
    ///
    /// Where several processes share the store, only the number of a committed transaction is taken up: the store is
    /// asked for its outcome.
    pub(crate) fn restore(&self, records: Vec<StoredRetry>, shared: bool) {
        let (now, now_millis) = (self.seconds(), self.clock.now_millis());
        for StoredRetry { key, millis, answer, time } in records {
            let unused = now_millis.saturating_sub(millis).max(0) as u64 / 1000;
            if unused >= TIMEOUT_SECONDS {
                continue;
            }
            // Beyond the most that there may be they are forgotten, as if they had ended.
            let Ok(session) = self.touch(key.session) else { return };
            let newest = session.newest_write();
            if newest.is_none() && !session.has_transaction() {
                session.last_use.store(now - unused, Ordering::Relaxed);
            }
            session.last_use.fetch_max(now - unused, Ordering::Relaxed);
            if key.is_commit() && !shared {
                let cluster_time = time.unwrap_or_default();
                session.restore_transaction(key.number, Committed { cluster_time, ..Committed::default() });
                continue;
            }
            if newest.is_none_or(|newest| newest <= key.number) && session.begin_write(key.number).is_ok() {
                session.record(key.number, key.statement, answer);
            }
        }
    }

    /// Whether a session remembers this statement: its record is still wanted. That of a transaction is wanted for as
    /// long as its session lives.
    pub(crate) fn remembers(&self, key: &RetryKey) -> bool {
        let Some(session) = self.get(&key.session) else { return false };
        key.is_commit() || session.newest_write().is_some_and(|newest| newest <= key.number)
    }

    /// The session with this number, made if need be, marked as used now.
    ///
    /// Errors: TooManyLogicalSessions.
    pub(crate) fn touch(&self, id: SessionId) -> Result<Arc<Session>> {
        let now = self.seconds();
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(&id) {
            session.last_use.store(now, Ordering::Relaxed);
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(err!(TooManyLogicalSessions, "cannot add session into the cache: too many sessions"));
        }
        let session = Arc::new(Session {
            id,
            last_use: AtomicU64::new(now),
            ended: AtomicBool::new(false),
            writes: Mutex::default(),
            transaction: Mutex::default(),
            line: Line::default(),
            answers: self.answers.clone(),
        });
        sessions.insert(id, session.clone());
        Ok(session)
    }

    /// Marks a session that the caller holds as used now; `false` when it has ended meanwhile.
    pub(crate) fn refresh(&self, session: &Session) -> bool {
        session.last_use.store(self.seconds(), Ordering::Relaxed);
        !session.ended.load(Ordering::Acquire)
    }

    /// Starts a session with a number of its own for a user, told by their digest.
    pub(crate) fn start(&self, user: [u8; 32]) -> Result<SessionId> {
        let id = SessionId::new(self.random.uuid(), user);
        self.touch(id).map(|session| session.id)
    }

    /// Forgets a session, and gives it back for what is left of it to be ended.
    pub(crate) fn end(&self, id: &SessionId) -> Option<Arc<Session>> {
        let session = self.sessions.lock().remove(id)?;
        session.ended.store(true, Ordering::Release);
        Some(session)
    }

    /// The session of this number, if there is one.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.sessions.lock().get(id).cloned()
    }

    /// Every session.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    /// The numbers of all sessions.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.sessions.lock().keys().copied().collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// The sessions of these users as `$listLocalSessions` shows them; `None` is all users.
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
        let is_wanted = |session: &&Arc<Session>| users.is_none_or(|users| users.contains(session.id.user()));
        sessions.values().filter(is_wanted).map(describe).collect()
    }

    /// Ends what has expired and returns it; forgets answers beyond the limit, those of
    /// sessions unused for longest first.
    pub(crate) fn sweep(&self) -> Vec<Arc<Session>> {
        self.sweep_at(self.seconds())
    }

    fn sweep_at(&self, now: u64) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| {
            let in_use = session.last_use.load(Ordering::Relaxed) + TIMEOUT_SECONDS > now;
            let lives = in_use || session.line.is_busy();
            if !lives {
                session.ended.store(true, Ordering::Release);
                expired.push(session.clone());
            }
            lives
        });
        if self.answers.load(Ordering::Relaxed) > ANSWERS_MAX {
            self.forget_answers(sessions.values().cloned().collect());
        }
        expired
    }

    fn forget_answers(&self, mut sessions: Vec<Arc<Session>>) {
        sessions.sort_by_cached_key(|session| session.last_use.load(Ordering::Relaxed));
        for session in sessions {
            if self.answers.load(Ordering::Relaxed) <= ANSWERS_MAX / 2 {
                return;
            }
            session.forget(&mut session.writes.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use database::SystemClock;

    fn id(number: u8) -> SessionId {
        SessionId::of_nobody([number; 16])
    }

    fn answer(size: usize) -> DocumentBuf {
        let mut answer = Builder::new();
        answer.append(c"text", &"x".repeat(size));
        answer.finish()
    }

    #[test]
    fn a_write_sent_again_finds_its_answer_and_an_older_one_is_refused() {
        let sessions = Sessions::new(1, Arc::new(SystemClock));
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
        assert_eq!(sessions.answers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sessions_end_and_expire() {
        let sessions = Sessions::new(1, Arc::new(SystemClock));
        let id = sessions.start(database::NOBODY).unwrap();
        assert_eq!((id.uuid[6] >> 4, id.uuid[8] >> 6, sessions.len()), (4, 2, 1));
        let held = sessions.touch(id).unwrap();
        assert!(sessions.refresh(&held));
        sessions.end(&id);
        assert!(!sessions.refresh(&held), "whoever holds it learns that it has ended");
        sessions.touch(self::id(2)).unwrap();
        assert!(sessions.documents(Some(&[[1; 32]])).is_empty());
        assert!(sessions.documents(None)[0].view().find("lastUse").is_some());
        assert!(sessions.sweep().is_empty());
        let swept = sessions.sweep_at(sessions.seconds() + TIMEOUT_SECONDS + 1);
        assert_eq!(swept.iter().map(|session| session.id).collect::<Vec<_>>(), [self::id(2)]);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn records_of_an_earlier_process_are_remembered_until_they_are_old() {
        let sessions = Sessions::new(1, Arc::new(SystemClock));
        let now = SystemClock.now_millis();
        let record = |session, number, statement, minutes: i64| StoredRetry {
            key: RetryKey { session: id(session), number, statement },
            millis: now - minutes * 60_000,
            answer: answer(statement.max(0) as usize),
            time: Some(7),
        };
        let stale = record(1, 4, 2, 3);
        sessions
            .restore(vec![record(1, 5, 0, 2), record(1, 5, 1, 1), stale.clone(), record(2, 9, 0, 31)], false);
        assert_eq!(sessions.len(), 1);
        let session = sessions.touch(id(1)).unwrap();
        assert!(!session.begin_write(5).unwrap());
        assert_eq!(session.executed(5, 1), Some(answer(1)));
        assert_eq!(session.executed(5, 2), None);
        assert!(session.begin_write(4).is_err());
        assert!(sessions.remembers(&record(1, 5, 0, 2).key));
        assert!(!sessions.remembers(&stale.key));
        assert!(!sessions.remembers(&record(2, 9, 0, 31).key));
    }

    #[test]
    fn a_committed_transaction_of_an_earlier_process_is_known() {
        let sessions = Sessions::new(1, Arc::new(SystemClock));
        let key = RetryKey { session: id(1), number: 3, statement: i32::MIN };
        let millis = SystemClock.now_millis() - 60_000;
        let record = StoredRetry { key, millis, answer: DocumentBuf::empty(), time: Some(7) };
        sessions.restore(vec![record.clone()], true);
        assert!(!sessions.touch(id(1)).unwrap().has_transaction());
        sessions.end(&id(1));
        assert!(!sessions.remembers(&key));
        sessions.restore(vec![record], false);
        let session = sessions.touch(id(1)).unwrap();
        assert!(session.has_transaction() && session.newest_write().is_none());
        assert!(sessions.remembers(&key));
    }

    #[test]
    fn answers_given_up_make_a_repetition_fail() {
        let sessions = Sessions::new(1, Arc::new(SystemClock));
        for at in 0..3 {
            let session = sessions.touch(id(at)).unwrap();
            session.last_use.store(sessions.seconds() + u64::from(at), Ordering::Relaxed);
            session.begin_write(1).unwrap();
            session.record(1, 0, answer(ANSWERS_MAX / 2 - 1000));
        }
        sessions.sweep();
        assert!(sessions.answers.load(Ordering::Relaxed) <= ANSWERS_MAX);
        let error = sessions.touch(id(0)).unwrap().begin_write(1).unwrap_err();
        assert_eq!(error.code().number(), 217);
        assert!(!sessions.touch(id(2)).unwrap().begin_write(1).unwrap());
    }
}
