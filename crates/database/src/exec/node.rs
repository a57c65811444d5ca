//! A plan: a tree of nodes with the names of MongoDB's explain, and the streams that run it.
//!
//! Nodes are data. The planner creates them, [`open`](Node::open) creates a stream for each, and
//! [`describe`](Node::describe) prints them.

use super::collscan::{CollScan, Eof};
use super::covered::{KeyOnly, ProjectionCovered, ReturnKey};
use super::fetch::{Express, Fetch, FilterStage, Test};
use super::geo_near::GeoNear;
use super::ixscan::{CountScan, DistinctScan, IndexScan};
use super::or::{Or, SortMerge, TextOr};
use super::prefetch::Prefetch;
use super::sort::{Limit, Skip, Sort};
use super::{Covering, ExecContext, Fields, IdStream, KeyBounds, NearAccess, RecordStream, SortOptions};
use crate::access::Access;
use crate::index::{IndexSpec, TextIndex};
use base::Result;
use base::bson::{DocumentBuf, Path};
use query::matcher::{Matcher, Part};
use query::text::Search;
use query::{MetaKinds, SortPattern};
use std::sync::Arc;
use storage::Range;

/// A node that yields records.
pub(crate) enum Node {
    /// No document can match.
    Eof,
    /// COLLSCAN: the whole collection in natural order, forward or backward.
    CollScan { forward: bool, filter: Option<Arc<Matcher>>, fields: Option<Fields> },
    /// EXPRESS: lookup of a single key.
    Express { access: Arc<Access>, filter: Option<Arc<Matcher>> },
    /// COUNT_SCAN: records without content.
    CountScan(Scan),
    /// DISTINCT_SCAN: a document for each value of a path, below PROJECTION_COVERED or FETCH.
    DistinctScan { scan: Scan, path: Path, fetches: bool },
    /// PROJECTION_COVERED: documents built from keys.
    ProjectionCovered { scan: Scan, covering: Covering, filter: Option<Part> },
    /// FETCH: the documents of ids.
    Fetch(Fetches),
    /// FETCH of documents already read: their filter.
    Refetch { input: Box<Node>, filter: Part },
    /// GEO_NEAR_2D and GEO_NEAR_2DSPHERE: documents by their distance from a location.
    GeoNear { near: Arc<NearAccess>, filter: Option<Arc<Matcher>>, metadata: MetaKinds },
    /// TEXT_OR: the documents with a term of a search, and their scores.
    TextOr { text: Arc<TextSearch>, terms: Vec<Scan> },
    /// TEXT_MATCH: filters the documents by the whole search.
    TextMatch { input: Box<Node>, text: Arc<TextSearch> },
    /// OR of documents: each once.
    Or(Vec<Node>),
    /// RETURN_KEY: the keys of an index.
    ReturnKey(Keys),
    /// RETURN_KEY without an index: empty documents. Their sort key is kept if the read has a sort.
    KeyOnly { input: Box<Node>, sort: Option<Arc<SortPattern>> },
    /// SORT.
    Sort { input: Box<Node>, pattern: Arc<SortPattern>, options: SortOptions },
    /// SKIP.
    Skip { input: Box<Node>, skip: u64 },
    /// LIMIT.
    Limit { input: Box<Node>, limit: u64 },
}

/// A node that yields record ids from an index.
pub(crate) enum Ids {
    /// IXSCAN or DISTINCT_SCAN.
    Scan(Scan),
    /// OR: each id once.
    Or(Vec<Scan>),
    /// SORT_MERGE: several sorted parts of a scan, merged into one sorted scan.
    SortMerge { scans: Vec<Scan>, pattern: Arc<SortPattern> },
    /// SKIP.
    Skip { input: Box<Ids>, skip: u64 },
}

/// A scan of one index.
pub(crate) struct Scan {
    /// The index and its bounds.
    pub(crate) access: Arc<Access>,
    /// True if it starts at the first key.
    pub(crate) forward: bool,
    /// The range of keys.
    pub(crate) within: ScanKeys,
    /// Filter on keys.
    pub(crate) filter: Option<(Part, Covering)>,
    /// True if the last key is kept for the nodes above.
    pub(crate) keeps_keys: bool,
    /// DISTINCT_SCAN: number of leading parts that form a value of which one key is enough. Zero
    /// means all keys.
    pub(crate) first_of: usize,
}

/// The keys that a scan yields.
pub(crate) enum ScanKeys {
    /// Keys within the bounds of the access.
    Bounds,
    /// Keys within a part of the bounds, with one value for each of the leading `parts`.
    Split { bounds: KeyBounds, parts: usize },
    /// Keys with this prefix.
    Prefix(Vec<u8>),
    /// Keys within a range.
    Range(Range),
}

