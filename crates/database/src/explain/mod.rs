//! explain: the plan of a statement and its execution statistics.
//!
//! The output has the shape of MongoDB's classic engine: `queryPlanner` with the winning and
//! rejected plans, and from `executionStats` on the statistics of a run. Explain changes no data.
//! For a write, it runs the plan that finds the documents and counts the effects. The server adds
//! the command, host, version and `ok`.

mod aggregate;
mod read;
#[cfg(test)]
mod tests;

use crate::catalog::collection::Collection;
use crate::database::is_stale;
use crate::exec::{Explainer, Limit, Node, RecordStream, Report, Stats};
use crate::plan::{Plan, shape};
use base::bson::{Builder, DocumentBuf};
use base::{Error, Namespace, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use storage::time;

/// Most results requested from each rejected plan.
const TRIAL_RESULTS: u64 = 101;

/// Top stage of a plan: produces a statement's result from the documents found.
pub(crate) enum Top {
    /// No stage: the documents are the result.
    Documents,
    /// A projection: its name in explain, and its specification.
    Projection(&'static str, DocumentBuf),
    /// `$group` stages, the first over the plan, each with its number of groups, and the projection
    /// of their input.
    Groups(Vec<Arc<AtomicU64>>, DocumentBuf),
    /// A count.
    Count {
        /// Number of documents that the plan skips.
        skip: u64,
    },
    /// A delete of the documents found.
    Delete {
        /// Returns the document.
        returns: bool,
    },
    /// An update of the documents found.
    Update {
        /// Returns the document.
        returns: bool,
    },
}

/// Effect of a statement on the documents found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Effect {
    /// Number of documents found.
    pub(crate) matched: u64,
    /// Number of documents that an update would change.
    pub(crate) modified: u64,
    /// True if an update would insert a document.
    pub(crate) upserted: bool,
}

/// A plan to explain.
pub(crate) struct Subject<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) collection: &'a Collection,
    pub(crate) plan: &'a Plan,
    pub(crate) top: Top,
    /// True if stages outside of the plan receive its documents. As in MongoDB, an error of such a pipeline is an error
    /// of its explanation.
    pub(crate) piped: bool,
    /// True if the statement ends by itself at the first document.
    pub(crate) ends_at_first: bool,
}

/// A running plan. The stages of a pipeline share it.
pub(crate) type Records = Arc<Mutex<Box<dyn RecordStream>>>;

/// Runs a plan to its end or to its first error, and notes the effect.
pub(crate) type Run<'r> = &'r mut dyn FnMut(&Records, &mut Effect) -> Result<()>;

/// Runs a plan to its end.
pub(crate) fn drain(stream: &Records, effect: &mut Effect) -> Result<()> {
    while stream.lock().next()?.is_some() {
        effect.matched += 1;
    }
    Ok(())
}

