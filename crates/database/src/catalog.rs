//! The catalog: which databases, collections, views and indexes there are.
//!
//! An immutable value. Whoever changes it makes a new one, sharing all that stays, and the commit
//! publishes it together with the engine's batch, so that a reader's catalog and snapshot agree.

use crate::collection::Collection;
use crate::saved_state::{SavedState, StateName};
use base::{Namespace, Result, err};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The collections of one database by name.
type Collections = BTreeMap<Box<str>, Arc<Collection>>;

/// Every collection and view by database and name.
#[derive(Clone, Default)]
pub struct Catalog {
    databases: BTreeMap<Box<str>, Arc<Collections>>,
    /// Databases' states kept aside: invisible to everything but the commands that name them.
    saved: Arc<BTreeMap<StateName, Arc<SavedState>>>,
}

impl Catalog {
    /// The collection or view of this name.
    pub fn get(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.databases.get(namespace.database())?.get(namespace.collection())
    }

    /// The collection or view of this name. Errors: NamespaceNotFound.
    pub fn require(&self, namespace: &Namespace) -> Result<&Arc<Collection>> {
        self.get(namespace).ok_or_else(|| err!(NamespaceNotFound, "ns does not exist: {namespace}"))
    }

    /// The names of all databases, in order. A database is there while it has a collection.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(|name| &**name)
    }

    /// The collections and views of a database in the order of their names.
    pub fn collections(&self, database: &str) -> impl Iterator<Item = &Arc<Collection>> {
        self.databases.get(database).into_iter().flat_map(|collections| collections.values())
    }

    /// Every collection and view of every database.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.databases.values().flat_map(|collections| collections.values())
    }

    /// Adds a collection or replaces the one of its name.
    ///
    /// Errors: DatabaseDifferCase where a database of that name in another case is there.
    pub fn put(&mut self, collection: Arc<Collection>) -> Result<()> {
        let name = collection.namespace.database();
        if !self.databases.contains_key(name)
            && let Some(other) = self.databases().find(|other| other.eq_ignore_ascii_case(name))
        {
            return Err(err!(
                DatabaseDifferCase,
                "db already exists with different case already have: [{other}] trying to create [{name}]"
            ));
        }
        let collections = self.databases.entry(name.into()).or_default();
        Arc::make_mut(collections).insert(collection.namespace.collection().into(), collection.clone());
        Ok(())
    }

    /// Takes a collection or view away, and its database with the last.
    pub fn remove(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let collections = self.databases.get_mut(namespace.database())?;
        let removed = Arc::make_mut(collections).remove(namespace.collection());
        if collections.is_empty() {
            self.databases.remove(namespace.database());
        }
        removed
    }

    /// The saved state of this name.
    pub fn saved(&self, name: &StateName) -> Option<&Arc<SavedState>> {
        self.saved.get(name)
    }

    /// Every saved state, in the order of databases and names.
    pub fn all_saved(&self) -> impl Iterator<Item = &Arc<SavedState>> {
        self.saved.values()
    }

    /// Adds a saved state or replaces the one of its name.
    pub(crate) fn put_saved(&mut self, state: Arc<SavedState>) {
        Arc::make_mut(&mut self.saved).insert(state.name.clone(), state);
    }

    /// Takes a saved state away.
    pub(crate) fn remove_saved(&mut self, name: &StateName) {
        Arc::make_mut(&mut self.saved).remove(name);
    }
}
