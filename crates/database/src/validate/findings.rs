//! What validate found, in the places and words in which MongoDB's reply has it.

use crate::collection::Data;
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::bson::{Builder, Document, DocumentBuf};
use std::collections::BTreeSet;

/// No list in the reply is longer.
const LISTED_MAX: usize = 1000;

/// What validate found in a collection.
#[derive(Debug, Default)]
pub struct Validation {
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
    /// Its entries.
    pub keys: u64,
    /// Everything that is wrong with it, in words.
    pub errors: Vec<String>,
}

impl Validation {
    pub(super) fn new(data: &Data) -> Validation {
        let names = data.indexes.iter().map(|index| index.spec.name.clone());
        let indexes = names.map(|name| IndexFindings { name, ..IndexFindings::default() }).collect();
        Validation { indexes, ..Validation::default() }
    }

    /// Whether nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty() && self.indexes.iter().all(|index| index.errors.is_empty())
    }

    pub(super) fn error(&mut self, what: String) {
        push(&mut self.errors, what);
    }

    pub(super) fn warning(&mut self, what: String) {
        push(&mut self.warnings, what);
    }

    /// Stored bytes that aren't what was written.
    pub(super) fn damage(&mut self, what: String) {
        if self.damages.len() < LISTED_MAX && self.damages.insert(what.clone()) {
            self.error(what);
        }
    }

    pub(super) fn index_error(&mut self, index: usize, what: String) {
        if let Some(index) = self.indexes.get_mut(index) {
            push(&mut index.errors, what);
        }
    }

    pub(super) fn corrupt(&mut self, record: RecordId) {
        self.invalid += 1;
        if self.corrupt_records.len() < LISTED_MAX {
            self.corrupt_records.push(record.0);
        }
    }

    /// A key that a document has and the index hasn't.
    pub(super) fn missing(&mut self, index: usize, described: DocumentBuf) {
        self.missing_count += 1;
        self.inconsistent(index);
        if self.missing.len() < LISTED_MAX {
            self.missing.push(described);
        }
    }

    /// A key that the index has and no document.
    pub(super) fn extra(&mut self, index: usize, described: DocumentBuf) {
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
    pub(super) fn conclude(&mut self) {
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
pub(super) fn describe(
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
