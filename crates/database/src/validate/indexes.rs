//! The indexes: each is in order, and holds what the records have and nothing else.

use super::Walk;
use super::findings::describe;
use crate::collection::Data;
use crate::index::Index;
use crate::keys::IndexEntry;
use crate::storage_error;
use base::Result;
use base::bson::Document;
use storage::{Direction, Key, Range};

/// After so many entries that cannot be read, the rest is given up.
const BROKEN_MAX: u64 = 10_000;

impl Walk<'_> {
    /// Reads every index.
    pub(super) fn indexes(&mut self, data: &Data) -> Result<()> {
        for (place, index) in data.indexes.iter().enumerate() {
            let read = self.entries(data, place, index, false)?;
            let entries = self.view.snapshot.entries(index.ident).map_err(storage_error)?;
            if let Some(findings) = self.found.indexes.get_mut(place) {
                findings.keys = read.entries;
            }
            if entries != read.entries + read.broken {
                let what = format!("{} entries are found, {entries} are counted", read.entries);
                self.found.index_error(place, what);
            }
            if read.entries != self.matched.get(place).copied().unwrap_or_default() {
                self.entries(data, place, index, true)?;
            }
        }
        Ok(())
    }

    /// Reads every entry of an index, and compares it with its record if wanted.
    fn entries(&mut self, data: &Data, place: usize, index: &Index, compare: bool) -> Result<Read> {
        let mut read = Read::default();
        let scanned = self.view.snapshot.scan(index.ident, Range::all(), Direction::Forward);
        let mut entries = match scanned {
            Ok(entries) => entries,
            Err(error) => {
                self.found.index_error(place, error.to_string());
                self.broken(error)?;
                return Ok(read);
            }
        };
        let mut last: Option<Key> = None;
        while read.broken < BROKEN_MAX {
            self.context.interrupt.check()?;
            match entries.next() {
                Ok(None) => break,
                Ok(Some((key, value))) => {
                    read.entries += 1;
                    if last.as_ref().is_some_and(|last| **last >= *key) {
                        self.found.index_error(place, "The index keys are out of order".to_string());
                    }
                    last = Some(Key::from(key));
                    if compare {
                        self.compare(data, place, key, &value)?;
                    }
                }
                Err(error) => {
                    read.broken += 1;
                    self.found.index_error(place, error.to_string());
                    self.broken(error)?;
                }
            }
        }
        Ok(read)
    }

    /// Whether the record that an entry points at has that key.
    fn compare(&mut self, data: &Data, place: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(index) = data.indexes.get(place) else { return Ok(()) };
        let entry = match IndexEntry::from_parts(key, value, index.unique()) {
            Ok(entry) => entry,
            Err(error) => {
                self.found.index_error(place, error.to_string());
                return Ok(());
            }
        };
        let record = match self.view.snapshot.get(data.ident, &entry.record.key()) {
            Ok(record) => record.filter(|record| base::bson::validate(record).is_ok()),
            // Told already; whether the entry is right cannot be.
            Err(storage::Error::Corrupted(_)) => return Ok(()),
            Err(error) => return Err(storage_error(error)),
        };
        let document = record.as_ref().map(|record| Document::from_valid(record));
        let has = document.and_then(|document| index.spec.keys_of(document, self.context).ok());
        let has = has.is_some_and(|keys| {
            keys.keys
                .iter()
                .any(|key| *key.key_string == *entry.key_string && *key.type_bits == *entry.type_bits)
        });
        if !has {
            let parts = (entry.key_string, entry.type_bits);
            self.found.extra(place, describe(&index.spec, entry.record, document, parts));
        }
        Ok(())
    }
}

/// What a walk over an index came upon.
#[derive(Default)]
struct Read {
    entries: u64,
    broken: u64,
}
