//! The validation level `constraint`: every stored document satisfies the validator.

use crate::database::Database;
use crate::operation::Operation;
use crate::plan::Read;
use crate::validator::{Validator, ValidatorChange};
use base::bson::{Builder, Document, ValueBuf};
use base::{Error, Namespace, Result, err};
use query::Context;
use query::matcher::Matcher;
use std::sync::Arc;

/// Longest validator in an error message, in bytes.
const SHOWN_MAX: usize = 10 * 1024;

impl Database {
    /// Changes a validator. A collection gets the level `constraint` only if all its documents are valid.
    ///
    /// Errors: as [`set_validator`](Self::set_validator); 12370902 with the first invalid document.
    pub fn change_validator(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        change: &ValidatorChange<'_>,
        context: &Arc<Context>,
    ) -> Result<crate::Committed> {
        let set =
            |change: &ValidatorChange<'_>| self.set_validator(operation.as_ref(), namespace, change, context);
        let now = self.catalog().require(namespace)?.options.validator.clone();
        change.check(now.as_deref())?;
        if !change.raises(now.as_deref()) {
            return set(change);
        }
        // Later writes must be valid before the documents are read, so that none is missed.
        let old_action = now.as_ref().map_or("error", |now| now.action_name());
        let new_action = change.action.filter(|action| *action != old_action);
        let set_action =
            |action| set(&ValidatorChange { action: Some(action), ..ValidatorChange::default() });
        new_action.map(set_action).transpose()?;
        let checked = match now.as_ref().map(|now| now.filter()).filter(|filter| !filter.is_empty()) {
            Some(filter) => self.check_all(operation, namespace, filter, context),
            None => Ok(()),
        };
        match checked {
            Ok(()) => set(change),
            Err(error) => {
                new_action.map(|_| set_action(old_action)).transpose()?;
                Err(error)
            }
        }
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
        let read = Read { limit: 1, ..Read::new(matcher) };
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
