//! Index builds of a command between its calls, while the command waits.

use super::build::{IndexBuild, Loaded, Publish};
use crate::catalog::collection::{Collection, Data};
use crate::commit::catalog_change::CatalogChange;
use crate::database::{Database, Removal};
use crate::index::{Building, KeyOf, duplicate_key};
use crate::operation::NeverWaits;
use base::{Error, ErrorCode, Namespace, Result, err};
use query::{Interrupt, Sorter};
use std::sync::Arc;
use storage::mark;
use storage::store::Committed;

/// State of index builds between two calls of a command that waits.
pub(super) struct BuildState {
    pub(super) namespace: Namespace,
    /// UUID of the collection, which may have been renamed.
    pub(super) uuid: [u8; 16],
    pub(super) builds: Vec<Arc<Building>>,
    /// Number of attempts that writes have ended.
    pub(super) restarts: usize,
    /// True if the builds must be registered again.
    pub(super) is_failed: bool,
    /// Entries of each index, after the scan.
    pub(super) sorted: Option<Vec<Sorter>>,
    /// Number of loaded indexes.
    pub(super) loaded: usize,
    /// Entries that are loaded next.
    pub(super) chunk: Vec<Loaded>,
}

impl BuildState {
    /// Returns the state of builds that were just registered.
    pub(super) fn new(namespace: Namespace, uuid: [u8; 16], builds: Vec<Arc<Building>>) -> BuildState {
        let (sorted, chunk) = (None, Vec::new());
        BuildState { namespace, uuid, builds, restarts: 0, is_failed: false, sorted, loaded: 0, chunk }
    }

    /// Returns a build whose unique index has met a duplicate of a writer.
    pub(super) fn failed(&self) -> Option<&Arc<Building>> {
        self.builds.iter().find(|build| build.build.has_failed())
    }

    /// Returns the greatest record that was written before the registration. Later records were written with their
    /// entries.
    pub(super) fn greatest_record(&self) -> u64 {
        self.builds.iter().map(|build| build.build.changed.greatest()).max().unwrap_or(0)
    }

    /// Returns its build that the catalog knows as `known`.
    fn own<'s>(&'s self, known: &Building) -> Option<&'s Arc<Building>> {
        self.builds.iter().find(|build| build.index.ident == known.index.ident)
    }

    /// Returns the collection if the builds are still registered with it.
    pub(super) fn registered(&self, change: &CatalogChange<'_>) -> Result<Collection> {
        let collection = change.catalog().get(&self.namespace).filter(|now| now.uuid == self.uuid);
        let own = |data: &Data| data.building.iter().filter(|known| self.own(known).is_some()).count();
        match collection {
            Some(collection) if collection.data.as_ref().map_or(0, own) == self.builds.len() => {
                Ok(Collection::clone(collection))
            }
            _ => {
                mark!("an index build loses its collection");
                Err(self.dropped_error())
            }
        }
    }

    /// Adds the multikey flags that writers have set. Writers may know the index builds through
    /// other versions of the catalog.
    pub(super) fn learn_from(&self, collection: &Collection) {
        for known in collection.data.iter().flat_map(|data| &data.building) {
            self.own(known).iter().for_each(|build| build.index.note_multikey(&known.index.multikey_bits()));
        }
    }

    pub(super) fn duplicate(&self, build: &Building) -> Error {
        match build.build.duplicate.lock().clone() {
            Some((key_string, type_bits)) => {
                duplicate_key(&self.namespace, &build.index, &KeyOf { key_string, type_bits })
            }
            None => err!(DuplicateKey, "E11000 duplicate key error collection: {}", self.namespace),
        }
    }

    pub(super) fn dropped_error(&self) -> Error {
        let names: Vec<&str> = self.builds.iter().map(|build| build.index.spec.name.as_str()).collect();
        err!(
            IndexBuildAborted,
            "Index build failed: collection {} or its indexes {} have been dropped",
            self.namespace,
            names.join(", ")
        )
    }

    /// Ends the builds.
    pub(super) fn end(&self, database: &Database) {
        for build in &self.builds {
            database.store.end_build(build.index.ident);
            build.build.ended.advance();
        }
    }

    /// Ends builds whose command has ended. Returns their removal.
    pub(super) fn into_removal(self, database: &Database) -> Removal {
        self.end(database);
        let state = BuildState::new(self.namespace, self.uuid, self.builds);
        Box::new(move |database| state.remove(database, &NeverWaits))
    }

    /// Removes the builds from the catalog, with all loaded entries.
    pub(super) fn remove(&self, database: &Database, interrupt: &dyn Interrupt) -> Result<()> {
        let removed = database.change_catalog(interrupt, |change| {
            // The collection may have been renamed. In another database it also has another UUID.
            let idents = |now: &Arc<Collection>| {
                let building = now.data.iter().flat_map(|data| &data.building);
                building
                    .filter(|known| self.own(known).is_some())
                    .map(|build| build.index.ident)
                    .collect::<Vec<_>>()
            };
            let built = change.catalog().all().find(|now| !idents(now).is_empty()).cloned();
            let Some(built) = built else { return Ok(None) };
            let mut collection = Collection::clone(&built);
            idents(&built).into_iter().for_each(|ident| change.drop_ident(ident));
            self.unregister(&mut collection);
            change.put_collection(collection).map(Some)
        });
        removed.map(drop)
    }

    pub(super) fn unregister(&self, collection: &mut Collection) {
        if let Some(data) = &mut collection.data {
            data.building.retain(|known| self.own(known).is_none());
        }
    }
}

/// Progress of a command whose index build waits. The build ends if this is dropped.
#[derive(Default)]
pub struct BuildProgress {
    /// The database; `None` for an operation that is not suspended.
    database: Option<Arc<Database>>,
    pub(super) state: Option<BuildState>,
}

impl BuildProgress {
    /// Returns the progress of a command that has not begun.
    pub fn new(database: &Arc<Database>) -> BuildProgress {
        BuildProgress { database: Some(database.clone()), state: None }
    }

    /// Returns true if a build waits.
    pub fn has_build(&self) -> bool {
        self.state.is_some()
    }

    /// Runs a build, and keeps it if it waits.
    ///
    /// Errors: as [`IndexBuild::run`].
    pub(super) fn run(&mut self, mut build: IndexBuild<'_>, publish: &mut Publish<'_>) -> Result<Committed> {
        let built = build.run(publish);
        if matches!(&built, Err(error) if error.code() == ErrorCode::LockBusy) {
            self.state = Some(build.state);
        }
        built
    }
}

impl Drop for BuildProgress {
    fn drop(&mut self) {
        if let (Some(database), Some(state)) = (&self.database, self.state.take()) {
            database.remove_later(state.into_removal(database));
        }
    }
}
