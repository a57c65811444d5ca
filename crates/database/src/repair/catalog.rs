//! The catalog's entries: those that make sense stay, the others are removed and said to be lost.

use super::Repair;
use crate::catalog_entry::from_entry;
use crate::collection::Collection;
use crate::keys::{CATALOG, SAVED};
use crate::saved_state::SavedStates;
use crate::storage_error;
use base::Result;
use base::bson::Document;
use storage::{Batch, Direction, Key, Range};

impl Repair<'_> {
    /// Every collection and view that can be read, with the key of its entry. Trees that they name and that
    /// are lost are made anew, empty.
    pub(super) fn catalog(&mut self) -> Result<Vec<(Key, Collection)>> {
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
