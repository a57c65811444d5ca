//! What is known of a document beside its fields, for `$meta`: where it is stored, by which keys
//! it was found and sorted.
//!
//! Metadata doesn't travel with the documents. A pipeline is pulled one document at a time, so
//! whatever its source yielded last is what the stages above are looking at: the source notes its
//! metadata in the context, and `$meta` reads it there. That costs pipelines without `$meta`
//! nothing. Stages that hold documents back break the rule; they are named in
//! [`pipeline::metadata`](crate::pipeline), and what lies behind them finds
//! [`Noted::lost_in`] and refuses.

use base::bson::{DocumentBuf, Value, ValueBuf};
use base::{Error, Result, err};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The kinds of metadata that documents may have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKind {
    /// The key of the index that found the document.
    IndexKey,
    /// A random number; nothing here gives a document one.
    RandVal,
    /// Where the document is stored.
    RecordId,
    /// What the document was sorted by, as an array.
    SortKey,
}

impl MetaKind {
    /// The kind by the name that `$meta` gives it.
    ///
    /// Errors: 17307 for what is no string, 40218 for metadata of searches, of which there are
    /// none here, 17308 for an unknown name.
    pub(crate) fn parse(argument: Value<'_>) -> Result<MetaKind> {
        let Value::String(name) = argument else {
            return Err(err!(17307, "$meta only supports string arguments"));
        };
        match name {
            "indexKey" => Ok(MetaKind::IndexKey),
            "randVal" => Ok(MetaKind::RandVal),
            "recordId" => Ok(MetaKind::RecordId),
            "sortKey" => Ok(MetaKind::SortKey),
            _ => Err(unavailable(name)),
        }
    }

    /// The name that `$meta` gives the kind.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MetaKind::IndexKey => "indexKey",
            MetaKind::RandVal => "randVal",
            MetaKind::RecordId => "recordId",
            MetaKind::SortKey => "sortKey",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Why there is no metadata of this name.
fn unavailable(name: &str) -> Error {
    let what = match name {
        "indexKey" => "index key",
        "randVal" => "rand val",
        "recordId" => "record ID",
        "sortKey" => "sort key",
        "textScore" => "text score",
        "geoNearDistance" => "$geoNear distance",
        "geoNearPoint" => "$geoNear point",
        "searchHighlights" => "$search highlights",
        "searchScore" => "$search score",
        "searchScoreDetails" => "$search score details",
        "searchSequenceToken" => "$search sequence token",
        "timeseriesBucketMaxTime" => "timeseries bucket max time",
        "timeseriesBucketMinTime" => "timeseries bucket min time",
        "vectorSearchScore" => "$vectorSearch score",
        _ => return err!(17308, "Unsupported argument to $meta: {name}"),
    };
    err!(40218, "query requires {what} metadata, but it is not available")
}

/// The metadata of one document.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// Where it is stored.
    pub record_id: Option<i64>,
    /// The key of the index that found it, field by field.
    pub index_key: Option<DocumentBuf>,
    /// What it was sorted by: an array with a value for each field of the sort.
    pub sort_key: Option<ValueBuf>,
    /// The stage that held the document back, so that its metadata is no longer known.
    pub lost_in: Option<&'static str>,
}

/// What an operation wants to know of documents, and what is known of the one it looks at.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Shared by an operation's contexts: a sub-pipeline is parsed with one, run with another.
    wanted: Arc<AtomicU8>,
    noted: Mutex<Noted>,
}

impl Metadata {
    /// For a context derived from this one's, which looks at documents of its own.
    pub(crate) fn derived(&self) -> Metadata {
        Metadata { wanted: self.wanted.clone(), noted: Mutex::default() }
    }

    /// Notes while parsing that this kind will be asked for.
    pub(crate) fn want(&self, kind: MetaKind) {
        self.wanted.fetch_or(kind.bit(), Relaxed);
    }

    /// Whether this kind will be asked for.
    pub fn wants(&self, kind: MetaKind) -> bool {
        self.wanted.load(Relaxed) & kind.bit() != 0
    }

    /// Whether any metadata will be asked for.
    pub fn wants_any(&self) -> bool {
        self.wanted.load(Relaxed) != 0
    }

    /// Errors: 40218 where any metadata will be asked for.
    pub(crate) fn refuse_wanted(&self) -> Result<()> {
        let kinds = [MetaKind::IndexKey, MetaKind::RandVal, MetaKind::RecordId, MetaKind::SortKey];
        match kinds.into_iter().find(|kind| self.wants(*kind)) {
            Some(kind) => Err(unavailable(kind.name())),
            None => Ok(()),
        }
    }

    /// Notes the metadata of the document that is looked at from now on.
    pub fn note(&self, noted: Noted) {
        *self.noted.lock() = noted;
    }

    /// The metadata of the document that is looked at. It is locked meanwhile.
    pub(crate) fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock()
    }

    /// Gives one kind of metadata to `read`, missing where the document has none.
    ///
    /// Errors: NotImplemented where a stage held the document back; those of `read`.
    pub(crate) fn read<T>(
        &self,
        kind: MetaKind,
        read: impl FnOnce(Option<Value<'_>>) -> Result<T>,
    ) -> Result<T> {
        let noted = self.noted.lock();
        let found = match kind {
            MetaKind::IndexKey => noted.index_key.as_ref().map(|key| Value::Document(key.view())),
            MetaKind::RandVal => None,
            MetaKind::RecordId => noted.record_id.map(Value::Int64),
            MetaKind::SortKey => noted.sort_key.as_ref().map(|key| key.view()),
        };
        match (found, noted.lost_in) {
            (None, Some(stage)) => {
                Err(err!(NotImplemented, "{{$meta: \"{}\"}} is not kept through {stage}", kind.name()))
            }
            (found, _) => read(found),
        }
    }
}
