//! Views: checked at creation, resolved to a collection and a pipeline at reads.

use crate::catalog::Catalog;
use crate::catalog::collection::{Collection, Options, View, note_read};
use crate::commit::catalog_change::CatalogChange;
use crate::scope::check_view;
use base::bson::{Array, Builder, DocumentBuf};
use base::{Namespace, Result, bail, err};
use query::pipeline::first_stage;
use query::{Collation, Context, Pipeline};
use std::collections::HashMap;

/// Most views in a chain of views.
const DEPTH_MAX: usize = 20;

/// A resolved view.
#[derive(Debug)]
pub struct Resolved {
    /// The collection; it may not exist.
    pub namespace: Namespace,
    /// Stages of all views in the chain, innermost first, as elements of one array; `None` if the
    /// name is not a view.
    pub pipeline: Option<DocumentBuf>,
}

impl Catalog {
    /// Resolves views to their collection.
    ///
    /// Errors: ViewDepthLimitExceeded, GraphContainsCycle.
    pub fn resolve(&self, namespace: &Namespace) -> Result<Resolved> {
        let mut pipelines = Vec::new();
        let mut current = namespace.clone();
        while let Some(view) = self.get(&current).and_then(|collection| collection.options.view.as_ref()) {
            pipelines.push(&view.pipeline);
            current = Namespace::new(current.database(), &view.on)?;
            if is_of_namespace(view.pipeline.view().as_array().unwrap_or(Array::EMPTY)) {
                break;
            }
            // As in MongoDB, a chain of this length exists but cannot be read.
            if pipelines.len() >= DEPTH_MAX {
                return Err(depth_error());
            }
        }
        if pipelines.is_empty() {
            return Ok(Resolved { namespace: current, pipeline: None });
        }
        let mut stages = Builder::new();
        stages.begin_array(c"pipeline");
        for pipeline in pipelines.into_iter().rev() {
            for stage in pipeline.view().as_array().unwrap_or(Array::EMPTY).iter() {
                stages.push(stage);
            }
        }
        stages.end();
        Ok(Resolved { namespace: current, pipeline: Some(stages.finish()) })
    }
}

/// Whether a pipeline returns statistics of its namespace, also of a view.
fn is_of_namespace(pipeline: Array<'_>) -> bool {
    first_stage(pipeline).is_some_and(|first| first.name == "$collStats")
}

impl Catalog {
    /// Resolves views to their collection for a pipeline. `$collStats` reads the view itself.
    ///
    /// Errors: as [`resolve`](Self::resolve).
    pub(crate) fn resolve_for(&self, namespace: &Namespace, pipeline: Array<'_>) -> Result<Resolved> {
        match is_of_namespace(pipeline) {
            true => Ok(Resolved { namespace: namespace.clone(), pipeline: None }),
            false => self.resolve(namespace),
        }
    }

    /// Checks the views that a pipeline reads besides its input, before it starts.
    ///
    /// Errors: OptionNotSupportedOnView for a view with another collation, ViewDepthLimitExceeded,
    /// MaxSubPipelineDepthExceeded for pipelines nested too deeply.
    pub(crate) fn check_read(&self, database: &str, stages: Array<'_>, collation: &Collation) -> Result<()> {
        let mut read = Vec::new();
        note_read(stages, 0, &mut read);
        let mut heights = HashMap::new();
        for name in &read {
            let Ok(namespace) = Namespace::new(database, name) else { continue };
            if let Some(collection) = self.get(&namespace) {
                check_view(collection, collation)?;
                self.resolve(&namespace)?;
            }
            if self.height(&namespace, &mut heights) >= query::pipeline::DEPTH_MAX {
                return Err(query::pipeline::too_deep());
            }
        }
        Ok(())
    }

    /// Returns the nesting depth of pipelines in a view. Views have no cycles.
    fn height(&self, namespace: &Namespace, heights: &mut HashMap<String, usize>) -> usize {
        let Some(view) = self.get(namespace).and_then(|collection| collection.options.view.as_ref()) else {
            return 0;
        };
        if let Some(height) = heights.get(namespace.collection()) {
            return *height;
        }
        let mut below = |name: &str| {
            let named = Namespace::new(namespace.database(), name);
            named.map_or(0, |namespace| self.height(&namespace, heights))
        };
        let within = view.inner_reads().iter().map(|name| below(name) + 1).max().unwrap_or(0);
        let height = within.max(below(&view.on));
        heights.insert(namespace.collection().to_string(), height);
        height
    }
}

impl Resolved {
    /// Returns the stages of the views in the chain.
    pub fn stages(&self) -> Array<'_> {
        let pipeline = self.pipeline.as_ref().and_then(|holder| holder.view().get("pipeline"));
        pipeline.and_then(|value| value.as_array()).unwrap_or(Array::EMPTY)
    }

    /// Returns the views' stages followed by other stages, as one array under `pipeline`.
    pub fn followed_by(&self, stages: Array<'_>) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array(c"pipeline");
        for stage in self.stages().iter().chain(stages.iter()) {
            out.push(stage);
        }
        out.end();
        out.finish()
    }
}

/// Checks a view's pipeline: it must parse and must not write.
///
/// Errors: parse errors; OptionNotSupportedOnView.
pub(crate) fn check_pipeline(namespace: &Namespace, view: &View, context: &Context) -> Result<()> {
    Namespace::new(namespace.database(), &view.on)?;
    let pipeline = Pipeline::parse(view.pipeline.view().as_array().unwrap_or(Array::EMPTY), context)?;
    if let Some(writer) = pipeline.writer() {
        bail!(
            OptionNotSupportedOnView,
            "The aggregation stage {} in location {} of the pipeline cannot be used in the view definition of {namespace} because it writes to disk",
            writer.name,
            pipeline.len().saturating_sub(1)
        );
    }
    if pipeline.is_change_stream() {
        bail!(OptionNotSupportedOnView, "$changeStream cannot be used in a view definition");
    }
    if let Some(first) = pipeline.first().filter(|first| first.needs_no_collection()) {
        bail!(InvalidNamespace, "'{}' cannot be used in a view definition", first.name);
    }
    Ok(())
}

