//! aggregate: a pipeline over a collection, a view, or no collection.
//!
//! [`PlannedPipeline`] moves the leading stages into a plan. A new stage that a plan can execute is a case there. This
//! module also has `$out`: it writes a collection's new content to a temporary collection and then replaces the target
//! at once.

use super::collections::OtherCollections;
use super::oplog::{OplogScan, Order, TransactionsScan};
use super::{Documents, with_metadata};
use crate::catalog::Catalog;
use crate::catalog::collection::{Collection, Options, TEMPORARY};
use crate::catalog::history::View;
use crate::cursor::{Cursor, Opener};
use crate::database::Database;
use crate::ddl::RenameRequest;
use crate::index::{Index, IndexSpec, KeyKind};
use crate::operation::{NeverWaits, Operation, PlanUse};
use crate::plan::{Grouped, Hint, Read, no_sort};
use crate::scope::Scope;
use crate::write::InsertRequest;
use base::bson::{Array, Document, DocumentBuf, FieldName, Path};
use base::{Namespace, Result, bail, err};
use query::field_path::check_field_name;
use query::matcher::Matcher;
use query::pipeline::{Environment, RunsOn, Sink, first_stage, from_documents};
use query::{Context, MetaKind, Pipeline, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pipeline sources that only the server can provide.
pub enum ServerSource<'a> {
    /// Operations for `$currentOp`.
    CurrentOp,
    /// Sessions for `$listLocalSessions` with these options.
    ListLocalSessions(Document<'a>),
    /// The settings of query shapes, for `$querySettings`.
    QuerySettings,
    /// Latencies of a namespace for `$collStats`.
    Latencies {
        /// The namespace.
        namespace: &'a str,
        /// Includes histograms.
        histograms: bool,
    },
}

/// Returns the documents of the server's sources.
pub type Sources = Arc<dyn Fn(ServerSource<'_>) -> Result<Vec<DocumentBuf>> + Send + Sync>;

/// An aggregate with unparsed stages.
#[derive(Clone)]
pub struct AggregateRequest<'a> {
    /// The stages.
    pub pipeline: Array<'a>,
    /// Index hint for the leading `$match` and `$sort`.
    pub hint: Option<Hint>,
    /// Allows blocking stages to spill to disk; `None` uses the server's setting.
    pub allow_disk_use: Option<bool>,
    /// Provider of the server's sources.
    pub sources: Option<Sources>,
    /// Lets `$out` and `$merge` write documents that fail validation.
    pub bypass_validation: bool,
}

impl<'a> AggregateRequest<'a> {
    /// Returns a request with MongoDB's default options.
    pub fn new(pipeline: Array<'a>) -> AggregateRequest<'a> {
        AggregateRequest {
            pipeline,
            hint: None,
            allow_disk_use: None,
            sources: None,
            bypass_validation: false,
        }
    }
}

/// Checks that the first stage of a pipeline is allowed over a collection, or without one.
///
/// Errors: InvalidNamespace.
pub(crate) fn check_first_stage(namespace: &Namespace, pipeline: &Pipeline) -> Result<()> {
    let on_database = namespace.collection() == "$cmd.aggregate";
    let Some(first) = pipeline.first() else {
        return match on_database {
            true => Err(err!(InvalidNamespace, "{{aggregate: 1}} is not valid for an empty pipeline.")),
            false => Ok(()),
        };
    };
    let name = first.name;
    match first.runs_on {
        RunsOn::Admin if namespace.as_str() != "admin.$cmd.aggregate" => Err(err!(
            InvalidNamespace,
            "{name} must be run against the 'admin' database with {{aggregate: 1}}"
        )),
        RunsOn::Sessions if namespace.as_str() != "config.system.sessions" => {
            Err(err!(InvalidNamespace, "{name} may only be run against config.system.sessions"))
        }
        RunsOn::Collection if on_database => Err(err!(
            InvalidNamespace,
            "{{aggregate: 1}} is not valid for '{name}'; a collection is required."
        )),
        RunsOn::Database if !on_database => {
            Err(err!(InvalidNamespace, "'{name}' can only be run with {{aggregate: 1}}"))
        }
        _ => Ok(()),
    }
}

/// The leading part of a pipeline as a plan (filter, order, limit), and the remaining stages.
pub(crate) struct PlannedPipeline {
    pub(crate) read: Read,
    pub(crate) rest: Pipeline,
}

impl PlannedPipeline {
    /// Moves leading stages of a pipeline into a plan over a collection.
    ///
    /// Errors: as [`split`](Self::split); errors of `$geoNear`.
    pub(crate) fn of(
        mut pipeline: Pipeline,
        collection: Option<&Collection>,
        context: &Context,
    ) -> Result<PlannedPipeline> {
        let (Some(collection), Some(near)) = (collection, pipeline.take_leading_near()) else {
            return PlannedPipeline::split(pipeline, context);
        };
        let path = match near.key() {
            Some(key) => key.to_string(),
            None => geo_field(collection)?,
        };
        let filter = near.filter(FieldName::new(&path)?, context)?;
        let mut read = Read::new(Arc::new(Matcher::parse_query(filter.view(), context)?));
        pipeline.optimize(context)?;
        read.limit = pipeline.take_leading_limit().unwrap_or(0);
        let requested = context.metadata.required().without(MetaKind::RecordId);
        if requested.has(MetaKind::SortKey) && pipeline.asks_for_unsorted_key() {
            return Err(no_sort());
        }
        read.metadata = requested.without(MetaKind::SortKey);
        Ok(PlannedPipeline { read, rest: near.fields().then(pipeline) })
    }

    /// Moves the leading `$match`, `$sort`, `$skip` and `$limit` of a pipeline into a plan.
    ///
    /// Errors: 16410 for a field name that only filters allow; BadValue for a sort key without a
    /// sort; errors of the optimizer.
    pub(crate) fn split(mut pipeline: Pipeline, context: &Context) -> Result<PlannedPipeline> {
        pipeline.optimize(context)?;
        let matcher = pipeline.take_leading_match();
        let mut read = Read::new(matcher.unwrap_or_else(|| Arc::new(Matcher::every(context))));
        if let Some(sort) = pipeline.take_leading_sort() {
            read.sort = Some(Arc::new(sort.pattern.collated(&context.collation)));
            read.limit = sort.limit.unwrap_or(0);
        } else if let Some(limit) = pipeline.take_leading_limit() {
            read.limit = limit;
        }
        if let Some(skip) = pipeline.take_leading_skip(read.limit) {
            read.skip = skip;
            read.limit = read.limit.saturating_sub(skip);
            if let Some(limit) = pipeline.take_leading_limit() {
                read.limit = if read.limit == 0 { limit } else { read.limit.min(limit) };
            }
        }
        let requested = context.metadata.required().without(MetaKind::RecordId);
        if read.sort.is_none() && requested.has(MetaKind::SortKey) && pipeline.asks_for_unsorted_key() {
            return Err(no_sort());
        }
        read.metadata = requested.without(MetaKind::SortKey);
        let reads = pipeline.dependencies();
        check_names(reads.as_deref().unwrap_or_default())?;
        // The sort key needs whole documents.
        read.covering = if requested.is_empty() { reads } else { None };
        if requested.is_empty() && read.limit == 0 && read.skip == 0 {
            read.grouped = pipeline.describe().next().and_then(|stage| grouped(stage.view()));
        }
        Ok(PlannedPipeline { read, rest: pipeline })
    }
}

/// Returns the requirements of a `$group` that needs one document of each group: it groups by the
/// value of a path, with either only `$first` or only `$last`.
fn grouped(stage: Document<'_>) -> Option<Grouped> {
    let group = stage.get("$group")?.as_document()?;
    let path = group.get("_id")?.as_str()?.strip_prefix('$')?;
    if path == "_id" || path.starts_with('$') {
        return None;
    }
    let accumulators = group.iter().filter(|field| field.name() != "_id");
    let names: Option<Vec<&str>> =
        accumulators.map(|field| field.value().as_document()?.first().map(|call| call.name())).collect();
    let all = |name: &str| names.iter().flatten().all(|other| *other == name);
    let last = match names.as_deref()? {
        [] => false,
        _ if all("$first") => false,
        _ if all("$last") => true,
        _ => return None,
    };
    Some(Grouped { path: Path::new(FieldName::trusted(path)), last })
}

/// Returns the field of the only geospatial index, for a `$geoNear` without a key.
///
/// Errors: IndexNotFound.
fn geo_field(collection: &Collection) -> Result<String> {
    let data = collection.data()?;
    for (kind, name) in [(KeyKind::Flat, "2d"), (KeyKind::Sphere, "2dsphere")] {
        let parts =
            data.indexes.iter().filter(|index| !index.spec.hidden).flat_map(|index| &index.spec.parts);
        let mut fields = parts.filter(|part| part.kind == kind).map(|part| part.path.as_str());
        let Some(first) = fields.next() else { continue };
        if fields.next().is_some() {
            bail!(
                IndexNotFound,
                "There is more than one {name} index on {}; unsure which to use for $geoNear",
                collection.namespace
            );
        }
        return Ok(first.to_string());
    }
    Err(err!(IndexNotFound, "$geoNear requires a 2d or 2dsphere index, but none were found"))
}

/// Checks that pipelines allow the field names of these paths. Filters allow more names.
///
/// Errors: 16410.
fn check_names(paths: &[Path]) -> Result<()> {
    let mut names = paths.iter().flat_map(|path| path.components()).map(|component| component.name());
    names.find(|name| name.starts_with('$')).map_or(Ok(()), check_field_name)
}

impl Database {
    /// Opens a cursor over the output of a pipeline. The collection name `$cmd.aggregate` stands
    /// for the whole database.
    ///
    /// Errors: parse errors, and errors of the stages as they start.
    pub fn aggregate(self: &Arc<Self>, scope: &Scope, request: &AggregateRequest<'_>) -> Result<Cursor> {
        let view = scope.view(self);
        let opened = self.aggregate_on(scope, view, request);
        self.confirmed(view, opened)
    }

    fn aggregate_on(
        self: &Arc<Self>,
        scope: &Scope,
        view: &View,
        request: &AggregateRequest<'_>,
    ) -> Result<Cursor> {
        let Scope { operation, namespace, context, .. } = scope;
        if let Some(collection) = view.catalog.get(namespace)
            && first_stage(request.pipeline).is_some_and(|first| first.opens_stream())
        {
            // Views have no change streams.
            collection.data()?;
        }
        let resolved = view.catalog.resolve_for(namespace, request.pipeline)?;
        let stages = resolved.followed_by(request.pipeline);
        let pipeline = Pipeline::parse(super::find::stages(&stages), context)?;
        pipeline.check_metadata(context)?;
        check_first_stage(namespace, &pipeline)?;
        let read = super::find::stages(&stages);
        view.catalog.check_read(namespace.database(), read, &context.collation)?;
        // Statistics within a view's pipeline are of the namespace that the view reads.
        let is_of_namespace = pipeline.first().is_some_and(|first| first.name == "$collStats");
        let read = if is_of_namespace { &resolved.namespace } else { namespace };
        let others = OtherCollections::new(self, operation, read, view, request);
        let mut environment = Environment::new(Arc::new(others), context.clone());
        environment.allow_disk_use = request.allow_disk_use.unwrap_or(environment.allow_disk_use);
        if pipeline.is_change_stream() {
            let (source, progress) = self.open_stream(operation, namespace, pipeline, &environment)?;
            let mut cursor = Cursor::new(namespace.clone(), source, operation.clone());
            cursor.opener = Opener::Aggregate;
            cursor.set_change_stream(progress);
            return Ok(cursor);
        }
        let writes = pipeline.writes();
        if writes {
            operation.mark_writes();
            // The stages keep their progress.
            operation.keep_progress();
            // The pipeline may create its target collection, which changes the catalog.
            self.confirmed(view, Ok(()))?;
        }
        let source = self.run(operation, view, &resolved.namespace, pipeline, request, &environment)?;
        let mut cursor = Cursor::new(namespace.clone(), source, operation.clone());
        cursor.opener = Opener::Aggregate;
        cursor.writes = writes;
        if !writes {
            cursor.uuid = view.catalog.get(namespace).map(|collection| collection.uuid);
        }
        Ok(cursor)
    }

    fn run(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        view: &View,
        namespace: &Namespace,
        pipeline: Pipeline,
        request: &AggregateRequest<'_>,
        environment: &Environment,
    ) -> Result<Box<dyn Stage>> {
        if self.is_oplog(namespace) && pipeline.reads_collection() {
            let filter = pipeline.leading_match().map_or(Document::EMPTY, |filter| filter.view());
            let context = &environment.context;
            let every = Arc::new(Matcher::every(context));
            pipeline.refuse_text(&"")?;
            let scan = OplogScan::new(self, operation, every, filter, Order::Forward, context)?;
            return pipeline.run(Box::new(Documents(Box::new(scan))), environment);
        }
        if self.is_transactions(namespace) && pipeline.reads_collection() {
            pipeline.refuse_text(&"")?;
            let scan = TransactionsScan::new(self, operation, view.snapshot.as_ref())?;
            return pipeline.run(Box::new(Documents(Box::new(scan))), environment);
        }
        let collection = view.catalog.get(namespace).cloned();
        let Some(collection) = collection.filter(|_| pipeline.reads_collection()) else {
            if pipeline.reads_collection() {
                operation.record_plan([PlanUse::EOF]);
            }
            pipeline.refuse_text(&format_args!(" (no such collection '{namespace}')"))?;
            return pipeline.run(from_documents(Vec::new()), environment);
        };
        let PlannedPipeline { mut read, rest } =
            PlannedPipeline::of(pipeline, Some(&collection), &environment.context)?;
        read.hint = request.hint.clone();
        read.allow_disk_use = environment.allow_disk_use;
        if rest.names().any(|name| name == "$sort") {
            operation.count_sort();
        }
        let (sort, context) = (read.sort.clone(), &environment.context);
        let records = self.read(operation, view, &collection, read, context)?;
        rest.run(with_metadata(records, sort, context), environment)
    }

    /// Drops the temporary collections of each `$out` that the end of an earlier process has interrupted, as mongod
    /// does at its start. Logs failures. Not for a store that other processes share, because they may still write to
    /// one.
    pub fn drop_temporary_collections(&self) {
        for collection in self.catalog().all() {
            let namespace = &collection.namespace;
            if collection.is_temporary() {
                log::info!("dropping the temporary collection {namespace}");
                if let Err(error) = self.drop_collection(&NeverWaits, namespace) {
                    log::warn!("cannot drop the temporary collection {namespace}: {error}");
                }
            }
        }
    }
}

/// New content of the target while it is written, in a temporary collection. An unfinished
/// replacement leaves the old content unchanged when dropped.
pub(crate) struct Replacement {
    database: Arc<Database>,
    /// The temporary collection.
    scope: Scope,
    /// UUID of the temporary collection.
    uuid: [u8; 16],
    target: Namespace,
    /// The target before the replacement; `None` for a target that must not exist.
    replaced: Option<Definition>,
    pub(super) bypass_validation: bool,
    finished: bool,
}

/// Options and indexes of a collection. Empty if the collection does not exist.
#[derive(PartialEq)]
struct Definition {
    options: DocumentBuf,
    /// Specifications by name.
    indexes: BTreeMap<String, DocumentBuf>,
}

impl Definition {
    fn of(collection: Option<&Arc<Collection>>) -> Definition {
        let indexes = collection.and_then(|collection| collection.data.as_ref()).map(|data| &data.indexes);
        let spec = |index: &Arc<Index>| (index.spec.name.to_string(), index.spec.to_document());
        Definition {
            options: collection.map(|collection| collection.options_document()).unwrap_or_default(),
            indexes: indexes.into_iter().flatten().map(spec).collect(),
        }
    }
}

impl Replacement {
    /// Creates the temporary collection with the target's options and indexes. Errors: 17152 for a capped target.
    pub(crate) fn new(
        database: &Arc<Database>,
        scope: &Scope,
        bypass_validation: bool,
    ) -> Result<Replacement> {
        let existing = database.collection(&scope.namespace);
        if existing.as_ref().is_some_and(|existing| existing.options.capped.is_some()) {
            bail!(17152, "namespace '{}' is capped so it can't be used for $out", scope.namespace);
        }
        let data = existing.as_ref().map(|existing| existing.data()).transpose()?;
        let indexes = data.iter().flat_map(|data| data.indexes.iter().skip(1));
        let specs: Vec<Arc<IndexSpec>> = indexes.map(|index| index.spec.clone()).collect();
        let options = existing.as_ref().map(|existing| existing.options.clone()).unwrap_or_default();
        let mut replacement = Replacement::with(database, scope, &options, &specs)?;
        replacement.replaced = Some(Definition::of(existing.as_ref()));
        replacement.bypass_validation = bypass_validation;
        Ok(replacement)
    }

    /// Creates the temporary collection for a target that does not exist yet.
    pub(super) fn with(
        database: &Arc<Database>,
        target: &Scope,
        options: &Options,
        specs: &[Arc<IndexSpec>],
    ) -> Result<Replacement> {
        let name = format!("{TEMPORARY}{}", database.new_object_id());
        let temporary = Namespace::new(target.namespace.database(), &name)?;
        let uuid = database.create_with_indexes(&target.operation, &temporary, options, specs)?;
        Ok(Replacement {
            database: database.clone(),
            scope: Scope::new(&target.operation, &temporary, &target.context),
            uuid,
            target: target.namespace.clone(),
            replaced: None,
            bypass_validation: true,
            finished: false,
        })
    }

    /// Refuses a temporary collection that another client has dropped.
    ///
    /// Errors: CollectionUUIDMismatch.
    fn check_temporary(&self, catalog: &Catalog) -> Result<()> {
        let temporary = &self.scope.namespace;
        match catalog.get(temporary) {
            Some(known) if known.uuid == self.uuid => Ok(()),
            _ => catalog.check_uuid(temporary, Some(self.uuid)).map_err(|error| {
                error.context("$out cannot complete as the temp collection was dropped while executing")
            }),
        }
    }

    /// Refuses the end of a replacement if the temporary collection is gone, or if the target's options or indexes
    /// have changed. The rename would discard these changes.
    ///
    /// Errors: CollectionUUIDMismatch, CommandFailed.
    fn check_end(&self, catalog: &Catalog) -> Result<()> {
        self.check_temporary(catalog)?;
        let Some(replaced) = &self.replaced else { return Ok(()) };
        let (target, now) = (&self.target, Definition::of(catalog.get(&self.target)));
        if now.options != replaced.options {
            bail!(
                CommandFailed,
                "collection options of target collection {target} changed during processing. Original options: {}, \
                 new options: {}",
                replaced.options,
                now.options
            );
        }
        if now != *replaced {
            bail!(CommandFailed, "indexes of target collection {target} changed during processing.");
        }
        Ok(())
    }
}

impl Sink for Replacement {
    fn write(&mut self, document: Document<'_>) -> Result<()> {
        self.check_temporary(&self.database.known_catalog())?;
        let insert = InsertRequest { document, bypass_validation: self.bypass_validation };
        self.database.insert(&self.scope, insert).map(drop)
    }

    fn finish(&mut self) -> Result<()> {
        let (from, to) = (self.scope.namespace.clone(), self.target.clone());
        let rename = RenameRequest::new(from, to, self.replaced.is_some());
        let operation = self.scope.operation.as_ref();
        self.database.rename_checked(operation, &rename, |catalog| self.check_end(catalog))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.finished {
            let temporary = self.scope.namespace.clone();
            let drop = move |database: &Database| database.drop_collection(&NeverWaits, &temporary).map(drop);
            self.database.remove_later(Box::new(drop));
            self.database.clean_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;
    use crate::{CollectionChange, ValidatorChange};
    use base::ErrorCode;
    use base::bson::extended_json::parse;

    impl Fixture {
        fn drop_index(&self) {
            let Scope { operation, namespace, .. } = &self.scope;
            self.database.drop_indexes(operation.as_ref(), namespace, None).unwrap();
        }

        fn drop_database(&self) {
            self.database.drop_database(self.scope.operation.as_ref(), "d").unwrap();
        }

        /// Begins to replace the content by two documents.
        fn replace(&self) -> Replacement {
            let mut replacement = Replacement::new(&self.database, &self.scope, false).unwrap();
            for document in ["{_id: 2, u: 2}", "{_id: 3, u: 3}"] {
                replacement.write(parse(document).unwrap().view()).unwrap();
            }
            replacement
        }

        /// Checks that a replacement fails if the target is changed meanwhile.
        #[track_caller]
        fn refuses(&self, change: impl FnOnce(), message: &str) {
            let mut replacement = self.replace();
            change();
            let error = replacement.finish().unwrap_err();
            assert_eq!((error.code(), error.message()), (ErrorCode::CommandFailed, message));
        }
    }

    #[test]
    fn a_replacement_keeps_changes_of_its_target() {
        let fixture = Fixture::new();
        let indexes = "indexes of target collection d.c changed during processing.";
        fixture.refuses(|| fixture.insert("{_id: 1}"), indexes);
        fixture.refuses(|| fixture.index("{key: {u: 1}, name: 'u', unique: true}"), indexes);
        fixture.refuses(|| fixture.drop_index(), indexes);
        let filter = parse("{_id: {$exists: true}}").unwrap();
        let validate = || {
            let validator = ValidatorChange { filter: Some(filter.view()), ..ValidatorChange::default() };
            let change = CollectionChange { validator, ..CollectionChange::default() };
            fixture.database.modify_collection(&fixture.scope, &change, &mut Default::default()).unwrap();
        };
        fixture.refuses(
            validate,
            "collection options of target collection d.c changed during processing. Original options: {}, new \
             options: { validator: { _id: { $exists: true } }, validationLevel: \"strict\", validationAction: \"error\" }",
        );
        assert_eq!(fixture.records(), Some(1));
        // Another collection with the same options and indexes is replaced.
        let mut replacement = fixture.replace();
        let operation = fixture.scope.operation.as_ref();
        fixture.database.drop_collection(operation, &fixture.scope.namespace).unwrap();
        fixture.insert("{_id: 1}");
        validate();
        replacement.finish().unwrap();
        assert_eq!(fixture.records(), Some(2));
    }

    #[test]
    fn a_reset_keeps_the_content_of_a_replacement() {
        let fixture = Fixture::new();
        fixture.insert("{_id: 1}");
        let mut replacement = fixture.replace();
        let operation = fixture.scope.operation.as_ref();
        assert_eq!(fixture.database.reset_database(operation, "d").unwrap().0, 1);
        replacement.finish().unwrap();
        assert_eq!(fixture.records(), Some(2));
    }

    #[test]
    fn a_replacement_ends_if_its_temporary_collection_is_dropped() {
        let fixture = Fixture::new();
        let mut replacement = fixture.replace();
        fixture.drop_database();
        let document = parse("{_id: 4}").unwrap();
        let error = replacement.write(document.view()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CollectionUUIDMismatch);
        assert_eq!(fixture.database.catalog().databases().count(), 0);
        // Another client's collection of this name does not become the target.
        fixture
            .database
            .insert(&replacement.scope, InsertRequest { document: document.view(), bypass_validation: false })
            .unwrap();
        let error = replacement.finish().unwrap_err();
        assert_eq!(error.code(), ErrorCode::CollectionUUIDMismatch);
        assert_eq!(fixture.records(), None);
    }
}
