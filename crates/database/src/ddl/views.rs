//! Views: checked when made, resolved to a collection and a pipeline when read.

use crate::catalog::Catalog;
use crate::collection::{Options, View};
use crate::commit::{Committed, Transaction};
use crate::database::Database;
use base::bson::{Array, Builder, DocumentBuf, Value};
use base::{Namespace, Result, err};
use query::{Context, Pipeline};

/// How deep views may read views.
const DEPTH_MAX: usize = 20;

/// What a view comes down to.
#[derive(Debug)]
pub struct Resolved {
    /// The collection that is read; it may not exist.
    pub namespace: Namespace,
    /// The stages of all views on the way, innermost first, as elements of one array; `None` where
    /// the name was no view.
    pub pipeline: Option<DocumentBuf>,
}

impl Catalog {
    /// Follows views down to the collection they read.
    ///
    /// Errors: ViewDepthLimitExceeded, GraphContainsCycle.
    pub fn resolve(&self, namespace: &Namespace) -> Result<Resolved> {
        let mut pipelines = Vec::new();
        let mut current = namespace.clone();
        while let Some(view) = self.get(&current).and_then(|collection| collection.options.view.as_ref()) {
            if pipelines.len() >= DEPTH_MAX {
                return Err(depth_error());
            }
            pipelines.push(&view.pipeline);
            current = Namespace::new(current.database(), &view.on)?;
        }
        if pipelines.is_empty() {
            return Ok(Resolved { namespace: current, pipeline: None });
        }
        let mut stages = Builder::new();
        stages.begin_array("pipeline");
        for pipeline in pipelines.into_iter().rev() {
            for stage in pipeline.view().as_array().unwrap_or(Array::EMPTY).iter() {
                stages.push(stage);
            }
        }
        stages.end();
        Ok(Resolved { namespace: current, pipeline: Some(stages.finish()) })
    }
}

impl Resolved {
    /// The stages of the views on the way.
    pub fn stages(&self) -> Array<'_> {
        let pipeline = self.pipeline.as_ref().and_then(|holder| holder.view().get("pipeline"));
        pipeline.and_then(|value| value.as_array()).unwrap_or(Array::EMPTY)
    }

    /// The views' stages followed by others, as one array under `pipeline`.
    pub fn followed_by(&self, stages: Array<'_>) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array("pipeline");
        for stage in self.stages().iter().chain(stages.iter()) {
            out.push(stage);
        }
        out.end();
        out.finish()
    }
}

impl Transaction<'_> {
    /// Checks a view about to be made: its pipeline parses, writes nothing, and reads no view that
    /// reads it in turn.
    pub(crate) fn check_view(
        &self,
        namespace: &Namespace,
        options: &Options,
        context: &Context,
    ) -> Result<()> {
        let Some(view) = &options.view else { return Ok(()) };
        Namespace::new(namespace.database(), &view.on)?;
        let pipeline = Pipeline::parse(view.pipeline.view().as_array().unwrap_or(Array::EMPTY), context)?;
        if pipeline.writes() {
            return Err(err!(
                OptionNotSupportedOnView,
                "The aggregation stage {} in location {} of the pipeline cannot be used in the view definition of {namespace} because it writes to disk",
                pipeline.names().last().unwrap_or_default(),
                pipeline.len().saturating_sub(1)
            ));
        }
        self.check_cycles(namespace, view)
    }

    fn check_cycles(&self, namespace: &Namespace, view: &View) -> Result<()> {
        let mut path = vec![namespace.clone()];
        let mut next = Namespace::new(namespace.database(), &view.on)?;
        loop {
            let cycle = next == *namespace;
            path.push(next.clone());
            if cycle {
                let names: Vec<&str> = path.iter().map(Namespace::as_str).collect();
                return Err(err!(GraphContainsCycle, "View cycle detected: {}", names.join(" => ")));
            }
            if path.len() > DEPTH_MAX {
                return Err(depth_error());
            }
            match self.catalog().get(&next).and_then(|collection| collection.options.view.as_ref()) {
                Some(inner) => next = Namespace::new(next.database(), &inner.on)?,
                None => return Ok(()),
            }
        }
    }
}

fn depth_error() -> base::Error {
    err!(ViewDepthLimitExceeded, "View depth limit exceeded; maximum depth is {DEPTH_MAX}")
}

impl Database {
    /// Changes what a view shows.
    ///
    /// Errors: NamespaceNotFound, InvalidOptions for a collection, and those of making a view.
    pub fn set_view(
        &self,
        namespace: &Namespace,
        on: &str,
        pipeline: Value<'_>,
        context: &Context,
    ) -> Result<Committed> {
        let mut transaction = self.begin();
        let mut collection = crate::collection::Collection::clone(transaction.catalog().require(namespace)?);
        if !collection.is_view() {
            return Err(err!(InvalidOptions, "ns: {namespace} is not a view"));
        }
        collection.options.view = Some(View { on: on.to_string(), pipeline: pipeline.to_owned() });
        transaction.check_view(namespace, &collection.options, context)?;
        transaction.put_collection(std::sync::Arc::new(collection))?;
        transaction.commit()
    }
}
