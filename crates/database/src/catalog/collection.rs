//! A collection or view: its options, its indexes, its tree and its running counts.
//!
//! This module also parses the `clusteredIndex` option of create. A new option is a field of [`Options`], a line of
//! [`Options::to_document`] and a case of the parser in [`options`](crate::catalog::options).

pub use storage::store::Counts;

use crate::catalog::cached_plans::{IndexFilters, PlanCache};
use crate::index::{Building, Index};
use crate::option_field;
use crate::validator::Validator;
use base::bson::{Array, Builder, Document, DocumentBuf, Value, ValueBuf, equal};
use base::{Error, Namespace, Result, bail, err};
use query::Collation;
use query::pipeline::stages_of;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use storage::Ident;

/// Start of the names of temporary collections, before an ObjectId.
pub(crate) const TEMPORARY: &str = "tmp.agg_out.";

/// A collection or view in the catalog. Immutable except for its counts; a change of options or
/// indexes replaces it.
#[derive(Clone)]
pub struct Collection {
    /// The name.
    pub namespace: Namespace,
    /// UUID, unchanged by renames.
    pub uuid: [u8; 16],
    /// Options from create and collMod.
    pub options: Options,
    /// The stored data; `None` for a view.
    pub data: Option<Data>,
    /// Catalog generation of the latest change. A statement prepared with another generation must
    /// start again.
    pub generation: u64,
}

/// The stored data of a collection.
#[derive(Clone)]
pub struct Data {
    /// The tree of the documents.
    pub ident: Ident,
    /// The indexes; `_id` is first.
    pub indexes: Vec<Arc<Index>>,
    /// Index builds. Writes maintain their indexes; plans do not use them.
    pub building: Vec<Arc<Building>>,
    /// Counts, shared by all versions of the collection.
    pub counts: Arc<Counts>,
    /// Index filters, shared in the same way.
    pub index_filters: Arc<IndexFilters>,
    /// Plan cache, shared in the same way.
    pub cached_plans: Arc<PlanCache>,
    /// Numbers of collection scans, shared in the same way.
    pub scans: Arc<CollectionScans>,
}

/// Numbers of scans of a collection since the server started, for `$collStats`.
#[derive(Debug, Default)]
pub struct CollectionScans {
    /// All scans.
    pub total: AtomicU64,
    /// Scans of tailable cursors.
    pub tailable: AtomicU64,
}

/// Options of a collection or view.
#[derive(Clone, Default)]
pub struct Options {
    /// Size and count limits of a capped collection.
    pub capped: Option<Capped>,
    /// Name of the clustered index.
    pub clustered: Option<String>,
    /// Age in seconds at which documents with a date as `_id` expire. Clustered collections only.
    pub expire_after_seconds: Option<i64>,
    /// True if the collection was created without an `_id` index, which `local` allows.
    pub no_id_index: bool,
    /// True if the log keeps pre-images.
    pub pre_images: bool,
    /// The validator of the documents.
    pub validator: Option<Arc<Validator>>,
    /// The view's source and pipeline.
    pub view: Option<View>,
    /// Default collation of commands and of new indexes.
    pub collation: Collation,
    /// Options that are stored and listed without effect, such as storageEngine.
    pub without_effect: DocumentBuf,
}

/// Limits of a capped collection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capped {
    /// Size of all documents in bytes.
    pub size: i64,
    /// Number of documents; zero is unlimited.
    pub max: i64,
}

/// Definition of a view.
#[derive(Clone, PartialEq)]
pub struct View {
    /// The collection or view that it reads, in the same database.
    pub on: String,
    /// The pipeline, an array.
    pub pipeline: ValueBuf,
}

/// Deepest nesting of pipelines in one view that is searched for collections. The pipeline parser
/// allows less.
const PIPELINES_MAX: usize = 100;

impl View {
    /// Returns the names of the collections and views that the view reads, its input first.
    pub(crate) fn reads(&self) -> Vec<String> {
        let mut read = vec![self.on.clone()];
        read.append(&mut self.inner_reads());
        read
    }

    /// Returns the names that the pipeline reads besides its input.
    pub(crate) fn inner_reads(&self) -> Vec<String> {
        let mut read = Vec::new();
        note_read(self.pipeline.view().as_array().unwrap_or(Array::EMPTY), 0, &mut read);
        read
    }
}

