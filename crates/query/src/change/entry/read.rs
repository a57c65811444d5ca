//! Decoder of entries. Their bytes come from a store and may be damaged without a checksum error. Damage is an error
//! and never a panic.

use super::{
    Action, BEGINS, COMMAND, COMMAND_WITH_BEFORE, DELETE, Entry, HAS_PRE_IMAGE, HAS_SESSION, HAS_STATEMENT,
    HAS_TERM, HAS_UUID, INSERT, IS_TRANSACTION, KIND, NEW_NAMESPACE, NOOP, Operation, REPLACE, Session,
    UPDATE, VERSION,
};
use base::bson::Document;
use base::{Error, Result, err};
use std::ops::Deref;

impl<'a> Entry<'a> {
    /// Decodes an entry from its time and its numbered parts, which must be complete.
    ///
    /// Errors: DataCorruptionDetected.
    pub fn read<V: Deref<Target = [u8]>>(time: u64, parts: &'a [(u32, V)]) -> Result<Entry<'a>> {
        let entry = Entry::read_piece(time, parts, 1)?;
        if entry.rest.is_some() { Err(unreadable(time)) } else { Ok(entry) }
    }

    /// Decodes a piece of an entry: its header and the values from number `from` on. Values of earlier operations are
    /// empty documents.
    ///
    /// Errors: DataCorruptionDetected.
    pub fn read_piece<V: Deref<Target = [u8]>>(
        time: u64,
        parts: &'a [(u32, V)],
        from: u32,
    ) -> Result<Entry<'a>> {
        let header = parts.first().filter(|(number, _)| *number == 0);
        let input = |(_, header): &'a (u32, V)| Input { rest: header, parts, from, next: 1, is_short: false };
        header.and_then(|header| input(header).entry(time)).ok_or_else(|| unreadable(time))
    }
}

/// Returns the error of a damaged entry.
pub fn unreadable(time: u64) -> Error {
    err!(DataCorruptionDetected, "the log's entry of {time} can't be read")
}

/// Remaining bytes of the header, and the values.
struct Input<'a, V> {
    rest: &'a [u8],
    parts: &'a [(u32, V)],
    /// The number of the first value that the parts have.
    from: u32,
    /// The number of the next value.
    next: u32,
    /// True once a value was missing at the end.
    is_short: bool,
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
        let operations = Vec::new();
        let mut entry = Entry { time, wall, term, ticks, session, transaction, operations, rest: None };
        let mut namespaces = Vec::new();
        let mut begun = 0;
        while !self.rest.is_empty() {
            let value = self.next;
            let Some(operation) = self.operation(&mut namespaces) else {
                if !self.is_short {
                    return None;
                }
                entry.rest = Some(value);
                break;
            };
            begun += u32::from(operation.begins);
            entry.operations.push(operation);
        }
        ((begun == ticks || entry.rest.is_some()) && entry.operations.first()?.begins).then_some(entry)
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
        let ([byte], value) = (*self.chunk()?, self.next);
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
        Some(Operation { namespace, uuid, statement, begins: byte & BEGINS != 0, action, pre_image, value })
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
        let number = self.next;
        self.next += 1;
        let Some(at) = number.checked_sub(self.from) else { return Some(Document::EMPTY) };
        let part = self.parts.get(1 + usize::try_from(at).ok()?);
        self.is_short = part.is_none();
        part.filter(|(found, _)| *found == number).map(|(_, value)| Document::from_valid(value))
    }
}
