//! explain of an aggregation: the plan of its leading stages, then the remaining stages.
//!
//! MongoDB runs `$group` stages directly behind a plan in its slot-based engine, together with the
//! plan. Explain prints them as stages of the plan, numbered from the bottom up.

use super::read::projection_name;
use super::{Effect, Records, Stats, Subject, Top, Verbosity, begin, drain, missing};
use crate::database::Database;
use crate::exec::{Explainer, Node};
use crate::plan::{self, Plan, Read};
use crate::read::{AggregateRequest, OtherCollections, PlannedPipeline, check_first_stage, stages};
use crate::scope::Scope;
use base::bson::{Array, Builder, Document, DocumentBuf, Path, Value};
use base::{Namespace, Result, bail};
use parking_lot::Mutex;
use query::pipeline::{Environment, from_fn};
use query::{Pipeline, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Database {
    /// Explains an aggregation.
    ///
    /// Errors: 51029 for `$out` and `$merge` if the plan would run; errors of the aggregation.
    pub fn explain_aggregate(
        self: &Arc<Self>,
        scope: &Scope,
        request: &AggregateRequest<'_>,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { operation, namespace, context, .. } = scope;
        let view = scope.confirmed_view(self)?;
        let resolved = view.catalog.resolve_for(namespace, request.pipeline)?;
        let holder = resolved.followed_by(request.pipeline);
        let pipeline = Pipeline::parse(stages(&holder), context)?;
        pipeline.check_metadata(context)?;
        check_first_stage(namespace, &pipeline)?;
        if let Some(writer) = pipeline.writer().filter(|_| verbosity != Verbosity::QueryPlanner) {
            bail!(51029, "explain of {} is not allowed with verbosity {}", writer.name, verbosity.name());
        }
        let others = OtherCollections::new(self, operation, namespace, view, request);
        let mut environment = Environment::new(Arc::new(others), context.clone());
        environment.allow_disk_use = request.allow_disk_use.unwrap_or(environment.allow_disk_use);
        pipeline.check_target(&environment)?;
        let shown = |pipeline: &Pipeline| -> Result<Vec<(DocumentBuf, usize)>> {
            let stages = pipeline.explained().map(|(stage, position)| {
                let union = stage.view().get("$unionWith");
                let union =
                    union.map(|union| self.explain_union(scope, union, request, verbosity)).transpose()?;
                Ok((union.unwrap_or(stage), position))
            });
            stages.collect()
        };
        let mut out = begin();
        if !pipeline.reads_collection() {
            out.begin_array(c"stages");
            Counted::default().append(&shown(&pipeline)?, &mut out);
            out.end();
            return Ok(out.finish());
        }
        let collection = view.catalog.get(&resolved.namespace).cloned();
        let PlannedPipeline { mut read, rest } =
            PlannedPipeline::of(pipeline, collection.as_deref(), context)?;
        read.hint = request.hint.clone();
        read.allow_disk_use = environment.allow_disk_use;
        let Some(collection) = collection else {
            let nothing = missing(&resolved.namespace, &read.matcher, verbosity, "EOF");
            return Ok(if rest.is_empty() {
                nothing
            } else {
                around(&nothing, &shown(&rest)?, 0, &Counted::default())
            });
        };
        let plan = plan::plan(operation, view, &collection, read, context)?;
        let namespace = &resolved.namespace;
        let mut shown = shown(&rest)?;
        if let (true, Some((group, _))) = (plan.tree.groups(), shown.first_mut()) {
            *group = of_first_documents(group.view());
        }
        let (top, taken) = top(&plan, &shown);
        if let Top::Groups(..) = top {
            out = Builder::new();
            out.append(c"explainVersion", "2");
        }
        let groups = if let Top::Groups(groups, _) = &top { groups.clone() } else { Vec::new() };
        let (plans, left) = shown.split_at(taken);
        let piped = !left.is_empty();
        let subject =
            Subject { namespace, collection: &collection, plan: &plan, top, piped, ends_at_first: false };
        if rest.is_empty() {
            subject.explain(verbosity, &mut drain, &mut out)?;
            return Ok(out.finish());
        }
        let counted = Counted::default();
        let mut run = |stream: &Records, effect: &mut Effect| {
            counted.run(stream, &rest, &environment, effect)?;
            for (group, (_, stage)) in groups.iter().zip(&shown) {
                group.store(counted.after(stage + 1).unwrap_or(0), Relaxed);
            }
            Ok(())
        };
        subject.explain(verbosity, &mut run, &mut out)?;
        let explained = out.finish();
        let from = plans.last().map_or(0, |(_, stage)| stage + 1);
        Ok(if left.is_empty() { explained } else { around(&explained, left, from, &counted) })
    }

    /// Returns a `$unionWith` with its pipeline explained, whose plan is always a `$cursor`.
    fn explain_union(
        self: &Arc<Self>,
        outer: &Scope,
        specification: Value<'_>,
        request: &AggregateRequest<'_>,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let options = specification.as_document().unwrap_or(Document::EMPTY);
        let from = specification.as_str().or_else(|| options.get("coll")?.as_str());
        let pipeline = options.get("pipeline").and_then(|stages| stages.as_array()).unwrap_or(Array::EMPTY);
        let namespace = Namespace::new(outer.namespace.database(), from.unwrap_or("$cmd.aggregate"))?;
        let scope = Scope::new(&outer.operation, &namespace, &outer.context);
        let request = AggregateRequest {
            allow_disk_use: request.allow_disk_use,
            sources: request.sources.clone(),
            ..AggregateRequest::new(pipeline)
        };
        let mut explained = self.explain_aggregate(&scope, &request, verbosity)?;
        if explained.view().get("stages").is_none() {
            explained = around(&explained, &[], 0, &Counted::default());
        }
        let view = scope.view(self);
        let resolved = view.catalog.resolve_for(&namespace, pipeline)?.namespace;
        let mut out = Builder::new();
        out.begin_document(c"$unionWith");
        out.append_optional(c"coll", from.map(|_| resolved.collection()));
        out.append_optional(c"pipeline", explained.view().get("stages"));
        out.end();
        Ok(out.finish())
    }
}

/// Returns the plan's top stage made from the stages behind it, and their number.
fn top(plan: &Plan, stages: &[(DocumentBuf, usize)]) -> (Top, usize) {
    let read = &plan.read;
    // MongoDB's classic engine runs text and geospatial searches.
    let searches = read.matcher.searches_text() || read.matcher.near().is_some();
    let groups = stages.iter().take_while(|(stage, _)| !searches && is_pushed(stage.view())).count();
    if groups > 0 {
        let counts = (0..groups).map(|_| Arc::default()).collect();
        return (Top::Groups(counts, of_paths(read.covering.as_deref().unwrap_or_default())), groups);
    }
    let Some((first, _)) = stages.first() else { return (Top::Documents, 0) };
    let Some(needed) = &read.covering else { return (Top::Documents, 0) };
    match inclusion(first.view()) {
        Some(spec) => (Top::Projection(name_of(read, spec), spec.to_owned()), 1),
        None => {
            let spec = of_paths(needed);
            let top = if spec.view().iter().count() > 1 {
                Top::Projection(name_of(read, spec.view()), spec)
            } else {
                Top::Documents
            };
            (top, 0)
        }
    }
}

/// Returns MongoDB's form of a `$group` that receives one document of each group.
fn of_first_documents(stage: Document<'_>) -> DocumentBuf {
    let mut out = Builder::new();
    out.begin_document(c"$groupByDistinctScan").begin_document(c"newRoot");
    let group = stage.get("$group").and_then(|group| group.as_document());
    for field in group.into_iter().flatten() {
        match field.value().as_document().and_then(|fold| fold.first()) {
            Some(fold) if field.name() != "_id" => out.append(field.field_name(), fold.value()),
            _ => out.append(field.field_name(), field.value()),
        };
    }
    out.end().end();
    out.finish()
}

/// Returns the projection of the paths needed by the stages behind the plan.
fn of_paths(needed: &[Path]) -> DocumentBuf {
    let mut out = Builder::new();
    needed.iter().for_each(|path| {
        out.append(path, 1i32);
    });
    if !needed.iter().any(|path| path.first() == "_id") {
        out.append(c"_id", 0i32);
    }
    out.finish()
}

/// Returns the projection of a `$project` that includes or computes fields, in its explained form. The plan runs it.
fn inclusion(stage: Document<'_>) -> Option<Document<'_>> {
    let spec = stage.get("$project")?.as_document()?;
    // An exclusion and an inclusion may both have a flag of `_id`.
    let mut others =
        spec.iter().filter(|field| field.name() != "_id" || field.value().as_document().is_some());
    let excludes_id =
        spec.get("_id").and_then(|id| id.as_bool()) == Some(false) && others.clone().next().is_none();
    (!excludes_id && !others.any(|field| excludes(field.value()))).then_some(spec)
}

/// Returns true if a field of a projection excludes something. Nesting of documents limits the
/// recursion.
fn excludes(value: Value<'_>) -> bool {
    match value {
        Value::Document(inner) if !inner.first().is_some_and(|first| first.name().starts_with('$')) => {
            inner.iter().any(|element| excludes(element.value()))
        }
        value => value.as_bool() == Some(false),
    }
}

fn is_flag(value: Value<'_>) -> bool {
    matches!(value, Value::Boolean(_)) || value.as_number().is_some()
}

/// Returns MongoDB's name of a projection in a pipeline.
fn name_of(read: &Read, spec: Document<'_>) -> &'static str {
    match spec.iter().all(|element| is_flag(element.value())) {
        true => projection_name(read, spec),
        false => "PROJECTION_DEFAULT",
    }
}

/// Returns a plan's explanation as the first stage of a pipeline.
fn around(plan: &DocumentBuf, rest: &[(DocumentBuf, usize)], from: usize, counted: &Counted) -> DocumentBuf {
    let mut out = Builder::new();
    out.append_optional(c"explainVersion", plan.view().get("explainVersion"));
    out.begin_array(c"stages");
    out.push_document().begin_document(c"$cursor");
    let sections = ["queryPlanner", "executionStats"];
    for element in plan.view().iter().filter(|element| sections.contains(&element.name())) {
        out.append_element(&element);
    }
    out.end();
    counted.append_numbers(from, &mut out);
    out.end();
    counted.append(rest, &mut out);
    out.end();
    out.finish()
}

/// Numbers of documents that the plan and each later stage returned.
#[derive(Default)]
struct Counted {
    counts: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Counted {
    /// Runs the stages over a plan's output. The stages own their source, so they share the plan.
    fn run(
        &self,
        stream: &Records,
        rest: &Pipeline,
        environment: &Environment,
        effect: &mut Effect,
    ) -> Result<()> {
        let mut counts = Vec::new();
        let mut count = |mut stage: Box<dyn Stage>| -> Box<dyn Stage> {
            let count = Arc::new(AtomicU64::new(0));
            counts.push(count.clone());
            from_fn(move || {
                let next = stage.next()?;
                count.fetch_add(u64::from(next.is_some()), Relaxed);
                Ok(next)
            })
        };
        let plan = stream.clone();
        let source = count(from_fn(move || plan.lock().next()));
        let mut stages = rest.run_through(source, environment, &mut count)?;
        let outcome = std::iter::from_fn(|| stages.next().transpose()).try_for_each(|row| row.map(drop));
        effect.matched = counts.first().map_or(0, |count| count.load(Relaxed));
        *self.counts.lock() = counts;
        outcome
    }

    /// Appends the stages, each with its number of output documents if known.
    fn append(&self, stages: &[(DocumentBuf, usize)], out: &mut Builder) {
        for (i, (spec, position)) in stages.iter().enumerate() {
            out.push_document().append_all(spec.view());
            // A stage may be printed as several. A sort or a field before the main one returns the input.
            let has_more = stages.get(i + 1).is_some_and(|(_, next)| next == position);
            let name = spec.view().first().map_or("", |stage| stage.name());
            let is_input = has_more && matches!(name, "$sort" | "$addFields");
            self.append_numbers(position + usize::from(!is_input), out);
            out.end();
        }
    }

    /// Returns the number of documents that the plan (0) or a stage (from 1) returned.
    fn after(&self, position: usize) -> Option<u64> {
        self.counts.lock().get(position).map(|count| count.load(Relaxed))
    }

    fn append_numbers(&self, position: usize, out: &mut Builder) {
        if let Some(count) = self.after(position) {
            out.append(c"nReturned", count as i64).append(c"executionTimeMillisEstimate", 0i64);
        }
    }
}

/// Accumulators that the slot-based engine leaves to the classic stages.
const LEFT_OUT: [&str; 2] = ["$median", "$percentile"];

/// Returns true if the slot-based engine runs a stage of explain output, which must be a `$group`.
pub(super) fn is_pushed(stage: Document<'_>) -> bool {
    let Some(Value::Document(group)) = stage.get("$group") else { return false };
    let operators = group.iter().filter_map(|field| field.value().as_document()?.first());
    !operators.into_iter().any(|operator| LEFT_OUT.contains(&operator.name()))
}

/// Prints the groups over the plan's stages, the last group on top.
pub(super) fn explain(counts: &[Arc<AtomicU64>], tree: &Node, out: &mut Explainer) {
    let Some((last, before)) = counts.split_last() else { return tree.describe(out) };
    let groups = last.load(Relaxed);
    out.stage("GROUP", &Stats { works: groups + 1, advanced: groups, ended: true });
    out.input(|out| explain(before, tree, out));
}

/// Numbers the stages. The first running stage has number 1.
pub(super) fn numbered(stage: Document<'_>) -> DocumentBuf {
    let mut out = Builder::new();
    append_numbered(stage, 0, &mut out);
    out.finish()
}

/// The number of stages in a plan limits the recursion.
fn append_numbered(stage: Document<'_>, mut before: i32, out: &mut Builder) {
    let number = before + stages_in(stage);
    for element in stage {
        match (element.name(), element.value()) {
            ("stage", Value::String(name)) => {
                out.append(c"stage", name).append(c"planNodeId", number);
                if name == "COLLSCAN" && stage.get("filter").is_none() {
                    out.append(c"filter", Document::EMPTY);
                }
            }
            ("inputStage", Value::Document(input)) => {
                out.begin_document(c"inputStage");
                append_numbered(input, before, out);
                out.end();
            }
            ("inputStages", Value::Array(inputs)) => {
                out.begin_array(c"inputStages");
                for input in inputs.iter().filter_map(|input| input.as_document()) {
                    out.push_document();
                    append_numbered(input, before, out);
                    out.end();
                    before += stages_in(input);
                }
                out.end();
            }
            _ => {
                out.append_element(&element);
            }
        }
    }
}

/// Returns the number of stages in a subtree.
fn stages_in(stage: Document<'_>) -> i32 {
    let one = stage.get("inputStage").and_then(|input| input.as_document()).map_or(0, stages_in);
    let several = stage.get("inputStages").and_then(|inputs| inputs.as_array());
    let several =
        several.into_iter().flat_map(|inputs| inputs.iter()).filter_map(|input| input.as_document());
    1 + one + several.map(stages_in).sum::<i32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn stages_are_numbered_as_they_run() {
        let plan = "{stage: 'GROUP', inputStage: {stage: 'FETCH', filter: {a: 1}, inputStage: {stage: 'OR', \
                    inputStages: [{stage: 'IXSCAN'}, {stage: 'COLLSCAN'}]}}}";
        assert_eq!(
            numbered(parse(plan).unwrap().view()).to_string(),
            "{ stage: \"GROUP\", planNodeId: 5, inputStage: { stage: \"FETCH\", planNodeId: 4, filter: { a: 1 }, \
             inputStage: { stage: \"OR\", planNodeId: 3, inputStages: [ { stage: \"IXSCAN\", planNodeId: 1 }, { \
             stage: \"COLLSCAN\", planNodeId: 2, filter: {} } ] } } }"
        );
    }

    #[test]
    fn percentiles_are_left_out() {
        let pushed = |stage: &str| is_pushed(parse(stage).unwrap().view());
        assert!(pushed("{$group: {_id: '$a', n: {$sum: 1}}}"));
        assert!(!pushed("{$group: {_id: '$a', n: {$median: {input: '$b', method: 'approximate'}}}}"));
        assert!(!pushed("{$sort: {a: 1}}"));
    }
}
