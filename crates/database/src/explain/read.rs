//! explain of reads (find, count, distinct) and writes.
//!
//! For a write, explain runs the read of its documents and counts the documents that it would
//! change.

use super::{Effect, Records, Subject, Top, Verbosity, begin, drain, missing};
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::database::Database;
use crate::plan::{self, Hint, Read};
use crate::read::{AggregateRequest, FindRequest, stages};
use crate::scope::Scope;
use crate::write::{Action, DeleteRequest, FindAndModifyRequest, UpdateRequest};
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value};
use base::{Result, bail};
use query::Context;
use query::matcher::Matcher;
use std::sync::Arc;

impl Database {
    /// Explains a find.
    ///
    /// Errors: errors of the find.
    pub fn explain_find(
        self: &Arc<Self>,
        scope: &Scope,
        request: &FindRequest<'_>,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { namespace, context, .. } = scope;
        let (read, projection) = request.parse(context)?;
        let view = scope.confirmed_view(self)?;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return Ok(missing(namespace, &read.matcher, verbosity, "EOF"));
        };
        if collection.is_view() {
            let pipeline = request.to_view_pipeline()?;
            let hint = request.hint_of_pipeline();
            let request = AggregateRequest { hint, ..AggregateRequest::new(stages(&pipeline)) };
            return self.explain_aggregate(scope, &request, verbosity);
        }
        let top = match &projection {
            None => Top::Documents,
            // MongoDB calls a projection simple if it only includes or only excludes fields.
            Some(_) if read.covering.is_some() && !read.return_key => {
                Top::Projection(projection_name(&read, request.projection), request.projection.to_owned())
            }
            Some(_) if !read.return_key && excludes_plainly(request.projection) => {
                Top::Projection("PROJECTION_SIMPLE", request.projection.to_owned())
            }
            Some(_) => Top::Projection("PROJECTION_DEFAULT", request.projection.to_owned()),
        };
        explained(scope, (view, &collection), read, top, verbosity, &mut drain)
    }

    /// Explains a count.
    ///
    /// Errors: errors of the count.
    pub fn explain_count(
        self: &Arc<Self>,
        scope: &Scope,
        filter: Document<'_>,
        hint: Option<Hint>,
        (skip, limit): (u64, u64),
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { namespace, context, .. } = scope;
        let matcher = Arc::new(Matcher::parse_query(filter, context)?);
        let view = scope.confirmed_view(self)?;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return Ok(missing(namespace, &matcher, verbosity, "COUNT"));
        };
        if collection.is_view() {
            return self.explain_filtered(scope, filter, hint, verbosity);
        }
        if matcher.is_empty() && hint.is_none() {
            return Ok(missing(namespace, &matcher, verbosity, "RECORD_STORE_FAST_COUNT"));
        }
        let read = Read { hint, skip, limit, covering: Some(Vec::new()), ..Read::new(matcher) };
        let mut count = |stream: &Records, effect: &mut Effect| {
            effect.matched = stream.lock().count()?;
            Ok(())
        };
        explained(scope, (view, &collection), read, Top::Count { skip }, verbosity, &mut count)
    }

    /// Explains a distinct.
    ///
    /// Errors: errors of the distinct.
    pub fn explain_distinct(
        self: &Arc<Self>,
        scope: &Scope,
        key: &str,
        filter: Document<'_>,
        hint: Option<Hint>,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { namespace, context, .. } = scope;
        let matcher = Arc::new(Matcher::parse_query(filter, context)?);
        let view = scope.confirmed_view(self)?;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return Ok(missing(namespace, &matcher, verbosity, "EOF"));
        };
        if collection.is_view() {
            return self.explain_filtered(scope, filter, hint, verbosity);
        }
        let path = Path::new(FieldName::new(key)?);
        let covering = Some(vec![path.clone()]);
        let read = Read { hint, covering, distinct: Some(path), ..Read::new(matcher) };
        explained(scope, (view, &collection), read, Top::Documents, verbosity, &mut drain)
    }

    /// Explains the read of a view's documents.
    fn explain_filtered(
        self: &Arc<Self>,
        scope: &Scope,
        filter: Document<'_>,
        hint: Option<Hint>,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let mut out = Builder::new();
        out.begin_array(c"pipeline").push_document().append(c"$match", filter).end().end();
        let holder = out.finish();
        let request = AggregateRequest { hint, ..AggregateRequest::new(stages(&holder)) };
        self.explain_aggregate(scope, &request, verbosity)
    }
}

