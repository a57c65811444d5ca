//! A plan: a tree of nodes, named as MongoDB's explain names them.
//!
//! Nodes are data. The planner makes them, [`open`](Node::open) makes streams of them, and
//! [`describe`](Node::describe) prints them.

use super::{Covering, KeyBounds, NearAccess, SortOptions};
use crate::access::Access;
use crate::index::{IndexSpec, TextIndex};
use base::bson::{DocumentBuf, Path};
use query::matcher::{Matcher, Part};
use query::text::Search;
use query::{MetaKinds, SortPattern};
use std::sync::Arc;
use storage::Range;

/// A node that yields records.
pub(crate) enum Node {
    /// Nothing can match.
    Eof,
    /// COLLSCAN: the whole collection, in natural order or backwards.
    CollScan { forward: bool, filter: Option<Arc<Matcher>> },
    /// EXPRESS: the one document of a key.
    Express { access: Arc<Access>, filter: Option<Arc<Matcher>> },
    /// COUNT_SCAN: records without content.
    CountScan(Scan),
    /// PROJECTION_COVERED over DISTINCT_SCAN: a document for each value at a path.
    DistinctScan { scan: Scan, path: Path },
    /// PROJECTION_COVERED: documents made of keys.
    ProjectionCovered { scan: Scan, covering: Covering, filter: Option<Part> },
    /// FETCH: the documents of ids.
    Fetch(Fetches),
    /// FETCH of documents that are read already: their filter.
    Refetch { input: Box<Node>, filter: Part },
    /// GEO_NEAR_2D and GEO_NEAR_2DSPHERE: documents by their distance from a place.
    GeoNear { near: Arc<NearAccess>, filter: Option<Arc<Matcher>>, metadata: MetaKinds },
    /// TEXT_OR: the documents that have a term of a search, with their scores.
    TextOr { text: Arc<TextSearch>, terms: Vec<Scan> },
    /// TEXT_MATCH: those among them that answer the search.
    TextMatch { input: Box<Node>, text: Arc<TextSearch> },
    /// OR of documents: each once.
    Or(Vec<Node>),
    /// RETURN_KEY: the keys of an index.
    ReturnKey(Keys),
    /// RETURN_KEY without an index: empty documents. Their sort key is kept if there is a sort.
    KeyOnly { input: Box<Node>, sort: Option<Arc<SortPattern>> },
    /// SORT.
    Sort { input: Box<Node>, pattern: Arc<SortPattern>, options: SortOptions },
    /// SKIP.
    Skip { input: Box<Node>, skip: u64 },
    /// LIMIT.
    Limit { input: Box<Node>, limit: u64 },
}

/// A node that yields the ids of records that an index found.
pub(crate) enum Ids {
    /// IXSCAN or DISTINCT_SCAN.
    Scan(Scan),
    /// OR: each id once.
    Or(Vec<Scan>),
    /// SORT_MERGE: parts of a scan, each in order, as one scan in order.
    SortMerge { scans: Vec<Scan>, pattern: Arc<SortPattern> },
    /// SKIP.
    Skip { input: Box<Ids>, skip: u64 },
}

/// A scan of one index.
pub(crate) struct Scan {
    /// The index and its bounds.
    pub(crate) access: Arc<Access>,
    /// Whether it begins at the first key.
    pub(crate) forward: bool,
    /// Which keys.
    pub(crate) within: Within,
    /// What keys must satisfy.
    pub(crate) filter: Option<(Part, Covering)>,
    /// Whether the last key is kept for the nodes above.
    pub(crate) keeps_keys: bool,
    /// DISTINCT_SCAN: how many leading parts make up a value that one key is enough for. Zero is all keys.
    pub(crate) first_of: usize,
}

/// Which keys of an index a scan yields.
pub(crate) enum Within {
    /// Those within the bounds of the access.
    Bounds,
    /// Those within a part of the bounds, which has one value for each of the leading `parts`.
    Split { bounds: KeyBounds, parts: usize },
    /// Those that begin with these bytes.
    Prefix(Vec<u8>),
    /// Those within a range.
    Range(Range),
}