impl Subject<'_> {
    /// Appends `queryPlanner` and, if requested, `executionStats`.
    pub(crate) fn explain(&self, verbosity: Verbosity, run: Run<'_>, out: &mut Builder) -> Result<()> {
        self.query_planner(out);
        if verbosity != Verbosity::QueryPlanner {
            self.execution_stats(verbosity, run, out)?;
        }
        Ok(())
    }

    fn query_planner(&self, out: &mut Builder) {
        let parsed = self.plan.read.matcher.describe();
        let (shape, key) = shape::hashes(parsed.view(), &self.plan.read, self.collection);
        out.begin_document(c"queryPlanner");
        out.append(c"namespace", self.namespace.as_str());
        out.append(c"parsedQuery", &parsed);
        out.append_optional(c"collation", self.plan.read.matcher.collation().document());
        out.append(c"indexFilterSet", self.plan.filtered);
        let settings = self.plan.query_settings().map(|settings| settings.document.view());
        out.append_optional(c"querySettings", settings);
        out.append(c"queryHash", shape.as_str()).append(c"planCacheShapeHash", shape.as_str());
        out.append(c"planCacheKey", key.as_str()).append(c"optimizationTimeMillis", 0i32);
        for limit in [
            c"maxIndexedOrSolutionsReached",
            c"maxIndexedAndSolutionsReached",
            c"maxScansToExplodeReached",
            c"prunedSimilarIndexes",
        ] {
            out.append(limit, false);
        }
        out.begin_document(c"winningPlan");
        self.append_plan(&self.plan.tree, self.plan.cached, out);
        out.end().begin_array(c"rejectedPlans");
        for tree in &self.rejected() {
            out.push_document();
            self.append_plan(tree, false, out);
            out.end();
        }
        out.end().end();
    }

    /// Returns the rejected plans. A filter with separately planned branches has none.
    fn rejected(&self) -> Vec<Node> {
        if self.plan.plans_branches() { Vec::new() } else { self.plan.rejected() }
    }

    /// Appends a plan. MongoDB nests it one level deeper if its slot-based engine would run it.
    fn append_plan(&self, tree: &Node, is_cached: bool, out: &mut Builder) {
        let stages = self.print(tree, None).stages;
        out.append(c"isCached", is_cached);
        match self.is_classic() {
            false => out.append(c"queryPlan", &stages),
            true => out.append_all(stages.view()),
        };
    }

    fn is_classic(&self) -> bool {
        !matches!(self.top, Top::Groups(..))
    }

    fn execution_stats(&self, verbosity: Verbosity, run: Run<'_>, out: &mut Builder) -> Result<()> {
        let start = time::now();
        self.plan.mark_explained();
        let tree = &self.plan.tree;
        let mut stream = self.plan.open(tree)?;
        if self.ends_at_first {
            stream = Box::new(Limit::first(stream));
        }
        let (stream, mut effect) = (Arc::new(Mutex::new(stream)), Effect::default());
        let failure = match run(&stream, &mut effect) {
            Err(error) if self.piped || is_stale(&error) => return Err(error),
            outcome => outcome.err(),
        };
        let printed = self.print(tree, Some((effect, Report::of(stream.lock().as_ref()))));
        out.begin_document(c"executionStats").append(c"executionSuccess", failure.is_none());
        if let Some(error) = failure {
            out.append(c"errorMessage", error.message()).append(c"errorCode", error.code().number());
        }
        printed.append_to(self.returned(effect), start, self.is_classic().then_some(self.plan.cached), out);
        if verbosity == Verbosity::AllPlansExecution {
            self.all_plans(out)?;
        }
        out.end();
        Ok(())
    }

    /// Appends the rejected plans, each after a short run.
    fn all_plans(&self, out: &mut Builder) -> Result<()> {
        out.begin_array(c"allPlansExecution");
        for tree in &self.rejected() {
            let start = time::now();
            let mut stream = self.plan.open(tree)?;
            let mut effect = Effect::default();
            // The statistics of a plan that fails end at its error.
            while effect.matched < TRIAL_RESULTS && stream.next().is_ok_and(|next| next.is_some()) {
                effect.matched += 1;
            }
            let printed = self.print(tree, Some((effect, Report::of(stream.as_ref()))));
            out.push_document();
            printed.append_to(self.returned(effect), start, self.is_classic().then_some(false), out);
            out.end();
        }
        out.end();
        Ok(())
    }

    /// Returns the number of results. Counts and writes have none.
    fn returned(&self, effect: Effect) -> u64 {
        match &self.top {
            Top::Documents | Top::Projection(..) => effect.matched,
            Top::Groups(counts, _) => counts.last().map_or(effect.matched, |count| count.load(Relaxed)),
            Top::Delete { returns } | Top::Update { returns } if *returns => effect.matched,
            Top::Count { .. } | Top::Delete { .. } | Top::Update { .. } => 0,
        }
    }

    /// Prints a plan, with the statistics of its nodes if it has run.
    fn print(&self, tree: &Node, ran: Option<(Effect, Report)>) -> Printed {
        let (effect, report) = ran.unzip();
        let mut explainer = Explainer::new(report);
        if let Top::Projection(_, spec) | Top::Groups(_, spec) = &self.top {
            explainer.projection = Some(spec.clone());
        }
        let effect = effect.unwrap_or_default();
        let stats = |advanced: u64| Stats { works: effect.matched + 1, advanced, ended: true };
        let projected = |out: &mut Explainer| match &self.top {
            Top::Projection(name, spec) if !tree.projects() => {
                out.stage(name, &stats(effect.matched)).append(c"transformBy", spec);
                out.input(|out| tree.describe(out));
            }
            _ => tree.describe(out),
        };
        let planned = |out: &mut Explainer| match self.plan.plans_branches() {
            true => {
                out.stage("SUBPLAN", &stats(effect.matched));
                out.input(projected);
            }
            false => projected(out),
        };
        match &self.top {
            Top::Documents | Top::Projection(..) => planned(&mut explainer),
            Top::Groups(counts, _) => aggregate::explain(counts, tree, &mut explainer),
            Top::Count { skip } => {
                explainer.stage("COUNT", &stats(0));
                explainer.count(c"nCounted", effect.matched);
                explainer.count(c"nSkipped", *skip);
                explainer.input(planned);
            }
            Top::Delete { .. } => {
                explainer.stage("DELETE", &stats(self.returned(effect)));
                explainer.count(c"nWouldDelete", effect.matched);
                explainer.input(planned);
            }
            Top::Update { .. } => {
                explainer.stage("UPDATE", &stats(self.returned(effect)));
                explainer.count(c"nMatched", effect.matched);
                explainer.count(c"nWouldModify", effect.modified);
                explainer.count(c"nWouldUpsert", u64::from(effect.upserted));
                explainer.input(planned);
            }
        }
        Printed {
            keys_examined: explainer.keys_examined,
            docs_examined: explainer.docs_examined,
            stages: match self.top {
                Top::Groups(..) => aggregate::numbered(explainer.finish().view()),
                _ => explainer.finish(),
            },
        }
    }
}