/// Adds the collections that stages read besides their input.
pub(crate) fn note_read(stages: Array<'_>, nested: usize, read: &mut Vec<String>) {
    if nested > PIPELINES_MAX {
        return;
    }
    for (stage, spec) in stages_of(stages) {
        let inputs = stage.inputs(spec.value());
        read.extend(inputs.collections.iter().filter_map(|name| name.as_str()).map(str::to_string));
        for inner in inputs.pipelines {
            note_read(inner, nested + 1, read);
        }
    }
}

impl Collection {
    /// Returns the stored data. Errors: CommandNotSupportedOnView for a view.
    pub fn data(&self) -> Result<&Data> {
        self.data.as_ref().ok_or_else(|| {
            err!(CommandNotSupportedOnView, "Namespace {} is a view, not a collection", self.namespace)
        })
    }

    /// Returns true for a view.
    pub fn is_view(&self) -> bool {
        self.data.is_none()
    }

    /// Returns true for a temporary collection, such as that of a running `$out`.
    pub(crate) fn is_temporary(&self) -> bool {
        let id = self.namespace.collection().strip_prefix(TEMPORARY);
        id.is_some_and(|id| id.len() == 24 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }

    /// Returns true if a full scan counts as long work, which leaves the network thread.
    pub fn is_large(&self) -> bool {
        const RECORDS: i64 = 1000;
        self.records() > RECORDS
    }

    /// Returns the number of documents, as counted by commits.
    pub fn records(&self) -> i64 {
        self.data.as_ref().map_or(0, |data| data.counts.records.load(Relaxed))
    }

    /// Returns the size of all documents in bytes.
    pub fn bytes(&self) -> i64 {
        self.data.as_ref().map_or(0, |data| data.counts.bytes.load(Relaxed))
    }

    /// Returns the options as listCollections prints them.
    pub fn options_document(&self) -> DocumentBuf {
        self.options.to_document()
    }

    /// Returns name and type as listCollections prints them.
    pub fn listed_name(&self) -> DocumentBuf {
        let mut out = Builder::new();
        let kind = if self.is_view() { "view" } else { "collection" };
        out.append(c"name", self.namespace.collection()).append(c"type", kind);
        out.finish()
    }

    /// Returns the collection as listCollections prints it.
    pub fn listed(&self) -> DocumentBuf {
        let mut out = Builder::new();
        out.append_all(self.listed_name().view());
        out.append(c"options", &self.options_document());
        out.begin_document(c"info").append(c"readOnly", self.is_view());
        if !self.is_view() {
            out.append(c"uuid", Value::Binary { subtype: 4, bytes: &self.uuid });
        }
        out.end();
        // A clustered collection has no separate index on `_id`.
        let id_index = self.data.as_ref().and_then(|data| data.id_index());
        if let Some(index) = id_index.filter(|index| !index.spec.clustered) {
            out.append(c"idIndex", &index.spec.to_document());
        }
        out.finish()
    }
}

impl Data {
    /// Returns the data of a new collection, without index builds, index filters and cached plans.
    pub(crate) fn new(ident: Ident, indexes: Vec<Arc<Index>>, counts: Arc<Counts>) -> Data {
        let (index_filters, cached_plans, scans) = (Arc::default(), Arc::default(), Arc::default());
        Data { ident, indexes, building: Vec::new(), counts, index_filters, cached_plans, scans }
    }

    /// Returns the number of indexes as in the reply of createIndexes, without the clustered index.
    pub(crate) fn listed_indexes(&self) -> usize {
        self.indexes.len() - usize::from(self.clustered_index().is_some())
    }

    /// Returns the index with this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Returns the index on `_id`.
    pub fn id_index(&self) -> Option<&Arc<Index>> {
        self.indexes.first().filter(|index| index.is_id())
    }

    /// Returns the index on `_id` if it is the clustered index.
    pub fn clustered_index(&self) -> Option<&Arc<Index>> {
        self.id_index().filter(|index| index.spec.clustered)
    }

    /// Returns the indexes that a change of a document is written to: the indexes used by plans,
    /// then index builds.
    pub fn written_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().chain(self.building.iter().map(|build| &build.index))
    }

    /// Returns the trees of the documents and of all indexes.
    pub fn idents(&self) -> impl Iterator<Item = Ident> {
        std::iter::once(self.ident).chain(self.written_indexes().map(|index| index.ident))
    }
}

impl Options {
    /// Returns the options as listCollections prints them and the catalog stores them.
    pub fn to_document(&self) -> DocumentBuf {
        let mut out = Builder::new();
        self.append_to(&mut out);
        out.finish()
    }

