//! Databases' states kept under names: collections like any others, that no namespace leads to.

use crate::catalog_entry::entry;
use crate::collection::Collection;
use crate::keys::SAVED;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::namespace::check_database_name;
use base::{Result, err};
use std::sync::Arc;

/// The longest name of a snapshot, in bytes.
const STATE_NAME_MAX: usize = 255;

/// What a snapshot is called: names are a database's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateName {
    /// The database it was taken of.
    pub database: Box<str>,
    /// Its name among that database's snapshots.
    pub name: Box<str>,
}

/// A database's state kept under a name: collections like any others, that no namespace leads to.
pub struct SavedState {
    /// What it is called.
    pub name: StateName,
    /// When it was taken, in milliseconds since 1970.
    pub taken_millis: i64,
    /// The collections and views in it, under the namespaces they had.
    pub collections: Vec<Arc<Collection>>,
}

impl StateName {
    /// Checks both names.
    ///
    /// Errors: InvalidNamespace for the database, BadValue for the snapshot's own name.
    pub fn new(database: &str, name: &str) -> Result<StateName> {
        check_database_name(database)?;
        if name.is_empty() || name.len() > STATE_NAME_MAX || name.contains('\0') {
            return Err(err!(
                BadValue,
                "a snapshot's name has 1 to {STATE_NAME_MAX} bytes and no null character: '{name}'"
            ));
        }
        Ok(StateName { database: database.into(), name: name.into() })
    }

    pub(crate) fn not_found(&self) -> base::Error {
        err!(NamespaceNotFound, "database '{}' has no snapshot named '{}'", self.database, self.name)
    }
}

impl SavedState {
    /// Documents in all its collections.
    pub fn records(&self) -> i64 {
        self.collections.iter().map(|collection| collection.records()).sum()
    }

    /// The sizes of these documents together, in bytes.
    pub fn bytes(&self) -> i64 {
        self.collections.iter().map(|collection| collection.bytes()).sum()
    }

    /// What the catalog's tree keeps of it: its own entry, then one for each collection, in order of keys.
    pub(crate) fn entries(&self) -> Vec<(Vec<u8>, DocumentBuf)> {
        let StateName { database, name } = &self.name;
        let key = [SAVED, database.as_bytes(), b"\0", name.as_bytes()].concat();
        let mut head = Builder::new();
        head.append(c"snapshot", &**name).append(c"db", &**database);
        head.append(c"taken", Value::DateTime(self.taken_millis));
        let member = |collection: &Arc<Collection>| {
            let name = collection.namespace.collection().as_bytes();
            ([&key, &b"\0"[..], name].concat(), entry(collection))
        };
        let members = self.collections.iter().map(member);
        std::iter::once((key.clone(), head.finish())).chain(members).collect()
    }
}

/// Saved states as they are read back when the database is opened: each head is followed by its members.
#[derive(Default)]
pub(crate) struct SavedStates(Vec<SavedState>);

impl SavedStates {
    /// Takes an entry that is the head of a state; `false` where it isn't one.
    pub(crate) fn opens(&mut self, head: Document<'_>) -> Result<bool> {
        let Some(Value::String(name)) = head.get("snapshot") else { return Ok(false) };
        let (Some(Value::String(database)), Some(Value::DateTime(taken_millis))) =
            (head.get("db"), head.get("taken"))
        else {
            return Err(broken());
        };
        let name = StateName::new(database, name)?;
        self.0.push(SavedState { name, taken_millis, collections: Vec::new() });
        Ok(true)
    }

    /// Takes a collection of the state opened last.
    pub(crate) fn add(&mut self, collection: Collection) -> Result<()> {
        let state = self.0.last_mut().ok_or_else(broken)?;
        state.collections.push(Arc::new(collection));
        Ok(())
    }

    /// All of them.
    pub(crate) fn finish(self) -> Vec<SavedState> {
        self.0
    }
}

fn broken() -> base::Error {
    err!(DataCorruptionDetected, "broken snapshot in the catalog")
}
