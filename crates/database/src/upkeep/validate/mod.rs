//! `validate`: compares documents, indexes, counts, catalog and files, entry by entry.
//!
//! The checks use one view, taken while no commit is under way, so counts and catalog must agree exactly.
//!
//! 1. The files of each tree are read ([`Snapshot::verify`](storage::Snapshot::verify)).
//! 2. Every record is read, and each of its keys is looked up (`checks.rs`).
//! 3. Every index is read (`checks.rs`). An index with exactly as many entries as found keys holds nothing else. Only
//!    other indexes are compared in the other direction.
//!
//! Findings have MongoDB's texts, in the places of MongoDB's reply.

mod checks;
#[cfg(test)]
mod tests;

use crate::catalog::collection::{Collection, Data};
use crate::catalog::history::View;
use crate::catalog::{entry, from_entry};
use crate::database::Database;
use crate::index::IndexSpec;
use crate::keys::{CATALOG, RecordId};
use crate::storage_error;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Error, Namespace, Result, err};
use query::Context;
use query::change::Entry;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Ident;

/// Extent of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the catalog: the metadata of the collection and its indexes.
    Metadata,
    /// All entries and documents.
    Data,
    /// As `Data`, with every page below, and each record once more by its number.
    Full,
}

/// A validation in progress.
struct Walk<'a> {
    view: View,
    collection: Arc<Collection>,
    context: &'a Context,
    depth: Depth,
    validation: Validation,
    /// For each index, the number of document keys found in it.
    matched: Vec<u64>,
}

impl Database {
    /// Checks a collection: each key of each document is in each index and refers to the document; no index has other
    /// entries; order, counts, multikey bits, catalog and checksums are correct.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, an interrupted operation. Defects of the collection are
    /// findings, not errors.
    pub fn validate(&self, namespace: &Namespace, depth: Depth, context: &Context) -> Result<Validation> {
        if self.is_oplog(namespace) {
            return self.validate_log(depth, context);
        }
        // Under the commit lock, so that the running counts match the view.
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
        // The entry names index builds in progress. Readers of the entry discard them.
        in_use.data.iter_mut().for_each(|data| data.building.clear());
        let in_use = entry(&in_use);
        drop(lock);
        let validation = Validation::new(collection.uuid, data);
        let matched = vec![0; data.indexes.len()];
        let mut walk = Walk { view, collection: collection.clone(), context, depth, validation, matched };
        walk.check_catalog(in_use.view());
        if depth != Depth::Metadata {
            walk.check_files(data)?;
            walk.records(data, counted)?;
            walk.indexes(data)?;
        }
        walk.validation.conclude();
        Ok(walk.validation)
    }

    /// Checks the entries of the oplog, which has no index and no entry in the catalog.
    fn validate_log(&self, depth: Depth, context: &Context) -> Result<Validation> {
        let mut validation = Validation::default();
        if depth != Depth::Metadata {
            let (mut cursor, _) = self.log_cursor(Bound::Unbounded)?;
            while let Some(found) = cursor.next_entry().map_err(storage_error)? {
                context.interrupt.check()?;
                match Entry::read(found.time, &found.parts) {
                    Ok(entry) => validation.records += u64::from(entry.ticks),
                    Err(_) => validation.corrupt(RecordId(found.time)),
                }
            }
        }
        validation.conclude();
        Ok(validation)
    }
}

impl Walk<'_> {
    /// Checks that the catalog entry agrees with the collection in memory, multikey bits included, and that its trees
    /// exist.
    fn check_catalog(&mut self, in_use: Document<'_>) {
        let namespace = &self.collection.namespace;
        let stored = self.view.snapshot.get(CATALOG, namespace.as_str().as_bytes());
        let stored = match stored {
            Ok(Some(stored)) => stored,
            Ok(None) => return self.validation.error(format!("The catalog has no entry for {namespace}")),
            Err(error) => return self.validation.error(error.to_string()),
        };
        // An entry of an older version may differ in form and agree in content.
        let read = match base::bson::validate(&stored) {
            Ok(()) => from_entry(Document::from_valid(&stored), self.context),
            Err(error) => Err(error),
        };
        match read {
            Ok(read) if entry(&read).view() == in_use => {}
            Ok(_) => self
                .validation
                .error(format!("The catalog's entry for {namespace} differs from the entry in use")),
            Err(error) => self.validation.error(format!("The catalog's entry for {namespace}: {error}")),
        }
        let missing: Vec<Ident> = self.collection.data.iter().flat_map(Data::idents).collect();
        for ident in missing {
            if !self.view.snapshot.contains(ident).unwrap_or(false) {
                self.validation
                    .error(format!("The tree {} for {} is missing", ident.0, self.collection.namespace));
            }
        }
    }

    /// Checks every page of the collection and its indexes.
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
                    // The next checkpoint writes it again.
                    true => {
                        self.validation.warning(format!("{}, which was overwritten since", damage.message))
                    }
                    false => self.validation.damage(damage.message),
                }
            }
        }
        Ok(())
    }

    /// Turns a corrupted entry into a finding. Returns any other error.
    fn broken(&mut self, error: storage::Error) -> Result<()> {
        match error {
            storage::Error::Corrupted(message) => {
                self.validation.damage(message);
                Ok(())
            }
            other => Err::<(), Error>(storage_error(other)),
        }
    }
}

