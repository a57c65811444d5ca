//! Findings of `--strict`: reads without a suitable index, and useless indexes.
//!
//! A test suite seldom has enough documents to notice a missing index. The report therefore lists
//! collection scans over more than a thousand documents, sorts in memory, and unused and duplicate
//! indexes. Reads are grouped by shape: collection name, filter without values, sort. The database
//! name is not part of the shape, because a suite that forks a database for each test runs the same
//! query in all of them.

use crate::catalog::Catalog;
use crate::catalog::collection::Collection;
use crate::index::{Index, IndexSpec, KeyKind, KeyPart};
use crate::plan::{Plan, Read, sort_document};
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A collection scan is reported if it has more documents than this to read.
const SCANNED_MAX: i64 = 1000;
/// Most stored shapes and most stored used indexes. Further shapes are only counted.
const ENTRIES_MAX: usize = 1000;

/// Collects findings while switched on. While off, it costs one load for each read.
#[derive(Default)]
pub(crate) struct Strict {
    on: AtomicBool,
    observations: Mutex<Observations>,
}

#[derive(Default)]
struct Observations {
    reads: HashMap<Vec<u8>, ReadCounts>,
    /// Number of reads without room in the table.
    left_out: u64,
    /// Indexes that a plan has used, including indexes of dropped databases.
    used: HashSet<Vec<u8>>,
}

struct ReadCounts {
    /// Namespace of the first occurrence.
    ns: String,
    shape: DocumentBuf,
    scans: i64,
    /// Largest number of documents in a scan.
    documents: i64,
    sorts: i64,
}

/// Findings, one document for each.
#[derive(Debug)]
pub struct StrictReport {
    /// Collection scans by shape: `ns`, `filter`, `sort`, `count`, and the largest number of
    /// `documents`.
    pub collection_scans: Vec<DocumentBuf>,
    /// Sorts in memory by shape: `ns`, `filter`, `sort`, `count`.
    pub in_memory_sorts: Vec<DocumentBuf>,
    /// Indexes that no plan has used: `ns`, `name`, `key`.
    pub unused_indexes: Vec<DocumentBuf>,
    /// Indexes that another index replaces: `ns`, `name`, `key`, `coveredBy`.
    pub duplicate_indexes: Vec<DocumentBuf>,
    /// Number of reads beyond the limit of shapes.
    pub left_out: u64,
}

impl Strict {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Switches the collection on.
    pub(crate) fn switch_on(&self) {
        self.on.store(true, Relaxed);
    }

    /// Records a plan that is about to start.
    pub(crate) fn note(&self, collection: &Collection, plan: &Plan) {
        let (scans, sorts) = (plan.scans_more_than(collection, SCANNED_MAX), plan.tree.sorts());
        let mut observations = self.observations.lock();
        plan.each_index(|index| {
            if observations.used.len() < ENTRIES_MAX {
                observations.used.insert(identity(collection, index));
            }
        });
        if scans || sorts {
            observations.note_read(collection, plan, scans, sorts);
        }
    }

    /// Returns the findings since the start or the last [`forget`](Self::forget), and the unused
    /// and duplicate indexes of a catalog.
    pub(crate) fn report(&self, catalog: &Catalog) -> StrictReport {
        let observations = self.observations.lock();
        let mut report = StrictReport {
            collection_scans: observations.by(|counts| counts.scans, true),
            in_memory_sorts: observations.by(|counts| counts.sorts, false),
            unused_indexes: Vec::new(),
            duplicate_indexes: Vec::new(),
            left_out: observations.left_out,
        };
        let is_used = |index: &Index| index.is_id() || serves_unread(index) || index.uses.load(Relaxed) > 0;
        let indexes = || {
            let stored = catalog.all().filter_map(|collection| Some((collection, collection.data.as_ref()?)));
            stored.flat_map(|(collection, data)| {
                data.indexes.iter().map(move |index| (collection, data, index))
            })
        };
        let mut used = observations.used.clone();
        used.extend(
            indexes().filter(|(_, _, index)| is_used(index)).map(|(on, _, index)| identity(on, index)),
        );
        let mut duplicates = HashSet::new();
        for (collection, data, index) in indexes() {
            // Reported once, not for every database.
            if used.insert(identity(collection, index)) {
                report.unused_indexes.push(describe(collection, index, None));
            }
            if let Some(other) = covering(&data.indexes, index)
                && duplicates.insert(identity(collection, index))
            {
                report.duplicate_indexes.push(describe(collection, index, Some(other)));
            }
        }
        report
    }

