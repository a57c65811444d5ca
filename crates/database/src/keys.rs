//! Formats of all keys in the engine, and functions to read and write them.
//!
//! | tree | key | value |
//! |---|---|---|
//! | the catalog, ident 0 | the namespace | the collection's entry as BSON |
//! | the catalog, ident 0 | zero, `snapshot`, zero, database, zero, name | a saved state: its name and time |
//! | the catalog, ident 0 | as above, zero, collection | the entry of a collection in the saved state |
//! | retryable writes, the greatest ident | session, then statement | the write's number, time, the answer, the commit's time |
//! | a collection | record id, eight bytes big endian | the document |
//! | a unique index | key string | record id, then type bits |
//! | another index | key string, then record id | type bits |
//!
//! Record ids ascend with inserts, so natural order is insertion order. In a clustered collection,
//! natural order is the order of the `_id` index.

use base::{Result, err};
use query::Row;
use storage::{Ident, Key, Value};

/// The tree of catalog entries.
pub const CATALOG: Ident = Ident(0);

/// The tree of retryable writes' records, if the engine outlives the process.
pub const RETRIES: Ident = Ident(u64::MAX);

/// Prefix of the keys of saved states. It begins with a zero and no namespace does, so the key
/// ranges are separate.
pub(crate) const SAVED: &[u8] = b"\0snapshot\0";

/// Number of a document within its collection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RecordId(pub u64);

impl RecordId {
    /// Returns the record id of a plan's row.
    pub fn of(row: &Row) -> RecordId {
        RecordId(row.record_id)
    }

    /// Returns the key of the record.
    pub fn key(self) -> Key {
        Key::from(self.0.to_be_bytes())
    }

    /// Parses the key of a record. Errors: DataCorruptionDetected.
    pub fn from_key(key: &[u8]) -> Result<RecordId> {
        let bytes = key.try_into().map_err(|_| corrupted("record id"))?;
        Ok(RecordId(u64::from_be_bytes(bytes)))
    }
}

/// An entry of an index in the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry<'a> {
    /// The indexed values.
    pub key_string: &'a [u8],
    /// Type bits: the types that the key string omits.
    pub type_bits: &'a [u8],
    /// Record id of the document.
    pub record: RecordId,
}

impl<'a> IndexEntry<'a> {
    /// Returns the entry's key and value in the engine.
    pub fn to_parts(self, unique: bool) -> (Key, Value) {
        let (key, value) = self.parts(unique);
        debug_assert!(
            IndexEntry::from_parts(&key, &value, unique).is_ok_and(|read| read == self),
            "{self:?} reads as another entry"
        );
        (key, value)
    }

    fn parts(self, unique: bool) -> (Key, Value) {
        let id = self.record.0.to_be_bytes();
        if unique {
            let value = if self.type_bits.is_empty() {
                Value::from(id)
            } else {
                Value::from([&id, self.type_bits].concat())
            };
            return (Key::from(self.key_string), value);
        }
        (Key::from([self.key_string, &id].concat()), Value::from(self.type_bits))
    }

    /// Parses an entry. Errors: DataCorruptionDetected.
    pub fn from_parts(key: &'a [u8], value: &'a [u8], unique: bool) -> Result<IndexEntry<'a>> {
        let (source, cut) = if unique { (value, 0) } else { (key, key.len().saturating_sub(8)) };
        let id = source.get(cut..cut + 8).and_then(|id| id.try_into().ok());
        let record = RecordId(u64::from_be_bytes(id.ok_or_else(|| corrupted("index entry"))?));
        Ok(match unique {
            true => IndexEntry { key_string: key, type_bits: value.get(8..).unwrap_or(&[]), record },
            false => IndexEntry { key_string: key.get(..cut).unwrap_or(&[]), type_bits: value, record },
        })
    }
}

pub(crate) fn corrupted(what: &str) -> base::Error {
    err!(DataCorruptionDetected, "broken {what} in the storage engine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_as_they_were_written() {
        for unique in [false, true] {
            for type_bits in [&[][..], &[1, 2]] {
                let entry = IndexEntry { key_string: b"key", type_bits, record: RecordId(77) };
                let (key, value) = entry.to_parts(unique);
                assert_eq!(IndexEntry::from_parts(&key, &value, unique).unwrap(), entry);
            }
        }
        assert!(IndexEntry::from_parts(b"short", b"", false).is_err());
        assert!(IndexEntry::from_parts(b"short", b"", true).is_err());
        assert!(RecordId::from_key(b"123").is_err());
    }
}
