//! The log's entry of one commit: how changes are stored, from which the oplog's documents and the
//! events of change streams are made.
//!
//! An entry is a header and values, which the store puts under the time of the commit and their
//! numbers: the header is number 0, and the documents inserted, the replacements and the pre-images
//! are numbers 1, 2, …, in the order of the operations. So they are the very values that the batch puts
//! into collections: in memory they are shared, and the journal writes them once.
//!
//! | header, in bytes | what |
//! |---|---|
//! | 1 | the version of the format |
//! | 1 | flags: a session is named, it is a transaction, a term is named |
//! | 8 | the wall clock in milliseconds, little endian as all numbers here |
//! | 4 | how many ticks of the cluster time the entry takes: its documents in the oplog |
//! | 4, with a term | the election that the primary came from; the first where none is named |
//! | 64, with a session | its id, the digest of its user, the write's number, the time of the one before |
//!
//! Then come the operations: a byte with the kind in its low three bits and flags above; a namespace,
//! either new (length, name, and a UUID if it has one) or the number of an earlier one in four bytes; the
//! statement in four bytes, if it has one; and what the kind needs, as BSON: the document key and the
//! diff of an update, the document key of a delete, `o` and perhaps `o2` of a command, `o` of a note.
//!
//! An operation that is flagged so begins a new document of the oplog; what lies between two such
//! is one `applyOps`, unless it is a single operation outside of a transaction.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use write::{Change, Recorder, Source};

use base::bson::Document;

const VERSION: u8 = 1;
const HAS_SESSION: u8 = 1;
const IS_TRANSACTION: u8 = 2;
const HAS_TERM: u8 = 4;

const KIND: u8 = 7;
const INSERT: u8 = 0;
const REPLACE: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const COMMAND: u8 = 4;
const COMMAND_WITH_BEFORE: u8 = 5;
const NOTE: u8 = 6;

const BEGINS: u8 = 1 << 3;
const HAS_STATEMENT: u8 = 1 << 4;
const HAS_PRE_IMAGE: u8 = 1 << 5;
const NEW_NAMESPACE: u8 = 1 << 6;
const HAS_UUID: u8 = 1 << 7;

/// Where the number of ticks stands in a header.
const TICKS_AT: usize = 10;

/// When an entry was written, and by which primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The wall clock: milliseconds since 1970.
    pub wall: i64,
    /// The number of the election that made the primary, from one on.
    pub term: u32,
}

/// The logical session that a retryable write or a transaction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The session's UUID.
    pub id: [u8; 16],
    /// The digest of its user.
    pub user: [u8; 32],
    /// The number of the write or transaction in the session.
    pub number: i64,
    /// The cluster time of the entry that the same write made before this one; zero for the first.
    pub previous: u64,
}

/// An entry as it is read.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The cluster time of the commit, which is the last of its ticks.
    pub time: u64,
    /// The wall clock at the commit: milliseconds since 1970.
    pub wall: i64,
    /// The number of the election that the primary came from.
    pub term: u32,
    /// How many documents of the oplog it is.
    pub ticks: u32,
    /// Whose write it is, if that may be asked for again.
    pub session: Option<Session>,
    /// Whether it is a transaction of many statements.
    pub transaction: bool,
    /// What was done, in order.
    pub operations: Vec<Operation<'a>>,
}

/// One operation of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The collection; for commands the database's `$cmd`.
    pub namespace: &'a str,
    /// The collection's UUID; commands on databases have none.
    pub uuid: Option<&'a [u8; 16]>,
    /// The statement of a retryable write.
    pub statement: Option<i32>,
    /// Whether it begins a new document of the oplog.
    pub begins: bool,
    /// What was done.
    pub action: Action<'a>,
    /// The document before the change, where the collection keeps pre-images.
    pub pre_image: Option<Document<'a>>,
}

/// What an operation did.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// This document was inserted.
    Insert(Document<'a>),
    /// A document became this one.
    Replace(Document<'a>),
    /// A document was changed by a diff.
    Update {
        /// Which: `{_id: …}`.
        key: Document<'a>,
        /// See [`diff`](super::diff).
        diff: Document<'a>,
    },
    /// The document with this key, `{_id: …}`, was deleted.
    Delete(Document<'a>),
    /// Something else, as the oplog names it: `{create: …}`, `{drop: …}` and the like.
    Command {
        /// What is to be done to get there.
        object: Document<'a>,
        /// What was there before.
        before: Option<Document<'a>>,
    },
    /// Nothing happened but that this was noted.
    Note(Document<'a>),
}

impl Entry<'_> {
    /// The cluster time of one of the entry's documents in the oplog.
    pub fn tick(&self, number: u32) -> u64 {
        self.time - u64::from(self.ticks.saturating_sub(number + 1))
    }
}
