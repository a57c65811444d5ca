//! The find command: filter, sort and projection.
//!
//! A find on a collection is a plan and a projection. A find on a view or with an oplog sort becomes a pipeline
//! ([`FindRequest::to_pipeline`]). This module also has tailable cursors: collection scans that continue at their last
//! position. A new option is a field of [`FindRequest`], and a stage or an error in `to_pipeline`.

use super::AggregateRequest;
use super::oplog::{OplogScan, Order};
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::cursor::{Cursor, Opener};
use crate::database::Database;
use crate::exec::RecordStream;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::plan::{Hint, Read, note_sort_key, read_missing, required_metadata};
use crate::scope::Scope;
use crate::storage_error;
use crate::watch::Interest;
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, Element, Path};
use base::encoding;
use base::{Namespace, Result, bail, err};
use query::matcher::{Matcher, mentions_expr};
use query::pipeline::{from_documents, set_path};
use query::{Arena, Context, Interrupt, MetaKind, Projection, Row, SortPattern, Stage};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Direction, Range};

/// A find with unparsed parts.
#[derive(Clone, Default)]
pub struct FindRequest<'a> {
    /// Filter of the documents.
    pub filter: Document<'a>,
    /// Projection; empty includes all fields.
    pub projection: Document<'a>,
    /// Sort; empty means any order.
    pub sort: Document<'a>,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of documents to return; zero is unlimited.
    pub limit: u64,
    /// Index hint.
    pub hint: Option<Hint>,
    /// Inclusive lower bound on the hinted index.
    pub min: Option<Document<'a>>,
    /// Exclusive upper bound on the hinted index.
    pub max: Option<Document<'a>>,
    /// Returns index keys instead of documents.
    pub return_key: bool,
    /// Adds each record's id as `$recordId`.
    pub show_record_id: bool,
    /// Keeps the cursor open at the end of a capped collection.
    pub tailable: bool,
    /// Lets getMore of a tailable cursor wait for new documents.
    pub await_data: bool,
    /// Allows a blocking sort to spill to disk; `None` uses the server's setting.
    pub allow_disk_use: Option<bool>,
    /// The name of a set option that a find on a view cannot have, beside these fields.
    pub not_on_views: Option<&'static str>,
}

