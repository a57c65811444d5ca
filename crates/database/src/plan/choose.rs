//! Choice of a plan by rules, from the filter, the sort and the indexes. Plans do not run for the
//! choice.
//!
//! The first differing rule selects the best of the indexes that the filter bounds:
//! 1. a unique index with an equality on every part: at most one document;
//! 2. more leading parts with an equality;
//! 3. the requested order, so that no sort is needed;
//! 4. narrower bounds on the first part: values, then ranges, then bounds that exclude little;
//! 5. more bounded parts;
//! 6. no fetch of documents;
//! 7. fewer keys within the bounds, counted up to a limit ([`trials`](super::trials));
//! 8. fewer fields, then the older index.
//!
//! An `$or` with an index for every branch is a union of scans, if no index satisfies rule 1 or 2
//! for the whole filter, and if one index for all branches does not have the requested order. An index without bounds
//! is used only for its order. A wildcard index is a separate candidate for each path of the filter that it may serve,
//! see [`wildcard`].
//!
//! A new rule is a component of [`Rank`]. A new kind of index is a function such as [`wildcard::candidates`], called by
//! [`Planning::candidates`].

use super::access::{self, Ordered};
use super::conjuncts::{self, Conjuncts, implies, mentions_strings};
use super::text::TextAccess;
use super::trials::Trials;
use super::{Access, Grouped, Read, covering, geo, wildcard};
use crate::exec::NearAccess;
use crate::index::{Index, KeyKind};
use base::bson::Path;
use base::{Result, err};
use query::Context;
use query::matcher::Node;
use std::cmp::Reverse;
use std::sync::Arc;
use storage::Snapshot;

/// Source of a plan's documents.
#[derive(Clone)]
pub(crate) enum Source {
    /// No document can match.
    Eof,
    /// Collection scan, forward or backward.
    Collection { forward: bool },
    /// Lookup of one key in a unique index.
    Unique(Access),
    /// Scan of one index.
    Index(Candidate),
    /// Several scans, each for one branch of an `$or`.
    Union(Vec<Access>),
    /// Search near a location in a geospatial index.
    Near(Box<NearAccess>),
    /// Search in a text index.
    Text(Box<TextAccess>),
}

/// A possible use of an index.
#[derive(Clone)]
pub(crate) struct Candidate {
    /// The index and its bounds.
    pub(crate) access: Access,
    /// The requested order, if the index provides it.
    pub(crate) ordered: Option<Ordered>,
    /// True if the keys contain all needed values.
    pub(crate) covered: bool,
    /// The part that has the requested distinct values, if one key of each value is enough.
    pub(crate) distinct: Option<usize>,
    /// The part that has the group keys, if a `$group` needs one document of each group.
    pub(crate) grouped: Option<usize>,
}

/// Rank of a candidate by the rules above; greater is better.
type Rank = (bool, usize, bool, u8, usize, bool);

impl Candidate {
    pub(crate) fn new(access: Access, read: &Read) -> Candidate {
        let ordered = match &read.sort {
            Some(sort) if sort.is_by_metadata() => None,
            Some(sort) => access::provides(&access, sort.fields(), sort.collation()),
            None => access::provides(&access, &[], read.matcher.collation()),
        };
        let covered = covering::is_covered(&access, read);
        Candidate { access, ordered, covered, distinct: None, grouped: None }
    }

    /// Returns true if the keys replace the documents. A merge of scans does not do this.
    pub(crate) fn is_covered(&self) -> bool {
        self.covered && self.ordered.is_none_or(|ordered| ordered.split == 0)
    }

    /// Returns true if at most one document is within the bounds.
    pub(crate) fn is_unique(&self) -> bool {
        self.access.index.unique() && self.access.is_single_key()
    }

    /// Converts the candidate to a distinct scan of a path, if the keys have the values.
    fn for_distinct(self, path: &Path, read: &Read) -> Candidate {
        let spec = &self.access.index.spec;
        let has = |part: &crate::index::KeyPart| part.path == *path && part.kind != KeyKind::Hashed;
        let part = spec.parts.iter().position(has).filter(|part| {
            let applies =
                spec.wildcard.is_none() && spec.serves_plain_queries() && !super::bounds::is_positional(path);
            // Each element of an array is a distinct value, but the filter's bounds exclude some
            // elements.
            let each_value = !self.access.is_multikey(*part) || read.matcher.is_empty();
            // The document of each key of the query's collation has the value.
            let has_value = access::decodes(&self.access, *part)
                || spec.collation == *read.matcher.collation() && !self.access.is_multikey(*part);
            applies && has_value && self.access.proves_all() && each_value
        });
        Candidate { distinct: part, ..self }
    }

