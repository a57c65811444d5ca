//! `validate`: whether documents, indexes, counts, catalog and files agree, entry by entry.
//!
//! Everything is compared on one view, taken while no commit is under way, so that counts and catalog have
//! to agree exactly. First each tree's files are read ([`Snapshot::verify`](storage::Snapshot::verify)). Then
//! every record is read, and each of its keys looked up (`records.rs`). Then every index is read (`indexes.rs`);
//! an index with as many entries as were looked up with success holds nothing else, so that only others have
//! to be compared the other way round. What is wrong is told in MongoDB's words and places (`findings.rs`).

mod findings;
mod indexes;
mod records;
#[cfg(test)]
mod tests;

pub use findings::{IndexFindings, Validation};

use crate::catalog_entry::{entry, from_entry};
use crate::collection::{Collection, Data};
use crate::database::Database;
use crate::keys::CATALOG;
use crate::storage_error;
use crate::view::View;
use base::bson::Document;
use base::{Error, Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::Ident;

/// How much of a collection is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The catalog alone: what is known of the collection and its indexes.
    Metadata,
    /// All entries and documents.
    Data,
    /// These, all of the pages below them, and each record once more by its number.
    Full,
}

/// A validation under way.
struct Walk<'a> {
    view: View,
    collection: Arc<Collection>,
    context: &'a Context,
    depth: Depth,
    found: Validation,
    /// For each index, how many keys of documents it holds as it should.
    matched: Vec<u64>,
}

impl Database {
    /// Checks a collection: that each key of each document is in each index and points back, that nothing
    /// else is there, order, counts, multikey flags, catalog and the checksums of what is stored.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, what interrupts the operation. What is wrong
    /// with the collection is no error but a finding.
    pub fn validate(&self, namespace: &Namespace, depth: Depth, context: &Context) -> Result<Validation> {
        // Under the commit lock, so that the running counts are those of the view.
        let lock = self.exclusive(context.interrupt.as_ref())?;
        let view = self.confirmed_view();
        let collection =
            view.catalog.get(namespace).cloned().ok_or_else(|| {
                err!(NamespaceNotFound, "Collection '{namespace}' does not exist to validate.")
            })?;
        let data = collection.data()?;
        self.refresh_counts(&collection)?;
        let counted = data.counts.records.load(Relaxed);
        let mut in_use = Collection::clone(&collection);
        // Builds under way are named in the entry, and forgotten by whoever reads it.
        in_use.data.iter_mut().for_each(|data| data.building.clear());
        let in_use = entry(&in_use);
        drop(lock);
        let found = Validation::new(data);
        let matched = vec![0; data.indexes.len()];
        let mut walk = Walk { view, collection: collection.clone(), context, depth, found, matched };
        walk.check_catalog(in_use.view());
        if depth != Depth::Metadata {
            walk.check_files(data)?;
            walk.records(data, counted)?;
            walk.indexes(data)?;
        }
        walk.found.conclude();
        Ok(walk.found)
    }
}

impl Walk<'_> {
    /// The catalog's entry says the same as what is in use, multikey flags included, and its trees exist.
    fn check_catalog(&mut self, in_use: Document<'_>) {
        let namespace = &self.collection.namespace;
        let stored = self.view.snapshot.get(CATALOG, namespace.as_str().as_bytes());
        let stored = match stored {
            Ok(Some(stored)) => stored,
            Ok(None) => return self.found.error(format!("The catalog has no entry for {namespace}")),
            Err(error) => return self.found.error(error.to_string()),
        };
        // What an older version wrote may look different and mean the same.
        let read = match base::bson::validate(&stored) {
            Ok(()) => from_entry(Document::from_valid(&stored), self.context),
            Err(error) => Err(error),
        };
        match read {
            Ok(read) if entry(&read).view() == in_use => {}
            Ok(_) => self.found.error(format!("The catalog's entry for {namespace} is not what is in use")),
            Err(error) => self.found.error(format!("The catalog's entry for {namespace}: {error}")),
        }
        let missing: Vec<Ident> = self.collection.data.iter().flat_map(Data::idents).collect();
        for ident in missing {
            if !self.view.snapshot.contains(ident).unwrap_or(false) {
                self.found.error(format!("There is no tree {} for {}", ident.0, self.collection.namespace));
            }
        }
    }

    /// Every page below the collection and its indexes.
    fn check_files(&mut self, data: &Data) -> Result<()> {
        if self.depth != Depth::Full {
            return Ok(());
        }
        for ident in data.idents() {
            let mut interrupted = Ok(());
            let damages = self.view.snapshot.verify(ident, &mut || {
                interrupted = self.context.interrupt.check();
                interrupted.is_ok()
            });
            interrupted?;
            for damage in damages.map_err(storage_error)? {
                let hidden = damage.key.is_some_and(|key| self.view.snapshot.get(ident, &key).is_ok());
                match hidden {
                    // It will be written anew at the next checkpoint.
                    true => self.found.warning(format!("{}, which was overwritten since", damage.what)),
                    false => self.found.damage(damage.what),
                }
            }
        }
        Ok(())
    }

    /// Passes a broken entry on as a finding, and everything else that is wrong as an error.
    fn broken(&mut self, error: storage::Error) -> Result<()> {
        match error {
            storage::Error::Corrupted(what) => {
                self.found.damage(what);
                Ok(())
            }
            other => Err::<(), Error>(storage_error(other)),
        }
    }
}
