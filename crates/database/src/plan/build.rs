//! Choice of a plan and the plan's interface.
//!
//! [`plan`] applies hints, query settings and index filters, and calls [`choose`](super::choose) for a source of
//! documents. [`Tree`] then builds the stages above the source. A new kind of hint is a case in [`sources`]; a new rule
//! of choice belongs to [`choose`](super::choose).

use super::choose::{Candidate, Planning, Source};
use super::tree::Tree;
use super::trials::Trials;
use super::{Access, Hint, Read, geo, hint, shape, text};
use crate::catalog::cached_plans::{CachedFields, Trial};
use crate::catalog::collection::{Collection, Data};
use crate::catalog::history::View;
use crate::exec::{ExecContext, Explainer, NaturalOrder, Node, RecordStream, SingleRecord, finish_lookup};
use crate::index::Index;
use crate::operation::{Operation, PlanUse, QuerySettings};
use base::bson::{Builder, DocumentBuf, Path, Type};
use base::{Result, bail, err};
use query::collation::depends_on_collation;
use query::matcher::{self, ComparisonOp, Predicate};
use query::text::TextQuery;
use query::{Context, Interrupt, MetaKind, SortPattern};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Range;

/// A query plan, ready to open.
pub(crate) struct Plan {
    pub(crate) read: Read,
    /// Execution nodes that find the documents.
    pub(crate) tree: Node,
    /// Rejected sources.
    rejected: Vec<Source>,
    /// True if an index filter limited the indexes.
    pub(crate) filtered: bool,
    /// True if the plan comes from the plan cache.
    pub(crate) cached: bool,
    /// The trial that chose the plan.
    trial: Option<Trial>,
    exec_context: Arc<ExecContext>,
}

