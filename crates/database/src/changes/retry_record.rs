//! Stored records of retryable writes, and ids of logical sessions.
//!
//! Clients generate the UUIDs of their sessions, so two users may use the same UUID. A session id
//! therefore consists of the UUID and a digest of the user.

use crate::keys::corrupted;
use crate::storage_error;
use base::Result;
use base::bson::{Builder, Document, DocumentBuf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use storage::time;
use storage::{Batch, Engine, Ident, Key, Value};

/// Size of the session's UUID and the statement number in a record's key. The digest of a user
/// follows, if the session has a user.
const KEY_BYTES: usize = 16 + 4;

/// Size of a commit's time after a record.
const TIME_BYTES: usize = 8;

/// Statement number of a committed transaction's record. Clients do not send this number.
pub(crate) const COMMIT: i32 = i32::MIN;

/// Attempts to create a tree that other processes create at the same time, and the pause between
/// attempts.
const MAKE_ATTEMPTS: usize = 500;
const MAKE_PAUSE: Duration = Duration::from_millis(20);

/// A statement of a retryable write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryKey {
    /// The logical session.
    pub session: SessionId,
    /// Number of the write in the session, always ascending.
    pub number: i64,
    /// Number of the statement in the write.
    pub statement: i32,
}

/// A stored record.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredRetry {
    /// The statement.
    pub key: RetryKey,
    /// Time of execution, in milliseconds since 1970.
    pub millis: i64,
    /// The answer.
    pub answer: DocumentBuf,
    /// Time of its commit. `None` for a store without a time before the commit (PostgreSQL), which returns it by
    /// [`commit_times`](storage::RemoteHints::commit_times).
    pub time: Option<u64>,
}

/// Sessions' records read so far, for a store that other processes share.
pub(crate) type SeenRetries = Mutex<HashMap<SessionId, Vec<(Key, Value)>>>;

/// Notes the records that a commit of this process has stored.
pub(crate) fn note_stored(seen: &SeenRetries, records: Vec<(RetryKey, Value)>) {
    if records.is_empty() {
        return;
    }
    let mut seen = seen.lock();
    for (retry, value) in records {
        let (key, seen) = (retry.to_key(), seen.entry(retry.session).or_default());
        match seen.binary_search_by(|(at, _)| at[..].cmp(&key)) {
            Ok(at) => seen.get_mut(at).into_iter().for_each(|(_, old)| *old = value.clone()),
            Err(at) => seen.insert(at, (key, value)),
        }
    }
}

impl RetryKey {
    /// Returns true for the record of a committed transaction, false for a retryable statement.
    pub fn is_commit(&self) -> bool {
        self.statement == COMMIT
    }

    /// Returns the key of the statement's record.
    pub(crate) fn to_key(self) -> Key {
        let mut key = [0; KEY_BYTES + 32];
        key[..16].copy_from_slice(&self.session.uuid);
        key[16..KEY_BYTES].copy_from_slice(&self.statement.to_be_bytes());
        match self.session.named_user() {
            Some(user) => key[KEY_BYTES..].copy_from_slice(user),
            None => return Key::from(&key[..KEY_BYTES]),
        }
        Key::from(key)
    }
}

impl StoredRetry {
    /// Returns the records of the single statements. A run stands for several inserts.
    pub(crate) fn statements(self) -> impl Iterator<Item = StoredRetry> {
        let first = self.key.statement;
        let (last, answer) = match run_end(self.answer.view()) {
            Some(last) => (last, DocumentBuf::empty()),
            None => (first, self.answer),
        };
        let StoredRetry { key, millis, time, .. } = self;
        (first..=last).map(move |statement| StoredRetry {
            key: RetryKey { statement, ..key },
            millis,
            answer: answer.clone(),
            time,
        })
    }
}

/// Returns the answer of a record that stands for all statements up to `last`, for a write whose latest commit began
/// with `latest`.
pub(crate) fn run_answer(last: i32, latest: i32) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"last", last).append(c"latest", latest);
    out.finish()
}

/// Returns the last statement of a run; `None` for the answer of a single statement.
pub(crate) fn run_end(answer: Document<'_>) -> Option<i32> {
    answer.get("last").and_then(|last| i32::try_from(last.as_i64()?).ok())
}

