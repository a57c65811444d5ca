//! A collection or view: its options, its indexes, its tree and its running counts.

use crate::index::{Building, Index};
use crate::index_filter::IndexFilters;
use crate::kept_plans::KeptPlans;
use crate::validator::Validator;
use base::bson::{Builder, DocumentBuf, Value, ValueBuf};
use base::{Namespace, Result, err};
use query::Collation;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Ident;
pub use storage::store::Counts;

/// A collection or view as the catalog has it. Immutable but for its counts; changing options or
/// indexes puts a new one in its place.
#[derive(Clone)]
pub struct Collection {
    /// Its name.
    pub namespace: Namespace,
    /// What stays the same through renames.
    pub uuid: [u8; 16],
    /// What create and collMod said.
    pub options: Options,
    /// What holds its data; `None` for a view.
    pub data: Option<Data>,
    /// The catalog change that made it what it is: a statement prepared on another has to start again.
    pub generation: u64,
}

/// The stored side of a collection.
#[derive(Clone)]
pub struct Data {
    /// The tree of its documents.
    pub ident: Ident,
    /// Its indexes, the one on `_id` first.
    pub indexes: Vec<Arc<Index>>,
    /// Indexes that are being built: written to, and not yet read.
    pub building: Vec<Arc<Building>>,
    /// Shared by all versions of the collection.
    pub counts: Arc<Counts>,
    /// Shared likewise.
    pub index_filters: Arc<IndexFilters>,
    /// Shared likewise.
    pub kept_plans: Arc<KeptPlans>,
}

/// Options of a collection or view.
#[derive(Clone, Default)]
pub struct Options {
    /// Size and count limits of a capped collection.
    pub capped: Option<Capped>,
    /// The name of the index that the collection is clustered by.
    pub clustered: Option<String>,
    /// The age in seconds at which documents expire whose `_id` is a date; only where clustered.
    pub expire_after_seconds: Option<i64>,
    /// Whether it was made without an index on `_id`, as collections of `local` may be.
    pub no_id_index: bool,
    /// Whether the log keeps documents as they were before a change.
    pub pre_images: bool,
    /// What documents must satisfy.
    pub validator: Option<Arc<Validator>>,
    /// The view's source and pipeline.
    pub view: Option<View>,
    /// What commands compare strings by unless they say otherwise, and indexes made here, too.
    pub collation: Collation,
    /// Options that are kept and shown, and change nothing here (storageEngine and its like).
    pub kept: DocumentBuf,
}

/// Limits of a capped collection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capped {
    /// Bytes of documents.
    pub size: i64,
    /// Number of documents; zero is no limit.
    pub max: i64,
}

/// What a view shows.
#[derive(Clone)]
pub struct View {
    /// The collection or view it reads, in the same database.
    pub on: String,
    /// The pipeline it applies, an array.
    pub pipeline: ValueBuf,
}

impl Collection {
    /// The stored side. Errors: CommandNotSupportedOnView for a view.
    pub fn data(&self) -> Result<&Data> {
        self.data.as_ref().ok_or_else(|| {
            err!(CommandNotSupportedOnView, "Namespace {} is a view, not a collection", self.namespace)
        })
    }

    /// Whether this is a view.
    pub fn is_view(&self) -> bool {
        self.data.is_none()
    }

    /// Whether reading all of it counts as long work, for which the network thread is left.
    pub fn is_large(&self) -> bool {
        const RECORDS: i64 = 1000;
        self.records() > RECORDS
    }

    /// Documents, as counted by the commits.
    pub fn records(&self) -> i64 {
        self.data.as_ref().map_or(0, |data| data.counts.records.load(Relaxed))
    }

    /// Size of all documents in bytes.
    pub fn bytes(&self) -> i64 {
        self.data.as_ref().map_or(0, |data| data.counts.bytes.load(Relaxed))
    }

    /// The options as listCollections shows them.
    pub fn options_document(&self) -> DocumentBuf {
        self.options.to_document()
    }
}

impl Data {
    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// The index on `_id`.
    pub fn id_index(&self) -> Option<&Arc<Index>> {
        self.indexes.first().filter(|index| index.is_id())
    }

    /// The index on `_id`, if the collection is clustered by it.
    pub fn clustered_index(&self) -> Option<&Arc<Index>> {
        self.id_index().filter(|index| index.spec.clustered)
    }

    /// The indexes that a change to a document is written to: those that plans use, then those being built.
    pub fn written_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().chain(self.building.iter().map(|build| &build.index))
    }

    /// The trees of the documents and of all indexes.
    pub fn idents(&self) -> impl Iterator<Item = Ident> {
        std::iter::once(self.ident).chain(self.written_indexes().map(|index| index.ident))
    }
}

impl Options {
    /// The options as listCollections shows them and the catalog keeps them.
    pub fn to_document(&self) -> DocumentBuf {
        let mut out = Builder::new();
        if let Some(capped) = self.capped {
            out.append(c"capped", true);
            append_size(&mut out, c"size", capped.size);
            if capped.max > 0 {
                append_size(&mut out, c"max", capped.max);
            }
        }
        if let Some(name) = &self.clustered {
            crate::clustered::append_to(name, &mut out);
        }
        out.append_optional(c"expireAfterSeconds", self.expire_after_seconds.map(Value::Int64));
        if self.pre_images {
            out.begin_document(c"changeStreamPreAndPostImages").append(c"enabled", true).end();
        }
        if let Some(view) = &self.view {
            out.append(c"viewOn", view.on.as_str()).append(c"pipeline", &view.pipeline);
        }
        if let Some(validator) = &self.validator {
            validator.append_to(&mut out);
        }
        out.append_all(self.kept.view());
        out.append_optional(c"collation", self.collation.document());
        out.finish()
    }
}

fn append_size(out: &mut Builder, name: &'static CStr, size: i64) {
    match i32::try_from(size) {
        Ok(small) => out.append(name, small),
        Err(_) => out.append(name, size),
    };
}