// Findings of validate, in the fields and texts of MongoDB's reply.

/// Maximum length of a list in the reply.
const LISTED_MAX: usize = 1000;

/// Findings about a collection.
#[derive(Debug, Default)]
pub struct Validation {
    /// UUID of the collection; the oplog has none.
    pub uuid: Option<[u8; 16]>,
    /// Number of documents.
    pub records: u64,
    /// Number of records with invalid BSON or a wrong checksum.
    pub invalid: u64,
    /// Number of documents that the collection's validator would refuse.
    pub non_compliant: u64,
    /// Findings of each index.
    pub indexes: Vec<IndexFindings>,
    /// Errors beyond single indexes.
    pub errors: Vec<String>,
    /// Warnings, and the number of wrong index entries.
    pub warnings: Vec<String>,
    /// Index entries without a document.
    pub extra: Vec<DocumentBuf>,
    /// Keys of documents without an index entry.
    pub missing: Vec<DocumentBuf>,
    /// Numbers of the invalid records.
    pub corrupt_records: Vec<u64>,
    extra_count: u64,
    missing_count: u64,
    /// Damages already reported, since several checks may find one damage.
    damages: BTreeSet<String>,
}

/// Findings about an index.
#[derive(Debug, Default)]
pub struct IndexFindings {
    /// Name of the index.
    pub name: String,
    /// The index as in listIndexes.
    pub spec: DocumentBuf,
    /// Number of its entries.
    pub keys: u64,
    /// Errors of the index.
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
        Validation { uuid: Some(uuid), indexes, ..Validation::default() }
    }

    /// Returns true without errors.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty() && self.indexes.iter().all(|index| index.errors.is_empty())
    }

    fn error(&mut self, message: String) {
        push(&mut self.errors, message);
    }

    fn warning(&mut self, message: String) {
        push(&mut self.warnings, message);
    }

    /// Reports stored bytes with a wrong checksum or structure.
    fn damage(&mut self, message: String) {
        if self.damages.len() < LISTED_MAX && self.damages.insert(message.clone()) {
            self.error(message);
        }
    }

    fn index_error(&mut self, index: usize, message: String) {
        if let Some(index) = self.indexes.get_mut(index) {
            push(&mut index.errors, message);
        }
    }

    fn corrupt(&mut self, record: RecordId) {
        self.invalid += 1;
        if self.corrupt_records.len() < LISTED_MAX {
            self.corrupt_records.push(record.0);
        }
    }

    /// Reports a key of a document that is missing in the index.
    fn missing(&mut self, index: usize, described: DocumentBuf) {
        self.missing_count += 1;
        self.inconsistent(index);
        if self.missing.len() < LISTED_MAX {
            self.missing.push(described);
        }
    }

    /// Reports a key of the index that no document has.
    fn extra(&mut self, index: usize, described: DocumentBuf) {
        self.extra_count += 1;
        self.inconsistent(index);
        if self.extra.len() < LISTED_MAX {
            self.extra.push(described);
        }
    }

    fn inconsistent(&mut self, index: usize) {
        let Some(index) = self.indexes.get_mut(index) else { return };
        let message = format!("Index with name '{}' has inconsistencies.", index.name);
        if !index.errors.contains(&message) {
            index.errors.push(message);
        }
    }

    /// Adds summaries of the lists to the errors and warnings.
    fn conclude(&mut self) {
        if self.invalid > 0 {
            self.errors.insert(0, "Detected one or more invalid documents. See logs.".to_string());
        }
        if self.non_compliant > 0 {
            let message = "Detected one or more documents not compliant with the collection's schema.";
            self.warnings.push(message.to_string());
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

fn push(list: &mut Vec<String>, message: String) {
    if list.len() < LISTED_MAX {
        log::warn!("validate: {message}");
        list.push(message);
    }
}

/// Describes an index entry as in the reply. The `_id` is present if the document exists.
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