    /// Converts the candidate to a distinct scan for a `$group`, if the first key of each value
    /// leads to the group's document.
    fn for_group(self, grouped: &Grouped, read: &Read) -> Candidate {
        let spec = &self.access.index.spec;
        let sorts = read.sort.as_ref().is_some_and(|sort| sort.orders());
        let in_order = !sorts || self.ordered.is_some_and(|ordered| ordered.split == 0);
        let has = |part: &crate::index::KeyPart| {
            part.path == grouped.path && matches!(part.kind, KeyKind::Ascending | KeyKind::Descending)
        };
        let part = spec.parts.iter().position(has).filter(|part| {
            let mut before = self.access.parts.iter().take(*part);
            let applies = spec.collation == *read.matcher.collation()
                && spec.wildcard.is_none()
                && spec.serves_plain_queries()
                && !super::bounds::is_positional(&grouped.path);
            // Array elements are not groups. A later filter may exclude all documents of the first
            // keys.
            applies
                && in_order
                && !self.access.any_multikey()
                && self.access.proves_all()
                && before.all(|part| part.single_point().is_some())
        });
        let reversed = part.is_some() && sorts && grouped.last;
        let ordered = self.ordered.map(|order| Ordered { forward: order.forward != reversed, ..order });
        Candidate { grouped: part, ordered, ..self }
    }

    fn equalities(&self) -> usize {
        let points = self.access.parts.iter().take_while(|part| part.single_point().is_some()).count();
        // The equality on a wildcard index's path part proves nothing.
        let path = self.access.index.spec.path_part.is_some_and(|part| part < points);
        points - usize::from(path)
    }

    /// Returns true if the candidate reads the index of all scans of a union by values, in the requested order.
    fn orders(&self, union: &[Access]) -> bool {
        let of_same_index = |scan: &Access| Arc::ptr_eq(&scan.index, &self.access.index);
        self.ordered.is_some() && self.first_part_rank() == 4 && union.iter().all(of_same_index)
    }

    fn rank(&self, sorts: bool) -> Rank {
        let bounded = self.access.bounded.iter().filter(|bounded| **bounded).count();
        let ordered = !sorts || self.ordered.is_some();
        (self.is_unique(), self.equalities(), ordered, self.first_part_rank(), bounded, self.covered)
    }

    /// Returns the rank of the bounds on the first part; zero without bounds.
    fn first_part_rank(&self) -> u8 {
        let spec = &self.access.index.spec;
        let first = usize::from(spec.path_part == Some(0));
        let (Some(bounds), Some(true)) = (self.access.parts.get(first), self.access.bounded.get(first))
        else {
            // A wildcard index omits documents without the path.
            return u8::from(first > 0);
        };
        match bounds {
            _ if bounds.is_points() || bounds.is_empty() => 4,
            // Bounds on existence matter only for an index that omits documents.
            _ if bounds.is_all() => {
                let counts = self.covered && self.access.proves_all();
                u8::from(counts || spec.sparse || spec.partial.is_some())
            }
            _ if bounds.as_slice().iter().any(|interval| interval.reaches_an_end()) => 2,
            _ => 3,
        }
    }
}

/// Inputs of the planner.
pub(crate) struct Planning<'a> {
    /// The indexes that may be used.
    pub(crate) indexes: &'a [Arc<Index>],
    /// The read.
    pub(crate) read: &'a Read,
    /// Snapshot of the collection's data.
    pub(crate) snapshot: &'a dyn Snapshot,
    /// Context for constants in expressions.
    pub(crate) context: &'a Context,
    /// Results of earlier plans for the query's shape.
    pub(crate) trials: &'a Trials<'a>,
}

