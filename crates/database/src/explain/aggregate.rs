//! Explaining an aggregation: the plan of its front, then the stages that the plan doesn't do.

use super::read::projection_name;
use super::{Effect, Records, Subject, Top, Verbosity, begin, drain, missing};
use crate::database::Database;
use crate::operation::Operation;
use crate::plan;
use crate::read::{AggregateRequest, Front, OtherCollections, check_first_stage, stages};
use base::bson::{Builder, DocumentBuf, DocumentCow, Value};
use base::{Namespace, Result, err};
use parking_lot::Mutex;
use query::pipeline::Environment;
use query::{Context, Pipeline, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Database {
    /// Explains an aggregation.
    ///
    /// Errors: 51029 for `$out` and `$merge` where the plan is to be run; those of the aggregation.
    pub fn explain_aggregate(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        request: &AggregateRequest<'_>,
        verbosity: Verbosity,
        context: &Arc<Context>,
    ) -> Result<DocumentBuf> {
        let view = self.confirmed_view_for(operation);
        let resolved = view.catalog.resolve(namespace)?;
        let holder = resolved.followed_by(request.pipeline);
        let pipeline = Pipeline::parse(stages(&holder), context)?;
        pipeline.check_metadata(context)?;
        check_first_stage(namespace, &pipeline)?;
        if pipeline.writes() && verbosity != Verbosity::QueryPlanner {
            return Err(err!(
                51029,
                "explain of {} is not allowed with verbosity {}",
                pipeline.names().last().unwrap_or_default(),
                verbosity.name()
            ));
        }
        let others = OtherCollections::new(self, operation, namespace, &view, request.sources.clone());
        let mut environment = Environment::new(Arc::new(others), context.clone());
        environment.allow_disk_use = request.allow_disk_use.unwrap_or(environment.allow_disk_use);
        let mut out = begin();
        if !pipeline.reads_collection() {
            out.begin_array("stages");
            Counted::default().append(&pipeline, &mut out);
            out.end();
            return Ok(out.finish());
        }
        let collection = view.catalog.get(&resolved.namespace).cloned();
        let Front { mut read, rest } = Front::of(pipeline, collection.as_deref(), context)?;
        read.hint = request.hint.clone();
        read.allow_disk_use = environment.allow_disk_use;
        let Some(collection) = collection else {
            let nothing = missing(&resolved.namespace, &read.matcher, verbosity, "EOF");
            return Ok(if rest.is_empty() { nothing } else { around(&nothing, &rest, &Counted::default()) });
        };
        let plan = plan::plan(operation, &view, &collection, read, context)?;
        let namespace = &resolved.namespace;
        let inclusion = plain_inclusion(&rest).filter(|_| plan.read.covering.is_some());
        let done = rest.is_empty() || inclusion.is_some();
        let top = match inclusion {
            Some(spec) => Top::Projection(projection_name(&plan.read, spec.view()), spec),
            None => Top::Documents,
        };
        let subject = Subject { namespace, collection: &collection, plan: &plan, top };
        if done {
            subject.explain(verbosity, &mut drain, &mut out)?;
            return Ok(out.finish());
        }
        let counted = Counted::default();
        let mut run = |stream| counted.run(stream, &rest, &environment);
        subject.explain(verbosity, &mut run, &mut out)?;
        Ok(around(&out.finish(), &rest, &counted))
    }
}

/// A pipeline's only stage where it is a `$project` that includes fields and computes none, as
/// MongoDB prints it: the plan does it.
fn plain_inclusion(rest: &Pipeline) -> Option<DocumentBuf> {
    let mut stages = rest.describe();
    let (Some(stage), None) = (stages.next(), stages.next()) else { return None };
    let element = stage.view().iter().next().filter(|element| element.name() == "$project")?;
    let Value::Document(spec) = element.value() else { return None };
    let mut fields = Vec::new();
    let mut id = true;
    for element in spec.iter() {
        let included = match element.value() {
            Value::Boolean(included) => included,
            value if value.as_number().is_some() => value.is_truthy(),
            _ => return None,
        };
        match element.name() {
            "_id" => id = included,
            name if included => fields.push(name),
            _ => return None,
        }
    }
    if fields.is_empty() {
        return None;
    }
    let mut out = Builder::new();
    if id {
        out.append("_id", true);
    }
    fields.into_iter().for_each(|name| {
        out.append(name, true);
    });
    if !id {
        out.append("_id", false);
    }
    Some(out.finish())
}

/// A plan's explanation as the first of a pipeline's stages.
fn around(plan: &DocumentBuf, rest: &Pipeline, counted: &Counted) -> DocumentBuf {
    let mut out = begin();
    out.begin_array("stages");
    out.push_document().begin_document("$cursor");
    let sections = ["queryPlanner", "executionStats"];
    for element in plan.view().iter().filter(|element| sections.contains(&element.name())) {
        out.append_element(&element);
    }
    out.end();
    counted.append_numbers(0, &mut out);
    out.end();
    counted.append(rest, &mut out);
    out.end();
    out.finish()
}

/// How many documents came out of the plan, and of each stage after it.
#[derive(Default)]
struct Counted {
    counts: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Counted {
    /// Runs the stages over what the plan yields. They own their source, so the plan is lent to
    /// them and taken back when they are done.
    fn run(&self, stream: Records, rest: &Pipeline, environment: &Environment) -> Result<(Records, Effect)> {
        let lent = Arc::new(Mutex::new(stream));
        let mut counts = Vec::new();
        let mut count = |stage: Box<dyn Stage>| -> Box<dyn Stage> {
            let count = Arc::new(AtomicU64::new(0));
            counts.push(count.clone());
            Box::new(Count { stage, count })
        };
        let source = count(Box::new(Lent(lent.clone())));
        let mut stages = rest.run_through(source, environment, &mut count)?;
        while stages.next()?.is_some() {}
        drop(stages);
        let found = counts.first().map_or(0, |count| count.load(Relaxed));
        *self.counts.lock() = counts;
        let stream = Arc::into_inner(lent).ok_or_else(|| err!(InternalError, "a stage kept its source"))?;
        Ok((stream.into_inner(), Effect { found, ..Effect::default() }))
    }

    /// Appends the stages, each with what came out of it where that is known.
    fn append(&self, stages: &Pipeline, out: &mut Builder) {
        for (position, spec) in stages.describe().enumerate() {
            out.push_document().append_all(spec.view());
            self.append_numbers(position + 1, out);
            out.end();
        }
    }

    fn append_numbers(&self, position: usize, out: &mut Builder) {
        if let Some(count) = self.counts.lock().get(position) {
            out.append("nReturned", count.load(Relaxed) as i64).append("executionTimeMillisEstimate", 0i64);
        }
    }
}

/// A plan lent to a pipeline.
struct Lent(Arc<Mutex<Records>>);

impl Stage for Lent {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        Ok(self.0.lock().next()?.map(|record| record.document))
    }
}

struct Count {
    stage: Box<dyn Stage>,
    count: Arc<AtomicU64>,
}

impl Stage for Count {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let next = self.stage.next()?;
        self.count.fetch_add(u64::from(next.is_some()), Relaxed);
        Ok(next)
    }
}
