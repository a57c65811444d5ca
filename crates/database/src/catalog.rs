//! The catalog: which databases, collections, views and indexes there are.
//!
//! An immutable value in persistent maps. A change makes a new one that shares all that stays, so that it
//! costs the same however many collections there are. The commit publishes it together with the engine's
//! batch, so that a reader's catalog and snapshot agree.

use crate::collection::Collection;
use crate::saved_state::{SavedState, StateName};
use base::{Namespace, Result, err};
use imbl::OrdMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The collections of one database by name. A changed map copies some keys of the map before it: names are shared.
type Collections = OrdMap<Arc<str>, Arc<Collection>>;

/// Every collection and view by database and name.
#[derive(Clone, Default)]
pub struct Catalog {
    databases: OrdMap<Arc<str>, Collections>,
    /// The names of all databases by the name in lower case: two may not differ in case alone.
    folded: OrdMap<Arc<str>, Arc<str>>,
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
        if !self.databases.contains_key(name) {
            let folded = name.to_ascii_lowercase();
            if let Some(other) = self.folded.get(folded.as_str()) {
                return Err(err!(
                    DatabaseDifferCase,
                    "db already exists with different case already have: [{other}] trying to create [{name}]"
                ));
            }
            self.folded.insert(folded.into(), name.into());
        }
        let collections = self.databases.entry(name.into()).or_default();
        collections.insert(collection.namespace.collection().into(), collection.clone());
        Ok(())
    }

    /// Takes a collection or view away, and its database with the last.
    pub fn remove(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let collections = self.databases.get_mut(namespace.database())?;
        let removed = collections.remove(namespace.collection());
        if collections.is_empty() {
            self.databases.remove(namespace.database());
            self.folded.remove(namespace.database().to_ascii_lowercase().as_str());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Options;
    use base::Namespace;
    use storage::cpu_slice::CpuSlice;

    fn collection(number: usize) -> Arc<Collection> {
        let namespace = Namespace::parse(&format!("d{}.c{number}", number % 7)).unwrap();
        let (uuid, options) = ([0; 16], Options::default());
        Arc::new(Collection { namespace, uuid, options, data: None, generation: 0 })
    }

    /// The CPU time of 1,000 changes, each of a catalog that a reader holds.
    fn thousand(catalog: &mut Arc<Catalog>, from: usize) -> std::time::Duration {
        let slice = CpuSlice::begin();
        for number in from..from + 1000 {
            let _reader = catalog.clone();
            Arc::make_mut(catalog).put(collection(number)).unwrap();
        }
        slice.used()
    }

    #[test]
    fn a_change_costs_the_same_however_many_collections_there_are() {
        let mut catalog = Arc::new(Catalog::default());
        let few = thousand(&mut catalog, 0);
        let whole = Arc::make_mut(&mut catalog);
        (1000..60_000).for_each(|number| whole.put(collection(number)).unwrap());
        let many = thousand(&mut catalog, 60_000);
        // Copying a map would take sixty times as long.
        assert!(many <= few * 6, "{few:?} with 1,000 collections, {many:?} with 60,000");
        assert_eq!((catalog.all().count(), catalog.databases().count()), (61_000, 7));
    }

    #[test]
    fn a_database_may_come_back_in_another_case_once_it_is_gone() {
        let named = |name: &str| {
            let namespace = Namespace::parse(name).unwrap();
            Arc::new(Collection { namespace, ..Collection::clone(&collection(0)) })
        };
        let mut catalog = Catalog::default();
        catalog.put(named("Test.a")).unwrap();
        catalog.put(named("Test.b")).unwrap();
        assert_eq!(catalog.put(named("test.a")).unwrap_err().code(), base::ErrorCode::DatabaseDifferCase);
        let kept = catalog.clone();
        ["Test.a", "Test.b"].iter().for_each(|name| _ = catalog.remove(&Namespace::parse(name).unwrap()));
        catalog.put(named("test.a")).unwrap();
        assert_eq!(kept.databases().collect::<Vec<_>>(), ["Test"]);
        assert_eq!(catalog.databases().collect::<Vec<_>>(), ["test"]);
    }
}
