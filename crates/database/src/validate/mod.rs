//! `validate`: whether documents, indexes, counts, catalog and files agree, entry by entry.
//!
//! Everything is compared on one view, taken while no commit is under way, so that counts and catalog have
//! to agree exactly. First each tree's files are read ([`Snapshot::verify`](storage::Snapshot::verify)). Then
//! every record is read, and each of its keys looked up (`records.rs`). Then every index is read (`indexes.rs`);
//! an index with as many entries as were looked up with success holds nothing else, so that only others have
//! to be compared the other way round. What is wrong is told in MongoDB's words and places (`findings.rs`).

mod checks;
#[cfg(test)]
mod tests;

use crate::catalog::{entry, from_entry};
use crate::collection::{Collection, Data};
use crate::database::Database;
use crate::history::View;
use crate::index::IndexSpec;
use crate::keys::{CATALOG, RecordId};
use crate::storage_error;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Error, Namespace, Result, err};
use query::Context;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Ident;

/// How much of a collection is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The catalog alone: what is known of the collection and its indexes.
    Metadata,
    /// All entries and documents.
    Data,
    /// These, all of the pages below them, and each record once more by its number.
    Full,
}

/// A validation under way.
struct Walk<'a> {
    view: View,
    collection: Arc<Collection>,
    context: &'a Context,
    depth: Depth,
    found: Validation,
    /// For each index, how many keys of documents it holds as it should.
    matched: Vec<u64>,
}

impl Database {
    /// Checks a collection: that each key of each document is in each index and points back, that nothing
    /// else is there, order, counts, multikey flags, catalog and the checksums of what is stored.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, what interrupts the operation. What is wrong
    /// with the collection is no error but a finding.
    pub fn validate(&self, namespace: &Namespace, depth: Depth, context: &Context) -> Result<Validation> {
        // Under the commit lock, so that the running counts are those of the view.
        let lock = self.exclusive(context.interrupt.as_ref())?;
        let view = self.confirmed_view();
        let collection =
            view.catalog.get(namespace).cloned().ok_or_else(|| {
                err!(NamespaceNotFound, "Collection '{namespace}' does not exist to validate.")
            })?;
        let data = collection.data()?;
        self.refresh_counts(&collection)?;
        let counted = data.counts.records.load(Relaxed);
        let mut in_use = Collection::clone(&collection);
        // Builds under way are named in the entry, and forgotten by whoever reads it.
        in_use.data.iter_mut().for_each(|data| data.building.clear());
        let in_use = entry(&in_use);
        drop(lock);
        let found = Validation::new(collection.uuid, data);
        let matched = vec![0; data.indexes.len()];
        let mut walk = Walk { view, collection: collection.clone(), context, depth, found, matched };
        walk.check_catalog(in_use.view());
        if depth != Depth::Metadata {
            walk.check_files(data)?;
            walk.records(data, counted)?;
            walk.indexes(data)?;
        }
        walk.found.conclude();
        Ok(walk.found)
    }
}

impl Walk<'_> {
    /// The catalog's entry says the same as what is in use, multikey flags included, and its trees exist.
    fn check_catalog(&mut self, in_use: Document<'_>) {
        let namespace = &self.collection.namespace;
        let stored = self.view.snapshot.get(CATALOG, namespace.as_str().as_bytes());
        let stored = match stored {
            Ok(Some(stored)) => stored,
            Ok(None) => return self.found.error(format!("The catalog has no entry for {namespace}")),
            Err(error) => return self.found.error(error.to_string()),
        };
        // What an older version wrote may look different and mean the same.
        let read = match base::bson::validate(&stored) {
            Ok(()) => from_entry(Document::from_valid(&stored), self.context),
            Err(error) => Err(error),
        };
        match read {
            Ok(read) if entry(&read).view() == in_use => {}
            Ok(_) => self.found.error(format!("The catalog's entry for {namespace} is not what is in use")),
            Err(error) => self.found.error(format!("The catalog's entry for {namespace}: {error}")),
        }
        let missing: Vec<Ident> = self.collection.data.iter().flat_map(Data::idents).collect();
        for ident in missing {
            if !self.view.snapshot.contains(ident).unwrap_or(false) {
                self.found.error(format!("There is no tree {} for {}", ident.0, self.collection.namespace));
            }
        }
    }

    /// Every page below the collection and its indexes.
    fn check_files(&mut self, data: &Data) -> Result<()> {
        if self.depth != Depth::Full {
            return Ok(());
        }
        for ident in data.idents() {
            let mut interrupted = Ok(());
            let damages = self.view.snapshot.verify(ident, &mut || {
                interrupted = self.context.interrupt.check();
                interrupted.is_ok()
            });
            interrupted?;
            for damage in damages.map_err(storage_error)? {
                let hidden = damage.key.is_some_and(|key| self.view.snapshot.get(ident, &key).is_ok());
                match hidden {
                    // It will be written anew at the next checkpoint.
                    true => self.found.warning(format!("{}, which was overwritten since", damage.what)),
                    false => self.found.damage(damage.what),
                }
            }
        }
        Ok(())
    }

    /// Passes a broken entry on as a finding, and everything else that is wrong as an error.
    fn broken(&mut self, error: storage::Error) -> Result<()> {
        match error {
            storage::Error::Corrupted(what) => {
                self.found.damage(what);
                Ok(())
            }
            other => Err::<(), Error>(storage_error(other)),
        }
    }
}

