//! Which collation a command runs under.

use crate::collection::Collection;
use crate::database::Database;
use crate::operation::Operation;
use base::{Namespace, Result, err};
use query::Collation;

impl Database {
    /// The collation of a command on a collection or view: the one it asks for, or else the
    /// collection's. A view's is fixed, whatever the collections are that it reads.
    ///
    /// Errors: OptionNotSupportedOnView where a command asks a view for another than its own.
    pub fn collation(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        requested: Option<Collation>,
    ) -> Result<Collation> {
        // What the command reads tells whether that is still so.
        let catalog = operation.elsewhere().map(|view| view.catalog.clone());
        let Some(collection) = catalog.unwrap_or_else(|| self.known_catalog()).get(namespace).cloned() else {
            return Ok(requested.unwrap_or_default());
        };
        let Some(requested) = requested else { return Ok(collection.options.collation.clone()) };
        check_view(&collection, &requested)?;
        Ok(requested)
    }
}

/// Errors: OptionNotSupportedOnView where a view compares otherwise than what reads it.
pub(crate) fn check_view(collection: &Collection, wanted: &Collation) -> Result<()> {
    if !collection.is_view() || collection.options.collation == *wanted {
        return Ok(());
    }
    Err(err!(OptionNotSupportedOnView, "Cannot override a view's default collation"))
}
