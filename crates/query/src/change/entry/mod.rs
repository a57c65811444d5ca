//! The log entry of a commit: the stored form of changes. Oplog documents and change events are derived from it.
//!
//! An entry consists of a header and values. The store keys them by the commit's time and their number. The header is
//! number 0. The inserted documents, replacements and pre-images are numbers 1, 2, …, in the order of the operations.
//! They are the values that the batch writes to collections: memory shares them, and the journal writes them once.
//!
//! | header, in bytes | content |
//! |---|---|
//! | 1 | the version of the format |
//! | 1 | flags: has a session, is a transaction, has a term |
//! | 8 | the wall clock in milliseconds; all numbers are little endian |
//! | 4 | the number of ticks of the cluster time: the entry's documents in the oplog |
//! | 4, with a term | the primary's election term; 1 if absent |
//! | 64, with a session | its id, the digest of its user, the write's number, the time of the previous entry |
//!
//! The operations follow. Each has a byte with the kind in its low three bits and flags above. A namespace follows,
//! either new (length, name, and a UUID if it has one) or the number of an earlier namespace in four bytes. Then come
//! the statement in four bytes, if any, and the BSON of the kind: the document key and the diff of an update, the
//! document key of a delete, `o` and optionally `o2` of a command, `o` of a note.
//!
//! A flag marks an operation that begins a new oplog document. The operations between two such flags form one
//! `applyOps`, unless it is a single operation outside a transaction.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::unreadable;
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
const NOOP: u8 = 6;

const BEGINS: u8 = 1 << 3;
const HAS_STATEMENT: u8 = 1 << 4;
const HAS_PRE_IMAGE: u8 = 1 << 5;
const NEW_NAMESPACE: u8 = 1 << 6;
const HAS_UUID: u8 = 1 << 7;

/// Offset of the number of ticks in a header.
const TICKS_AT: usize = 10;

/// Wall clock and term of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryTime {
    /// The wall clock: milliseconds since 1970.
    pub wall: i64,
    /// The primary's election term, from 1.
    pub term: u32,
}

/// The logical session that a retryable write or a transaction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The session's UUID.
    pub id: [u8; 16],
    /// The digest of the session's user.
    pub user: [u8; 32],
    /// The number of the write or transaction in the session.
    pub number: i64,
    /// The cluster time of the previous entry of this write; zero for the first.
    pub previous: u64,
}

/// A decoded entry.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The cluster time of the commit: its last tick.
    pub time: u64,
    /// The wall clock at the commit: milliseconds since 1970.
    pub wall: i64,
    /// The primary's election term.
    pub term: u32,
    /// The number of oplog documents.
    pub ticks: u32,
    /// The session of a retryable write or transaction.
    pub session: Option<Session>,
    /// Whether the entry is a multi-statement transaction.
    pub transaction: bool,
    /// The operations in order.
    pub operations: Vec<Operation<'a>>,
    /// The number of the first value that a piece of the entry lacks. Operations from it on are missing.
    pub rest: Option<u32>,
}

/// A position between two operations of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPosition {
    /// The number of the next operation, from 0.
    pub operation: usize,
    /// The number of its first value, from 1.
    pub value: u32,
}

impl EntryPosition {
    /// The beginning of an entry.
    pub const BEGIN: EntryPosition = EntryPosition { operation: 0, value: 1 };
}

/// One operation of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The collection; for commands the database's `$cmd`.
    pub namespace: &'a str,
    /// The collection's UUID; commands on databases have none.
    pub uuid: Option<&'a [u8; 16]>,
    /// The statement id of a retryable write.
    pub statement: Option<i32>,
    /// Whether the operation begins a new oplog document.
    pub begins: bool,
    /// The change.
    pub action: Action<'a>,
    /// The document before the change, if the collection records pre-images.
    pub pre_image: Option<Document<'a>>,
    /// The number of its first value in the entry, if it has any.
    pub value: u32,
}

/// The change of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// This document was inserted.
    Insert(Document<'a>),
    /// This document replaced another.
    Replace(Document<'a>),
    /// A document was changed by a diff.
    Update {
        /// The document key `{_id: …}`.
        key: Document<'a>,
        /// The diff; see [`diff`](super::diff).
        diff: Document<'a>,
    },
    /// The document with this key, `{_id: …}`, was deleted.
    Delete(Document<'a>),
    /// Another command in the oplog's form: `{create: …}`, `{drop: …}` and so on.
    Command {
        /// The command (`o`).
        object: Document<'a>,
        /// The previous state (`o2`).
        before: Option<Document<'a>>,
    },
    /// A note without a change.
    Noop(Document<'a>),
}

impl Entry<'_> {
    /// Returns the cluster time of one of the entry's oplog documents.
    pub fn tick(&self, number: u32) -> u64 {
        self.time - u64::from(self.ticks.saturating_sub(number + 1))
    }
}