    /// Discards the recorded reads. Used indexes stay marked as used.
    pub(crate) fn forget(&self) {
        let mut observations = self.observations.lock();
        observations.reads.clear();
        observations.left_out = 0;
    }
}

impl Observations {
    fn note_read(&mut self, collection: &Collection, plan: &Plan, scans: bool, sorts: bool) {
        let shape = of_read(&plan.read);
        let mut key = collection.namespace.collection().as_bytes().to_vec();
        key.extend_from_slice(shape.view().bytes());
        if self.reads.len() >= ENTRIES_MAX && !self.reads.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let counts = self.reads.entry(key).or_insert_with(|| ReadCounts {
            ns: collection.namespace.as_str().to_string(),
            shape,
            scans: 0,
            documents: 0,
            sorts: 0,
        });
        counts.sorts += i64::from(sorts);
        if scans {
            counts.scans += 1;
            counts.documents = counts.documents.max(collection.records());
        }
    }

    /// Returns the shapes with a nonzero `count`, most frequent first.
    fn by(&self, count: fn(&ReadCounts) -> i64, with_documents: bool) -> Vec<DocumentBuf> {
        let mut shapes: Vec<_> = self.reads.values().filter(|counts| count(counts) > 0).collect();
        shapes.sort_by_key(|counts| (-count(counts), &counts.ns, counts.shape.view().bytes()));
        let describe = |counts: &ReadCounts| {
            let mut out = Builder::new();
            out.append(c"ns", counts.ns.as_str()).append_all(counts.shape.view());
            out.append(c"count", count(counts));
            if with_documents {
                out.append(c"documents", counts.documents);
            }
            out.finish()
        };
        shapes.into_iter().map(describe).collect()
    }
}

/// Returns the identity of an index, which is equal in every database that has the index.
fn identity(collection: &Collection, index: &Index) -> Vec<u8> {
    let mut key = collection.namespace.collection().as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(index.spec.name.as_bytes());
    // A plan on a wildcard index has the key pattern of one path.
    if index.spec.wildcard.is_none() && index.spec.path_part.is_none() {
        key.extend_from_slice(index.spec.key.view().bytes());
    }
    key
}

fn describe(collection: &Collection, index: &Index, covered_by: Option<&Index>) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"ns", collection.namespace.as_str()).append(c"name", index.spec.name.as_str());
    out.append(c"key", &index.spec.key);
    out.append_optional(c"coveredBy", covered_by.map(|other| other.spec.name.as_str()));
    out.finish()
}

/// Returns true if an index has a purpose without reads: uniqueness or expiration.
fn serves_unread(index: &Index) -> bool {
    index.unique() || index.spec.expire_after_seconds.is_some()
}

impl StrictReport {
    /// Returns the kinds of findings with their names: in a command's reply, and in a line of the
    /// log.
    fn kinds(&self) -> [(&'static str, &'static str, &[DocumentBuf]); 4] {
        [
            ("collectionScans", "collection scan", &self.collection_scans),
            ("inMemorySorts", "in-memory sort", &self.in_memory_sorts),
            ("unusedIndexes", "unused index", &self.unused_indexes),
            ("duplicateIndexes", "duplicate index", &self.duplicate_indexes),
        ]
    }

    /// Appends the findings as arrays, and `readsLeftOut`.
    pub fn append_to(&self, out: &mut Builder) {
        for (name, _, findings) in self.kinds() {
            out.begin_array(FieldName::literal(name));
            for finding in findings {
                out.push(finding);
            }
            out.end();
        }
        out.append(c"readsLeftOut", self.left_out as i64);
    }

    /// Returns one line for each finding, or one line that reports no findings.
    pub fn lines(&self) -> Vec<String> {
        let of_kind = |(_, kind, findings): (_, &'static str, &[DocumentBuf])| {
            findings.iter().map(|finding| format!("{kind}: {finding}")).collect::<Vec<_>>()
        };
        let mut lines: Vec<String> = self.kinds().into_iter().flat_map(of_kind).collect();
        if self.left_out > 0 {
            lines.push(format!("{} more reads, of other query shapes", self.left_out));
        }
        if lines.is_empty() {
            lines.push("nothing to report".to_string());
        }
        lines
    }
}

#[cfg(test)]
mod tests;

// Duplicate indexes: another index of the collection replaces them.

