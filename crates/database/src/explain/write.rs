//! Explaining the writes: what finds their documents, and how many they would change.

use super::{Effect, Records, Subject, Top, Verbosity, begin, drain, missing};
use crate::database::Database;
use crate::exec::Limit;
use crate::plan::{self, Read};
use crate::scope::Scope;
use crate::write::{Action, DeleteRequest, FindAndModifyRequest, UpdateRequest};
use base::bson::DocumentBuf;
use base::{Result, err};
use query::Context;

impl Database {
    /// Explains a delete statement.
    ///
    /// Errors: those of finding its documents.
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
    /// Errors: those of finding its documents and of changing them.
    pub fn explain_update(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        verbosity: Verbosity,
    ) -> Result<DocumentBuf> {
        let Scope { context, .. } = scope;
        let mut run = |stream| would_update(stream, request, context);
        self.explain_write(scope, request.read(), Top::Update { returns: false }, verbosity, &mut run)
    }

    /// Explains a findAndModify.
    ///
    /// Errors: NamespaceNotFound where there is no such database; those of finding the document and of
    /// changing it.
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
            return Err(err!(NamespaceNotFound, "database {database} does not exist"));
        }
        match &request.action {
            Action::Remove => {
                let top = Top::Delete { returns: true };
                self.explain_write(scope, read, top, verbosity, &mut drain)
            }
            Action::Update { request, .. } => {
                let top = Top::Update { returns: true };
                let mut run = |stream| would_update(stream, request, context);
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
        let Scope { operation, namespace, context, .. } = scope;
        // A write of one document ends by itself; a sort is told.
        let first = read.limit == 1 && read.sort.is_none();
        if first {
            read.limit = 0;
        }
        let mut run = |stream: Records| match first {
            true => run(Box::new(Limit::first(stream))),
            false => run(stream),
        };
        let view = scope.confirmed_view(self)?;
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return Ok(missing(namespace, &read.matcher, verbosity, "EOF"));
        };
        let plan = plan::plan(operation, view, &collection, read, context)?;
        let subject = Subject { namespace, collection: &collection, plan: &plan, top };
        let mut out = begin();
        subject.explain(verbosity, &mut run, &mut out)?;
        Ok(out.finish())
    }
}

/// What an update would do to the documents found.
fn would_update(
    mut stream: Records,
    request: &UpdateRequest,
    context: &Context,
) -> Result<(Records, Effect)> {
    let mut effect = Effect::default();
    while let Some(record) = stream.next()? {
        effect.found += 1;
        let document = record.document.view();
        let position = match request.update.needs_position() {
            true => request.matcher.matches_at(document, context)?.and_then(|found| found.position),
            false => None,
        };
        let changed = request.update.apply(document, position, false, context)?;
        effect.modified += u64::from(changed.is_some());
    }
    effect.upserted = request.upsert && effect.found == 0;
    Ok((stream, effect))
}
