//! Builds of existing indexes again: reIndex, and the conversions to and from a unique index.
//!
//! The new trees are built beside the present ones. One commit replaces the present trees.

use super::build::IndexBuild;
use super::build_state::BuildProgress;
use super::indexes::Registered;
use crate::catalog::collection::Collection;
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::index::{Building, Index, IndexSpec};
use crate::scope::Scope;
use base::{Result, bail};
use std::sync::Arc;
use storage::store::Committed;

impl Database {
    /// Builds all indexes again, except the index on `_id`. Plans use the present indexes until one commit replaces
    /// them. Returns `None` for a collection without further indexes. A call after LockBusy continues.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, and errors of index builds.
    pub fn rebuild_indexes(&self, scope: &Scope, progress: &mut BuildProgress) -> Result<Option<Committed>> {
        let Scope { operation, namespace, context, .. } = scope;
        let state = match progress.state.take() {
            Some(state) => state,
            None => {
                let begun = self.begin_builds(operation, namespace, |change| {
                    let collection = Collection::clone(change.catalog().require(namespace)?);
                    change.register_again(collection, |index| (!index.is_id()).then(|| index.spec.clone()))
                })?;
                match begun.and_then(|registration| registration.builds) {
                    Some(state) => state,
                    None => return Ok(None),
                }
            }
        };
        let uuid = state.uuid;
        let build = IndexBuild { database: self, operation, context, state };
        let built = progress.run(build, &mut |change, collection, builds| {
            change.replace_indexes(collection, builds);
            Ok(())
        });
        built.map(Some).map_err(|error| self.build_error(namespace, &uuid, error))
    }
}

impl CatalogChange<'_> {
    /// Registers a build of each index for which `rebuilt` returns a specification. The present indexes stay until
    /// [`replace_indexes`](Self::replace_indexes).
    pub(super) fn register_again(
        &mut self,
        mut collection: Collection,
        rebuilt: impl Fn(&Index) -> Option<Arc<IndexSpec>>,
    ) -> Result<Registered> {
        let Some(data) = &mut collection.data else {
            bail!(CommandNotSupportedOnView, "Cannot build indexes of a view: {}", collection.namespace);
        };
        self.drop_abandoned(data);
        let mut builds = Vec::new();
        for index in data.indexes.clone() {
            let Some(spec) = rebuilt(&index) else { continue };
            if let Some(build) = data.building.iter().find(|build| build.index.spec.name == spec.name) {
                return Ok(Registered::After(build.clone()));
            }
            let index = index.with(spec, self.create_ident(), &[]);
            builds.push(self.register_build(data, index));
        }
        if builds.is_empty() {
            return Ok(Registered::Nothing);
        }
        let uuid = collection.uuid;
        self.put_collection(collection)?;
        Ok(Registered::New(builds, uuid))
    }

    /// Replaces indexes by their builds. The present specifications stay.
    pub(super) fn replace_indexes(&mut self, collection: &mut Collection, builds: &[Arc<Building>]) {
        let replaced = collection.data.iter_mut().flat_map(|data| &mut data.indexes);
        for index in replaced {
            let build = builds.iter().find(|build| build.index.spec.name == index.spec.name);
            let Some(Building { index: built, .. }) = build.map(|build| &**build) else { continue };
            debug_assert_eq!(index.unique(), built.unique(), "the entries have another format");
            self.drop_ident(index.ident);
            *index = Arc::new(built.with(index.spec.clone(), built.ident, &built.multikey_bits()));
        }
    }
}
