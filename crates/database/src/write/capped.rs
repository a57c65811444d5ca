//! `convertToCapped`.

use crate::catalog::collection::Collection;
use crate::catalog::options::capped_of_size;
use crate::changes::logged::LoggedCommand;
use crate::database::Database;
use crate::scope::Scope;
use base::{Result, bail};
use storage::store::Committed;

impl Database {
    /// Converts a collection to a capped collection in place. Drops all indexes except `_id`, as MongoDB does. Then it
    /// removes the oldest documents until the rest fits. After a crash, the next insert removes them. A call after
    /// LockBusy continues with the commit of the conversion in `converted`.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, invalid sizes; interrupted waits; LockBusy for a statement
    /// that its caller suspends.
    pub fn convert_to_capped(
        &self,
        scope: &Scope,
        size: i64,
        converted: &mut Option<Committed>,
    ) -> Result<Committed> {
        let Scope { operation, namespace, context, .. } = scope;
        let committed = match *converted {
            Some(committed) => committed,
            None => *converted.insert(self.make_capped(scope, size)?),
        };
        self.trim_capped(operation, namespace, context)?;
        Ok(committed)
    }

    fn make_capped(&self, scope: &Scope, size: i64) -> Result<Committed> {
        let Scope { operation, namespace, context, .. } = scope;
        let options = capped_of_size(size, namespace, context)?;
        self.must_change_catalog(operation.as_ref(), |change| {
            let mut collection = Collection::clone(change.catalog().require(namespace)?);
            if collection.data()?.clustered_index().is_some() {
                bail!(InvalidOptions, "cannot convert a clustered collection to a capped one: {namespace}");
            }
            change.drop_indexes(&mut collection, |index| !index.is_id());
            change.log(|| LoggedCommand::convert_to_capped(&collection, size));
            collection.options.capped = options.capped;
            change.put_collection(collection).map(drop)
        })
    }
}
