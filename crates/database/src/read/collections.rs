//! Other collections of a pipeline: sources and targets of `$lookup`, `$unionWith` and `$merge`.

use super::aggregate::{AggregateRequest, PlannedPipeline, Replacement, ServerSource, Sources};
use super::{Documents, with_metadata};
use crate::catalog::history::View;
use crate::database::Database;
use crate::ddl::Resolved;
use crate::index::{IndexSpec, KeyKind, KeyPart};
use crate::operation::Operation;
use crate::plan::Read;
use crate::scope::{Scope, check_view};
use crate::write::{InsertRequest, UpdateRequest};
use base::bson::{Document, DocumentBuf, Path};
use base::{ErrorCode, Namespace, Result, bail, err};
use parking_lot::Mutex;
use query::matcher::Matcher;
use query::pipeline::{
    Collections, Environment, External, Namespace as Named, Sink, UniqueIndex, from_documents, matching,
};
use query::{Collation, Context, Pipeline, Stage, Update};
use std::sync::Arc;

/// All collections for one aggregation, on a single view.
pub(crate) struct OtherCollections {
    database: Arc<Database>,
    operation: Arc<Operation>,
    /// Namespace of the aggregation.
    namespace: Namespace,
    view: View,
    sources: Option<Sources>,
    bypass_validation: bool,
    /// The parsed views.
    views: Arc<Mutex<Vec<ParsedView>>>,
}

/// The stages of a view, parsed once: a `$lookup` may read the view for each of its documents.
struct ParsedView {
    namespace: Namespace,
    /// The variables of the context. Expressions keep the positions of variables.
    variables: Vec<String>,
    pipeline: Pipeline,
}

impl OtherCollections {
    pub(crate) fn new(
        database: &Arc<Database>,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        view: &View,
        request: &AggregateRequest<'_>,
    ) -> OtherCollections {
        OtherCollections {
            database: database.clone(),
            operation: operation.clone(),
            namespace: namespace.clone(),
            view: view.clone(),
            sources: request.sources.clone(),
            bypass_validation: request.bypass_validation,
            views: Arc::default(),
        }
    }

    fn ask_server(&self, source: ServerSource<'_>) -> Result<Vec<DocumentBuf>> {
        match &self.sources {
            Some(sources) => sources(source),
            None => Err(err!(NotImplemented, "the stage needs a server")),
        }
    }

    /// Returns the scope of a stage's writes.
    fn scope(&self, named: &Named, context: &Arc<Context>) -> Result<Scope> {
        let namespace = self.resolve(named)?;
        namespace.check_length()?;
        Ok(Scope::new(&self.operation, &namespace, context))
    }

    fn resolve(&self, named: &Named) -> Result<Namespace> {
        let database = named.database.as_deref().unwrap_or(self.namespace.database());
        Namespace::new(database, &named.collection)
    }

    /// Resolves views. Their collation must equal the pipeline's collation.
    fn resolve_view(&self, namespace: &Namespace, collation: &Collation) -> Result<Resolved> {
        if let Some(collection) = self.view.catalog.get(namespace) {
            check_view(collection, collation)?;
        }
        self.view.catalog.resolve(namespace)
    }

    /// Returns the parsed stages of a view.
    fn stages_of_view(
        &self,
        namespace: &Namespace,
        resolved: &Resolved,
        context: &Context,
    ) -> Result<Pipeline> {
        let names = || context.variables.iter().map(|(name, _)| name);
        let same = |view: &&ParsedView| view.namespace == *namespace && view.variables.iter().eq(names());
        let mut views = self.views.lock();
        if let Some(view) = views.iter().find(same) {
            return Ok(view.pipeline.clone());
        }
        let mut pipeline = Pipeline::parse(resolved.stages(), context)?;
        pipeline.check_metadata(context)?;
        pipeline.optimize(context)?;
        let variables = names().cloned().collect();
        views.push(ParsedView { namespace: namespace.clone(), variables, pipeline: pipeline.clone() });
        Ok(pipeline)
    }