/// Returns true if a projection without inclusions excludes only top-level fields.
fn excludes_plainly(spec: Document<'_>) -> bool {
    spec.iter().all(|element| {
        let is_flag = matches!(element.value(), Value::Boolean(_)) || element.value().as_number().is_some();
        is_flag && !element.name().contains('.')
    })
}

/// Returns MongoDB's name of a projection of plain inclusions. It depends on dotted paths.
pub(super) fn projection_name(read: &Read, spec: Document<'_>) -> &'static str {
    let dotted = spec.iter().any(|element| element.name().contains('.'));
    let nested = read.covering.iter().flatten().any(|path| path.components().len() > 1);
    if dotted || nested { "PROJECTION_DEFAULT" } else { "PROJECTION_SIMPLE" }
}

impl Database {
    /// Explains a delete statement.
    ///
    /// Errors: errors of the read of its documents.
    pub fn explain_delete(
        &self,
        scope: &Scope,
        request: &DeleteRequest,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        self.explain_write(scope, request.read(), Top::Delete { returns: false }, verbosity, &mut drain)
    }

    /// Explains an update statement.
    ///
    /// Errors: errors of the read of its documents and of the update.
    pub fn explain_update(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { context, .. } = scope;
        let mut run = |stream: &Records, effect: &mut Effect| would_update(stream, effect, request, context);
        self.explain_write(scope, request.read(), Top::Update { returns: false }, verbosity, &mut run)
    }

    /// Explains a findAndModify.
    ///
    /// Errors: NamespaceNotFound without the database; errors of the read of the document and of
    /// the change.
    pub fn explain_find_and_modify(
        &self,
        scope: &Scope,
        request: &FindAndModifyRequest,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { namespace, context, .. } = scope;
        let read = request.read();
        let database = namespace.database();
        if !self.confirmed_view().catalog.databases().any(|name| name == database) {
            bail!(NamespaceNotFound, "database {database} does not exist");
        }
        match &request.action {
            Action::Remove => {
                let top = Top::Delete { returns: true };
                self.explain_write(scope, read, top, verbosity, &mut drain)
            }
            Action::Update { request, .. } => {
                let top = Top::Update { returns: true };
                let mut run =
                    |stream: &Records, effect: &mut Effect| would_update(stream, effect, request, context);
                self.explain_write(scope, read, top, verbosity, &mut run)
            }
        }
    }

    fn explain_write(
        &self,
        scope: &Scope,
        mut read: Read,
        top: Top,
        verbosity: Verbosity,
        run: super::Run<'_>,
    ) -> Result<DocumentBuf> {
        let Scope { namespace, .. } = scope;
        // A write of one document ends by itself. A sort receives the limit.
        let ends_at_first = read.limit == 1 && read.sort.is_none();
        if ends_at_first {
            read.limit = 0;
        }
        let view = scope.confirmed_view(self)?;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return Ok(missing(namespace, &read.matcher, verbosity, "EOF"));
        };
        let plan = plan::plan(&scope.operation, view, &collection, read, &scope.context)?;
        let mut out = begin();
        let subject =
            Subject { namespace, collection: &collection, plan: &plan, top, piped: false, ends_at_first };
        subject.explain(verbosity, run, &mut out)?;
        Ok(out.finish())
    }
}

/// Explains the plan of a read.
fn explained(
    scope: &Scope,
    (view, collection): (&View, &Arc<Collection>),
    read: Read,
    top: Top,
    verbosity: Verbosity,
    run: super::Run<'_>,
) -> Result<DocumentBuf> {
    let Scope { operation, namespace, context, .. } = scope;
    let plan = plan::plan(operation, view, collection, read, context)?;
    let mut out = begin();
    let subject = Subject { namespace, collection, plan: &plan, top, piped: false, ends_at_first: false };
    subject.explain(verbosity, run, &mut out)?;
    Ok(out.finish())
}

/// Notes the effect of an update on the documents found.
fn would_update(
    stream: &Records,
    effect: &mut Effect,
    request: &UpdateRequest,
    context: &Context,
) -> Result<()> {
    let next = || stream.lock().next();
    while let Some(record) = next()? {
        effect.matched += 1;
        let document = record.document.view();
        let position = match request.update.needs_position() {
            true => request.matcher.matches_at(document, context)?.and_then(|found| found.position),
            false => None,
        };
        let changed = request.update.apply(document, position, false, context)?;
        effect.modified += u64::from(changed.is_some());
    }
    effect.upserted = request.upsert && effect.matched == 0;
    Ok(())
}