/// A FETCH over an index.
pub(crate) struct Fetches {
    /// The source of the ids.
    pub(crate) input: Ids,
    /// `None` if the index proves that a document matches.
    pub(crate) filter: Option<Part>,
    /// True if records carry their index keys.
    pub(crate) keeps_keys: bool,
    /// Number of ids that may be enough; zero if unknown.
    pub(crate) few: u64,
}

/// A RETURN_KEY over an index.
pub(crate) struct Keys {
    /// The source of the keys.
    pub(crate) input: Ids,
    /// The index's specification.
    pub(crate) spec: Arc<IndexSpec>,
    /// Filter on the documents.
    pub(crate) filter: Arc<Matcher>,
    /// Sort above this node, if records need a sort key for it.
    pub(crate) sort: Option<Arc<SortPattern>>,
    /// True if the sort key is returned.
    pub(crate) shows_sort_key: bool,
}

/// A search in a text index.
pub(crate) struct TextSearch {
    /// The index.
    pub(crate) access: Arc<Access>,
    /// The index's text settings.
    pub(crate) text: Arc<TextIndex>,
    /// The parsed search.
    pub(crate) search: Arc<Search>,
    /// Common prefix of all keys of the search, and its form for explain.
    pub(crate) prefix: (Vec<u8>, DocumentBuf),
}

impl Scan {
    /// Returns a scan within the bounds of an access.
    pub(crate) fn new(access: Arc<Access>, forward: bool) -> Scan {
        Scan { access, forward, within: ScanKeys::Bounds, filter: None, keeps_keys: false, first_of: 0 }
    }

    /// Returns the scan with its keys kept if needed.
    pub(crate) fn keeping_keys(self, keeps_keys: bool) -> Scan {
        Scan { keeps_keys, ..self }
    }

    fn leaf(&self) -> (&'static str, Option<&Access>) {
        (if self.first_of > 0 { "DISTINCT_SCAN" } else { "IXSCAN" }, Some(&self.access))
    }

    /// Returns the known length in bytes of the common prefix of all keys.
    pub(super) fn prefix_length(&self) -> usize {
        match &self.within {
            ScanKeys::Split { bounds, parts } => bounds.prefix_of(*parts),
            ScanKeys::Prefix(prefix) => prefix.len(),
            ScanKeys::Bounds | ScanKeys::Range(_) => 0,
        }
    }
}

impl Ids {
    fn each_leaf<'n>(&'n self, visit: &mut dyn FnMut((&'static str, Option<&'n Access>))) {
        match self {
            Ids::Scan(scan) => visit(scan.leaf()),
            Ids::Or(scans) => scans.iter().for_each(|scan| visit(scan.leaf())),
            // The scans are parts of one.
            Ids::SortMerge { scans, .. } => scans.iter().take(1).for_each(|scan| visit(scan.leaf())),
            Ids::Skip { input, .. } => input.each_leaf(visit),
        }
    }
}

impl Node {
    /// Calls `visit` with the name and the index of each node that reads the store, including text
    /// searches.
    pub(crate) fn each_leaf<'n>(&'n self, visit: &mut dyn FnMut((&'static str, Option<&'n Access>))) {
        match self {
            Node::Eof => visit(("EOF", None)),
            Node::CollScan { .. } => visit(("COLLSCAN", None)),
            Node::Express { access, .. } => visit((express_name(access), Some(access))),
            Node::CountScan(scan) => visit(("COUNT_SCAN", Some(&scan.access))),
            Node::DistinctScan { scan, .. } | Node::ProjectionCovered { scan, .. } => visit(scan.leaf()),
            Node::Fetch(Fetches { input, .. }) | Node::ReturnKey(Keys { input, .. }) => {
                input.each_leaf(visit);
            }
            Node::GeoNear { near, .. } => visit((near.stage(), Some(&near.access))),
            Node::TextOr { text, .. } | Node::TextMatch { text, .. } => {
                visit(("IXSCAN", Some(&text.access)));
            }
            Node::Or(inputs) => inputs.iter().for_each(|input| input.each_leaf(visit)),
            Node::Refetch { input, .. }
            | Node::KeyOnly { input, .. }
            | Node::Sort { input, .. }
            | Node::Skip { input, .. }
            | Node::Limit { input, .. } => input.each_leaf(visit),
        }
    }

    /// Returns true if all input is read before the first document is returned.
    pub(crate) fn sorts(&self) -> bool {
        match self {
            Node::Sort { .. } => true,
            Node::Skip { input, .. } | Node::Limit { input, .. } => input.sorts(),
            _ => false,
        }
    }

    /// Returns true if the plan projects by itself: from keys, or in the lookup of a key.
    pub(crate) fn projects(&self) -> bool {
        matches!(
            self.base(),
            Node::Express { .. }
                | Node::CountScan(_)
                | Node::DistinctScan { fetches: false, .. }
                | Node::ProjectionCovered { .. }
        )
    }

    /// Returns true if a `$group` above receives one document of each group.
    pub(crate) fn groups(&self) -> bool {
        match self.base() {
            Node::ProjectionCovered { scan, .. } => scan.first_of > 0,
            Node::Fetch(Fetches { input: Ids::Scan(scan), .. }) => scan.first_of > 0,
            _ => false,
        }
    }

    /// Returns the node that finds the documents, below sorts, skips and limits.
    fn base(&self) -> &Node {
        match self {
            Node::Sort { input, .. } | Node::Skip { input, .. } | Node::Limit { input, .. } => input.base(),
            other => other,
        }
    }
}