impl CatalogChange<'_> {
    /// Changes the definition of a view. `checked` is the definition whose pipeline the caller has checked.
    ///
    /// Errors: InvalidOptions for a collection, and errors of creating a view.
    pub(super) fn change_view(
        &self,
        collection: &mut Collection,
        view: View,
        checked: Option<&View>,
        context: &Context,
    ) -> Result<()> {
        let namespace = &collection.namespace;
        if !collection.is_view() {
            bail!(InvalidOptions, "ns: {namespace} is not a view");
        }
        if checked != Some(&view) {
            check_pipeline(namespace, &view, context)?;
        }
        collection.options.view = Some(view);
        self.check_view(namespace, &collection.options)
    }

    /// Checks a new view against the other views: cycles are not allowed.
    ///
    /// Errors: GraphContainsCycle, ViewDepthLimitExceeded, OptionNotSupportedOnView.
    pub(crate) fn check_view(&self, namespace: &Namespace, options: &Options) -> Result<()> {
        let Some(view) = &options.view else { return Ok(()) };
        let views = Views { catalog: self.catalog(), namespace, made: view };
        views.check()?;
        views.check_collation(&options.collation)
    }
}

fn depth_error() -> base::Error {
    err!(ViewDepthLimitExceeded, "View depth limit exceeded; maximum depth is {DEPTH_MAX}")
}

/// The views of a database, including a new view that is not in the catalog yet.
struct Views<'a> {
    catalog: &'a Catalog,
    namespace: &'a Namespace,
    made: &'a View,
}

impl Views<'_> {
    /// Returns the names that a view reads; none for a collection.
    fn reads(&self, name: &str) -> Vec<String> {
        if name == self.namespace.collection() {
            return self.made.reads();
        }
        let named = Namespace::new(self.namespace.database(), name).ok();
        let found = named.and_then(|namespace| self.catalog.get(&namespace)?.options.view.as_ref());
        found.map_or_else(Vec::new, View::reads)
    }

    /// Checks the chains of views through the new view. The other chains were checked before.
    ///
    /// Errors: GraphContainsCycle, ViewDepthLimitExceeded.
    fn check(&self) -> Result<()> {
        let made = self.namespace.collection();
        let below = self.depth(made, &mut Vec::new(), &mut HashMap::new())?;
        match below + self.height(made, 0, &mut HashMap::new()) > DEPTH_MAX {
            true => Err(depth_error()),
            false => Ok(()),
        }
    }

    /// Errors: OptionNotSupportedOnView if the new view reads a view with another collation, or is
    /// read by one.
    fn check_collation(&self, collation: &Collation) -> Result<()> {
        let made = self.namespace;
        let other = |name: &str| {
            let other = Namespace::new(made.database(), name).ok()?;
            let view = self.catalog.get(&other).filter(|collection| collection.is_view())?;
            (other != *made && view.options.collation != *collation).then_some(other)
        };
        if let Some(other) = self.made.reads().iter().find_map(|name| other(name)) {
            bail!(OptionNotSupportedOnView, "View {made} has conflicting collation with view {other}");
        }
        if let Some(other) = self.catalog.views_reading(made.database(), made.collection()).find_map(other) {
            bail!(
                OptionNotSupportedOnView,
                "View {made} has a collation that does not match the collation of view {other}"
            );
        }
        Ok(())
    }

    /// Returns the length of the longest chain of views that begins with a name. The depth limit of views limits the
    /// recursion.
    fn depth(
        &self,
        name: &str,
        path: &mut Vec<String>,
        depths: &mut HashMap<String, usize>,
    ) -> Result<usize> {
        let read = self.reads(name);
        if read.is_empty() {
            return Ok(0);
        }
        if let Some(depth) = depths.get(name) {
            return Ok(*depth);
        }
        if let Some(start) = path.iter().position(|on_path| on_path == name) {
            let database = self.namespace.database();
            let cycle = path.iter().skip(start).map(String::as_str).chain([name]);
            let cycle: Vec<String> = cycle.map(|name| format!("{database}.{name}")).collect();
            bail!(GraphContainsCycle, "View cycle detected: {}", cycle.join(" => "));
        }
        if path.len() >= DEPTH_MAX {
            return Err(depth_error());
        }
        path.push(name.to_string());
        let mut depth = 0;
        for below in read {
            depth = depth.max(self.depth(&below, path, depths)?);
        }
        path.pop();
        depths.insert(name.to_string(), depth + 1);
        Ok(depth + 1)
    }

    /// Returns the length of the longest chain of views above a name, at most the limit. The chains have no cycle.
    fn height(&self, name: &str, passed: usize, heights: &mut HashMap<String, usize>) -> usize {
        if passed > DEPTH_MAX {
            return 0;
        }
        if let Some(height) = heights.get(name) {
            return *height;
        }
        let mut readers = self.catalog.views_reading(self.namespace.database(), name).collect::<Vec<_>>();
        // A view that is about to be replaced has other inputs.
        readers.retain(|reader| *reader != self.namespace.collection());
        let above = readers.iter().map(|reader| 1 + self.height(reader, passed + 1, heights)).max();
        let height = above.unwrap_or(0);
        heights.insert(name.to_string(), height);
        height
    }
}
