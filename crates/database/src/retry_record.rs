//! The records of retryable writes as the store keeps them.
//!
//! Who a logical session belongs to, and which of theirs it is.
//!
//! Clients make up the UUIDs of their sessions, so that two users' may be alike: what tells sessions apart is
//! the UUID together with a digest of the user.

use crate::keys::{RETRIES, corrupted};
use crate::storage_error;
use base::Result;
use base::bson::{Document, DocumentBuf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use storage::{Batch, Direction, Engine, Ident, Key, Range, Value};

/// The session's UUID and the statement in a record's key. The digest of a user follows; nobody's doesn't.
const KEY_BYTES: usize = 16 + 4;

/// The bytes of a commit's time behind a record.
const TIME_BYTES: usize = 8;

/// The statement number of the record of a committed transaction. Clients send no such number.
pub(crate) const COMMIT: i32 = i32::MIN;

/// How often a tree is tried to be made that others make, too, and the pause between.
const MAKE_ATTEMPTS: usize = 500;
const MAKE_PAUSE: Duration = Duration::from_millis(20);

/// Which statement of which retryable write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryKey {
    /// The logical session.
    pub session: SessionId,
    /// The write's number in the session, which only ascends.
    pub number: i64,
    /// The statement's number in the write.
    pub statement: i32,
}

/// A record as it was found when the database was opened.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredRetry {
    /// The statement.
    pub key: RetryKey,
    /// When it was carried out, in milliseconds since 1970.
    pub millis: i64,
    /// What it answered.
    pub answer: DocumentBuf,
    /// The time of its commit. `None` where the store gives no time before the commit (PostgreSQL), and in records
    /// of earlier versions.
    pub time: Option<u64>,
}

/// What has been read of sessions' records, where other processes may write them.
pub(crate) type SeenRetries = Mutex<HashMap<SessionId, Vec<(Key, Value)>>>;

impl RetryKey {
    /// Whether the record is that of a committed transaction, and no retryable statement's.
    pub fn is_commit(&self) -> bool {
        self.statement == COMMIT
    }

    /// The key of the statement's record.
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

/// What a record holds. The store of one process appends the commit's time.
pub(crate) fn to_value(number: i64, millis: i64, answer: Document<'_>) -> Value {
    let answer = if answer.is_empty() { &[][..] } else { answer.bytes() };
    Value::from([&number.to_le_bytes(), &millis.to_le_bytes(), answer].concat())
}

/// Reads a record back. Errors: DataCorruptionDetected.
pub(crate) fn from_entry(key: &[u8], value: &[u8]) -> Result<StoredRetry> {
    let read = || {
        let (uuid, rest) = key.split_first_chunk::<16>()?;
        let (statement, user) = rest.split_first_chunk::<4>()?;
        let session = match user {
            [] => SessionId::of_nobody(*uuid),
            user => SessionId::new(*uuid, user.try_into().ok()?),
        };
        let (number, rest) = value.split_first_chunk::<8>()?;
        let (millis, answer) = rest.split_first_chunk::<8>()?;
        // An answer begins with its length, and none is as short as a time.
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

/// Makes a tree if it isn't there; another process may be at it at the same time.
pub(crate) fn make_tree(engine: &dyn Engine, tree: Ident) -> Result<()> {
    for _ in 0..MAKE_ATTEMPTS {
        if engine.snapshot().contains(tree).map_err(storage_error)? {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.create(tree);
        match engine.commit(batch) {
            Ok(_) => return Ok(()),
            Err(storage::Error::WriteConflict) => std::thread::sleep(MAKE_PAUSE),
            Err(error) => return Err(storage_error(error)),
        }
    }
    Err(storage_error(storage::Error::WriteConflict))
}

/// Makes the records' tree if it isn't there, and reads it.
pub(crate) fn open(engine: &dyn Engine) -> Result<Vec<StoredRetry>> {
    make_tree(engine, RETRIES)?;
    let snapshot = engine.snapshot();
    let mut found = Vec::new();
    let mut records = snapshot.scan(RETRIES, Range::all(), Direction::Forward).map_err(storage_error)?;
    while let Some((key, value)) = records.next().map_err(storage_error)? {
        found.push(from_entry(key, &value)?);
    }
    Ok(found)
}

/// The digest of the user where there are no users: SHA-256 of nothing, as MongoDB has it.
pub const NOBODY: [u8; 32] = [
    0xE3, 0xB0, 0xC4, 0x42, 0x98, 0xFC, 0x1C, 0x14, 0x9A, 0xFB, 0xF4, 0xC8, 0x99, 0x6F, 0xB9, 0x24, 0x27,
    0xAE, 0x41, 0xE4, 0x64, 0x9B, 0x93, 0x4C, 0xA4, 0x95, 0x99, 0x1B, 0x78, 0x52, 0xB8, 0x55,
];

/// A logical session's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId {
    /// What the client calls it.
    pub uuid: [u8; 16],
    /// The user's digest unless that is [`NOBODY`], which isn't written down with every record.
    user: Option<[u8; 32]>,
}

impl SessionId {
    /// The session of this user.
    pub fn new(uuid: [u8; 16], user: [u8; 32]) -> SessionId {
        SessionId { uuid, user: (user != NOBODY).then_some(user) }
    }

    /// A session where there are no users.
    pub fn of_nobody(uuid: [u8; 16]) -> SessionId {
        SessionId { uuid, user: None }
    }

    /// The digest of the user.
    pub fn user(&self) -> &[u8; 32] {
        self.user.as_ref().unwrap_or(&NOBODY)
    }

    /// The digest of the user, `None` for nobody.
    pub(crate) fn named_user(&self) -> Option<&[u8; 32]> {
        self.user.as_ref()
    }
}
