//! The checks of validate: records and indexes.

use super::{Depth, Walk, describe};
use crate::catalog::collection::Data;
use crate::index::{DocumentKeys, Index};
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::bson::Document;
use base::{ErrorCode, Result};
use storage::{Direction, Key, Range};

// Records: each is complete, valid BSON, in order, and has its keys in every index.

/// Maximum number of unreadable pages. Beyond it the check stops.
const BROKEN_MAX: u64 = 10_000;

impl Walk<'_> {
    /// Reads every record. `counted` is the number according to the collection.
    pub(super) fn records(&mut self, data: &Data, counted: i64) -> Result<()> {
        let snapshot = self.view.snapshot.clone();
        let scanned = snapshot.scan(data.ident, Range::all(), Direction::Forward);
        let mut records = match scanned {
            Ok(records) => records,
            Err(error) => return self.broken(error),
        };
        let (mut broken, mut bytes) = (0, 0);
        let mut last = None;
        while broken < BROKEN_MAX {
            self.context.interrupt.check()?;
            match records.next() {
                Ok(None) => break,
                Ok(Some((key, value))) => {
                    self.validation.records += 1;
                    bytes += (key.len() + value.len()) as u64;
                    let Ok(id) = RecordId::from_key(key) else {
                        self.validation.error(format!("a record's key has {} bytes instead of 8", key.len()));
                        continue;
                    };
                    if last.is_some_and(|last| last >= id) {
                        self.validation.error(format!("RecordId({}) is out of order", id.0));
                    }
                    last = Some(id);
                    self.record(data, id, &value)?;
                }
                Err(error) => {
                    broken += 1;
                    self.broken(error)?;
                }
            }
        }
        let entries = snapshot.entries(data.ident).map_err(storage_error)?;
        let lost = if broken > 0 { entries.saturating_sub(self.validation.records).max(1) } else { 0 };
        self.validation.invalid += lost;
        self.list_broken(data, lost)?;
        self.check_counts(data, counted, lost, bytes)
    }

    /// Lists unreadable records, as far as the first index, the index on `_id`, knows them.
    fn list_broken(&mut self, data: &Data, lost: u64) -> Result<()> {
        let Some(index) = data.indexes.first().filter(|_| lost > 0) else { return Ok(()) };
        let snapshot = self.view.snapshot.clone();
        let Ok(mut entries) = snapshot.scan(index.ident, Range::all(), Direction::Forward) else {
            return Ok(());
        };
        let mut broken = 0;
        while broken < BROKEN_MAX {
            self.context.interrupt.check()?;
            let (key, value) = match entries.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(_) => {
                    broken += 1;
                    continue;
                }
            };
            if let Ok(entry) = IndexEntry::from_parts(key, &value, index.unique())
                && snapshot.get(data.ident, &entry.record.key()).is_err()
            {
                // It was counted as missing already.
                self.validation.invalid -= self.validation.invalid.min(1);
                self.validation.corrupt(entry.record);
            }
        }
        Ok(())
    }

    /// Compares the running counts, the engine's counts and the records found. Sizes are compared only if no record was
    /// unreadable.
    fn check_counts(&mut self, data: &Data, counted: i64, broken: u64, bytes: u64) -> Result<()> {
        let snapshot = &self.view.snapshot;
        let entries = snapshot.entries(data.ident).map_err(storage_error)?;
        let stored = snapshot.bytes(data.ident).map_err(storage_error)?;
        let (records, namespace) = (self.validation.records, &self.collection.namespace);
        let mut errors = Vec::new();
        for count in [counted, entries as i64] {
            if count != (records + broken) as i64 {
                errors.push(format!(
                    "fast count ({count}) does not match number of records ({records}) for collection '{namespace}'"
                ));
            }
        }
        if broken == 0 && stored != bytes {
            errors.push(format!("the records of '{namespace}' have {bytes} bytes, the counter has {stored}"));
        }
        errors.dedup();
        errors.into_iter().for_each(|message| self.validation.error(message));
        Ok(())
    }

    /// Checks one record, and looks up its keys in every index.
    fn record(&mut self, data: &Data, id: RecordId, value: &[u8]) -> Result<()> {
        if let Err(error) = base::bson::validate(value) {
            log::warn!("validate: RecordId({}) is not valid BSON: {error}", id.0);
            self.validation.corrupt(id);
            return Ok(());
        }
        let document = Document::from_valid(value);
        if let Some(validator) = &self.collection.options.validator
            && !validator.complies(document, self.context)?
        {
            self.validation.non_compliant += 1;
        }
        if self.depth == Depth::Full
            && !matches!(self.view.snapshot.get(data.ident, &id.key()), Ok(Some(found)) if *found == *value)
        {
            self.validation.error(format!("RecordId({}) cannot be read by its id", id.0));
        }
        for (number, index) in data.indexes.iter().enumerate() {
            match self.keys_of(index, document)? {
                Ok(keys) => self.keys(data, number, &keys, id, document)?,
                Err(error) => {
                    self.validation.index_error(number, format!("RecordId({}) has no keys: {error}", id.0));
                }
            }
        }
        Ok(())
    }

    /// Returns the keys of a document in an index, or the reason why it has none.
    ///
    /// Errors: interruption.
    fn keys_of(&self, index: &Index, document: Document<'_>) -> Result<Result<DocumentKeys>> {
        match index.spec.keys_of(document, self.context) {
            Err(error) if error.code() == ErrorCode::ExceededMemoryLimit => Err(error),
            Err(error) => self.context.interrupt.check().map(|()| Err(error)),
            Ok(keys) => Ok(Ok(keys)),
        }
    }

    /// Looks up the keys of a document in one index.
    fn keys(
        &mut self,
        data: &Data,
        number: usize,
        keys: &DocumentKeys,
        id: RecordId,
        document: Document<'_>,
    ) -> Result<()> {
        let Some(index) = data.indexes.get(number) else { return Ok(()) };
        let known = index.multikey_bits();
        if keys.multikey.iter().zip(&known).any(|(bits, known)| bits & !known != 0) {
            let message = format!(
                "Index {} multikey paths do not cover the document with RecordId({}) and {} keys",
                index.spec.name,
                id.0,
                keys.keys.len()
            );
            self.validation.index_error(number, message);
        }
        for key in &keys.keys {
            let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
            let (stored_key, expected) = entry.to_parts(index.unique());
            match self.view.snapshot.get(index.ident, &stored_key) {
                Ok(Some(stored)) if stored == expected => {
                    if let Some(matched) = self.matched.get_mut(number) {
                        *matched += 1;
                    }
                }
                Ok(_) => {
                    let parts = (&*key.key_string, &*key.type_bits);
                    self.validation.missing(number, describe(&index.spec, id, Some(document), parts));
                }
                Err(error) => {
                    self.validation.index_error(number, error.to_string());
                    self.broken(error)?;
                }
            }
        }
        Ok(())
    }
}

