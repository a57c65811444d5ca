//! Construction of a source's execution tree.

use super::access;
use super::choose::{Candidate, Source};
use super::covering::{self, KeyFilter};
use super::text::TextAccess;
use super::{Access, Read};
use crate::exec::{Fetches, Ids, KeyBounds, Keys, Node, Scan, ScanKeys, SortOptions};
use crate::index::IndexSpec;
use query::matcher::{self, Part};
use query::{Context, MetaKind};
use std::sync::Arc;
use storage::Range;

/// Builds execution trees for a read.
pub(super) struct Tree<'r> {
    read: &'r Read,
    /// The range of `min` and `max` within an index.
    range: Option<Range>,
    /// Memory limit of a sort, in bytes.
    sort_memory: usize,
}

impl Tree<'_> {
    pub(super) fn new<'r>(read: &'r Read, range: Option<Range>, context: &Context) -> Tree<'r> {
        Tree { read, range, sort_memory: context.limits.sort }
    }

    /// Returns the execution tree for a source.
    pub(super) fn of(&self, source: Source) -> Node {
        let read = self.read;
        let sort = read.sort.as_ref().filter(|sort| sort.orders());
        let finds_one = matches!(source, Source::Unique(_) | Source::Eof);
        let ordered = is_ordered(&source);
        let (mut node, ordered, skipped) = match read.return_key {
            true => {
                let (node, ordered) = self.keys(source);
                (node, ordered, false)
            }
            false => {
                let skip = if sort.is_none() || ordered { read.skip } else { 0 };
                let (node, skipped) = self.documents(source, skip);
                (node, ordered, skipped)
            }
        };
        let sorted = match sort {
            Some(sort) if !ordered => {
                let options = SortOptions {
                    limit: if read.limit == 0 { 0 } else { read.limit.saturating_add(read.skip) },
                    memory: self.sort_memory,
                    allow_disk_use: read.allow_disk_use,
                    keeps_meta: !read.metadata.is_empty(),
                };
                node = Node::Sort { input: Box::new(node), pattern: sort.clone(), options };
                true
            }
            _ => false,
        };
        if read.skip > 0 && !skipped {
            node = Node::Skip { input: Box::new(node), skip: read.skip };
        }
        // A sort with the limit returns no more documents.
        if read.limit > 0 && !sorted && !finds_one {
            node = Node::Limit { input: Box::new(node), limit: read.limit };
        }
        node
    }

    /// Returns the filtered output of a source, and whether it has skipped the first `skip`
    /// records. Records that an index proves are skipped without a fetch.
    fn documents(&self, source: Source, skip: u64) -> (Node, bool) {
        let filter = |proven: bool| (!proven).then(|| self.read.matcher.clone());
        let node = match source {
            Source::Eof => Node::Eof,
            Source::Collection { forward } => {
                let filter = filter(self.read.matcher.is_empty());
                Node::CollScan { forward, filter, fields: covering::fields(self.read) }
            }
            Source::Unique(access) => {
                let filter = filter(access.proves_all());
                Node::Express { access: Arc::new(access), filter }
            }
            Source::Index(candidate) => return self.index(candidate, skip),
            Source::Near(near) => {
                let alone = matches!(self.read.matcher.root(), matcher::Node::Field { .. });
                let metadata = self.read.metadata;
                Node::GeoNear { near: Arc::new(*near), filter: filter(alone), metadata }
            }
            Source::Text(text) => self.text(*text),
            Source::Union(scans) => {
                let filter = filter(scans.iter().all(Access::proves_all)).map(Part::all);
                let keeps_keys = self.keeps_keys();
                let scan = |access| Scan::new(Arc::new(access), true).keeping_keys(keeps_keys);
                let input = Ids::Or(scans.into_iter().map(scan).collect());
                Node::Fetch(Fetches { input, filter, keeps_keys, few: 0 })
            }
        };
        (node, false)
    }

    /// Returns true if records carry their index keys.
    fn keeps_keys(&self) -> bool {
        self.read.metadata.has(MetaKind::IndexKey)
    }

    /// Returns the part of the filter that keys within an index's bounds do not prove.
    fn unproven(&self, access: &Access) -> Part {
        let matcher = &self.read.matcher;
        let proven = |at: usize| self.range.is_none() && access.proven.get(at).copied().unwrap_or(false);
        let left: Vec<bool> = (0..matcher.members().len()).map(|at| !proven(at)).collect();
        match left.contains(&false) {
            true => Part::of(matcher, left),
            false => Part::all(matcher.clone()),
        }
    }

    fn index(&self, candidate: Candidate, skip: u64) -> (Node, bool) {
        let read = self.read;
        let (is_covered, is_ordered) = (candidate.is_covered(), candidate.ordered.is_some());
        let Candidate { access, ordered, distinct, grouped, .. } = candidate;
        let access = Arc::new(access);
        let forward = ordered.is_none_or(|ordered| ordered.forward);
        let proven = access.proves_all() && self.range.is_none();
        // Without documents, the keys are counted.
        if proven && read.sort.is_none() && read.covering.as_ref().is_some_and(Vec::is_empty) {
            return (Node::CountScan(self.scan(access, forward)), false);
        }
        if let (Some(part), Some(path)) = (distinct, &read.distinct) {
            let fetches = !access::decodes(&access, part);
            let scan = Scan { first_of: part + 1, ..self.scan(access, forward).keeping_keys(true) };
            return (Node::DistinctScan { scan, path: path.clone(), fetches }, false);
        }
        if let Some(part) = grouped {
            let covering = is_covered.then(|| covering::covering(&access, read));
            let scan = Scan { first_of: part + 1, ..self.scan(access, forward).keeping_keys(true) };
            let fetches = |input| Fetches { input, filter: None, keeps_keys: false, few: 0 };
            let node = match covering {
                Some(covering) => Node::ProjectionCovered { scan, covering, filter: None },
                None => Node::Fetch(fetches(Ids::Scan(scan))),
            };
            return (node, false);
        }
        let split = ordered.map_or(0, |ordered| ordered.split);
        let plain = split == 0 && self.range.is_none();
        let of_keys = if plain && !proven { covering::key_filter(&access, &read.matcher) } else { None };
        let (of_keys, filter) = match of_keys {
            Some(KeyFilter { keys, covering, rest }) => (Some((keys, covering)), rest),
            None => (None, (!proven).then(|| self.unproven(&access))),
        };
        if is_covered {
            let covering = covering::covering(&access, read);
            let scan = Scan { filter: of_keys, ..self.scan(access, forward).keeping_keys(true) };
            return (Node::ProjectionCovered { scan, covering, filter }, false);
        }
        let keeps_keys = self.keeps_keys();
        let input = match plain {
            true => {
                Ids::Scan(Scan { filter: of_keys, ..self.scan(access, forward).keeping_keys(keeps_keys) })
            }
            false => self.ids(access, forward, split, keeps_keys),
        };
        let skipped = skip > 0 && filter.is_none();
        let input = if skipped { Ids::Skip { input: Box::new(input), skip } } else { input };
        let few = if filter.is_none() && (read.sort.is_none() || is_ordered) { read.limit } else { 0 };
        (Node::Fetch(Fetches { input, filter, keeps_keys, few }), skipped)
    }

    /// Returns the record ids of an index scan.
    fn ids(&self, access: Arc<Access>, forward: bool, split: usize, keeps_keys: bool) -> Ids {
        let (true, Some(sort)) = (split > 0, &self.read.sort) else {
            return Ids::Scan(self.scan(access, forward).keeping_keys(keeps_keys));
        };
        let scan = |bounds| Scan {
            within: ScanKeys::Split { bounds, parts: split },
            ..Scan::new(access.clone(), forward).keeping_keys(true)
        };
        let scans = KeyBounds::split(&access, split).into_iter().map(scan).collect();
        Ids::SortMerge { scans, pattern: sort.clone() }
    }

    /// Returns one scan over an index.
    fn scan(&self, access: Arc<Access>, forward: bool) -> Scan {
        let within = self.range.clone().map_or(ScanKeys::Bounds, ScanKeys::Range);
        Scan { within, ..Scan::new(access, forward) }
    }

    /// Returns the node that yields keys instead of documents, and whether its output is sorted.
    fn keys(&self, source: Source) -> (Node, bool) {
        let read = self.read;
        let shows_sort_key = read.metadata.has(MetaKind::SortKey);
        let by_index = |input: Ids, spec: Arc<IndexSpec>, ordered: bool| {
            let sort = read.sort.clone().filter(|_| !ordered || shows_sort_key);
            let keys = Keys { input, spec, filter: read.matcher.clone(), sort, shows_sort_key };
            (Node::ReturnKey(keys), ordered)
        };
        match source {
            Source::Unique(access) => {
                let spec = access.index.spec.clone();
                by_index(Ids::Scan(Scan::new(Arc::new(access), true).keeping_keys(true)), spec, true)
            }
            Source::Index(Candidate { access, ordered, .. }) => {
                let spec = access.index.spec.clone();
                let forward = ordered.is_none_or(|ordered| ordered.forward);
                let split = ordered.map_or(0, |ordered| ordered.split);
                by_index(self.ids(Arc::new(access), forward, split, true), spec, ordered.is_some())
            }
            source => {
                let sort = read.sort.clone().filter(|_| shows_sort_key);
                let ordered = sort.is_none();
                (Node::KeyOnly { input: Box::new(self.documents(source, 0).0), sort }, ordered)
            }
        }
    }

    /// Returns a text search and the scans of the other branches of its `$or`.
    fn text(&self, text: TextAccess) -> Node {
        let TextAccess { search, of_keys, rest, others } = text;
        let by_score = self.read.sort.iter().flat_map(|sort| sort.by_metadata());
        let mut sort_kinds = by_score.map(|(_, kind)| kind);
        let scored =
            self.read.metadata.has(MetaKind::TextScore) || sort_kinds.any(|kind| kind == MetaKind::TextScore);
        let term = |term: &String| Scan {
            within: ScanKeys::Prefix(search.text.term_key(&search.prefix.0, term)),
            filter: of_keys.clone(),
            ..Scan::new(search.access.clone(), false).keeping_keys(scored)
        };
        let mut terms: Vec<Scan> = search.search.terms.iter().map(term).collect();
        // A text search has no metadata of its keys, as in MongoDB.
        let fetches = |input, filter| Node::Fetch(Fetches { input, filter, keeps_keys: false, few: 0 });
        let node = match terms.len() {
            _ if scored => Node::TextOr { text: search.clone(), terms },
            1 => fetches(Ids::Scan(terms.remove(0)), None),
            _ => fetches(Ids::Or(terms), None),
        };
        let mut node = Node::TextMatch { input: Box::new(node), text: search };
        if let Some(filter) = rest {
            node = Node::Refetch { input: Box::new(node), filter };
        }
        if others.is_empty() {
            return node;
        }
        let rest = Arc::new(self.read.matcher.without_text());
        let other = |access: Access| {
            let input = Ids::Scan(Scan::new(Arc::new(access), true));
            fetches(input, Some(Part::all(rest.clone())))
        };
        Node::Or(std::iter::once(node).chain(others.into_iter().map(other)).collect())
    }
}

fn is_ordered(source: &Source) -> bool {
    match source {
        Source::Eof | Source::Unique(_) => true,
        Source::Index(candidate) => candidate.ordered.is_some(),
        Source::Collection { .. } | Source::Union(_) | Source::Near(_) | Source::Text(_) => false,
    }
}