impl<'a> Planning<'a> {
    /// Returns the best source and the rejected sources.
    pub(crate) fn choose(&self) -> Result<(Source, Vec<Source>)> {
        let root = self.read.matcher.root();
        if matches!(root, Node::AlwaysFalse) {
            return Ok((Source::Eof, Vec::new()));
        }
        let check = || self.context.interrupt.check();
        let conjuncts = self.conjuncts(root);
        check()?;
        let sorts = self.read.sort.as_ref().is_some_and(|sort| sort.orders());
        let mut candidates = self.candidates(&conjuncts, root, 1);
        check()?;
        self.sort(&mut candidates, sorts, &|equal| self.run_trial(equal))?;
        let mut sources: Vec<Source> = Vec::new();
        let has_equality = candidates.first().is_some_and(|best| best.equalities() > 0);
        if !has_equality
            && let Some(union) = self.union(&conjuncts, root)?
            && !candidates.first().is_some_and(|best| sorts && best.orders(&union))
        {
            sources.push(Source::Union(union));
            self.trials.discard();
        }
        sources.extend(candidates.into_iter().map(Candidate::into_source));
        if sources.is_empty() {
            sources.extend(sorts.then(|| self.ordered()).flatten().map(Source::Index));
        }
        if sources.is_empty() {
            return Ok((Source::Collection { forward: true }, Vec::new()));
        }
        let rejected = sources.split_off(1);
        Ok((sources.pop().unwrap_or(Source::Collection { forward: true }), rejected))
    }

    /// Converts a source for a read that needs only the distinct values of a path.
    pub(crate) fn distinct(&self, source: Source, path: &Path) -> Source {
        match source {
            Source::Index(candidate) => Source::Index(candidate.for_distinct(path, self.read)),
            // All values: an index that has every document with the path.
            Source::Collection { forward } if self.read.hint.is_none() && self.read.matcher.is_empty() => {
                let usable =
                    self.indexes.iter().filter(|index| !index.spec.hidden && index.spec.partial.is_none());
                let candidates = usable
                    .filter(|index| index.spec.serves_plain_queries())
                    .filter(|index| index.spec.parts.first().is_some_and(|part| part.path == *path))
                    .map(|index| {
                        Candidate::new(Access::unbounded(index), self.read).for_distinct(path, self.read)
                    })
                    .filter(|candidate| candidate.distinct == Some(0));
                let best = candidates.min_by_key(|candidate| candidate.access.parts.len());
                best.map_or(Source::Collection { forward }, Source::Index)
            }
            other => other,
        }
    }

    /// Converts a source for a `$group` that needs one document of each value.
    pub(crate) fn grouped(&self, source: Source, grouped: &Grouped) -> Source {
        match source {
            Source::Index(candidate) => Source::Index(candidate.for_group(grouped, self.read)),
            // Every document has a group, including documents without the path.
            Source::Collection { forward }
                if self.read.hint.is_none() && self.read.matcher.is_empty() && self.read.sort.is_none() =>
            {
                let all = |index: &&Arc<Index>| {
                    let spec = &index.spec;
                    !spec.hidden && !spec.sparse && spec.partial.is_none() && spec.serves_plain_queries()
                };
                let usable = self.indexes.iter().filter(all);
                let candidates = usable
                    .filter(|index| index.spec.parts.first().is_some_and(|part| part.path == grouped.path))
                    .map(|index| {
                        Candidate::new(Access::unbounded(index), self.read).for_group(grouped, self.read)
                    })
                    .filter(|candidate| candidate.grouped == Some(0));
                let best =
                    candidates.min_by_key(|candidate| (!candidate.covered, candidate.access.parts.len()));
                best.map_or(Source::Collection { forward }, Source::Index)
            }
            other => other,
        }
    }