/// A FETCH over an index.
pub(crate) struct Fetches {
    /// What finds the ids.
    pub(crate) input: Ids,
    /// `None` where being found proves that a document matches.
    pub(crate) filter: Option<Part>,
    /// Whether records carry the keys they were found by.
    pub(crate) keeps_keys: bool,
    /// How many ids may well be enough; zero is not known.
    pub(crate) few: u64,
}

/// A RETURN_KEY over an index.
pub(crate) struct Keys {
    /// What finds the keys.
    pub(crate) input: Ids,
    /// The index's.
    pub(crate) spec: Arc<IndexSpec>,
    /// What the documents must satisfy.
    pub(crate) filter: Arc<Matcher>,
    /// What records are sorted by above, where they need a key for that.
    pub(crate) sort: Option<Arc<SortPattern>>,
    /// Whether the sort key is shown.
    pub(crate) shows_sort_key: bool,
}

/// A search by a text index.
pub(crate) struct TextSearch {
    /// The index.
    pub(crate) access: Arc<Access>,
    /// What it says of texts.
    pub(crate) text: Arc<TextIndex>,
    /// What is searched for.
    pub(crate) search: Arc<Search>,
    /// What all keys of the search begin with, and the same for explain.
    pub(crate) prefix: (Vec<u8>, DocumentBuf),
}

impl Scan {
    /// A scan within the bounds of an access.
    pub(crate) fn new(access: Arc<Access>, forward: bool) -> Scan {
        Scan { access, forward, within: Within::Bounds, filter: None, keeps_keys: false, first_of: 0 }
    }

    /// The same, keeping its keys if they are wanted.
    pub(crate) fn keeping_keys(self, keeps_keys: bool) -> Scan {
        Scan { keeps_keys, ..self }
    }

    fn leaf(&self) -> (&'static str, Option<&Access>) {
        (if self.first_of > 0 { "DISTINCT_SCAN" } else { "IXSCAN" }, Some(&self.access))
    }

    /// How many bytes all its keys begin with alike, as far as that is known.
    pub(super) fn prefix_length(&self) -> usize {
        match &self.within {
            Within::Split { bounds, parts } => bounds.prefix_of(*parts),
            Within::Prefix(prefix) => prefix.len(),
            Within::Bounds | Within::Range(_) => 0,
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
    /// Calls `visit` with the name and the index of each node that reads the store. A search for text is one.
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

    /// Whether everything below is read before the first document can be returned.
    pub(crate) fn sorts(&self) -> bool {
        match self {
            Node::Sort { .. } => true,
            Node::Skip { input, .. } | Node::Limit { input, .. } => input.sorts(),
            _ => false,
        }
    }

    /// Whether it projects by itself: by keys, or within the lookup of one.
    pub(crate) fn projects(&self) -> bool {
        matches!(
            self.base(),
            Node::Express { .. }
                | Node::CountScan(_)
                | Node::DistinctScan { .. }
                | Node::ProjectionCovered { .. }
        )
    }

    /// Whether a `$group` above gets one document of each group.
    pub(crate) fn groups(&self) -> bool {
        match self.base() {
            Node::ProjectionCovered { scan, .. } => scan.first_of > 0,
            Node::Fetch(Fetches { input: Ids::Scan(scan), .. }) => scan.first_of > 0,
            _ => false,
        }
    }

    /// What finds the documents, below the nodes that order and count them.
    fn base(&self) -> &Node {
        match self {
            Node::Sort { input, .. } | Node::Skip { input, .. } | Node::Limit { input, .. } => input.base(),
            other => other,
        }
    }
}

/// How explain names the lookup of a key.
pub(super) fn express_name(access: &Access) -> &'static str {
    if access.index.spec.clustered { "EXPRESS_CLUSTERED_IXSCAN" } else { "EXPRESS_IXSCAN" }
}