/// Returns the value of a record. A store of one process appends the commit's time.
pub(crate) fn to_value(number: i64, millis: i64, answer: Document<'_>) -> Value {
    let answer = if answer.is_empty() { &[][..] } else { answer.bytes() };
    debug_assert!(answer.is_empty() || answer.len() > TIME_BYTES, "a reader takes the answer for a time");
    Value::from([&number.to_le_bytes(), &millis.to_le_bytes(), answer].concat())
}

/// Parses a record. Errors: DataCorruptionDetected.
pub(crate) fn from_entry(key: &[u8], value: &[u8]) -> Result<StoredRetry> {
    let read = || {
        let (uuid, rest) = key.split_first_chunk::<16>()?;
        let (statement, user) = rest.split_first_chunk::<4>()?;
        let session = match user {
            [] => SessionId::without_user(*uuid),
            user => SessionId::new(*uuid, user.try_into().ok()?),
        };
        let (number, rest) = value.split_first_chunk::<8>()?;
        let (millis, answer) = rest.split_first_chunk::<8>()?;
        // An answer begins with its length. Every answer is longer than a time.
        let length = match answer {
            [] => 0,
            time if time.len() == TIME_BYTES => 0,
            answer => usize::try_from(i32::from_le_bytes(*answer.first_chunk()?)).ok()?,
        };
        let (answer, time) = answer.split_at_checked(length)?;
        let time = match time {
            [] => None,
            time => Some(u64::from_le_bytes(time.try_into().ok()?)),
        };
        let answer = match answer {
            [] => DocumentBuf::empty(),
            answer => DocumentBuf::from_valid(answer.to_vec()),
        };
        let statement = i32::from_be_bytes(*statement);
        let key = RetryKey { session, number: i64::from_le_bytes(*number), statement };
        Some(StoredRetry { key, millis: i64::from_le_bytes(*millis), answer, time })
    };
    read().ok_or_else(|| corrupted("record of a retryable write"))
}

/// Creates a tree if it does not exist. Another process may create it at the same time.
pub(crate) fn make_tree(engine: &dyn Engine, tree: Ident) -> Result<()> {
    for _ in 0..MAKE_ATTEMPTS {
        if engine.snapshot().contains(tree).map_err(storage_error)? {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.create(tree);
        match engine.commit(batch) {
            Ok(_) => return Ok(()),
            Err(storage::Error::WriteConflict) => time::sleep(MAKE_PAUSE),
            Err(error) => return Err(storage_error(error)),
        }
    }
    Err(storage_error(storage::Error::WriteConflict))
}

/// Digest of the user without access control: SHA-256 of the empty string, as in MongoDB.
pub const NO_USER: [u8; 32] = [
    0xE3, 0xB0, 0xC4, 0x42, 0x98, 0xFC, 0x1C, 0x14, 0x9A, 0xFB, 0xF4, 0xC8, 0x99, 0x6F, 0xB9, 0x24, 0x27,
    0xAE, 0x41, 0xE4, 0x64, 0x9B, 0x93, 0x4C, 0xA4, 0x95, 0x99, 0x1B, 0x78, 0x52, 0xB8, 0x55,
];

/// Id of a logical session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId {
    /// UUID from the client.
    pub uuid: [u8; 16],
    /// Digest of the user, except [`NO_USER`], which the records omit.
    user: Option<[u8; 32]>,
}

impl SessionId {
    /// Returns the session id for a user.
    pub fn new(uuid: [u8; 16], user: [u8; 32]) -> SessionId {
        SessionId { uuid, user: (user != NO_USER).then_some(user) }
    }

    /// Returns the session id without access control.
    pub fn without_user(uuid: [u8; 16]) -> SessionId {
        SessionId { uuid, user: None }
    }

    /// Returns the digest of the user.
    pub fn user(&self) -> &[u8; 32] {
        self.user.as_ref().unwrap_or(&NO_USER)
    }

    /// Returns the digest of the user, `None` without access control.
    pub(crate) fn named_user(&self) -> Option<&[u8; 32]> {
        self.user.as_ref()
    }
}