impl<'a> FindRequest<'a> {
    /// Returns a request for all matching documents.
    pub fn new(filter: Document<'a>) -> FindRequest<'a> {
        FindRequest { filter, ..FindRequest::default() }
    }

    /// Parses the request into the input of the planner and the projection.
    pub(crate) fn parse(&self, context: &Context) -> Result<(Read, Option<Projection>)> {
        let matcher = Arc::new(Matcher::parse_query(self.filter, context)?);
        let sort = match self.sort.is_empty() {
            true => None,
            false => {
                let pattern = SortPattern::parse(self.sort)?.require_metadata(context);
                Some(Arc::new(pattern.collated(&context.collation)))
            }
        };
        let projection = match self.projection.is_empty() {
            true => None,
            false => Some(Projection::parse_find(self.projection, context)?),
        };
        let is_positional = projection.as_ref().is_some_and(|projection| projection.needs_position());
        if is_positional && mentions_expr(self.filter) {
            bail!(QueryFeatureNotAllowed, "$expr is not allowed in this context");
        }
        let covering = match &projection {
            Some(projection) if !self.show_record_id && !self.tailable => projection.fields(),
            _ => None,
        };
        let metadata = required_metadata(&matcher, sort.as_deref(), context)?;
        let read = Read {
            sort,
            hint: self.hint.clone(),
            skip: self.skip,
            limit: self.limit,
            min: self.min.map(Document::to_owned),
            max: self.max.map(Document::to_owned),
            covering,
            projection: (!self.projection.is_empty()).then(|| self.projection.to_owned()),
            return_key: self.return_key,
            metadata,
            allow_disk_use: self.allow_disk_use.unwrap_or(context.limits.allow_disk_use),
            alone: true,
            ..Read::new(matcher)
        };
        Ok((read, projection))
    }

    /// Returns the hint beside [`to_pipeline`](Self::to_pipeline). A `$natural` sort is a hint there.
    pub(crate) fn hint_of_pipeline(&self) -> Option<Hint> {
        match self.sort.get("$natural").and_then(|direction| direction.as_number()) {
            Some(direction) => Some(Hint::Natural { forward: direction.to_f64() > 0.0 }),
            None => self.hint.clone(),
        }
    }

    /// Returns the request on a view as pipeline stages.
    ///
    /// Errors: InvalidPipelineOperator.
    pub(crate) fn to_view_pipeline(&self) -> Result<DocumentBuf> {
        let pipeline = self.to_pipeline()?;
        match self.not_on_views {
            Some(option) => Err(not_in_pipelines(option)),
            None => Ok(pipeline),
        }
    }

    /// Returns the request as pipeline stages.
    pub(crate) fn to_pipeline(&self) -> Result<DocumentBuf> {
        let options = [
            ("min", self.min.is_some()),
            ("max", self.max.is_some()),
            ("returnKey", self.return_key),
            ("showRecordId", self.show_record_id),
            ("$elemMatch", self.projection.iter().any(is_elem_match)),
        ];
        if let Some((option, _)) = options.into_iter().find(|(_, is_set)| *is_set) {
            return Err(not_in_pipelines(option));
        }
        if self.tailable {
            bail!(InvalidPipelineOperator, "Tailable cursors are not supported in aggregation.");
        }
        let mut out = Builder::new();
        out.begin_array(c"pipeline");
        if !self.filter.is_empty() {
            out.push_document().append(c"$match", self.filter).end();
        }
        if !self.sort.is_empty() && self.sort.find("$natural").is_none() {
            out.push_document().append(c"$sort", self.sort).end();
        }
        if self.skip > 0 {
            out.push_document().append(c"$skip", self.skip as i64).end();
        }
        if self.limit > 0 {
            out.push_document().append(c"$limit", self.limit as i64).end();
        }
        if !self.projection.is_empty() {
            out.push_document().append(c"$project", self.projection).end();
        }
        out.end();
        Ok(out.finish())
    }
}

impl Database {
    /// Opens a cursor over the documents of a find.
    ///
    /// Errors: parse errors of filter, projection and sort, also without the collection; BadValue
    /// for a hint without a matching index or a tailable cursor on a collection that is not capped.
    pub fn find(self: &Arc<Self>, scope: &Scope, request: &FindRequest<'_>) -> Result<Cursor> {
        let Scope { namespace, context, .. } = scope;
        let (read, projection) = request.parse(context)?;
        if self.is_oplog(namespace) {
            return self.find_in_oplog(scope, request, (read, projection));
        }
        if self.is_transactions(namespace) {
            return self.find_in_transactions(scope, request);
        }
        let view = scope.view(self);
        let found = self.find_on(scope, view, request, (read, projection));
        self.confirmed(view, found)
    }

    fn find_on(
        self: &Arc<Self>,
        scope: &Scope,
        view: &View,
        request: &FindRequest<'_>,
        (read, projection): (Read, Option<Projection>),
    ) -> Result<Cursor> {
        let Scope { operation, namespace, context, .. } = scope;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            read_missing(operation, &read.matcher, namespace)?;
            let mut cursor = Cursor::new(namespace.clone(), from_documents(Vec::new()), operation.clone());
            cursor.missing = true;
            return Ok(cursor);
        };
        if collection.is_view() {
            let pipeline = request.to_view_pipeline()?;
            let request = AggregateRequest {
                allow_disk_use: request.allow_disk_use,
                hint: request.hint_of_pipeline(),
                ..AggregateRequest::new(stages(&pipeline))
            };
            return self.aggregate(scope, &request);
        }
        let projection = (projection, read.matcher.clone(), read.sort.clone());
        let records: Box<dyn RecordStream> = match request.tailable {
            true => Box::new(self.tail(operation, &collection, read, context)?),
            false => self.read(operation, view, &collection, read, context)?,
        };
        let source = with_projection(records, projection, request, context);
        let mut cursor = Cursor::new(namespace.clone(), source, operation.clone());
        cursor.opener = Opener::Find;
        cursor.uuid = Some(collection.uuid);
        cursor.remaining_limit = (request.limit > 0).then_some(request.limit);
        // As in MongoDB, an empty collection cannot be tailed.
        cursor.tailable = request.tailable && collection.records() > 0;
        cursor.await_data = request.await_data;
        Ok(cursor)
    }