// What validate found, in the places and words in which MongoDB's reply has it.

/// No list in the reply is longer.
const LISTED_MAX: usize = 1000;

/// What validate found in a collection.
#[derive(Debug, Default)]
pub struct Validation {
    /// The collection's UUID.
    pub uuid: [u8; 16],
    /// Documents.
    pub records: u64,
    /// Records whose bytes are not valid BSON, or not what was written.
    pub invalid: u64,
    /// Documents that the collection's validator would refuse.
    pub non_compliant: u64,
    /// Each index.
    pub indexes: Vec<IndexFindings>,
    /// Everything that is wrong beyond single indexes, in words.
    pub errors: Vec<String>,
    /// What is odd and not wrong, and how many index entries are.
    pub warnings: Vec<String>,
    /// Entries of indexes that no document has.
    pub extra: Vec<DocumentBuf>,
    /// Keys of documents that are in no entry.
    pub missing: Vec<DocumentBuf>,
    /// The numbers of the records that are not valid.
    pub corrupt_records: Vec<u64>,
    extra_count: u64,
    missing_count: u64,
    /// Damages told already: more than one reader comes upon them.
    damages: BTreeSet<String>,
}

/// What validate found in an index.
#[derive(Debug, Default)]
pub struct IndexFindings {
    /// The index's name.
    pub name: String,
    /// The index as listIndexes shows it.
    pub spec: DocumentBuf,
    /// Its entries.
    pub keys: u64,
    /// Everything that is wrong with it, in words.
    pub errors: Vec<String>,
}

impl Validation {
    fn new(uuid: [u8; 16], data: &Data) -> Validation {
        let findings = |spec: &IndexSpec| IndexFindings {
            name: spec.name.clone(),
            spec: spec.to_document(),
            ..IndexFindings::default()
        };
        let indexes = data.indexes.iter().map(|index| findings(&index.spec)).collect();
        Validation { uuid, indexes, ..Validation::default() }
    }

    /// Whether nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty() && self.indexes.iter().all(|index| index.errors.is_empty())
    }

    fn error(&mut self, what: String) {
        push(&mut self.errors, what);
    }

    fn warning(&mut self, what: String) {
        push(&mut self.warnings, what);
    }

    /// Stored bytes that aren't what was written.
    fn damage(&mut self, what: String) {
        if self.damages.len() < LISTED_MAX && self.damages.insert(what.clone()) {
            self.error(what);
        }
    }

    fn index_error(&mut self, index: usize, what: String) {
        if let Some(index) = self.indexes.get_mut(index) {
            push(&mut index.errors, what);
        }
    }

    fn corrupt(&mut self, record: RecordId) {
        self.invalid += 1;
        if self.corrupt_records.len() < LISTED_MAX {
            self.corrupt_records.push(record.0);
        }
    }

    /// A key that a document has and the index hasn't.
    fn missing(&mut self, index: usize, described: DocumentBuf) {
        self.missing_count += 1;
        self.inconsistent(index);
        if self.missing.len() < LISTED_MAX {
            self.missing.push(described);
        }
    }

    /// A key that the index has and no document.
    fn extra(&mut self, index: usize, described: DocumentBuf) {
        self.extra_count += 1;
        self.inconsistent(index);
        if self.extra.len() < LISTED_MAX {
            self.extra.push(described);
        }
    }

    fn inconsistent(&mut self, index: usize) {
        let Some(index) = self.indexes.get_mut(index) else { return };
        let what = format!("Index with name '{}' has inconsistencies.", index.name);
        if !index.errors.contains(&what) {
            index.errors.push(what);
        }
    }

    /// Says in words what the lists hold.
    fn conclude(&mut self) {
        if self.invalid > 0 {
            self.errors.insert(0, "Detected one or more invalid documents. See logs.".to_string());
        }
        if self.non_compliant > 0 {
            let what = "Detected one or more documents not compliant with the collection's schema.";
            self.warnings.push(what.to_string());
        }
        for (count, which) in [(self.extra_count, "extra"), (self.missing_count, "missing")] {
            if count > 0 {
                self.warnings.push(format!("Detected {count} {which} index entries."));
            }
            if count > LISTED_MAX as u64 {
                self.warnings.push(format!(
                    "Not all {which} index entry inconsistencies are listed due to size limitations."
                ));
            }
        }
        let inconsistent = self.indexes.iter().flat_map(|index| &index.errors);
        let inconsistent: Vec<String> =
            inconsistent.filter(|error| error.ends_with("has inconsistencies.")).cloned().collect();
        self.errors.extend(inconsistent);
    }
}

fn push(list: &mut Vec<String>, what: String) {
    if list.len() < LISTED_MAX {
        log::warn!("validate: {what}");
        list.push(what);
    }
}

/// An index entry as the reply lists it; the document's `_id` is there if the document is.
fn describe(
    spec: &IndexSpec,
    record: RecordId,
    document: Option<Document<'_>>,
    (key_string, type_bits): (&[u8], &[u8]),
) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"indexName", spec.name.as_str()).append(c"recordId", record.0 as i64);
    if let Some(id) = document.and_then(|document| document.get("_id")) {
        out.begin_document(c"idKey").append(c"_id", id).end();
    }
    out.begin_document(c"indexKey");
    let values = spec.decode(key_string, type_bits).unwrap_or_default();
    for (field, value) in spec.key.view().iter().zip(&values) {
        out.append(field.field_name(), value);
    }
    out.end();
    out.finish()
}
