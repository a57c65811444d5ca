//! Encoder of entries, used before the commit that stores them.

use super::{
    BEGINS, COMMAND, COMMAND_WITH_BEFORE, DELETE, EntryTime, HAS_PRE_IMAGE, HAS_SESSION, HAS_STATEMENT,
    HAS_TERM, HAS_UUID, INSERT, IS_TRANSACTION, NEW_NAMESPACE, NOOP, REPLACE, Session, TICKS_AT, UPDATE,
    VERSION,
};
use base::bson::{Builder, Document, Element, MAX_DOCUMENT_SIZE};
use std::ops::Deref;

/// Size of an operation in an oplog document, without its own documents, in bytes.
const OPERATION_BYTES: usize = 160;

/// Location of a change.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The collection, or the database's `$cmd`.
    pub namespace: &'a str,
    /// The collection's UUID.
    pub uuid: Option<[u8; 16]>,
}

/// A change to record. `V` is the store's shared value.
#[derive(Clone, Debug)]
pub enum Change<'a, V> {
    /// This document was inserted.
    Insert(V),
    /// This document replaced another.
    Replace(V),
    /// A document was updated.
    Update {
        /// Its `_id`.
        id: Element<'a>,
        /// The diff from [`Update::diff`](crate::Update::diff).
        diff: Document<'a>,
    },
    /// The document with this `_id` was deleted.
    Delete(Element<'a>),
    /// A command of the oplog, such as `{create: …}`, and the previous state (`o2`).
    Command(Document<'a>, Option<Document<'a>>),
    /// A note without a change.
    Noop(Document<'a>),
}

/// Records the changes of one commit in order.
#[derive(Debug)]
pub struct Recorder<V> {
    header: Vec<u8>,
    values: Vec<V>,
    namespaces: Vec<(Box<str>, Option<[u8; 16]>)>,
    transaction: bool,
    operations: usize,
    ticks: u32,
    /// Approximate size of the current oplog document.
    filled: usize,
    /// Whether no operation may join the last one in its oplog document.
    alone: bool,
}

impl<V: Deref<Target = [u8]>> Recorder<V> {
    /// Begins the entry of a commit. `transaction` marks the session's number as a multi-statement transaction.
    pub fn new(moment: EntryTime, session: Option<&Session>, transaction: bool) -> Recorder<V> {
        let mut header = Vec::with_capacity(160);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(session.is_some(), HAS_SESSION)
            | flag(transaction, IS_TRANSACTION)
            | flag(moment.term != 1, HAS_TERM);
        header.extend_from_slice(&[VERSION, flags]);
        header.extend_from_slice(&moment.wall.to_le_bytes());
        header.extend_from_slice(&0u32.to_le_bytes());
        if moment.term != 1 {
            header.extend_from_slice(&moment.term.to_le_bytes());
        }
        if let Some(session) = session {
            header.extend_from_slice(&session.id);
            header.extend_from_slice(&session.user);
            header.extend_from_slice(&session.number.to_le_bytes());
            header.extend_from_slice(&session.previous.to_le_bytes());
        }
        Recorder {
            header,
            values: Vec::new(),
            namespaces: Vec::new(),
            transaction,
            operations: 0,
            ticks: 0,
            filled: 0,
            alone: false,
        }
    }

    /// Adds a change. `pre_image` is the document before it, if the collection records pre-images.
    pub fn push(
        &mut self,
        source: Source<'_>,
        statement: Option<i32>,
        change: Change<'_, V>,
        pre_image: Option<V>,
    ) {
        let kind = match &change {
            Change::Insert(_) => INSERT,
            Change::Replace(_) => REPLACE,
            Change::Update { .. } => UPDATE,
            Change::Delete(_) => DELETE,
            Change::Command(_, None) => COMMAND,
            Change::Command(_, Some(_)) => COMMAND_WITH_BEFORE,
            Change::Noop(_) => NOOP,
        };
        let at = self.header.len();
        self.header.push(kind);
        let mut flags = self.namespace(source);
        if let Some(statement) = statement {
            flags |= HAS_STATEMENT;
            self.header.extend_from_slice(&statement.to_le_bytes());
        }
        let apart = !self.transaction && kind >= COMMAND;
        let size = OPERATION_BYTES + source.namespace.len() + self.change(change);
        if let Some(pre_image) = pre_image {
            flags |= HAS_PRE_IMAGE;
            self.values.push(pre_image);
        }
        if self.ticks == 0 || self.alone || apart || self.filled + size > MAX_DOCUMENT_SIZE {
            flags |= BEGINS;
            self.ticks += 1;
            self.filled = 0;
        }
        self.alone = apart;
        self.filled += size;
        self.operations += 1;
        if let Some(byte) = self.header.get_mut(at) {
            *byte |= flags;
        }
    }

    /// Writes the location and returns its flags.
    fn namespace(&mut self, source: Source<'_>) -> u8 {
        let has_uuid = if source.uuid.is_some() { HAS_UUID } else { 0 };
        let known = |(name, uuid): &(Box<str>, _)| **name == *source.namespace && *uuid == source.uuid;
        if let Some(number) = self.namespaces.iter().rposition(known) {
            self.header.extend_from_slice(&(number as u32).to_le_bytes());
            return has_uuid;
        }
        // The longest namespace has 255 bytes.
        let name = source.namespace.get(..source.namespace.len().min(255)).unwrap_or_default();
        self.header.push(name.len() as u8);
        self.header.extend_from_slice(name.as_bytes());
        self.header.extend_from_slice(source.uuid.as_ref().map_or(&[][..], |uuid| uuid));
        self.namespaces.push((name.into(), source.uuid));
        has_uuid | NEW_NAMESPACE
    }

    /// Writes the change and returns its approximate size in the oplog.
    fn change(&mut self, change: Change<'_, V>) -> usize {
        match change {
            Change::Insert(value) | Change::Replace(value) => {
                // The `_id` is written twice.
                let id = Document::from_valid(&value).first().map_or(0, |id| id.value_bytes().len());
                let size = value.len() + id;
                self.values.push(value);
                size
            }
            Change::Update { id, diff } => {
                self.key(id);
                self.header.extend_from_slice(diff.bytes());
                id.value_bytes().len() + diff.bytes().len()
            }
            Change::Delete(id) => {
                self.key(id);
                id.value_bytes().len()
            }
            Change::Command(object, before) => {
                self.header.extend_from_slice(object.bytes());
                self.header.extend_from_slice(before.map_or(&[][..], |before| before.bytes()));
                object.bytes().len() + before.map_or(0, |before| before.bytes().len())
            }
            Change::Noop(object) => {
                self.header.extend_from_slice(object.bytes());
                object.bytes().len()
            }
        }
    }

    fn key(&mut self, id: Element<'_>) {
        let mut out = Builder::with_buffer(std::mem::take(&mut self.header));
        out.append_renamed(c"_id", &id);
        self.header = out.into_buffer();
    }

    /// Whether no change was recorded.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// The number of recorded operations.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// The number of ticks of the cluster time that the entry takes. The commit's time is the last. No other commit may
    /// use them.
    pub fn ticks(&self) -> u32 {
        self.ticks
    }

    /// Returns the header and the values, which are numbered from one.
    pub fn finish(mut self) -> (Vec<u8>, Vec<V>) {
        if let Some(slot) = self.header.get_mut(TICKS_AT..TICKS_AT + 4) {
            slot.copy_from_slice(&self.ticks.to_le_bytes());
        }
        (self.header, self.values)
    }
}