    /// Returns the source for a hinted index.
    ///
    /// Errors: NoQueryExecutionPlans for a wildcard index without bounds from the filter.
    pub(crate) fn hinted(&self, index: &Arc<Index>, describe: impl FnOnce() -> String) -> Result<Source> {
        let root = self.read.matcher.root();
        if matches!(root, Node::AlwaysFalse) {
            return Ok(Source::Eof);
        }
        if index.spec.wildcard.is_some() {
            let conjuncts = self.conjuncts(root);
            if let Some(found) = self.hinted_wildcard(index, &conjuncts)? {
                return Ok(found);
            }
            let alone = Planning { indexes: std::slice::from_ref(index), ..*self };
            return alone.union(&conjuncts, root)?.map(Source::Union).ok_or_else(|| {
                err!(
                    NoQueryExecutionPlans,
                    "error processing query: {}\n planner returned error :: caused by :: $hint: refusing to \
                     build whole-index solution, because it's a wildcard index",
                    describe()
                )
            });
        }
        if index.spec.geo.is_some() {
            let candidate = geo::candidate(self, index, &self.conjuncts(root));
            return Ok(candidate.unwrap_or_else(|| self.full_scan(index)).into_source());
        }
        let access = match index.spec.serves_plain_queries() {
            true => access::bounds(index, &self.conjuncts(root)),
            false => Access::unbounded(index).proving_nothing(),
        };
        Ok(Candidate::new(access, self.read).into_source())
    }

    /// Returns a scan of an index without bounds. Each document is checked by the filter.
    fn full_scan(&self, index: &Arc<Index>) -> Candidate {
        let access = Access { proven: vec![false], ..Access::unbounded(index) };
        let ordered = access::provides(&access, &[], self.read.matcher.collation());
        let sorts = self.read.sort.as_ref().is_some_and(|sort| sort.orders());
        Candidate {
            access,
            ordered: ordered.filter(|_| !sorts),
            covered: false,
            distinct: None,
            grouped: None,
        }
    }

    /// Returns the source for a hinted wildcard index. A scan of the whole index is impossible:
    /// most documents have many keys or none.
    fn hinted_wildcard(&self, index: &Arc<Index>, conjuncts: &Conjuncts<'_>) -> Result<Option<Source>> {
        let mut candidates = wildcard::candidates(index, conjuncts, self.read);
        candidates.retain(|_| self.has_all(index, conjuncts, self.read.matcher.root()));
        self.sort(&mut candidates, self.read.sort.is_some(), &|equal| self.by_keys(equal).map(drop))?;
        Ok(candidates.into_iter().next().map(Candidate::into_source))
    }

    pub(super) fn conjuncts<'n>(&'n self, root: &'n Node) -> Conjuncts<'n> {
        let indexed = |path: &Path| {
            let parts = self.indexes.iter().flat_map(|index| index.spec.parts.iter());
            let mut wildcards = self.indexes.iter().filter_map(|index| index.spec.wildcard.as_ref());
            parts.map(|part| &part.path).any(|own| own == path)
                || wildcards.any(|wildcard| wildcard.covers(path))
        };
        conjuncts::collect(root, self.read.matcher.collation(), self.context, &indexed)
    }

    /// Returns the indexes that a filter bounds and that have every matching document. `rank` is the least rank of the
    /// bounds on the first part.
    fn candidates(&self, conjuncts: &Conjuncts<'_>, filter: &Node, rank: u8) -> Vec<Candidate> {
        let usable = self.indexes.iter();
        let usable = usable.filter(|index| !index.spec.hidden && index.spec.serves_plain_queries());
        let bounded = usable.clone().filter(|index| index.spec.wildcard.is_none()).filter_map(|index| {
            // Most indexes do not match the filter.
            let first = &index.spec.parts.first()?.path;
            if !conjuncts.list.iter().any(|conjunct| conjunct.path == *first) {
                return None;
            }
            let candidate = Candidate::new(access::bounds(index, conjuncts), self.read);
            let is_bounded = candidate.access.bounded.first() == Some(&true);
            let fits = is_bounded && candidate.first_part_rank() >= rank;
            (fits && self.has_all(index, conjuncts, filter)).then_some(candidate)
        });
        let wildcards = usable.filter(|index| index.spec.wildcard.is_some());
        let wildcards = wildcards.filter(|index| self.has_all(index, conjuncts, filter));
        let candidates = wildcards.flat_map(|index| wildcard::candidates(index, conjuncts, self.read));
        let plain = bounded.chain(candidates.filter(|candidate| candidate.first_part_rank() >= rank.max(1)));
        plain.chain(geo::candidates(self, conjuncts, filter)).collect()
    }

