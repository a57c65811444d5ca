//! Reads the catalog from the store: at the opening of a database, and after a change by another user of the store.

use crate::catalog::collection::Collection;
use crate::catalog::{
    Catalog, SavedStates, StoredBuild, from_entry, stored_builds, stored_generation, stored_multikey,
};
use crate::index::{Building, Index, IndexSpec};
use crate::keys::{CATALOG, RecordId, SAVED};
use crate::storage_error;
use base::bson::Document;
use base::{Namespace, Result};
use query::Context;
use query::context::Uninterrupted;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::{Counts, Store};
use storage::{Direction, Ident, Key, Range, Snapshot, Value};

/// Number of entries that are read before their counts are requested.
const AT_ONCE: usize = 512;

/// A parsed catalog entry.
enum Entry<'a> {
    /// An unchanged, known collection.
    Same(Arc<Collection>),
    /// The head of a saved state, whose collections follow.
    State(Document<'a>),
    /// A new or changed collection, and whether it belongs to a saved state.
    New(Box<Collection>, Document<'a>, bool),
}

/// A catalog as read from the store.
pub(crate) struct ReadCatalog {
    pub(crate) catalog: Catalog,
    /// The first unused tree number.
    pub(crate) next_ident: Ident,
    /// Trees of abandoned index builds.
    pub(crate) abandoned: Vec<Ident>,
}

/// Reads every collection. Unchanged collections of `known` are reused.
///
/// Errors: DataCorruptionDetected, and errors of the engine.
pub(crate) fn read(store: &dyn Store, snapshot: &dyn Snapshot, known: &Catalog) -> Result<ReadCatalog> {
    let context = Context::new(0, 1, Arc::new(Uninterrupted));
    let mut read =
        ReadCatalog { catalog: Catalog::default(), next_ident: Ident(CATALOG.0 + 1), abandoned: Vec::new() };
    let mut entries = snapshot.scan(CATALOG, Range::all(), Direction::Forward).map_err(storage_error)?;
    let mut saved = SavedStates::default();
    let mut some = Vec::new();
    loop {
        let entry =
            entries.next().map_err(storage_error)?.map(|(key, value)| (Key::from(key), value.to_value()));
        let is_last = entry.is_none();
        some.extend(entry);
        if is_last || some.len() == AT_ONCE {
            read.take(store, snapshot, known, (&some, &mut saved), &context)?;
            some.clear();
        }
        if is_last {
            break;
        }
    }
    saved.finish().into_iter().for_each(|state| read.catalog.put_saved(Arc::new(state)));
    Ok(read)
}

/// Returns the known collection of an unchanged entry. Adds the multikey bits of the entry to it. A collection with
/// further bits is not unchanged: a crash of the store has lost the bits, and the next writer must store them again.
fn unchanged(known: &Catalog, entry: Document<'_>) -> Result<Option<Arc<Collection>>> {
    let Some(namespace) = entry.get("ns").and_then(|name| name.as_str()) else { return Ok(None) };
    let same = known.get(&Namespace::parse(namespace)?).cloned();
    let Some(same) = same.filter(|same| same.generation == stored_generation(entry)) else { return Ok(None) };
    let stored = stored_multikey(entry);
    let indexes = || same.data.iter().flat_map(|data| &data.indexes).zip(&stored);
    if indexes()
        .any(|(index, stored)| index.multikey().zip(stored).any(|(known, stored)| known & !stored != 0))
    {
        return Ok(None);
    }
    indexes().for_each(|(index, bits)| index.note_multikey(bits));
    for stored in stored_builds(entry) {
        let mut building = same.data.iter().flat_map(|data| &data.building);
        if let Some(build) = building.find(|build| build.index.ident == stored.ident) {
            build.index.note_multikey(&stored.multikey);
        }
    }
    Ok(Some(same))
}

impl ReadCatalog {
    /// Takes a group of entries, and reads their counts together.
    fn take(
        &mut self,
        store: &dyn Store,
        snapshot: &dyn Snapshot,
        known: &Catalog,
        (entries, saved): (&[(Key, Value)], &mut SavedStates),
        context: &Context,
    ) -> Result<()> {
        let mut decoded = Vec::with_capacity(entries.len());
        for (key, entry) in entries {
            let entry = Document::from_valid(entry);
            let is_saved = key.starts_with(SAVED);
            if is_saved && entry.get("snapshot").is_some_and(|name| name.as_str().is_some()) {
                decoded.push(Entry::State(entry));
                continue;
            }
            match unchanged(known, entry).map(|same| same.filter(|_| !is_saved))? {
                Some(same) => decoded.push(Entry::Same(same)),
                None => decoded.push(Entry::New(Box::new(from_entry(entry, context)?), entry, is_saved)),
            }
        }
        let idents = decoded.iter().filter_map(|entry| match entry {
            Entry::New(collection, ..) => Some(collection.data.as_ref()?.ident),
            Entry::Same(_) | Entry::State(_) => None,
        });
        store.prefetch_counts(&idents.collect::<Vec<_>>(), snapshot).map_err(storage_error)?;
        for entry in decoded {
            match entry {
                Entry::State(head) => _ = saved.opens(head)?,
                Entry::Same(same) => {
                    self.reserve(&same);
                    self.catalog.put(same)?;
                }
                Entry::New(mut collection, entry, is_saved) => {
                    let builds = if is_saved { Vec::new() } else { stored_builds(entry) };
                    self.load_shared_state(store, snapshot, &mut collection, &builds, context)?;
                    match is_saved {
                        true => saved.add(*collection)?,
                        false => _ = self.catalog.put(Arc::new(*collection))?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the shared parts of a collection: its counts, and its index builds.
    fn load_shared_state(
        &mut self,
        store: &dyn Store,
        snapshot: &dyn Snapshot,
        collection: &mut Collection,
        builds: &[StoredBuild<'_>],
        context: &Context,
    ) -> Result<()> {
        if let Some(data) = &mut collection.data {
            let ident = data.ident;
            data.counts = store
                .counts(ident, &mut |counts| read_counts(snapshot, ident, counts))
                .map_err(storage_error)?;
            for stored in builds {
                let Some(build) = store.build(stored.ident) else {
                    self.abandoned.push(stored.ident);
                    continue;
                };
                let spec = IndexSpec::parse(stored.spec, &collection.namespace, context)?;
                let index = Arc::new(Index::new(spec, stored.ident, &stored.multikey, stored.since_millis));
                data.building.push(Arc::new(Building { index, build }));
            }
        }
        self.reserve(collection);
        let abandoned = self.abandoned.iter().map(|ident| ident.0 + 1).max();
        self.next_ident.0 = self.next_ident.0.max(abandoned.unwrap_or(0));
        Ok(())
    }

    /// Raises the first unused tree number above the trees of a collection.
    fn reserve(&mut self, collection: &Collection) {
        let idents = collection.data.iter().flat_map(|data| data.idents());
        self.next_ident = idents.map(|ident| Ident(ident.0 + 1)).fold(self.next_ident, Ident::max);
    }
}

/// Reads the counts from the engine, for a store that keeps them with its trees.
fn read_counts(snapshot: &dyn Snapshot, ident: Ident, counts: &Counts) -> storage::Result<()> {
    let records = snapshot.entries(ident)?;
    let bytes = snapshot.bytes(ident)?;
    counts.records.store(records as i64, Relaxed);
    // The engine's size includes eight bytes of key for each record.
    counts.bytes.store(bytes.saturating_sub(8 * records) as i64, Relaxed);
    let mut last = snapshot.scan(ident, Range::all(), Direction::Backward)?;
    let last = last.next()?.and_then(|(key, _)| RecordId::from_key(key).ok());
    counts.next_record.store(last.map_or(1, |id| id.0 + 1), Relaxed);
    Ok(())
}