/// Printed stages of a plan.
struct Printed {
    stages: DocumentBuf,
    keys_examined: u64,
    docs_examined: u64,
}

impl Printed {
    fn append_to(&self, returned: u64, start: Instant, is_cached: Option<bool>, out: &mut Builder) {
        let number = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
        out.append(c"nReturned", number(returned));
        out.append(c"executionTimeMillis", number(time::since(start).as_millis() as u64));
        out.append(c"totalKeysExamined", number(self.keys_examined));
        out.append(c"totalDocsExamined", number(self.docs_examined));
        out.begin_document(c"executionStages");
        out.append_optional(c"isCached", is_cached);
        out.append_all(self.stages.view()).end();
    }
}

/// Returns the start of an explanation for MongoDB's classic engine.
fn begin() -> Builder {
    let mut out = Builder::new();
    out.append(c"explainVersion", "1");
    out
}

/// Returns the explanation for a missing collection: a plan with a single EOF stage, or a count of
/// nothing.
fn missing(
    namespace: &Namespace,
    filter: &query::matcher::Matcher,
    verbosity: Verbosity,
    stage: &str,
) -> DocumentBuf {
    let mut out = begin();
    out.begin_document(c"queryPlanner").append(c"namespace", namespace.as_str());
    out.append(c"parsedQuery", &filter.describe());
    out.append_optional(c"collation", filter.collation().document());
    out.append(c"indexFilterSet", false);
    let stages = |ran: bool| {
        let mut explainer = Explainer::new(ran.then(Report::default));
        let stats = Stats { works: 1, advanced: 0, ended: true };
        explainer.stage(stage, &stats);
        if stage == "COUNT" {
            explainer.count(c"nCounted", 0);
            explainer.count(c"nSkipped", 0);
            explainer.input(|out| {
                out.stage("EOF", &stats);
            });
        }
        explainer.finish()
    };
    out.begin_document(c"winningPlan").append(c"isCached", false).append_all(stages(false).view()).end();
    out.begin_array(c"rejectedPlans").end().end();
    if verbosity != Verbosity::QueryPlanner {
        let printed = Printed { stages: stages(true), keys_examined: 0, docs_examined: 0 };
        out.begin_document(c"executionStats").append(c"executionSuccess", true);
        printed.append_to(0, time::now(), Some(false), &mut out);
        if verbosity == Verbosity::AllPlansExecution {
            out.begin_array(c"allPlansExecution").end();
        }
        out.end();
    }
    out.finish()
}

/// Verbosity of explain. Decides whether the plan runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    /// Plans only.
    QueryPlanner,
    /// Also runs the winning plan.
    ExecutionStats,
    /// Also runs the rejected plans for a short time.
    AllPlansExecution,
}

impl Verbosity {
    /// Parses the name of a verbosity.
    ///
    /// Errors: BadValue for an unknown name.
    pub fn parse(name: &str) -> Result<Verbosity> {
        match name {
            "queryPlanner" => Ok(Verbosity::QueryPlanner),
            "executionStats" => Ok(Verbosity::ExecutionStats),
            "allPlansExecution" => Ok(Verbosity::AllPlansExecution),
            _ => Err(Error::unknown_value("explain.verbosity", name)),
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Verbosity::QueryPlanner => "queryPlanner",
            Verbosity::ExecutionStats => "executionStats",
            Verbosity::AllPlansExecution => "allPlansExecution",
        }
    }
}