// Indexes: each is in order, and holds exactly the keys of the records.

impl Walk<'_> {
    /// Reads every index.
    pub(super) fn indexes(&mut self, data: &Data) -> Result<()> {
        for (number, index) in data.indexes.iter().enumerate() {
            let read = self.entries(data, number, index, false)?;
            let entries = self.view.snapshot.entries(index.ident).map_err(storage_error)?;
            if let Some(findings) = self.validation.indexes.get_mut(number) {
                findings.keys = read.entries;
            }
            if entries != read.entries + read.broken {
                let message = format!("found {} entries, the counter has {entries}", read.entries);
                self.validation.index_error(number, message);
            }
            if read.entries != self.matched.get(number).copied().unwrap_or_default() {
                self.entries(data, number, index, true)?;
            }
        }
        Ok(())
    }

    /// Reads every entry of an index, and compares it with its record if `compare` is set.
    fn entries(&mut self, data: &Data, number: usize, index: &Index, compare: bool) -> Result<Read> {
        let mut read = Read::default();
        let scanned = self.view.snapshot.scan(index.ident, Range::all(), Direction::Forward);
        let mut entries = match scanned {
            Ok(entries) => entries,
            Err(error) => {
                self.validation.index_error(number, error.to_string());
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
                        self.validation.index_error(number, "The index keys are out of order".to_string());
                    }
                    last = Some(Key::from(key));
                    if compare {
                        self.compare(data, number, key, &value)?;
                    }
                }
                Err(error) => {
                    read.broken += 1;
                    self.validation.index_error(number, error.to_string());
                    self.broken(error)?;
                }
            }
        }
        Ok(read)
    }

    /// Checks that the record of an entry has its key.
    fn compare(&mut self, data: &Data, number: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(index) = data.indexes.get(number) else { return Ok(()) };
        let entry = match IndexEntry::from_parts(key, value, index.unique()) {
            Ok(entry) => entry,
            Err(error) => {
                self.validation.index_error(number, error.to_string());
                return Ok(());
            }
        };
        let record = match self.view.snapshot.get(data.ident, &entry.record.key()) {
            Ok(record) => record.filter(|record| base::bson::validate(record).is_ok()),
            // Already reported. The entry cannot be checked.
            Err(storage::Error::Corrupted(_)) => return Ok(()),
            Err(error) => return Err(storage_error(error)),
        };
        let document = record.as_ref().map(|record| Document::from_valid(record));
        let keys = document.map(|document| self.keys_of(index, document)).transpose()?;
        let has = keys.and_then(Result::ok).is_some_and(|keys| {
            keys.keys
                .iter()
                .any(|key| *key.key_string == *entry.key_string && *key.type_bits == *entry.type_bits)
        });
        if !has {
            let parts = (entry.key_string, entry.type_bits);
            self.validation.extra(number, describe(&index.spec, entry.record, document, parts));
        }
        Ok(())
    }
}

/// Counts of a walk over an index.
#[derive(Default)]
struct Read {
    entries: u64,
    broken: u64,
}