    /// Opens a cursor over the oplog. Scans backward for a descending `$natural`, and uses a
    /// pipeline for any other sort.
    fn find_in_oplog(
        self: &Arc<Self>,
        scope: &Scope,
        request: &FindRequest<'_>,
        (read, projection): (Read, Option<Projection>),
    ) -> Result<Cursor> {
        let Scope { operation, namespace, context, .. } = scope;
        let natural = read.sort.as_ref().map(|sort| sort.natural());
        let order = match natural {
            Some(None) => {
                let pipeline = request.to_pipeline()?;
                let request = AggregateRequest {
                    allow_disk_use: request.allow_disk_use,
                    ..AggregateRequest::new(stages(&pipeline))
                };
                return self.aggregate(scope, &request);
            }
            Some(Some(false)) => Order::Backward,
            _ if request.tailable => Order::Tailing,
            _ => Order::Forward,
        };
        let scan = OplogScan::new(self, operation, read.matcher.clone(), request.filter, order, context)?;
        let scan = Box::new(scan.window(request.skip, request.limit));
        let source = with_projection(scan, (projection, read.matcher, read.sort), request, context);
        let mut cursor = Cursor::new(namespace.clone(), source, operation.clone());
        cursor.opener = Opener::Find;
        cursor.remaining_limit = (request.limit > 0).then_some(request.limit);
        cursor.tailable = request.tailable;
        cursor.await_data = request.await_data;
        cursor.interest = Interest::Everything;
        Ok(cursor)
    }

    /// Opens a cursor over the sessions' records through a pipeline.
    fn find_in_transactions(self: &Arc<Self>, scope: &Scope, request: &FindRequest<'_>) -> Result<Cursor> {
        let Scope { namespace, .. } = scope;
        if request.tailable {
            return Err(uncapped_tail(namespace));
        }
        let pipeline = request.to_pipeline()?;
        let allow_disk_use = request.allow_disk_use;
        let request = AggregateRequest { allow_disk_use, ..AggregateRequest::new(stages(&pipeline)) };
        self.aggregate(scope, &request)
    }

    fn tail(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        collection: &Arc<Collection>,
        read: Read,
        context: &Arc<Context>,
    ) -> Result<Tail> {
        if read.matcher.text()?.is_some() {
            bail!(BadValue, "text and tailable cursor not allowed in same query");
        }
        if collection.options.capped.is_none() {
            return Err(uncapped_tail(&collection.namespace));
        }
        if let Some(data) = &collection.data {
            data.scans.total.fetch_add(1, Relaxed);
            data.scans.tailable.fetch_add(1, Relaxed);
        }
        Ok(Tail::new(self.clone(), operation.clone(), collection, (read.matcher, read.skip), context.clone()))
    }
}

/// Returns the stages in a document with a `pipeline` array, such as the result of `to_pipeline`.
pub(crate) fn stages(document: &DocumentBuf) -> base::bson::Array<'_> {
    let value = document.view().get("pipeline");
    value.and_then(|value| value.as_array()).unwrap_or(base::bson::Array::EMPTY)
}

/// Returns true for a field of a projection with `$elemMatch`, which `$project` does not have.
fn is_elem_match(field: Element<'_>) -> bool {
    field.value().as_document().is_some_and(|projected| projected.find("$elemMatch").is_some())
}

fn not_in_pipelines(option: &str) -> base::Error {
    err!(InvalidPipelineOperator, "Option {option} not supported in aggregation.")
}

/// Returns the error for a tailable cursor on a collection that is not capped.
fn uncapped_tail(namespace: &Namespace) -> base::Error {
    err!(
        BadValue,
        "error processing query: ns={namespace} tailable cursor requested on non capped collection"
    )
}

/// Applies a find's projection and options to records.
fn with_projection(
    records: Box<dyn RecordStream>,
    (projection, matcher, sort): (Option<Projection>, Arc<Matcher>, Option<Arc<SortPattern>>),
    request: &FindRequest<'_>,
    context: &Arc<Context>,
) -> Box<dyn Stage> {
    // As in MongoDB, `returnKey` replaces all fields except the sort key.
    let show_record_id = request.show_record_id && !request.return_key;
    let projection = projection.and_then(|projection| match request.return_key {
        true if projection.sort_keys().is_empty() => None,
        true => Some(Shape::IndexKey(projection.sort_keys().to_vec())),
        false => Some(Shape::Projected(projection)),
    });
    match (&projection, show_record_id) {
        (None, false) => Box::new(super::Documents(records)),
        _ => Box::new(Project {
            records,
            projection,
            matcher,
            sort,
            show_record_id,
            context: context.clone(),
            arena: Arena::new(),
        }),
    }
}

/// Form of a find's results.
enum Shape {
    /// Documents with the projection applied.
    Projected(Projection),
    /// Index keys with the sort key at these paths.
    IndexKey(Vec<Path>),
}

