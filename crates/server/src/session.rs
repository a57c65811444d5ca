//! Logical sessions: who used which when, and what their retryable writes answered.
//!
//! Sessions are made on first use and expire half an hour after the last. A retryable write
//! carries a number; the server remembers the replies of the newest number's statements, so that
//! the same write sent again after a broken connection isn't carried out twice.

use crate::arguments::SessionId;
use base::bson::DocumentBuf;
use base::{Result, err};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a session lives unused, in minutes; hello tells clients.
pub(crate) const TIMEOUT_MINUTES: i32 = 30;

/// The most sessions kept, as MongoDB's maxSessions.
const SESSIONS_MAX: usize = 1_000_000;

/// How often the registry looks for expired sessions, at least.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// One logical session.
pub(crate) struct Session {
    /// Its number.
    pub(crate) id: SessionId,
    /// Seconds after the registry's start at which it was last used.
    last_use: AtomicU64,
    writes: Mutex<Writes>,
}

/// The retryable write of the highest number that the session has sent.
#[derive(Default)]
struct Writes {
    number: Option<i64>,
    statements: BTreeMap<i32, DocumentBuf>,
}

impl Session {
    /// Begins the retryable write `number`, forgetting older ones. Returns whether it is new:
    /// `false` is a repetition, some of whose statements may have been carried out.
    ///
    /// Errors: TransactionTooOld where a newer one has begun.
    pub(crate) fn begin_write(&self, number: i64) -> Result<bool> {
        let mut writes = self.writes.lock();
        match writes.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Retryable write with txnNumber {number} is prohibited on session {} because a newer retryable \
                 write with txnNumber {newest} has already started on this session.",
                hex(&self.id)
            )),
            Some(newest) if newest == number => Ok(false),
            _ => {
                *writes = Writes { number: Some(number), statements: BTreeMap::new() };
                Ok(true)
            }
        }
    }

    /// What the statement answered when it was carried out, if it was.
    pub(crate) fn executed(&self, number: i64, statement: i32) -> Option<DocumentBuf> {
        let writes = self.writes.lock();
        (writes.number == Some(number)).then(|| writes.statements.get(&statement).cloned()).flatten()
    }

    /// Remembers what a statement answered.
    pub(crate) fn record(&self, number: i64, statement: i32, answer: DocumentBuf) {
        let mut writes = self.writes.lock();
        if writes.number == Some(number) {
            writes.statements.insert(statement, answer);
        }
    }

    /// Whether this write has carried out any statement.
    pub(crate) fn has_executed(&self, number: i64) -> bool {
        let writes = self.writes.lock();
        writes.number == Some(number) && !writes.statements.is_empty()
    }
}

/// All sessions.
pub(crate) struct Sessions {
    start: Instant,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    next_sweep: AtomicU64,
    random: Mutex<u64>,
}

impl Sessions {
    /// No sessions yet; `seed` starts the numbers that startSession gives out.
    pub(crate) fn new(seed: u64) -> Sessions {
        Sessions {
            start: Instant::now(),
            sessions: Mutex::default(),
            next_sweep: AtomicU64::new(SWEEP_EVERY.as_secs()),
            random: Mutex::new(seed | 1),
        }
    }

    /// The session with this number, made if need be, marked as used now.
    ///
    /// Errors: TooManyLogicalSessions.
    pub(crate) fn touch(&self, id: SessionId) -> Result<Arc<Session>> {
        let now = self.start.elapsed().as_secs();
        self.sweep(now);
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(&id) {
            session.last_use.store(now, Ordering::Relaxed);
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(err!(TooManyLogicalSessions, "cannot add session into the cache: too many sessions"));
        }
        let session = Arc::new(Session { id, last_use: AtomicU64::new(now), writes: Mutex::default() });
        sessions.insert(id, session.clone());
        Ok(session)
    }

    /// Marks a session that the caller holds as used now; `false` when it has expired meanwhile.
    pub(crate) fn refresh(&self, session: &Session) -> bool {
        let now = self.start.elapsed().as_secs();
        session.last_use.store(now, Ordering::Relaxed);
        // A session that a connection still holds may have been ended by another one; it is
        // looked up again once in a while, when the sweep is due.
        now < self.next_sweep.load(Ordering::Relaxed)
    }

    /// Starts a session with a number of its own.
    pub(crate) fn start(&self) -> Result<SessionId> {
        let mut id = SessionId::default();
        for half in id.chunks_mut(8) {
            half.copy_from_slice(&self.next_random().to_le_bytes());
        }
        id[6] = id[6] & 0x0F | 0x40;
        id[8] = id[8] & 0x3F | 0x80;
        self.touch(id).map(|session| session.id)
    }

    /// Forgets a session.
    pub(crate) fn end(&self, id: &SessionId) {
        self.sessions.lock().remove(id);
    }

    /// Forgets all sessions.
    pub(crate) fn end_all(&self) {
        self.sessions.lock().clear();
    }

    /// The sessions as `$listLocalSessions` shows them.
    pub(crate) fn documents(&self) -> Vec<DocumentBuf> {
        let describe = |session: &Arc<Session>| {
            let mut out = base::bson::Builder::new();
            let id = base::bson::Value::Binary { subtype: 4, bytes: &session.id };
            out.begin_document("_id").append("id", id).end();
            out.finish()
        };
        self.sessions.lock().values().map(describe).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    fn sweep(&self, now: u64) {
        if now < self.next_sweep.load(Ordering::Relaxed) {
            return;
        }
        self.next_sweep.store(now + SWEEP_EVERY.as_secs(), Ordering::Relaxed);
        let timeout = TIMEOUT_MINUTES as u64 * 60;
        let is_alive = |session: &Arc<Session>| session.last_use.load(Ordering::Relaxed) + timeout > now;
        self.sessions.lock().retain(|_, session| is_alive(session));
    }

    fn next_random(&self) -> u64 {
        // splitmix64: session numbers must differ, not be secret.
        let mut state = self.random.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

fn hex(id: &SessionId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_sent_again_finds_its_answer_and_an_older_one_is_refused() {
        let sessions = Sessions::new(1);
        let session = sessions.touch([1; 16]).unwrap();
        assert!(session.begin_write(5).unwrap());
        session.record(5, 0, DocumentBuf::empty());
        assert!(!session.begin_write(5).unwrap());
        assert!(session.has_executed(5));
        assert!(session.executed(5, 0).is_some() && session.executed(5, 1).is_none());
        assert_eq!(session.begin_write(4).unwrap_err().code().number(), 225);
        assert!(session.begin_write(6).unwrap());
        assert!(session.executed(5, 0).is_none());
    }

    #[test]
    fn sessions_end_and_expire() {
        let sessions = Sessions::new(1);
        let id = sessions.start().unwrap();
        assert_eq!((id[6] >> 4, id[8] >> 6, sessions.len()), (4, 2, 1));
        sessions.end(&id);
        sessions.touch([2; 16]).unwrap();
        sessions.sweep(31 * 60);
        assert_eq!(sessions.len(), 0);
    }
}
