//! collMod with the validation level `constraint`, where every document satisfies the validator.

use crate::database::Database;
use crate::ddl::{BuildProgress, CollectionChange, CollectionChanged};
use crate::operation::{NeverWaits, Operation};
use crate::plan;
use crate::scope::Scope;
use crate::validator::{Validator, ValidatorChange};
use base::bson::{Builder, Document, ValueBuf};
use base::{Error, Namespace, Result, err};
use query::matcher::Matcher;
use query::{Context, Interrupt};
use std::sync::Arc;

/// Longest validator in an error message, in bytes.
const SHOWN_MAX: usize = 10 * 1024;

/// Progress of a collMod that waits. An index build and a rise of the validation level end if this is dropped.
pub struct CollModProgress {
    build: BuildProgress,
    rise: Option<Rise>,
}

impl CollModProgress {
    /// Returns the progress of a command that has not begun.
    pub fn new(database: &Arc<Database>) -> CollModProgress {
        CollModProgress { build: BuildProgress::new(database), rise: None }
    }

    /// Returns true if the command has changed something.
    pub fn has_begun(&self) -> bool {
        self.build.has_build() || self.rise.is_some()
    }
}

/// A rise to the level `constraint` after the check of the documents.
struct Rise {
    database: Arc<Database>,
    scope: Scope,
    /// The validation action before it. A rise that ends early restores it.
    action: Option<&'static str>,
}

impl Drop for Rise {
    fn drop(&mut self) {
        if let Some(action) = self.action {
            let scope = self.scope.clone();
            let restore = move |database: &Database| database.set_action(&NeverWaits, &scope, action);
            self.database.remove_later(Box::new(restore));
            self.database.clean_up();
        }
    }
}

impl Database {
    /// Changes a collection, a view or an index. A collection gets the level `constraint` only if all its documents are
    /// valid. A call after LockBusy continues.
    ///
    /// Errors: as [`modify_collection`](Self::modify_collection); 12370902 with the first invalid document.
    pub fn coll_mod(
        self: &Arc<Self>,
        scope: &Scope,
        request: &CollectionChange<'_>,
        progress: &mut CollModProgress,
    ) -> Result<CollectionChanged> {
        let now = self.catalog().require(&scope.namespace)?.options.validator.clone();
        if progress.rise.is_none() && request.validator.raises(now.as_deref()) {
            progress.rise = Some(self.begin_rise(scope, &request.validator, now.as_deref())?);
        }
        let changed = self.modify_collection(scope, request, &mut progress.build)?;
        if let Some(rise) = &mut progress.rise {
            rise.action = None;
        }
        Ok(changed)
    }

    /// Sets the new validation action and checks the documents. Later writes must be valid before the documents are
    /// read, so that none is missed.
    fn begin_rise(
        self: &Arc<Self>,
        scope: &Scope,
        change: &ValidatorChange<'_>,
        now: Option<&Validator>,
    ) -> Result<Rise> {
        change.check(now)?;
        let earlier = now.map_or("error", |now| now.action_name());
        let mut rise = Rise { database: self.clone(), scope: scope.clone(), action: None };
        if let Some(action) = change.action.filter(|action| *action != earlier) {
            self.set_action(scope.operation.as_ref(), scope, action)?;
            rise.action = Some(earlier);
        }
        if let Some(filter) = now.map(|now| now.filter()).filter(|filter| !filter.is_empty()) {
            self.check_all(&scope.operation, &scope.namespace, filter, &scope.context)?;
        }
        Ok(rise)
    }

    fn set_action(&self, interrupt: &dyn Interrupt, scope: &Scope, action: &str) -> Result<()> {
        let validator = ValidatorChange { action: Some(action), ..ValidatorChange::default() };
        let request = CollectionChange { validator, ..CollectionChange::default() };
        self.change_collection(interrupt, scope, &request).map(drop)
    }

    /// Returns a collection with the level `constraint`.
    pub fn constrained_collection(&self) -> Option<Namespace> {
        let constrains = |validator: &Validator| validator.level_name() == "constraint";
        let catalog = self.catalog();
        let constrained =
            catalog.all().find(|all| all.options.validator.as_deref().is_some_and(constrains))?;
        Some(constrained.namespace.clone())
    }

    /// Checks that every document of a collection satisfies a filter. Errors: 12370902.
    fn check_all(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        validator: Document<'_>,
        context: &Arc<Context>,
    ) -> Result<()> {
        let view = self.confirmed_view();
        let collection = view.catalog.require(namespace)?;
        let mut filter = Builder::new();
        filter.begin_array(c"$nor").push(validator).end();
        let context = Arc::new(context.with_collation(collection.options.collation.clone()));
        let matcher = Arc::new(Matcher::parse(filter.finish().view(), &context)?);
        let read = plan::Read { limit: 1, ..plan::Read::new(matcher) };
        match self.read(operation, &view, collection, read, &context)?.next()? {
            None => Ok(()),
            Some(found) => {
                Err(violated(namespace, validator, found.document.view().get("_id").map(|id| id.to_owned())))
            }
        }
    }
}

fn violated(namespace: &Namespace, validator: Document<'_>, id: Option<ValueBuf>) -> Error {
    let id = id.map(|id| format!(" First offending document _id: {}.", id.view())).unwrap_or_default();
    let shown = match validator.bytes().len() < SHOWN_MAX {
        true => validator.to_string(),
        false => "<your collection's validator>".to_string(),
    };
    err!(
        12370902,
        "Cannot upgrade validationLevel to 'constraint': the collection contains documents that do not satisfy the \
         validator.{id} Run db.{}.find({{\"$nor\": [{shown}]}}) to find non-compliant documents.",
        namespace.collection()
    )
}