/// Returns the index that replaces this index. Of two equal indexes, the older replaces the newer.
fn covering<'i>(indexes: &'i [Arc<Index>], index: &Arc<Index>) -> Option<&'i Index> {
    let mut older = true;
    for other in indexes {
        if Arc::ptr_eq(other, index) {
            older = false;
        } else if covers(&other.spec, &index.spec) && (older || !covers(&index.spec, &other.spec)) {
            return Some(other);
        }
    }
    None
}

/// Returns true if `more` can replace `less` in every plan and constraint.
fn covers(more: &IndexSpec, less: &IndexSpec) -> bool {
    let filter = |spec: &IndexSpec| spec.partial.as_ref().map(|partial| partial.filter.clone());
    let same_length = more.parts.len() == less.parts.len();
    // A longer sparse index has other documents, and a longer unique index allows more.
    let same_documents =
        more.sparse == less.sparse && (!less.sparse || same_length) && filter(more) == filter(less);
    let enforces = !less.unique || (more.unique && same_length);
    let is_id = less.name == "_id_";
    let expires = less.expire_after_seconds.is_some();
    begins_with(&more.parts, &less.parts)
        && same_documents
        && more.wildcard == less.wildcard
        && more.geo == less.geo
        && enforces
        && more.collation == less.collation
        && !(is_id || expires || more.hidden || less.hidden)
}

/// Returns true if a key pattern begins with another, with equal directions or all directions
/// reversed.
fn begins_with(more: &[KeyPart], less: &[KeyPart]) -> bool {
    let matches = |reversed: bool| {
        let kind = |kind: KeyKind| match (reversed, kind) {
            (true, KeyKind::Ascending) => KeyKind::Descending,
            (true, KeyKind::Descending) => KeyKind::Ascending,
            _ => kind,
        };
        more.iter().zip(less).all(|(a, b)| a.path == b.path && a.kind == kind(b.kind))
    };
    more.len() >= less.len() && (matches(false) || matches(true))
}

// Shape of a read: its filter with every value replaced by `"?"`, and its sort.

/// Placeholder for a value.
const PLACEHOLDER: &str = "?";
/// Maximum size of a shape in bytes. Larger shapes lose their filter.
const BYTES_MAX: usize = 4096;
/// Maximum nesting of operators. Deeper operators count as values.
const DEPTH_MAX: usize = 16;

/// Returns the shape of a read: `filter`, and `sort` if present.
fn of_read(read: &Read) -> DocumentBuf {
    let filter = of_filter(read.matcher.describe().view(), DEPTH_MAX);
    let mut out = Builder::new();
    match filter.view().bytes().len() {
        0..=BYTES_MAX => out.append(c"filter", &filter),
        _ => out.append(c"filter", PLACEHOLDER),
    };
    if let Some(sort) = read.sort.as_ref().filter(|sort| sort.orders()) {
        out.append(c"sort", &sort_document(sort));
    }
    out.finish()
}

/// Returns a filter with every value replaced by `"?"`.
pub fn filter_shape(filter: Document<'_>) -> DocumentBuf {
    of_filter(filter, DEPTH_MAX)
}

/// Returns the shape of a filter, or of the operators on one field.
fn of_filter(filter: Document<'_>, depth: usize) -> DocumentBuf {
    let mut out = Builder::new();
    for element in filter {
        match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", Value::Array(branches)) if depth > 0 => {
                append_branches(&mut out, element.field_name(), branches, depth - 1);
            }
            ("$elemMatch" | "$not", Value::Document(inner)) if depth > 0 => {
                out.append(element.field_name(), &of_filter(inner, depth - 1));
            }
            (name, Value::Document(operators))
                if depth > 0 && !name.starts_with('$') && is_operators(operators) =>
            {
                out.append(element.field_name(), &of_filter(operators, depth - 1));
            }
            _ => _ = out.append(element.field_name(), PLACEHOLDER),
        }
    }
    out.finish()
}

fn is_operators(document: Document<'_>) -> bool {
    document.iter().next().is_some_and(|first| first.name().starts_with('$'))
}

/// Appends branches, merging those of equal shape: the number of values is not part of the shape.
fn append_branches(out: &mut Builder, name: FieldName<'_>, branches: Array<'_>, depth: usize) {
    let mut shapes: Vec<DocumentBuf> = Vec::new();
    for branch in branches.iter().filter_map(|branch| branch.as_document()) {
        let shape = of_filter(branch, depth);
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    out.begin_array(name);
    for shape in &shapes {
        out.push(shape);
    }
    out.end();
}
