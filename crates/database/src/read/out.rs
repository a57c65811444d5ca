//! `$out`: a collection's new content, built beside it and put in its place at once.

use crate::database::Database;
use crate::ddl::RenameRequest;
use crate::index::IndexSpec;
use crate::operation::Operation;
use crate::scope::Scope;
use crate::write::InsertRequest;
use base::bson::DocumentCow;
use base::{Namespace, Result};
use query::Context;
use query::context::Uninterrupted;
use query::pipeline::Sink;
use std::sync::Arc;

/// The new content while it is being written, under a name of its own. Dropping it unfinished
/// leaves the old content as it was.
pub(crate) struct Replacement {
    database: Arc<Database>,
    /// The temporary collection.
    scope: Scope,
    target: Namespace,
    finished: bool,
}

impl Replacement {
    /// Makes the temporary collection with the target's options and indexes.
    pub(crate) fn new(
        database: &Arc<Database>,
        operation: &Arc<Operation>,
        target: &Namespace,
        context: &Arc<Context>,
    ) -> Result<Replacement> {
        let name = format!("tmp.agg_out.{}", database.new_object_id());
        let temporary = Namespace::new(target.database(), &name)?;
        let replacement = Replacement {
            database: database.clone(),
            scope: Scope::new(operation, &temporary, context),
            target: target.clone(),
            finished: false,
        };
        let existing = database.collection(target);
        let options = existing.as_ref().map(|now| now.options_document()).unwrap_or_default();
        if let Some(existing) = &existing {
            existing.data()?;
        }
        database.create_collection(operation, &temporary, options.view(), context)?;
        if let Some(data) = existing.as_ref().and_then(|existing| existing.data.as_ref()) {
            let specs: Vec<IndexSpec> =
                data.indexes.iter().skip(1).map(|index| IndexSpec::clone(&index.spec)).collect();
            database.create_indexes(operation, &temporary, specs, context)?;
        }
        Ok(replacement)
    }
}

impl Sink for Replacement {
    fn write(&mut self, document: DocumentCow) -> Result<()> {
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database.insert(&self.scope, insert).map(drop)
    }

    fn finish(&mut self) -> Result<()> {
        let rename =
            RenameRequest { from: self.scope.namespace.clone(), to: self.target.clone(), drop_target: true };
        self.database.rename_collection(self.scope.operation.as_ref(), &rename)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = self.database.drop_collection(&Uninterrupted, &self.scope.namespace)
        {
            log::warn!("dropping {} failed: {error}", self.scope.namespace);
        }
    }
}
