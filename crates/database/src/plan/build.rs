//! From the chosen source to the stages that run it.

use super::choose::{Candidate, Planning, Source};
use super::covering::{self, KeyFilter};
use super::trials::Trials;
use super::{Access, Hint, Read, geo, hint, shape, text};
use crate::collection::Collection;
use crate::exec::{
    CollScan, CountScan, DistinctScan, Eof, Explainer, Express, Fetch, FirstCovered, FirstIds, Found,
    GeoNear, IdStream, IndexScan, KeyBounds, KeyOnly, Limit, NaturalOrder, Or, ProjectionCovered,
    RecordStream, ReturnKey, Skip, SkipIds, Sort, SortMerge, SortOptions, Surroundings, found_by,
};
use crate::history::View;
use crate::index::{Index, IndexSpec};
use crate::kept_plans::{Shown, Trial};
use crate::operation::{Operation, PlanUse};
use base::bson::{Builder, DocumentBuf, Type};
use base::{Result, err};
use query::collation::depends_on_collation;
use query::matcher::{ComparisonOp, Node, Part, Predicate};
use query::{Context, Interrupt, MetaKind, SortPattern};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A plan, ready to start.
pub(crate) struct Plan {
    pub(crate) read: Read,
    pub(crate) source: Source,
    /// The sources that were considered and not chosen.
    pub(crate) rejected: Vec<Source>,
    range: Option<storage::Range>,
    /// Whether an index filter said which indexes it may use.
    pub(crate) filtered: bool,
    /// Whether it is the plan that was kept for its shape.
    pub(crate) kept: bool,
    /// The trial that chose it.
    trial: Option<Trial>,
    pub(super) surroundings: Arc<Surroundings>,
}