    /// Updates a document. Inserts another if none matches. Returns true if one matched.
    fn update_or_insert(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        insert: Option<Document<'_>>,
    ) -> Result<bool> {
        let database = &self.database;
        let update = || database.by_latest_catalog(|| database.update(scope, request));
        let mut outcome = update()?;
        if outcome.matched == 0
            && let Some(document) = insert
        {
            let insert = InsertRequest { document, bypass_validation: self.bypass_validation };
            if let Err(error) = database.insert(scope, insert) {
                // Another client may have inserted the document. It can then be updated.
                if error.code() == ErrorCode::DuplicateKey {
                    outcome = update()?;
                }
                if outcome.matched == 0 {
                    return Err(error);
                }
            }
        }
        Ok(outcome.matched > 0)
    }

    /// Runs the leading stages of a pipeline as a plan over a collection, then the remaining
    /// stages.
    fn through(
        &self,
        namespace: &Namespace,
        pipeline: Pipeline,
        environment: &Environment,
    ) -> Result<Box<dyn Stage>> {
        let collection = self.view.catalog.get(namespace).cloned();
        let Some(collection) = collection.filter(|_| pipeline.reads_collection()) else {
            pipeline.refuse_text(&format_args!(" (no such collection '{namespace}')"))?;
            if pipeline.reads_collection() {
                return pipeline.run(from_documents(Vec::new()), environment);
            }
            // A source, such as $collStats, reports on this collection.
            let others = OtherCollections { namespace: namespace.clone(), ..self.clone() };
            return pipeline.run(from_documents(Vec::new()), &environment.with_collections(Arc::new(others)));
        };
        let PlannedPipeline { mut read, rest } =
            PlannedPipeline::of(pipeline, Some(&collection), &environment.context)?;
        read.allow_disk_use = environment.allow_disk_use;
        let (sort, context) = (read.sort.clone(), &environment.context);
        let records = self.database.read(&self.operation, &self.view, &collection, read, context)?;
        rest.run(with_metadata(records, sort, context), environment)
    }
}

impl Collections for OtherCollections {
    fn find(&self, from: &Named, matcher: Arc<Matcher>, environment: &Environment) -> Result<Box<dyn Stage>> {
        let context = &environment.context;
        let namespace = self.resolve(from)?;
        let resolved = self.resolve_view(&namespace, &context.collation)?;
        if resolved.pipeline.is_some() {
            let others = OtherCollections { namespace: namespace.clone(), ..self.clone() };
            let environment = environment.with_collections(Arc::new(others));
            let found = self.aggregate(from, &Pipeline::default(), &environment)?;
            return Ok(matching(found, matcher, context.clone()));
        }
        match self.view.catalog.get(&namespace).cloned() {
            None => Ok(from_documents(Vec::new())),
            Some(collection) => {
                let read = Read::new(matcher);
                let records = self.database.read(&self.operation, &self.view, &collection, read, context)?;
                Ok(Box::new(Documents(records)))
            }
        }
    }

    fn scan(
        &self,
        from: &Named,
        paths: &[Path],
        environment: &Environment,
    ) -> Result<Option<Box<dyn Stage>>> {
        let context = &environment.context;
        let namespace = self.resolve(from)?;
        if self.resolve_view(&namespace, &context.collation)?.pipeline.is_some() {
            return Ok(None);
        }
        let Some(collection) = self.view.catalog.get(&namespace) else { return Ok(None) };
        let may_serve = |spec: &IndexSpec| {
            spec.wildcard.is_some() || spec.parts.first().is_some_and(|part| paths.contains(&part.path))
        };
        if collection.data()?.indexes.iter().any(|index| may_serve(&index.spec)) {
            return Ok(None);
        }
        let read = Read::new(Arc::new(Matcher::parse(Document::EMPTY, context)?));
        let records = self.database.read(&self.operation, &self.view, collection, read, context)?;
        Ok(Some(Box::new(Documents(records))))
    }

    fn aggregate(
        &self,
        from: &Named,
        pipeline: &Pipeline,
        environment: &Environment,
    ) -> Result<Box<dyn Stage>> {
        let namespace = self.resolve(from)?;
        let resolved = self.resolve_view(&namespace, &environment.context.collation)?;
        if resolved.pipeline.is_none() {
            pipeline.check_metadata(&environment.context)?;
            return self.through(&namespace, pipeline.clone(), environment);
        }
        if let Some(first) = pipeline.first().filter(|_| !pipeline.reads_collection()) {
            bail!(40602, "{} is only valid as the first stage in a pipeline.", first.name);
        }
        let inner = self.stages_of_view(&namespace, &resolved, &environment.context)?;
        pipeline.check_metadata_behind(&inner, &environment.context)?;
        let source = self.through(&resolved.namespace, inner, environment)?;
        pipeline.run(source, environment)
    }