/// Applies a find's projection and `showRecordId`.
struct Project {
    records: Box<dyn RecordStream>,
    projection: Option<Shape>,
    matcher: Arc<Matcher>,
    sort: Option<Arc<SortPattern>>,
    show_record_id: bool,
    context: Arc<Context>,
    arena: Arena,
}

impl Project {
    fn project(&mut self, row: &Row) -> Result<DocumentBuf> {
        let document = row.document.view();
        let projection = match &self.projection {
            None => return Ok(document.to_owned()),
            Some(Shape::IndexKey(paths)) => return Ok(with_sort_key(row, paths)),
            Some(Shape::Projected(projection)) => projection,
        };
        let position = match projection.needs_position() {
            true => self.matcher.matches_at(document, &self.context)?.and_then(|found| found.position),
            false => None,
        };
        self.arena.reset();
        projection.apply(row.view(), position, &self.context, &self.arena)
    }
}

/// Returns an index key with the sort key at these paths.
fn with_sort_key(row: &Row, paths: &[Path]) -> DocumentBuf {
    let sort_key = row.get(MetaKind::SortKey);
    let key = row.document.view().to_owned();
    paths.iter().fold(key, |key, path| set_path(key.view(), path, sort_key))
}

impl Stage for Project {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(mut row) = self.records.next()? else { return Ok(None) };
        note_sort_key(&mut row, self.sort.as_deref(), &self.context)?;
        let projected = self.project(&row)?;
        if !self.show_record_id {
            return Ok(Some(row.with(projected)));
        }
        let mut out = Builder::with_buffer(Vec::with_capacity(projected.bytes().len() + 20));
        out.append_all(projected.view()).append(c"$recordId", row.record_id as i64);
        Ok(Some(row.with(out.finish())))
    }
}

/// A scan of a capped collection that can continue after its end.
pub(crate) struct Tail {
    database: Arc<Database>,
    operation: Arc<Operation>,
    namespace: Namespace,
    uuid: [u8; 16],
    matcher: Arc<Matcher>,
    context: Arc<Context>,
    /// Id of the last record read, matching or not.
    last: Option<RecordId>,
    /// Number of matching records still to skip.
    skip: u64,
    /// Scan of the current snapshot; `None` between requests.
    cursor: Option<Box<dyn storage::Cursor>>,
}

impl Tail {
    pub(crate) fn new(
        database: Arc<Database>,
        operation: Arc<Operation>,
        collection: &Collection,
        (matcher, skip): (Arc<Matcher>, u64),
        context: Arc<Context>,
    ) -> Tail {
        let (namespace, uuid) = (collection.namespace.clone(), collection.uuid);
        Tail { database, operation, namespace, uuid, matcher, context, last: None, skip, cursor: None }
    }

    /// Opens a scan of the records after the last one read, on a new snapshot.
    fn resume(&self) -> Result<Box<dyn storage::Cursor>> {
        let view = self.database.confirmed_view();
        let collection = view.catalog.get(&self.namespace).filter(|now| now.uuid == self.uuid);
        let Some(data) = collection.and_then(|collection| collection.data.as_ref()) else {
            bail!(QueryPlanKilled, "collection dropped. UUID {}", encoding::uuid(&self.uuid));
        };
        let mut range = Range::all();
        if let Some(last) = self.last {
            if view.snapshot.get(data.ident, &last.key()).map_err(storage_error)?.is_none() {
                bail!(
                    CappedPositionLost,
                    "CollectionScan died due to position in capped collection being deleted. Last seen record \
                     id: RecordId({})",
                    last.0
                );
            }
            range.lower = Bound::Excluded(last.key());
        }
        view.snapshot.scan(data.ident, range, Direction::Forward).map_err(storage_error)
    }
}

impl RecordStream for Tail {
    fn next(&mut self) -> Result<Option<Row>> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => self.resume()?,
        };
        while let Some((key, value)) = cursor.next().map_err(storage_error)? {
            self.operation.check()?;
            let id = RecordId::from_key(key)?;
            self.last = Some(id);
            if self.matcher.matches(Document::from_valid(&value), &self.context)? {
                if self.skip > 0 {
                    self.skip -= 1;
                    continue;
                }
                let document = DocumentCow::Shared(value.to_shared());
                self.cursor = Some(cursor);
                return Ok(Some(Row::stored(id.0, document)));
            }
        }
        Ok(None)
    }
}