    /// Appends the options to an open document.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        if let Some(capped) = self.capped {
            out.append(c"capped", true);
            append_size(out, c"size", capped.size);
            if capped.max > 0 {
                append_size(out, c"max", capped.max);
            }
        }
        if let Some(name) = &self.clustered {
            append_clustered(name, out);
        }
        out.append_optional(c"expireAfterSeconds", self.expire_after_seconds.map(Value::Int64));
        if self.pre_images {
            out.begin_document(c"changeStreamPreAndPostImages").append(c"enabled", true).end();
        }
        if let Some(view) = &self.view {
            out.append(c"viewOn", view.on.as_str()).append(c"pipeline", &view.pipeline);
        }
        if let Some(validator) = &self.validator {
            validator.append_to(out);
        }
        out.append_all(self.without_effect.view());
        out.append_optional(c"collation", self.collation.document());
    }
}

fn append_size(out: &mut Builder, name: &'static CStr, size: i64) {
    match i32::try_from(size) {
        Ok(small) => out.append(name, small),
        Err(_) => out.append(name, size),
    };
}

/// Parses `clusteredIndex`. Returns the name of the index, or `None` for `false`.
///
/// Errors: 40414, 40415, TypeMismatch, InvalidIndexSpecificationOption for a key other than `{_id:
/// 1}`, 5979700 unless unique, 5979703 for `true`, 5979704 for another version.
pub(crate) fn parse_clustered(value: Value<'_>) -> Result<Option<String>> {
    match value {
        Value::Document(spec) => ClusteredFields::read(spec)?.check(spec).map(Some),
        _ => match option_field::flag("clusteredIndex", value)? {
            false => Ok(None),
            true => Err(err!(
                5979703,
                "The 'clusteredIndex' legacy format {{clusteredIndex: <bool>}} is only supported for specific \
                 internal collections and vice versa"
            )),
        },
    }
}

/// Appends the option as listCollections prints it and the catalog stores it.
pub(crate) fn append_clustered(name: &str, out: &mut Builder) {
    out.begin_document(c"clusteredIndex").append(c"v", 2i32);
    out.begin_document(c"key").append(c"_id", 1i32).end();
    out.append(c"name", name).append(c"unique", true).end();
}

/// Checks an age at which documents expire.
///
/// Errors: InvalidOptions for negative values and values beyond int32.
pub fn checked_age(seconds: i64) -> Result<i64> {
    if seconds < 0 {
        bail!(InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0");
    }
    if seconds > i64::from(i32::MAX) {
        bail!(
            InvalidOptions,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number"
        );
    }
    Ok(seconds)
}

/// The fields as given by the client.
#[derive(Default)]
struct ClusteredFields<'a> {
    key: Option<Document<'a>>,
    unique: Option<bool>,
    name: Option<&'a str>,
    version: Option<i64>,
}

impl<'a> ClusteredFields<'a> {
    fn read(spec: Document<'a>) -> Result<ClusteredFields<'a>> {
        let mut fields = ClusteredFields::default();
        for element in spec {
            let value = element.value();
            let path = format!("clusteredIndex.{}", element.name());
            match element.name() {
                "key" | "unique" if value.is_nullish() => {}
                "key" => fields.key = Some(option_field::object(&path, value)?),
                "unique" => fields.unique = Some(option_field::flag(&path, value)?),
                "name" => fields.name = Some(option_field::text(&path, value)?),
                "v" => fields.version = Some(option_field::count(&path, value)?),
                _ => return Err(Error::unknown_field(format_args!("create.{path}"))),
            }
        }
        Ok(fields)
    }

    fn check(self, spec: Document<'_>) -> Result<String> {
        let missing = |name: &str| Error::missing_field(format_args!("create.clusteredIndex.{name}"));
        let key = self.key.ok_or_else(|| missing("key"))?;
        if !self.unique.ok_or_else(|| missing("unique"))? {
            bail!(5979700, "The clusteredIndex option requires unique: true to be specified");
        }
        let mut parts = key.iter();
        let on_id =
            parts.next().is_some_and(|part| part.name() == "_id" && equal(part.value(), Value::Int32(1)));
        if !on_id || parts.next().is_some() {
            bail!(
                InvalidIndexSpecificationOption,
                "The clusteredIndex option is only supported for key: {{_id: 1}}"
            );
        }
        match self.version {
            None | Some(2) => {}
            Some(version) => {
                bail!(
                    5979704,
                    "Invalid clusteredIndex specification {spec}; cannot create a clusteredIndex with v={version}"
                );
            }
        }
        match self.name {
            Some("") => Err(err!(CannotCreateIndex, "index name cannot be empty")),
            name => Ok(name.unwrap_or("_id_").to_string()),
        }
    }
}