    fn source(&self, source: &External, _context: &Arc<Context>) -> Result<Box<dyn Stage>> {
        let (database, namespace) = (&self.database, &self.namespace);
        let documents = match source {
            External::CollStats(requested) => {
                let latencies = |histograms| match &self.sources {
                    Some(_) => {
                        self.ask_server(ServerSource::Latencies { namespace: namespace.as_str(), histograms })
                    }
                    None => Ok(Vec::new()),
                };
                vec![database.coll_stats_stage(&self.operation, requested, namespace, &latencies)?]
            }
            External::CurrentOp(_) => self.ask_server(ServerSource::CurrentOp)?,
            External::IndexStats => database.index_stats_stage(namespace)?,
            External::ListLocalSessions(options) => {
                self.ask_server(ServerSource::ListLocalSessions(options.view()))?
            }
            External::PlanCacheStats => database.cached_plans_stage(namespace),
            External::QueryStats => Vec::new(),
            External::QuerySettings { .. } => self.ask_server(ServerSource::QuerySettings)?,
        };
        Ok(from_documents(documents))
    }

    fn namespace(&self) -> (&str, &str) {
        (self.namespace.database(), self.namespace.collection())
    }

    fn list(&self, database: Option<&str>) -> Vec<(String, DocumentBuf)> {
        let selects = |name: &str| database.is_none_or(|database| database == name);
        let collections =
            self.view.catalog.all().filter(|collection| selects(collection.namespace.database()));
        collections
            .map(|collection| (collection.namespace.database().to_string(), collection.listed()))
            .collect()
    }

    fn out(&self, into: &Named, context: &Arc<Context>) -> Result<Box<dyn Sink>> {
        let namespace = self.resolve(into)?;
        let scope = Scope::new(&self.operation, &namespace, context);
        Ok(Box::new(Replacement::new(&self.database, &scope, self.bypass_validation)?))
    }

    fn unique_index(
        &self,
        on: &Named,
        fields: &[String],
        collation: &Collation,
    ) -> Result<Option<UniqueIndex>> {
        let catalog = self.database.catalog();
        let Some(collection) = catalog.get(&self.resolve(on)?) else { return Ok(None) };
        let Some(data) = &collection.data else { return Ok(None) };
        let found = data.indexes.iter().filter(|index| {
            let names = |part: &KeyPart| {
                matches!(part.kind, KeyKind::Ascending | KeyKind::Descending)
                    && fields.iter().any(|field| field == part.path.as_str())
            };
            let covers = index.spec.parts.len() == fields.len() && index.spec.parts.iter().all(names);
            let plain = index.spec.collation == *collation && index.spec.partial.is_none();
            covers && index.unique() && plain
        });
        // An index without gaps is better, if there are several.
        Ok(found
            .map(|index| UniqueIndex { is_sparse: index.spec.sparse })
            .min_by_key(|found| found.is_sparse))
    }

    fn insert(&self, into: &Named, document: Document<'_>, context: &Arc<Context>) -> Result<()> {
        let insert = InsertRequest { document, bypass_validation: self.bypass_validation };
        let inserted = self.database.insert(&self.scope(into, context)?, insert);
        self.operation.leave_queue();
        inserted.map(drop)
    }

    fn update(
        &self,
        into: &Named,
        filter: Document<'_>,
        update: Arc<Update>,
        insert: Option<Document<'_>>,
        context: &Arc<Context>,
    ) -> Result<bool> {
        let scope = self.scope(into, context)?;
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse(filter, context)?),
            update,
            multi: false,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: self.bypass_validation,
        };
        let updated = self.update_or_insert(&scope, &request, insert);
        self.operation.leave_queue();
        updated
    }
}

impl Clone for OtherCollections {
    fn clone(&self) -> Self {
        OtherCollections {
            database: self.database.clone(),
            operation: self.operation.clone(),
            namespace: self.namespace.clone(),
            view: self.view.clone(),
            sources: self.sources.clone(),
            bypass_validation: self.bypass_validation,
            views: self.views.clone(),
        }
    }
}