/// Returns explain's name of a key lookup.
pub(super) fn express_name(access: &Access) -> &'static str {
    if access.index.spec.clustered { "EXPRESS_CLUSTERED_IXSCAN" } else { "EXPRESS_IXSCAN" }
}

impl Node {
    /// Returns the records of the tree.
    ///
    /// Errors: storage errors.
    pub(crate) fn open(&self, around: &Arc<ExecContext>) -> Result<Box<dyn RecordStream>> {
        let none = Prefetch::default();
        Ok(match self {
            Node::Eof => Box::new(Eof::default()),
            Node::CollScan { forward, filter, fields } => {
                Box::new(CollScan::new(around, *forward, filter.clone(), fields.clone())?)
            }
            Node::Express { access, filter } => Box::new(Express::new(around, access, filter.clone())),
            Node::CountScan(scan) => Box::new(CountScan(IndexScan::open(around, scan, none)?)),
            Node::DistinctScan { scan, path, fetches } => {
                let keys = IndexScan::open(around, scan, none)?;
                Box::new(DistinctScan::new(around, keys, scan.first_of, path, *fetches))
            }
            Node::ProjectionCovered { scan, covering, filter } => {
                let keys = IndexScan::open(around, scan, none)?;
                Box::new(ProjectionCovered::new(around, keys, covering, filter, scan.first_of))
            }
            Node::Fetch(fetch) => {
                let ids = fetch.input.open(around, Prefetch { records: true, limit: fetch.few })?;
                Box::new(Fetch::new(around, ids, fetch.filter.clone(), fetch.keeps_keys))
            }
            Node::Refetch { input, filter } => {
                Box::new(FilterStage::new(around, input.open(around)?, Test::Filter(filter.clone())))
            }
            Node::TextMatch { input, text } => {
                Box::new(FilterStage::new(around, input.open(around)?, Test::Text(text.clone())))
            }
            Node::GeoNear { near, filter, metadata } => {
                Box::new(GeoNear::new(around, near, filter.clone(), *metadata))
            }
            Node::TextOr { text, terms } => {
                let prefixes = terms.iter().map(Scan::prefix_length);
                let terms = IndexScan::several(around, terms, none)?.into_iter().zip(prefixes);
                Box::new(TextOr::new(around, &text.text, terms))
            }
            Node::Or(inputs) => {
                let inputs: Result<Vec<_>> = inputs.iter().map(|input| input.open(around)).collect();
                Box::new(Or::new(inputs?))
            }
            Node::ReturnKey(keys) => Box::new(ReturnKey::new(around, keys.input.open(around, none)?, keys)),
            Node::KeyOnly { input, sort } => {
                Box::new(KeyOnly { input: input.open(around)?, sort: sort.clone() })
            }
            Node::Sort { input, pattern, options } => {
                Box::new(Sort::new(around, input.open(around)?, pattern, *options))
            }
            Node::Skip { input, skip } => Box::new(Skip::new(input.open(around)?, *skip)),
            Node::Limit { input, limit } => Box::new(Limit::new(input.open(around)?, *limit)),
        })
    }
}

impl Ids {
    fn open(&self, around: &Arc<ExecContext>, prefetch: Prefetch) -> Result<Box<dyn IdStream>> {
        Ok(match self {
            Ids::Scan(scan) => Box::new(IndexScan::open(around, scan, prefetch)?.first_of(scan.first_of)),
            Ids::Or(scans) => Box::new(Or::new(IndexScan::several(around, scans, prefetch)?)),
            Ids::SortMerge { scans, .. } => {
                let forward = scans.first().is_none_or(|scan| scan.forward);
                let prefixes = scans.iter().map(Scan::prefix_length);
                let inputs = IndexScan::several(around, scans, prefetch)?.into_iter().zip(prefixes);
                Box::new(SortMerge::new(inputs, forward))
            }
            Ids::Skip { input, skip } => {
                Box::new(Skip::new(input.open(around, prefetch.below_skip(*skip))?, *skip))
            }
        })
    }
}