    /// Returns true if a partial index's filter admits every document that the query's filter
    /// matches.
    pub(super) fn partial_has_all(&self, index: &Index, filter: &Node) -> bool {
        let Some(partial) = &index.spec.partial else { return true };
        let (query_filter, index_filter) = (self.read.matcher.root(), partial.matcher.root());
        let query = self.read.matcher.collation();
        if partial.matcher.collation() != query && mentions_strings(index_filter) {
            return false;
        }
        implies(filter, index_filter, query) || implies(query_filter, index_filter, query)
    }

    /// Returns true if an index has every document that the filter matches.
    pub(super) fn has_all(&self, index: &Index, conjuncts: &Conjuncts<'_>, filter: &Node) -> bool {
        if index.spec.partial.is_some() {
            return self.partial_has_all(index, filter);
        }
        !index.spec.sparse
            || conjuncts.list.iter().any(|conjunct| {
                let indexed = index.spec.parts.iter().any(|part| part.path == conjunct.path);
                indexed && conjunct.needs_value && access::allows(index, conjunct)
            })
    }

    /// Sorts candidates, best first. `decide` orders equal candidates.
    fn sort(
        &self,
        candidates: &mut Vec<Candidate>,
        sorts: bool,
        decide: &dyn Fn(&mut Vec<Candidate>) -> Result<()>,
    ) -> Result<()> {
        candidates.sort_by_key(|candidate| Reverse(candidate.rank(sorts)));
        let Some(best) = candidates.first().map(|best| best.rank(sorts)) else { return Ok(()) };
        let equals = candidates.iter().take_while(|candidate| candidate.rank(sorts) == best).count();
        if equals < 2 || best.0 {
            return Ok(());
        }
        let others = candidates.split_off(equals);
        decide(candidates)?;
        candidates.extend(others);
        Ok(())
    }

    /// Returns an index with the requested order.
    fn ordered(&self) -> Option<Candidate> {
        let usable = self
            .indexes
            .iter()
            .filter(|index| !index.spec.hidden && !index.spec.sparse && index.spec.partial.is_none())
            .filter(|index| index.spec.wildcard.is_none() && index.spec.serves_plain_queries());
        let no_conjuncts =
            Conjuncts { list: Vec::new(), members: &[], collation: self.read.matcher.collation() };
        let usable = usable.map(|index| {
            let mut access = access::bounds(index, &no_conjuncts);
            access.proven = vec![self.read.matcher.is_empty()];
            Candidate::new(access, self.read)
        });
        let ordered = usable.filter(|candidate| candidate.ordered.is_some());
        ordered.min_by_key(|candidate| (!candidate.covered, candidate.access.parts.len()))
    }

    /// Returns a scan for one branch of an `$or`, with bounds of at least a rank on the first part.
    pub(super) fn scan_of(&self, branch: &Node, rank: u8) -> Result<Option<Access>> {
        let conjuncts = self.conjuncts(branch);
        let mut candidates = self.candidates(&conjuncts, branch, rank);
        candidates.retain(|candidate| candidate.first_part_rank() >= rank);
        self.sort(&mut candidates, false, &|equal| self.by_keys(equal).map(drop))?;
        Ok(candidates.into_iter().next().map(|best| best.access))
    }

    /// Returns a scan for each branch of an `$or`.
    fn union(&self, conjuncts: &Conjuncts<'_>, root: &Node) -> Result<Option<Vec<Access>>> {
        for member in conjuncts.members {
            let Node::Or(branches) = member else { continue };
            let mut scans = Vec::with_capacity(branches.len());
            for branch in branches {
                match self.scan_of(branch, 2)? {
                    Some(scan) => scans.push(scan),
                    None => break,
                }
            }
            if scans.len() == branches.len() {
                // The scans prove the whole filter if each proves its branch and the filter
                // consists of the `$or`.
                let alone = std::ptr::eq(member, root);
                scans.iter_mut().filter(|_| !alone).for_each(|scan| scan.proven.push(false));
                return Ok(Some(scans));
            }
        }
        Ok(None)
    }
}

impl Candidate {
    fn into_source(self) -> Source {
        match self {
            _ if self.access.is_empty() => Source::Eof,
            // Several parts need an index scan as in MongoDB, which may also avoid the fetch.
            _ if self.is_unique() && self.access.parts.len() == 1 => Source::Unique(self.access),
            _ => Source::Index(self),
        }
    }
}
