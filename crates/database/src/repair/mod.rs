//! Repair: a database made sound again in an engine from which something may be missing.
//!
//! The engine has what could be salvaged: trees, known by their numbers. The catalog's entries that can be
//! read say whose they are. Documents that aren't valid BSON are removed, and every index is built anew from
//! the documents there are, with its multikey flags. A second document of a unique key goes to
//! `local.lost_and_found.<uuid>`, and a tree of documents that no entry names any more to `local.orphan.<n>`:
//! the names that mongod gives. Nobody else may use the engine meanwhile; afterwards it is opened as ever.

mod rebuild;
#[cfg(test)]
mod tests;

use crate::catalog_entry::from_entry;
use crate::collection::{Collection, Data};
use crate::index::{Index, IndexSpec};
use crate::keys::{CATALOG, RETRIES, SAVED};
use crate::saved_state::SavedStates;
use crate::storage_error;
use base::bson::Document;
use base::random::Random;
use base::{Namespace, Result};
use query::context::Uninterrupted;
use query::{Collation, Context};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{Batch, Direction, Engine, Ident, Key, Range};

/// So many notes are kept; all are logged.
const NOTES_MAX: usize = 1000;

/// What repair found and did.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Each collection that is there now.
    pub collections: Vec<RepairedCollection>,
    /// What was lost or moved, in words.
    pub notes: Vec<String>,
}

/// A collection after repair.
#[derive(Debug)]
pub struct RepairedCollection {
    /// Its name.
    pub namespace: Namespace,
    /// The trees that it has now.
    pub idents: Vec<Ident>,
    /// The tree of its documents.
    pub data: Ident,
    /// Documents kept.
    pub records: u64,
    /// Documents removed, since they weren't any, or moved.
    pub removed: u64,
}

/// The work, and what it needs.
struct Repair<'a> {
    engine: &'a dyn Engine,
    context: Context,
    /// The trees that the engine has.
    idents: BTreeSet<Ident>,
    next_ident: u64,
    random: Random,
    now_millis: i64,
    done: Repaired,
}

/// Makes the database in an engine sound again; `idents` are the trees that the engine has.
///
/// Errors: the engine's own.
pub fn repair(engine: &dyn Engine, idents: &BTreeSet<Ident>, now_millis: i64, seed: u64) -> Result<Repaired> {
    let own = |ident: &&Ident| **ident != RETRIES;
    let mut repair = Repair {
        engine,
        context: Context::new(0, seed, Arc::new(Uninterrupted)),
        idents: idents.clone(),
        next_ident: idents.iter().filter(own).map(|ident| ident.0 + 1).max().unwrap_or(1).max(CATALOG.0 + 1),
        random: Random::new(seed),
        now_millis,
        done: Repaired::default(),
    };
    let collections = repair.catalog()?;
    let mut known: BTreeSet<Ident> = [CATALOG, RETRIES].into();
    for (key, collection) in collections {
        known.extend(collection.data.iter().flat_map(Data::idents));
        repair.rebuild(&key, collection)?;
    }
    let orphans: Vec<Ident> = idents.difference(&known).copied().collect();
    for ident in orphans {
        repair.adopt(ident)?;
    }
    Ok(repair.done)
}

impl Repair<'_> {
    fn note(&mut self, what: String) {
        log::warn!("repair: {what}");
        if self.done.notes.len() < NOTES_MAX {
            self.done.notes.push(what);
        }
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        match batch.is_empty() {
            true => Ok(()),
            false => self.engine.commit(batch).map(drop).map_err(storage_error),
        }
    }

    /// A number for a new tree, and the tree.
    fn create(&mut self, batch: &mut Batch) -> Ident {
        let ident = Ident(self.next_ident);
        self.next_ident += 1;
        self.idents.insert(ident);
        batch.create(ident);
        ident
    }

    /// A new collection over a tree, with its index on `_id`.
    fn new_collection(&mut self, namespace: Namespace, ident: Ident, batch: &mut Batch) -> Collection {
        let index = self.create(batch);
        let index = Index::new(IndexSpec::id(Collation::default()), index, &[], self.now_millis);
        let indexes = vec![Arc::new(index)];
        let (counts, index_filters, kept_plans) = (Arc::default(), Arc::default(), Arc::default());
        let data = Data { ident, indexes, building: Vec::new(), counts, index_filters, kept_plans };
        let uuid = self.random.uuid();
        Collection { namespace, uuid, options: Default::default(), data: Some(data), generation: 0 }
    }
}

// The catalog's entries: those that make sense stay, the others are removed and said to be lost.

impl Repair<'_> {
    /// Every collection and view that can be read, with the key of its entry. Trees that they name and that
    /// are lost are made anew, empty.
    fn catalog(&mut self) -> Result<Vec<(Key, Collection)>> {
        let mut batch = Batch::new();
        if self.idents.insert(CATALOG) {
            self.note("the catalog is lost, and with it the names of all collections".to_string());
            batch.create(CATALOG);
        }
        self.commit(batch)?;
        let snapshot = self.engine.snapshot();
        let mut entries = snapshot.scan(CATALOG, Range::all(), Direction::Forward).map_err(storage_error)?;
        let (mut collections, mut batch) = (Vec::new(), Batch::new());
        // Whether the saved state that the entries belong to has a head that can be read.
        let mut opened: Option<Key> = None;
        while let Some((key, value)) = entries.next().map_err(storage_error)? {
            let key = Key::from(key);
            if key.starts_with(SAVED) && is_head(&value) {
                opened = Some(key);
                continue;
            }
            let headless = key.starts_with(SAVED)
                && opened.as_ref().is_none_or(|head| !key.starts_with(&[head, &b"\0"[..]].concat()));
            match self.read(&key, &value) {
                Ok(collection) if !headless => collections.push((key, collection)),
                unreadable => {
                    let why = unreadable
                        .err()
                        .map_or("its snapshot is lost".to_string(), |error| error.to_string());
                    let name = String::from_utf8_lossy(&key).replace('\0', "/");
                    self.note(format!("{name}: the catalog's entry is lost: {why}"));
                    batch.delete(CATALOG, key);
                }
            }
        }
        drop(entries);
        for (_, collection) in &collections {
            for ident in collection.data.iter().flat_map(|data| data.idents()) {
                if self.idents.insert(ident) {
                    let namespace = &collection.namespace;
                    batch.create(ident);
                    self.next_ident = self.next_ident.max(ident.0 + 1);
                    if collection.data.as_ref().is_some_and(|data| data.ident == ident) {
                        self.note(format!("{namespace}: all documents are lost"));
                    }
                }
            }
        }
        self.commit(batch)?;
        Ok(collections)
    }

    fn read(&self, key: &Key, value: &[u8]) -> Result<Collection> {
        base::bson::validate(value)?;
        let collection = from_entry(Document::from_valid(value), &self.context)?;
        match key.starts_with(SAVED) || **key == *collection.namespace.as_str().as_bytes() {
            true => Ok(collection),
            false => Err(base::err!(DataCorruptionDetected, "it names {}", collection.namespace)),
        }
    }
}

fn is_head(value: &[u8]) -> bool {
    base::bson::validate(value).is_ok()
        && SavedStates::default().opens(Document::from_valid(value)).is_ok_and(|opens| opens)
}