/// The record of an `_id`, where the read asks for one and nothing stands in the way: the
/// shortest way through, past all planning.
pub(crate) fn by_id(
    operation: &Operation,
    view: &View,
    collection: &Collection,
    read: &Read,
    context: &Context,
) -> Result<Option<Box<dyn RecordStream>>> {
    let (filter, id) = match read.matcher.root() {
        Node::And(children) => match children.iter().find_map(id_equality) {
            Some(id) => (Some(&*read.matcher), id),
            None => return Ok(None),
        },
        single => match id_equality(single) {
            Some(id) => (None, id),
            None => return Ok(None),
        },
    };
    let by_metadata = read.sort.as_ref().is_some_and(|sort| sort.is_by_metadata());
    if read.hint.is_some()
        || read.min.is_some()
        || read.max.is_some()
        || read.skip > 0
        || by_metadata
        || read.matcher.searches_text()
        || read.matcher.near().is_some()
    {
        return Ok(None);
    }
    let (Some(data), false) = (&collection.data, read.return_key) else { return Ok(None) };
    let Some(index) = data.id_index() else { return Ok(None) };
    let collation = &index.spec.collation;
    if collation != read.matcher.collation() && depends_on_collation(id.view()) {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(32);
    collation.append_key(id.view(), true, &mut key);
    let snapshot = view.snapshot.as_ref();
    let found = match read.alone {
        true => snapshot.lookup_alone(index.ident, &key, data.ident),
        false => snapshot.lookup(index.ident, &key, data.ident),
    };
    let found = found_by(operation, found, &key, filter, context);
    index.uses.fetch_add(1, Relaxed);
    operation.note_by_id();
    // What goes wrong is told as that of any plan: when the first record is asked for.
    Ok(Some(Box::new(Found(found.map(|(_, _, record)| record).transpose()))))
}

fn id_equality(node: &Node) -> Option<&base::bson::ValueBuf> {
    match node {
        Node::Field { path, predicate: Predicate::Compare(comparison) }
            if comparison.op == ComparisonOp::Eq
                && path.as_str() == "_id"
                && comparison.operand.kind() != Type::Array =>
        {
            Some(&comparison.operand)
        }
        _ => None,
    }
}

/// Chooses a plan.
///
/// Errors: 40218 for a sort by metadata that the filter gives none of; those of hints and bounds.
pub(crate) fn plan(
    operation: &Arc<Operation>,
    view: &View,
    collection: &Arc<Collection>,
    read: Read,
    context: &Arc<Context>,
) -> Result<Plan> {
    // Of many values the bounds alone take a while.
    operation.check()?;
    let near = read.matcher.near();
    let searched = text::query(&read)?;
    if near.is_some() && searched.is_some() {
        return Err(err!(BadValue, "text and geoNear not allowed in same query"));
    }
    let gives = |kind: MetaKind| match kind {
        MetaKind::TextScore => searched.is_some(),
        _ => near.is_some() && kind.is_of_places(),
    };
    let missing = read.sort.iter().flat_map(|sort| sort.by_metadata()).find(|(_, kind)| !gives(*kind));
    if let Some((_, kind)) = missing {
        return Err(kind.unavailable());
    }
    let data = collection.data()?;
    let snapshot = view.snapshot.as_ref();
    let index_filter = data.index_filters.find(|| shape::of_read(&read, context));
    let allowed: Option<Vec<Arc<Index>>> = index_filter
        .as_ref()
        .map(|filter| data.indexes.iter().filter(|index| filter.allows(index)).cloned().collect());
    let indexes = allowed.as_deref().unwrap_or(&data.indexes);
    let filtered = index_filter.is_some();
    let trials = Trials::new(&data.kept_plans);
    let planning = Planning { indexes, read: &read, snapshot, context, trials: &trials };
    let describe = || describe(collection, &read);
    let mut range = None;
    let natural = read.sort.as_ref().and_then(|sort| sort.natural());
    // A filter has the say on indexes; bounds on an index need theirs all the same.
    let bounded = read.min.is_some() || read.max.is_some();
    let heeded = |hint: &&Hint| !filtered || bounded || matches!(hint, Hint::Natural { .. });
    let hint = read.hint.as_ref().filter(heeded);
    let (source, rejected) = match (hint, natural) {
        (None, _) if bounded => {
            return Err(err!(51173, "When using min()/max() a hint of which index to use must be provided"));
        }
        (Some(Hint::Natural { .. }), _) if bounded => {
            return Err(err!(
                NoQueryExecutionPlans,
                "error processing query: {}\n planner returned error :: caused by :: min and max are \
                 incompatible with $natural",
                describe()
            ));
        }
        (_, Some(_)) if near.is_some() => {
            return Err(err!(BadValue, "geoNear expression not allowed with $natural sort order"));
        }
        (Some(Hint::Natural { .. }), _) if near.is_some() => {
            return Err(err!(BadValue, "geoNear expression not allowed with $natural hint"));
        }
        (_, Some(forward)) => (Source::Collection { forward }, Vec::new()),
        (None, None) => match (near, searched) {
            (Some(near), _) => (geo::near(&planning, near, None, describe)?, Vec::new()),
            (None, Some(query)) => (text::choose(&planning, query, describe)?, Vec::new()),
            (None, None) => planning.choose()?,
        },
        (Some(hint), None) => match (hint.resolve(data, describe)?, hint) {
            (Some(index), _) if bounded => {
                range = Some(hint::range(index, &read)?);
                let candidate = Candidate::new(Access::whole(index), &read);
                (Source::Index(Candidate { covered: false, ..candidate }), Vec::new())
            }
            (Some(index), _) => match near {
                Some(near) => (geo::near(&planning, near, Some(index), describe)?, Vec::new()),
                None => (planning.hinted(index, describe)?, Vec::new()),
            },
            (None, Hint::Natural { forward }) => (Source::Collection { forward: *forward }, Vec::new()),
            (None, _) => (Source::Collection { forward: true }, Vec::new()),
        },
    };
    let source = match &read.distinct {
        Some(path) if range.is_none() => planning.distinct(source, path),
        _ => source,
    };
    let source = match &read.grouped {
        Some(grouped) if range.is_none() => planning.grouped(source, grouped),
        _ => source,
    };
    let source = match source {
        Source::Unique(access) if !is_express(&access, &read) => Source::Index(Candidate::new(access, &read)),
        other => other,
    };
    if operation.no_table_scan && matches!(source, Source::Collection { .. }) {
        check_table_scan(collection, &read, natural)?;
    }
    let surroundings = Arc::new(Surroundings {
        operation: operation.clone(),
        snapshot: view.snapshot.clone(),
        records: data.ident,
        natural: NaturalOrder::of(data),
        context: context.clone(),
    });
    operation.check()?;
    let (kept, trial) = trials.finish();
    Ok(Plan { read, source, rejected, range, filtered, kept, trial, surroundings })
}

/// Whether the key of a unique index is all there is to a read: whoever insists on an index, asks for more than
/// the key, passes over what it finds, or (but by `_id`) wants an order, is served by a scan, that may do without the document.
fn is_express(access: &Access, read: &Read) -> bool {
    let sorts = read.sort.as_ref().is_some_and(|sort| sort.orders());
    let by_id = access.index.is_id();
    read.hint.is_none() && read.skip == 0 && access.proves_all() && (by_id || !sorts)
}

/// With `notablescan`, no collection is scanned but the server's own, and for all its documents.
///
/// Errors: NoQueryExecutionPlans.
fn check_table_scan(collection: &Collection, read: &Read, natural: Option<bool>) -> Result<()> {
    let namespace = &collection.namespace;
    let own = matches!(namespace.database(), "admin" | "config" | "local")
        || namespace.collection().starts_with("system.");
    if own || read.matcher.is_empty() {
        return Ok(());
    }
    let reason = match read.hint {
        Some(Hint::Natural { .. }) => "hint $natural is not allowed, because 'notablescan' is enabled",
        _ if natural.is_some() => "sort $natural is not allowed, because 'notablescan' is enabled",
        _ => "No indexed plans available, and running with 'notablescan'",
    };
    Err(err!(
        NoQueryExecutionPlans,
        "error processing query: {}\n planner returned error :: caused by :: {reason}",
        describe(collection, read)
    ))
}

/// What MongoDB's planner says of a query it refuses.
fn describe(collection: &Collection, read: &Read) -> String {
    let sort = read.sort.as_deref().map(sort_document).unwrap_or_default();
    let tree = read.matcher.describe();
    format!("ns={}Tree: {tree}\nSort: {sort}\nProj: {{}}", collection.namespace)
}

/// A sort pattern as a document.
pub(crate) fn sort_document(sort: &SortPattern) -> DocumentBuf {
    let mut out = Builder::new();
    sort.append_to(&mut out);
    out.finish()
}

impl Plan {
    /// Whether it reads a collection or an index from end to end.
    pub(crate) fn reads_all(&self) -> bool {
        match &self.source {
            Source::Collection { .. } => true,
            Source::Index(candidate) => !candidate.access.bounded.contains(&true),
            Source::Eof | Source::Unique(_) | Source::Union(_) | Source::Near(_) | Source::Text(_) => false,
        }
    }

    /// Whether it goes through a collection of more documents than this, or would if none matched.
    pub(crate) fn scans_more_than(&self, collection: &Collection, documents: i64) -> bool {
        let Read { limit, skip, .. } = self.read;
        let ends_early = self.read.matcher.is_empty()
            && limit > 0
            && limit.saturating_add(skip) <= documents.unsigned_abs()
            && !self.sorts_in_memory();
        matches!(self.source, Source::Collection { .. }) && collection.records() > documents && !ends_early
    }

    /// Whether all that the source yields is read before the first document can be returned.
    pub(crate) fn sorts_in_memory(&self) -> bool {
        let sorts = self.read.sort.as_ref().is_some_and(|sort| sort.orders());
        sorts && !is_ordered(&self.source)
    }

    /// Counts the use of the plan's indexes, for `$indexStats`.
    pub(crate) fn note_uses(&self) {
        self.each_index(|index| {
            index.uses.fetch_add(1, Relaxed);
        });
    }

    /// Keeps what the trial that chose it came to.
    pub(crate) fn keep(&self, collection: &Collection, now_millis: i64) {
        let (Some(trial), Some(data)) = (&self.trial, &collection.data) else { return };
        data.kept_plans.note(trial, now_millis, || self.shown(collection));
    }

    /// What `$planCacheStats` shows of it.
    fn shown(&self, collection: &Collection) -> Shown {
        let filter = self.read.matcher.describe();
        let hashes = shape::hashes(filter.view(), &self.read, collection);
        let candidates = std::iter::once(&self.source).chain(&self.rejected);
        let stages = candidates.filter_map(|source| {
            let mut explainer = Explainer::new(false);
            self.stages(source).ok()?.explain(&mut explainer);
            Some(explainer.finish())
        });
        Shown {
            sort: self.read.sort.as_deref().map(sort_document).unwrap_or_default(),
            projection: self.read.projection.clone().unwrap_or_default(),
            collation: shape::own_collation(&self.surroundings.context),
            filtered: self.filtered,
            stages: stages.collect(),
            hashes,
            filter,
        }
    }

    /// What `planSummary` says of it.
    pub(crate) fn uses(&self) -> Vec<PlanUse> {
        let scan = |access: &Access| PlanUse::Index("IXSCAN", access.index.clone());
        match &self.source {
            Source::Eof => vec![PlanUse::Stage("EOF")],
            Source::Collection { .. } => vec![PlanUse::Stage("COLLSCAN")],
            Source::Unique(access) if access.index.spec.clustered => {
                vec![PlanUse::Stage("EXPRESS_CLUSTERED_IXSCAN")]
            }
            Source::Unique(access) => vec![PlanUse::Index("EXPRESS_IXSCAN", access.index.clone())],
            Source::Index(candidate) => {
                let stage = match (candidate.distinct.or(candidate.grouped), self.counts(candidate)) {
                    (Some(_), _) => "DISTINCT_SCAN",
                    (None, true) => "COUNT_SCAN",
                    (None, false) => "IXSCAN",
                };
                vec![PlanUse::Index(stage, candidate.access.index.clone())]
            }
            Source::Union(scans) => scans.iter().map(scan).collect(),
            Source::Near(near) => vec![PlanUse::Index(near.stage(), near.access.index.clone())],
            Source::Text(text) => {
                let searched = PlanUse::Index("IXSCAN", text.index.clone());
                std::iter::once(searched).chain(text.others.iter().map(scan)).collect()
            }
        }
    }

    /// Calls `visit` with each index that the source reads.
    pub(crate) fn each_index(&self, mut visit: impl FnMut(&Index)) {
        match &self.source {
            Source::Eof | Source::Collection { .. } => {}
            Source::Unique(access) => visit(&access.index),
            Source::Index(candidate) => visit(&candidate.access.index),
            Source::Union(scans) => scans.iter().for_each(|access| visit(&access.index)),
            Source::Near(near) => visit(&near.access.index),
            Source::Text(text) => {
                visit(&text.index);
                text.others.iter().for_each(|access| visit(&access.index));
            }
        }
    }

    /// Whether the chosen source makes its documents of an index's keys.
    pub(crate) fn is_covered(&self) -> bool {
        matches!(&self.source, Source::Index(candidate) if candidate.is_covered())
    }

    /// Whether MongoDB would plan each branch of the filter by itself, and keep that, not the whole.
    pub(crate) fn is_of_branches(&self) -> bool {
        let Read { matcher, hint, min, max, .. } = &self.read;
        let searches = matcher.searches_text() || matcher.near().is_some();
        matches!(matcher.root(), Node::Or(_)) && hint.is_none() && min.is_none() && max.is_none() && !searches
    }

    /// Whether a `$group` behind it gets one document of each group.
    pub(crate) fn groups(&self) -> bool {
        matches!(&self.source, Source::Index(candidate) if candidate.grouped.is_some())
    }

    /// Whether it projects by itself: by keys, or within the lookup of one.
    pub(crate) fn projects(&self) -> bool {
        self.is_covered() || matches!(self.source, Source::Unique(_))
    }

    /// Notes that it is going to be run to be explained.
    pub(crate) fn note_explained(&self) {
        self.surroundings.operation.note_explained();
    }

    /// Starts the chosen source.
    pub(crate) fn start(&self) -> Result<Box<dyn RecordStream>> {
        self.stages(&self.source)
    }

    /// The stages of a source, chosen or not.
    pub(crate) fn stages(&self, source: &Source) -> Result<Box<dyn RecordStream>> {
        let read = &self.read;
        let sort = read.sort.as_ref().filter(|sort| sort.orders());
        let (mut stream, ordered, skipped) = match self.return_key(source)? {
            Some((keys, ordered)) => (keys, ordered, false),
            None => {
                let ordered = is_ordered(source);
                let skip = if sort.is_none() || ordered { read.skip } else { 0 };
                let (stream, skipped) = self.documents(source, skip)?;
                (stream, ordered, skipped)
            }
        };
        let sorted = match sort {
            Some(sort) if !ordered => {
                let limit = if read.limit == 0 { 0 } else { read.limit.saturating_add(read.skip) };
                let options = SortOptions {
                    limit,
                    allow_disk_use: read.allow_disk_use,
                    keeps_meta: !read.metadata.is_empty(),
                };
                stream = Box::new(Sort::new(&self.surroundings, stream, sort, options));
                true
            }
            _ => false,
        };
        if read.skip > 0 && !skipped {
            stream = Box::new(Skip::new(stream, read.skip));
        }
        // A sort that was told the limit yields no more.
        if read.limit > 0 && !sorted && !matches!(source, Source::Unique(_) | Source::Eof) {
            stream = Box::new(Limit::new(stream, read.limit));
        }
        Ok(stream)
    }

    /// What a source yields, filtered, and whether the first so many have been left out of it: what
    /// an index finds and proves needn't be fetched to be passed over.
    fn documents(&self, source: &Source, skip: u64) -> Result<(Box<dyn RecordStream>, bool)> {
        let around = &self.surroundings;
        let filter = |proven: bool| (!proven).then(|| self.read.matcher.clone());
        let stream: Box<dyn RecordStream> = match source {
            Source::Eof => Box::new(Eof::default()),
            Source::Collection { forward } => {
                Box::new(CollScan::new(around, *forward, filter(self.read.matcher.is_empty()))?)
            }
            Source::Unique(access) => {
                let filter = filter(access.proves_all());
                Box::new(Express::new(around, &Arc::new(access.clone()), access.single_key(), filter))
            }
            Source::Index(candidate) => return self.index(candidate, skip),
            Source::Near(near) => {
                let alone = matches!(self.read.matcher.root(), Node::Field { .. });
                Box::new(GeoNear::new(around, near, filter(alone), self.read.metadata))
            }
            Source::Text(text) => self.text(text)?,
            Source::Union(scans) => {
                let proven = scans.iter().all(Access::proves_all);
                let fetch = Fetch::new(around, self.union(scans)?, filter(proven).map(Part::whole));
                Box::new(fetch.keeping_keys(self.read.metadata.has(MetaKind::IndexKey)))
            }
        };
        Ok((stream, false))
    }

    /// What of the filter the keys within an index's bounds don't prove.
    fn unproven(&self, access: &Access) -> Part {
        let matcher = &self.read.matcher;
        let proven = |at: usize| self.range.is_none() && access.proven.get(at).copied().unwrap_or(false);
        let left: Vec<bool> = (0..matcher.members().len()).map(|at| !proven(at)).collect();
        match left.contains(&false) {
            true => Part::of(matcher, left),
            false => Part::whole(matcher.clone()),
        }
    }

    /// Whether an index's keys are counted, no document being needed.
    fn counts(&self, candidate: &Candidate) -> bool {
        let proven = candidate.access.proves_all() && self.range.is_none();
        let needs_nothing = self.read.covering.as_ref().is_some_and(Vec::is_empty);
        needs_nothing && proven && self.read.sort.is_none()
    }

    fn index(&self, candidate: &Candidate, skip: u64) -> Result<(Box<dyn RecordStream>, bool)> {
        let around = &self.surroundings;
        let access = &candidate.access;
        let proven = access.proves_all() && self.range.is_none();
        if self.counts(candidate) {
            return Ok((Box::new(CountScan(self.scan(candidate)?)), false));
        }
        if let (Some(part), Some(path)) = (candidate.distinct, &self.read.distinct) {
            return Ok((Box::new(DistinctScan::new(around, self.scan(candidate)?, part, path)), false));
        }
        if let Some(part) = candidate.grouped {
            let ids = FirstIds::new(self.scan(candidate)?, part);
            let stream: Box<dyn RecordStream> = match candidate.is_covered() {
                true => Box::new(FirstCovered::new(around, ids, covering::covering(access, &self.read))),
                false => Box::new(Fetch::new(around, Box::new(ids), None)),
            };
            return Ok((stream, false));
        }
        let plain = candidate.ordered.is_none_or(|ordered| ordered.split == 0) && self.range.is_none();
        let of_keys = if plain && !proven { covering::key_filter(access, &self.read.matcher) } else { None };
        let (of_keys, rest) = match of_keys {
            Some(KeyFilter { keys, covering, rest }) => (Some((keys, covering)), rest),
            None => (None, (!proven).then(|| self.unproven(access))),
        };
        let scan = |scan: IndexScan| match of_keys {
            Some((keys, covering)) => scan.filtered(keys, covering),
            None => scan,
        };
        if candidate.is_covered() {
            let covering = covering::covering(access, &self.read);
            let scan = scan(self.scan(candidate)?);
            return Ok((Box::new(ProjectionCovered::new(around, scan, covering, rest)), false));
        }
        let keeping_keys = self.read.metadata.has(MetaKind::IndexKey);
        let ids: Box<dyn IdStream> = match plain {
            true => {
                let scan = scan(self.scan(candidate)?);
                Box::new(if keeping_keys { scan.keeping_keys() } else { scan })
            }
            false => self.ids(candidate, keeping_keys)?,
        };
        let skipped = skip > 0 && rest.is_none();
        let mut ids = if skipped { Box::new(SkipIds::new(ids, skip)) } else { ids };
        if self.read.limit > 0 && rest.is_none() && (self.read.sort.is_none() || candidate.ordered.is_some())
        {
            ids.expect_few(self.read.limit);
        }
        let fetch = Fetch::new(around, ids, rest);
        Ok((Box::new(fetch.keeping_keys(keeping_keys)), skipped))
    }

    /// The ids that an index finds.
    fn ids(&self, candidate: &Candidate, keeping_keys: bool) -> Result<Box<dyn IdStream>> {
        let split = candidate.ordered.filter(|ordered| ordered.split > 0);
        let (Some(ordered), Some(sort)) = (split, &self.read.sort) else {
            let scan = self.scan(candidate)?;
            return Ok(Box::new(if keeping_keys { scan.keeping_keys() } else { scan }));
        };
        let access = Arc::new(candidate.access.clone());
        let split = KeyBounds::split(&access, ordered.split);
        let prefixes: Vec<usize> = split.iter().map(|bounds| bounds.prefix_of(ordered.split)).collect();
        let parts = split.into_iter().map(|bounds| (access.clone(), bounds)).collect();
        let scans = IndexScan::several(&self.surroundings, parts, ordered.forward)?;
        let scans = scans.into_iter().map(IndexScan::keeping_keys).zip(prefixes).collect();
        Ok(Box::new(SortMerge::new(scans, ordered.forward, sort_document(sort))))
    }

    /// One scan over an index.
    fn scan(&self, candidate: &Candidate) -> Result<IndexScan> {
        let access = Arc::new(candidate.access.clone());
        let forward = candidate.ordered.is_none_or(|ordered| ordered.forward);
        match &self.range {
            Some(range) => IndexScan::over(&self.surroundings, &access, range.clone(), forward),
            None => IndexScan::new(&self.surroundings, &access, forward),
        }
    }

    fn union(&self, scans: &[Access]) -> Result<Box<dyn IdStream>> {
        let bounded = |access: &Access| (Arc::new(access.clone()), KeyBounds::new(access));
        let scans = IndexScan::several(&self.surroundings, scans.iter().map(bounded).collect(), true)?;
        let input = |scan: IndexScan| -> Box<dyn IdStream> {
            Box::new(if self.read.metadata.has(MetaKind::IndexKey) { scan.keeping_keys() } else { scan })
        };
        Ok(Box::new(Or::new(scans.into_iter().map(input).collect())))
    }

    /// The stages that yield keys in place of documents, and whether they are in order.
    fn return_key(&self, source: &Source) -> Result<Option<(Box<dyn RecordStream>, bool)>> {
        if !self.read.return_key {
            return Ok(None);
        }
        let by_index = |input: Box<dyn IdStream>, spec: &IndexSpec, ordered: bool| {
            let sort =
                self.read.sort.clone().filter(|_| !ordered || self.read.metadata.has(MetaKind::SortKey));
            let stream = ReturnKey::new(&self.surroundings, input, spec, &self.read.matcher, sort);
            let stream = stream.showing_sort_key(self.read.metadata.has(MetaKind::SortKey));
            Some((Box::new(stream) as Box<dyn RecordStream>, ordered))
        };
        Ok(match source {
            Source::Unique(access) => {
                let scan = IndexScan::new(&self.surroundings, &Arc::new(access.clone()), true)?;
                by_index(Box::new(scan.keeping_keys()), &access.index.spec, true)
            }
            Source::Index(candidate) => {
                let ordered = is_ordered(source);
                by_index(self.ids(candidate, true)?, &candidate.access.index.spec, ordered)
            }
            _ => {
                let sort = self.read.sort.clone().filter(|_| self.read.metadata.has(MetaKind::SortKey));
                let ordered = sort.is_none();
                Some((Box::new(KeyOnly { input: self.documents(source, 0)?.0, sort }), ordered))
            }
        })
    }
}

fn is_ordered(source: &Source) -> bool {
    match source {
        Source::Eof | Source::Unique(_) => true,
        Source::Index(candidate) => candidate.ordered.is_some(),
        Source::Collection { .. } | Source::Union(_) | Source::Near(_) | Source::Text(_) => false,
    }
}
