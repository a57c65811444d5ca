//! Decoder of entries. Their bytes come from a store and may be damaged without a checksum error. Damage is an error
//! and never a panic.

use super::{
    Action, BEGINS, COMMAND, COMMAND_WITH_BEFORE, DELETE, Entry, HAS_PRE_IMAGE, HAS_SESSION, HAS_STATEMENT,
    HAS_TERM, HAS_UUID, INSERT, IS_TRANSACTION, KIND, NEW_NAMESPACE, NOOP, Operation, REPLACE, Session,
    UPDATE, VERSION,
};
use base::bson::Document;
use base::{Result, err};
use std::ops::Deref;

impl<'a> Entry<'a> {
    /// Decodes an entry from its time and its numbered parts, which must be complete.
    ///
    /// Errors: DataCorruptionDetected.
    pub fn read<V: Deref<Target = [u8]>>(time: u64, parts: &'a [(u32, V)]) -> Result<Entry<'a>> {
        let header = parts.first().filter(|(number, _)| *number == 0);
        let entry = header.and_then(|(_, header)| Input { rest: header, parts, next: 1 }.entry(time));
        entry.ok_or_else(|| err!(DataCorruptionDetected, "the log's entry of {time} can't be read"))
    }
}

/// Remaining bytes of the header, and the values.
struct Input<'a, V> {
    rest: &'a [u8],
    parts: &'a [(u32, V)],
    /// The number of the next value.
    next: usize,
}

impl<'a, V: Deref<Target = [u8]>> Input<'a, V> {
    /// Decodes the header and all operations. Operations that begin an oplog document must match the ticks in number.
    fn entry(mut self, time: u64) -> Option<Entry<'a>> {
        let [version, flags] = *self.chunk()?;
        if version != VERSION {
            return None;
        }
        let wall = i64::from_le_bytes(*self.chunk()?);
        let ticks = u32::from_le_bytes(*self.chunk()?);
        let term = if flags & HAS_TERM == 0 { 1 } else { u32::from_le_bytes(*self.chunk()?) };
        let session = if flags & HAS_SESSION == 0 { None } else { Some(self.session()?) };
        if u64::from(ticks) > time {
            return None;
        }
        let transaction = flags & IS_TRANSACTION != 0;
        let mut entry = Entry { time, wall, term, ticks, session, transaction, operations: Vec::new() };
        let mut namespaces = Vec::new();
        let mut begun = 0;
        while !self.rest.is_empty() {
            let operation = self.operation(&mut namespaces)?;
            begun += u32::from(operation.begins);
            entry.operations.push(operation);
        }
        (begun == ticks && entry.operations.first()?.begins).then_some(entry)
    }

    fn session(&mut self) -> Option<Session> {
        Some(Session {
            id: *self.chunk()?,
            user: *self.chunk()?,
            number: i64::from_le_bytes(*self.chunk()?),
            previous: u64::from_le_bytes(*self.chunk()?),
        })
    }

    /// Decodes one operation. A new namespace gets the next number, by which later operations refer to it.
    fn operation(&mut self, namespaces: &mut Vec<(&'a str, Option<&'a [u8; 16]>)>) -> Option<Operation<'a>> {
        let [byte] = *self.chunk()?;
        let (namespace, uuid) = if byte & NEW_NAMESPACE == 0 {
            let number = u32::from_le_bytes(*self.chunk()?);
            *namespaces.get(usize::try_from(number).ok()?)?
        } else {
            let [length] = *self.chunk()?;
            let name = std::str::from_utf8(self.take(usize::from(length))?).ok()?;
            let uuid = if byte & HAS_UUID == 0 { None } else { Some(self.chunk()?) };
            namespaces.push((name, uuid));
            (name, uuid)
        };
        let statement = match byte & HAS_STATEMENT {
            0 => None,
            _ => Some(i32::from_le_bytes(*self.chunk()?)),
        };
        let action = match byte & KIND {
            INSERT => Action::Insert(self.value()?),
            REPLACE => Action::Replace(self.value()?),
            UPDATE => Action::Update { key: self.document()?, diff: self.document()? },
            DELETE => Action::Delete(self.document()?),
            COMMAND => Action::Command { object: self.document()?, before: None },
            COMMAND_WITH_BEFORE => {
                Action::Command { object: self.document()?, before: Some(self.document()?) }
            }
            NOOP => Action::Noop(self.document()?),
            _ => return None,
        };
        let pre_image = if byte & HAS_PRE_IMAGE == 0 { None } else { Some(self.value()?) };
        Some(Operation { namespace, uuid, statement, begins: byte & BEGINS != 0, action, pre_image })
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(chunk)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a document in the header.
    fn document(&mut self) -> Option<Document<'a>> {
        let length = i32::from_le_bytes(*self.rest.first_chunk()?);
        let bytes = self.take(usize::try_from(length).ok().filter(|length| *length >= 5)?)?;
        Some(Document::from_valid(bytes))
    }

    /// Reads the next value.
    fn value(&mut self) -> Option<Document<'a>> {
        let (number, value) = self.parts.get(self.next)?;
        if usize::try_from(*number) != Ok(self.next) {
            return None;
        }
        self.next += 1;
        Some(Document::from_valid(value))
    }
}