/// Returns the record of an `_id` if the read asks for one `_id` and has no conflicting options.
/// Skips planning: the fastest path.
pub(crate) fn by_id(
    operation: &Operation,
    view: &View,
    collection: &Collection,
    read: &Read,
    context: &Context,
) -> Result<Option<Box<dyn RecordStream>>> {
    let (filter, id) = match read.matcher.root() {
        matcher::Node::And(children) => match children.iter().find_map(id_equality) {
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
    let entry = match read.alone {
        true => snapshot.lookup_alone(index.ident, &key, data.ident),
        false => snapshot.lookup(index.ident, &key, data.ident),
    };
    let result = finish_lookup(operation, entry, &key, filter, context);
    index.uses.fetch_add(1, Relaxed);
    operation.mark_by_id();
    // Errors are returned with the first record, as for any plan.
    Ok(Some(Box::new(SingleRecord(result.map(|(_, _, record)| record).transpose()))))
}

fn id_equality(node: &matcher::Node) -> Option<&base::bson::ValueBuf> {
    match node {
        matcher::Node::Field { path, predicate: Predicate::Compare(comparison) }
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
/// Errors: 40218 for a sort by metadata that the filter does not provide; errors of hints and
/// bounds.
pub(crate) fn plan(
    operation: &Arc<Operation>,
    view: &View,
    collection: &Arc<Collection>,
    read: Read,
    context: &Arc<Context>,
) -> Result<Plan> {
    operation.check()?;
    let near = read.matcher.near();
    let searched = text::query(&read)?;
    if near.is_some() && searched.is_some() {
        bail!(BadValue, "text and geoNear not allowed in same query");
    }
    let natural = read.sort.as_ref().and_then(|sort| sort.natural());
    if let (Some(hint), Some(ascends), None) = (&read.hint, natural, near) {
        hint.check_natural(ascends)?;
    }
    let provides = |kind: MetaKind| match kind {
        MetaKind::TextScore => searched.is_some(),
        // Random numbers need no source.
        MetaKind::RandVal => true,
        _ => near.is_some() && kind.is_geo_near(),
    };
    let missing = read.sort.iter().flat_map(|sort| sort.by_metadata()).find(|(_, kind)| !provides(*kind));
    if let Some((_, kind)) = missing {
        return Err(kind.unavailable());
    }
    let data = collection.data()?;
    let snapshot = view.snapshot.as_ref();
    let trials = Trials::new(&data.cached_plans);
    let describe = || describe(collection, &read);
    let plan_with = |indexes: &[Arc<Index>], restricted: bool| {
        let planning = Planning { indexes, read: &read, snapshot, context, trials: &trials };
        let hint = read.hint.as_ref().filter(|hint| hint_applies(hint, &read, restricted));
        sources(&planning, data, hint, (near, searched), describe)
    };
    let settings = operation.query_settings.as_deref();
    let hinted = match settings.and_then(|settings| hint::allowed_indexes(settings, collection)) {
        // Settings have no effect if they leave only a collection scan that they do not allow, as in MongoDB.
        Some((indexes, scans)) => Some(plan_with(&indexes, true)?)
            .filter(|(source, ..)| scans || !matches!(source, Source::Collection { .. })),
        None => None,
    };
    let index_filter = match &hinted {
        Some(_) => None,
        None => data.index_filters.find(|| shape::of_read(&read, context)),
    };
    let allowed: Option<Vec<Arc<Index>>> = index_filter
        .as_ref()
        .map(|filter| data.indexes.iter().filter(|index| filter.allows(index)).cloned().collect());
    let indexes = allowed.as_deref().unwrap_or(&data.indexes);
    let filtered = index_filter.is_some();
    let (source, rejected, range) = match hinted {
        Some(planned) => planned,
        None => plan_with(indexes, filtered)?,
    };
    let planning = Planning { indexes, read: &read, snapshot, context, trials: &trials };
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
    let exec_context = Arc::new(ExecContext {
        operation: operation.clone(),
        snapshot: view.snapshot.clone(),
        records: data.ident,
        natural: NaturalOrder::of(data),
        context: context.clone(),
    });
    operation.check()?;
    let (cached, trial) = trials.finish();
    let tree = Tree::new(&read, range, context).of(source);
    Ok(Plan { read, tree, rejected, filtered, cached, trial, exec_context })
}

/// Returns true if a hint applies. An index filter overrides hints, except for `min`, `max` and
/// `$natural`.
fn hint_applies(hint: &Hint, read: &Read, filtered: bool) -> bool {
    !filtered || read.min.is_some() || read.max.is_some() || matches!(hint, Hint::Natural { .. })
}

/// The chosen source, the rejected sources, and the range of index keys within `min` and `max`.
type Sources = (Source, Vec<Source>, Option<Range>);

/// Chooses the source.
///
/// Errors: errors of hints and bounds.
fn sources(
    planning: &Planning<'_>,
    data: &Data,
    hint: Option<&Hint>,
    (near, searched): (Option<(&Path, &matcher::Near)>, Option<&TextQuery>),
    describe: impl Fn() -> String + Copy,
) -> Result<Sources> {
    let read = planning.read;
    let natural = read.sort.as_ref().and_then(|sort| sort.natural());
    let bounded = read.min.is_some() || read.max.is_some();
    let mut range = None;
    let (source, rejected) = match (hint, natural) {
        (None, _) if bounded => {
            bail!(51173, "When using min()/max() a hint of which index to use must be provided");
        }
        (Some(Hint::Natural { .. }), _) if bounded => {
            bail!(
                NoQueryExecutionPlans,
                "error processing query: {}\n planner returned error :: caused by :: min and max are \
                 incompatible with $natural",
                describe()
            );
        }
        (_, Some(_)) if near.is_some() => {
            bail!(BadValue, "geoNear expression not allowed with $natural sort order");
        }
        (Some(Hint::Natural { .. }), _) if near.is_some() => {
            bail!(BadValue, "geoNear expression not allowed with $natural hint");
        }
        (_, Some(forward)) => (Source::Collection { forward }, Vec::new()),
        (None, None) => match (near, searched) {
            (Some(near), _) => (geo::near(planning, near, None, describe)?, Vec::new()),
            (None, Some(query)) => (text::choose(planning, query, describe)?, Vec::new()),
            (None, None) => planning.choose()?,
        },
        (Some(hint), None) => match (hint.resolve(data, describe)?, hint) {
            (Some(index), _) if bounded => {
                range = Some(hint::range(index, read)?);
                let candidate = Candidate::new(Access::unbounded(index), read);
                let ordered = candidate.ordered.filter(|_| range_has_order(&candidate.access, read));
                (Source::Index(Candidate { covered: false, ordered, ..candidate }), Vec::new())
            }
            (Some(index), _) => match near {
                Some(near) => (geo::near(planning, near, Some(index), describe)?, Vec::new()),
                None => (planning.hinted(index, describe)?, Vec::new()),
            },
            (None, Hint::Natural { forward }) => (Source::Collection { forward: *forward }, Vec::new()),
            (None, _) => (Source::Collection { forward: true }, Vec::new()),
        },
    };
    Ok((source, rejected, range))
}

/// Returns true if the order of an index is the order of the read within `min` and `max`. An array sorts by all its
/// keys, and the range may have only some of them.
fn range_has_order(access: &Access, read: &Read) -> bool {
    let sorts_by = |part: usize| {
        let mut fields = read.sort.iter().flat_map(|sort| sort.fields());
        fields.any(|(path, _)| access.path(part) == Some(path))
    };
    !(0..access.parts.len()).any(|part| access.is_multikey(part) && sorts_by(part))
}

/// Returns true if a lookup of one key in a unique index answers the read. Hints, residual filters,
/// `skip` and sorts (except by `_id`) need a scan, which may avoid fetching the document.
fn is_express(access: &Access, read: &Read) -> bool {
    let sorts = read.sort.as_ref().is_some_and(|sort| sort.orders());
    let by_id = access.index.is_id();
    read.hint.is_none() && read.skip == 0 && access.proves_all() && (by_id || !sorts)
}

/// Enforces `notablescan`: only the server's own collections may be scanned, and other collections
/// for all their documents.
///
/// Errors: NoQueryExecutionPlans.
fn check_table_scan(collection: &Collection, read: &Read, natural: Option<bool>) -> Result<()> {
    let namespace = &collection.namespace;
    if namespace.is_internal() || read.matcher.is_empty() {
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

/// Returns the description of a query in MongoDB's planner errors.
fn describe(collection: &Collection, read: &Read) -> String {
    let sort = read.sort.as_deref().map(sort_document).unwrap_or_default();
    let tree = read.matcher.describe();
    format!("ns={}Tree: {tree}\nSort: {sort}\nProj: {{}}", collection.namespace)
}

/// Returns a sort pattern as a document.
pub(crate) fn sort_document(sort: &SortPattern) -> DocumentBuf {
    let mut out = Builder::new();
    sort.append_to(&mut out);
    out.finish()
}

impl Plan {
    /// Returns true if the plan reads a whole collection or a whole index.
    pub(crate) fn reads_all(&self) -> bool {
        let mut reads_all = false;
        self.tree.each_leaf(&mut |(stage, access)| {
            let is_bounded = access.is_some_and(|access| access.bounded.contains(&true));
            reads_all |=
                !is_bounded && matches!(stage, "COLLSCAN" | "COUNT_SCAN" | "DISTINCT_SCAN" | "IXSCAN");
        });
        reads_all
    }

    /// Returns true if the plan scans a collection with more documents than this, or would scan all
    /// of them if none matched.
    pub(crate) fn scans_more_than(&self, collection: &Collection, documents: i64) -> bool {
        let Read { limit, skip, .. } = self.read;
        let ends_early = self.read.matcher.is_empty()
            && limit > 0
            && limit.saturating_add(skip) <= documents.unsigned_abs()
            && !self.tree.sorts();
        let mut scans = false;
        self.tree.each_leaf(&mut |(stage, _)| scans |= stage == "COLLSCAN");
        scans && collection.records() > documents && !ends_early
    }

    /// Counts the use of the plan's indexes for `$indexStats`, and a collection scan for `$collStats`.
    pub(crate) fn count_uses(&self, collection: &Collection) {
        let mut scans = 0;
        self.tree.each_leaf(&mut |(stage, _)| scans += u64::from(stage == "COLLSCAN"));
        if let Some(data) = collection.data.as_ref().filter(|_| scans > 0) {
            data.scans.total.fetch_add(scans, Relaxed);
        }
        self.each_index(|index| {
            index.uses.fetch_add(1, Relaxed);
        });
    }

    /// Stores the result of the trial that chose the plan in the plan cache.
    pub(crate) fn cache_trial(&self, collection: &Collection, now_millis: i64) {
        let (Some(trial), Some(data)) = (&self.trial, &collection.data) else { return };
        data.cached_plans.add_trial(trial, now_millis, || self.cached_fields(collection));
    }

    /// Returns the plan's fields of `$planCacheStats`.
    fn cached_fields(&self, collection: &Collection) -> CachedFields {
        let filter = self.read.matcher.describe();
        let hashes = shape::hashes(filter.view(), &self.read, collection);
        let described = |tree: &Node| {
            let mut explainer = Explainer::new(None);
            tree.describe(&mut explainer);
            explainer.finish()
        };
        let rejected = self.rejected();
        CachedFields {
            sort: self.read.sort.as_deref().map(sort_document).unwrap_or_default(),
            projection: self.read.projection.clone().unwrap_or_default(),
            collation: shape::explicit_collation(&self.exec_context.context),
            filtered: self.filtered,
            stages: std::iter::once(&self.tree).chain(&rejected).map(described).collect(),
            hashes,
            filter,
        }
    }

    /// Returns the contents of `planSummary`.
    pub(crate) fn uses(&self) -> Vec<PlanUse> {
        let mut uses = Vec::new();
        self.tree.each_leaf(&mut |(stage, access)| {
            uses.push(match access.filter(|_| stage != "EXPRESS_CLUSTERED_IXSCAN") {
                Some(access) => PlanUse::Index(stage, access.index.clone()),
                None => PlanUse::Stage(stage),
            });
        });
        uses
    }

    /// Calls `visit` with each index that the plan reads.
    pub(crate) fn each_index(&self, mut visit: impl FnMut(&Index)) {
        self.tree.each_leaf(&mut |(_, access)| access.iter().for_each(|access| visit(&access.index)));
    }

    /// The query settings that it was planned with.
    pub(crate) fn query_settings(&self) -> Option<&QuerySettings> {
        self.exec_context.operation.query_settings.as_deref()
    }

    /// Returns true if MongoDB plans and caches each branch of the filter instead of the whole
    /// filter.
    pub(crate) fn plans_branches(&self) -> bool {
        let Read { matcher, hint, min, max, .. } = &self.read;
        let searches = matcher.searches_text() || matcher.near().is_some();
        let is_union = matches!(matcher.root(), matcher::Node::Or(_));
        is_union && hint.is_none() && min.is_none() && max.is_none() && !searches
    }

    /// Returns the rejected plans.
    pub(crate) fn rejected(&self) -> Vec<Node> {
        let tree = Tree::new(&self.read, None, &self.exec_context.context);
        self.rejected.iter().cloned().map(|source| tree.of(source)).collect()
    }

    /// Notes that the plan runs for explain.
    pub(crate) fn mark_explained(&self) {
        self.exec_context.operation.mark_explained();
    }

    /// Opens the plan's tree or the tree of a rejected plan.
    pub(crate) fn open(&self, tree: &Node) -> Result<Box<dyn RecordStream>> {
        tree.open(&self.exec_context)
    }
}
