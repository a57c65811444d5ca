//! The records: each is whole, valid BSON, in order, and has its keys in every index.

use super::findings::describe;
use super::{Depth, Walk};
use crate::collection::Data;
use crate::index::DocumentKeys;
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use base::bson::Document;
use storage::{Direction, Range};

/// After so many pages that cannot be read, the rest is given up.
const BROKEN_MAX: u64 = 10_000;

impl Walk<'_> {
    /// Reads every record; `counted` is how many the collection says it has.
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
                    self.found.records += 1;
                    bytes += (key.len() + value.len()) as u64;
                    let Ok(id) = RecordId::from_key(key) else {
                        self.found.error(format!("a record's key has {} bytes instead of 8", key.len()));
                        continue;
                    };
                    if last.is_some_and(|last| last >= id) {
                        self.found.error(format!("RecordId({}) is out of order", id.0));
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
        let lost = if broken > 0 { entries.saturating_sub(self.found.records).max(1) } else { 0 };
        self.found.invalid += lost;
        self.list_broken(data, lost)?;
        self.check_counts(data, counted, lost, bytes)
    }

    /// Names the records that could not be read, as far as the first index, which is the one on `_id`, knows them.
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
                // It was counted when it was missed.
                self.found.invalid -= self.found.invalid.min(1);
                self.found.corrupt(entry.record);
            }
        }
        Ok(())
    }

    fn check_counts(&mut self, data: &Data, counted: i64, broken: u64, bytes: u64) -> Result<()> {
        let snapshot = &self.view.snapshot;
        let entries = snapshot.entries(data.ident).map_err(storage_error)?;
        let stored = snapshot.bytes(data.ident).map_err(storage_error)?;
        let (records, namespace) = (self.found.records, &self.collection.namespace);
        let mut wrong = Vec::new();
        for count in [counted, entries as i64] {
            if count != (records + broken) as i64 {
                wrong.push(format!(
                    "fast count ({count}) does not match number of records ({records}) for collection '{namespace}'"
                ));
            }
        }
        if broken == 0 && stored != bytes {
            wrong.push(format!("the records of '{namespace}' have {bytes} bytes, and {stored} are counted"));
        }
        wrong.dedup();
        wrong.into_iter().for_each(|what| self.found.error(what));
        Ok(())
    }

    fn record(&mut self, data: &Data, id: RecordId, value: &[u8]) -> Result<()> {
        if let Err(error) = base::bson::validate(value) {
            log::warn!("validate: RecordId({}) is not valid BSON: {error}", id.0);
            self.found.corrupt(id);
            return Ok(());
        }
        let document = Document::from_valid(value);
        if let Some(validator) = &self.collection.options.validator
            && !validator.complies(document, self.context)?
        {
            self.found.non_compliant += 1;
        }
        if self.depth == Depth::Full
            && !matches!(self.view.snapshot.get(data.ident, &id.key()), Ok(Some(found)) if *found == *value)
        {
            self.found.error(format!("RecordId({}) is not found by its number", id.0));
        }
        for (place, index) in data.indexes.iter().enumerate() {
            match index.spec.keys_of(document, self.context) {
                Ok(keys) => self.keys(data, place, &keys, id, document)?,
                Err(error) => {
                    self.found.index_error(place, format!("RecordId({}) has no keys: {error}", id.0));
                }
            }
        }
        Ok(())
    }

    /// Looks up the keys of a document in one index.
    fn keys(
        &mut self,
        data: &Data,
        place: usize,
        keys: &DocumentKeys,
        id: RecordId,
        document: Document<'_>,
    ) -> Result<()> {
        let Some(index) = data.indexes.get(place) else { return Ok(()) };
        let known = index.multikey_bits();
        if keys.multikey.iter().zip(&known).any(|(bits, known)| bits & !known != 0) {
            let what = format!(
                "Index {} multikey paths do not cover the document with RecordId({}) and {} keys",
                index.spec.name,
                id.0,
                keys.keys.len()
            );
            self.found.index_error(place, what);
        }
        for key in &keys.keys {
            let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
            let (stored_key, expected) = entry.to_parts(index.unique());
            match self.view.snapshot.get(index.ident, &stored_key) {
                Ok(Some(stored)) if stored == expected => {
                    if let Some(matched) = self.matched.get_mut(place) {
                        *matched += 1;
                    }
                }
                Ok(_) => {
                    let parts = (&*key.key_string, &*key.type_bits);
                    self.found.missing(place, describe(&index.spec, id, Some(document), parts));
                }
                Err(error) => {
                    self.found.index_error(place, error.to_string());
                    self.broken(error)?;
                }
            }
        }
        Ok(())
    }
}
