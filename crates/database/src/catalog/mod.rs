//! The catalog: all databases, collections, views and indexes.
//!
//! The catalog is an immutable value in persistent maps. A change creates a new value that shares all unchanged parts,
//! so its cost does not depend on the number of collections. A commit publishes the catalog together with the engine's
//! batch, which keeps catalog and snapshot of a reader consistent.
//!
//! Snapshots of databases ([`SavedState`], the commands `snapshot` and `restore`) consist of ordinary collections
//! without a namespace.
//!
//! The module also encodes collections as documents, the catalog entries ([`entry`], [`from_entry`]). A new stored fact
//! about a collection or index changes both functions.

pub(crate) mod cached_plans;
pub mod collection;
pub(crate) mod history;
pub(crate) mod options;
pub(crate) mod read;

use crate::catalog::collection::{Collection, Data};
use crate::index::{Index, IndexSpec};
use crate::keys::SAVED;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::namespace::check_database_name;
use base::{Namespace, Result, bail, err};
use imbl::{OrdMap, OrdSet};
use query::Context;
use query::context::Uninterrupted;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::Ident;

/// The collections of one database by name. A changed map copies some keys of the previous map: names are shared.
type Collections = OrdMap<Arc<str>, Arc<Collection>>;

/// Every collection and view by database and name.
#[derive(Clone, Default)]
pub struct Catalog {
    databases: OrdMap<Arc<str>, Collections>,
    /// Names of all databases by lower-case name: two names must not differ only in case.
    folded: OrdMap<Arc<str>, Arc<str>>,
    /// The views that read a name: database, name, view.
    readers: OrdSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// Snapshots of databases, visible only to the commands that name them.
    saved: Arc<BTreeMap<StateName, Arc<SavedState>>>,
}

impl Catalog {
    /// Returns the collection or view of this name.
    pub fn get(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.databases.get(namespace.database())?.get(namespace.collection())
    }

    /// Returns the collection or view of this name. Errors: NamespaceNotFound.
    pub fn require(&self, namespace: &Namespace) -> Result<&Arc<Collection>> {
        self.get(namespace).ok_or_else(|| err!(NamespaceNotFound, "ns does not exist: {namespace}"))
    }

    /// Checks that a name belongs to the collection with this UUID, if one is given.
    ///
    /// Errors: CollectionUUIDMismatch, with the name of the collection that has the UUID.
    pub fn check_uuid(&self, namespace: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
        let Some(uuid) = uuid else { return Ok(()) };
        let database = namespace.database();
        let mut collections = self.collections(database).filter(|collection| !collection.is_view());
        let actual = collections.find(|collection| collection.uuid == uuid);
        let actual = actual.map(|collection| collection.namespace.collection());
        if actual == Some(namespace.collection()) {
            return Ok(());
        }
        let mut info = Builder::new();
        info.append(c"db", database).append(c"collectionUUID", Value::Binary { subtype: 4, bytes: &uuid });
        info.append(c"expectedCollection", namespace.collection());
        info.append(c"actualCollection", actual.map_or(Value::Null, Value::String));
        let error = err!(CollectionUUIDMismatch, "Collection UUID does not match that specified");
        Err(error.with_info(info.finish()))
    }

    /// Returns the names of all databases in order. A database exists while it has a collection.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(|name| &**name)
    }

    /// Returns the collections and views of a database in the order of their names.
    pub fn collections(&self, database: &str) -> impl Iterator<Item = &Arc<Collection>> {
        self.databases.get(database).into_iter().flat_map(|collections| collections.values())
    }

    /// Returns every collection and view of every database.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.databases.values().flat_map(|collections| collections.values())
    }

    /// Adds or replaces a collection. Returns the replaced collection.
    ///
    /// Errors: DatabaseDifferCase if a database with this name in another case exists.
    pub fn put(&mut self, collection: Arc<Collection>) -> Result<Option<Arc<Collection>>> {
        let (database, name) = (collection.namespace.database(), collection.namespace.collection());
        let replaced = match self.databases.get_mut(database) {
            Some(collections) => collections.insert(name.into(), collection.clone()),
            None => {
                self.check_case(database)?;
                self.folded.insert(database.to_ascii_lowercase().into(), database.into());
                self.databases.insert(database.into(), Collections::unit(name.into(), collection.clone()));
                None
            }
        };
        self.note_readers(replaced.as_ref(), Some(&collection));
        self.assert_valid();
        Ok(replaced)
    }

    /// Returns the views that read a collection or view, or a name that does not exist.
    pub(crate) fn views_reading<'a>(
        &'a self,
        database: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let from: (Arc<str>, Arc<str>, Arc<str>) = (database.into(), name.into(), "".into());
        let readers = self.readers.range(from..);
        readers
            .take_while(move |(of, read, _)| **of == *database && **read == *name)
            .map(|(.., view)| &**view)
    }

    /// Records what a view reads in place of the view before.
    fn note_readers(&mut self, before: Option<&Arc<Collection>>, after: Option<&Arc<Collection>>) {
        let reads = |collection: Option<&Arc<Collection>>| -> Vec<(Arc<str>, Arc<str>, Arc<str>)> {
            let Some(collection) = collection else { return Vec::new() };
            let Some(view) = &collection.options.view else { return Vec::new() };
            let (database, name) = (collection.namespace.database(), collection.namespace.collection());
            view.reads().iter().map(|read| (database.into(), read.as_str().into(), name.into())).collect()
        };
        for removed in reads(before) {
            self.readers.remove(&removed);
        }
        self.readers.extend(reads(after));
    }

    /// Asserts that each database has one folded name.
    fn assert_valid(&self) {
        debug_assert_eq!(self.databases.len(), self.folded.len(), "two databases differ only in case");
    }

    /// Checks the name of a database. Errors: DatabaseDifferCase if a database with this name in another case exists.
    pub(crate) fn check_case(&self, name: &str) -> Result<()> {
        match self.folded.get(name.to_ascii_lowercase().as_str()) {
            Some(other) if **other != *name => Err(err!(
                DatabaseDifferCase,
                "db already exists with different case already have: [{other}] trying to create [{name}]"
            )),
            _ => Ok(()),
        }
    }

    /// Removes a collection or view. A database disappears with its last collection.
    pub fn remove(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let collections = self.databases.get_mut(namespace.database())?;
        let removed = collections.remove(namespace.collection());
        if collections.is_empty() {
            self.databases.remove(namespace.database());
            self.folded.remove(namespace.database().to_ascii_lowercase().as_str());
        }
        self.note_readers(removed.as_ref(), None);
        self.assert_valid();
        removed
    }

    /// Returns the saved state of this name.
    pub fn saved(&self, name: &StateName) -> Option<&Arc<SavedState>> {
        self.saved.get(name)
    }

    /// Returns every saved state, in the order of databases and names.
    pub fn all_saved(&self) -> impl Iterator<Item = &Arc<SavedState>> {
        self.saved.values()
    }

    /// Adds or replaces a saved state.
    pub(crate) fn put_saved(&mut self, state: Arc<SavedState>) {
        Arc::make_mut(&mut self.saved).insert(state.name.clone(), state);
    }

    /// Removes a saved state.
    pub(crate) fn remove_saved(&mut self, name: &StateName) {
        Arc::make_mut(&mut self.saved).remove(name);
    }
}

/// Maximum length of a snapshot's name in bytes.
const STATE_NAME_MAX: usize = 255;

/// Name of a snapshot, unique in its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateName {
    /// Database of the snapshot.
    pub database: Box<str>,
    /// Name within the database.
    pub name: Box<str>,
}

/// A snapshot of a database: ordinary collections without a namespace.
pub struct SavedState {
    /// Name of the snapshot.
    pub name: StateName,
    /// Creation time in milliseconds since 1970.
    pub taken_millis: i64,
    /// Collections and views of the snapshot, under their original namespaces.
    pub collections: Vec<Arc<Collection>>,
}

impl StateName {
    /// Checks both names.
    ///
    /// Errors: InvalidNamespace for the database, BadValue for the snapshot's own name.
    pub fn new(database: &str, name: &str) -> Result<StateName> {
        check_database_name(database)?;
        if name.is_empty() || name.len() > STATE_NAME_MAX || name.contains('\0') {
            bail!(
                BadValue,
                "a snapshot's name has 1 to {STATE_NAME_MAX} bytes and no null character: '{name}'"
            );
        }
        Ok(StateName { database: database.into(), name: name.into() })
    }

    /// Returns NamespaceNotFound for the snapshot.
    pub(crate) fn not_found(&self) -> base::Error {
        err!(NamespaceNotFound, "database '{}' has no snapshot named '{}'", self.database, self.name)
    }
}

impl SavedState {
    /// Returns the number of documents in all its collections.
    pub fn records(&self) -> i64 {
        self.collections.iter().map(|collection| collection.records()).sum()
    }

    /// Returns the total size of these documents in bytes.
    pub fn bytes(&self) -> i64 {
        self.collections.iter().map(|collection| collection.bytes()).sum()
    }

    /// Returns the catalog entries of the state: its head, then one for each collection, in order of keys.
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
        let entries: Vec<_> = std::iter::once((key.clone(), head.finish())).chain(members).collect();
        debug_assert!(
            entries.is_sorted_by(|(a, _), (b, _)| a < b),
            "the head is not first, or a name is twice"
        );
        entries
    }
}

/// Saved states during the opening of a database: each head is followed by its collections.
#[derive(Default)]
pub(crate) struct SavedStates(Vec<SavedState>);

impl SavedStates {
    /// Takes an entry that is the head of a state. Returns `false` for another entry.
    pub(crate) fn opens(&mut self, head: Document<'_>) -> Result<bool> {
        let Some(Value::String(name)) = head.get("snapshot") else { return Ok(false) };
        let (Some(Value::String(database)), Some(Value::DateTime(taken_millis))) =
            (head.get("db"), head.get("taken"))
        else {
            return Err(corrupted());
        };
        let name = StateName::new(database, name)?;
        self.0.push(SavedState { name, taken_millis, collections: Vec::new() });
        Ok(true)
    }

    /// Adds a collection to the state opened last.
    pub(crate) fn add(&mut self, collection: Collection) -> Result<()> {
        let state = self.0.last_mut().ok_or_else(corrupted)?;
        state.collections.push(Arc::new(collection));
        Ok(())
    }

    /// Returns all saved states.
    pub(crate) fn finish(self) -> Vec<SavedState> {
        self.0
    }
}

/// Returns the error for a snapshot whose catalog entries do not match.
fn corrupted() -> base::Error {
    err!(DataCorruptionDetected, "broken snapshot in the catalog")
}

/// Returns the catalog entry of a collection: the stored document from which it is opened.
pub(crate) fn entry(collection: &Collection) -> DocumentBuf {
    entry_with(collection, &MultikeyFlags::new())
}

/// Multikey bits by the tree of their index.
pub(crate) type MultikeyFlags = BTreeMap<Ident, Vec<u32>>;

/// Returns the entry with multikey bits that the indexes are about to get.
pub(crate) fn entry_with(collection: &Collection, flags: &MultikeyFlags) -> DocumentBuf {
    // The size of most entries.
    let indexes = collection.data.iter().flat_map(Data::written_indexes).count();
    let mut out = Builder::with_buffer(Vec::with_capacity(256 + 192 * indexes));
    out.append(c"ns", collection.namespace.as_str());
    out.append(c"uuid", Value::Binary { subtype: 4, bytes: &collection.uuid });
    collection.options.append_to(out.begin_document(c"options"));
    out.end();
    out.append(c"generation", collection.generation as i64);
    if let Some(data) = &collection.data {
        out.append(c"ident", data.ident.0 as i64).begin_array(c"indexes");
        for index in &data.indexes {
            append_index(index, flags, &mut out);
        }
        out.end();
        // Other processes over the same store maintain the builds' indexes, too. After a crash, the next process that
        // opens the database drops the builds.
        if !data.building.is_empty() {
            out.begin_array(c"building");
            for building in &data.building {
                append_index(&building.index, flags, &mut out);
            }
            out.end();
        }
    }
    out.finish()
}

/// Appends an index to the open array.
fn append_index(index: &Index, flags: &MultikeyFlags, out: &mut Builder) {
    out.push_document().begin_document(c"spec");
    index.spec.append_to(out);
    out.end().append(c"ident", index.ident.0 as i64).append(c"since", index.since_millis);
    append_multikey(index, flags, out);
    out.end();
}

/// Appends the multikey bits of an index, including bits that it is about to get.
fn append_multikey(index: &Index, flags: &MultikeyFlags, out: &mut Builder) {
    out.begin_array(c"multikey");
    let flags = flags.get(&index.ident);
    for (part, bits) in index.multikey().enumerate() {
        let more = flags.and_then(|flags| flags.get(part)).copied().unwrap_or(0);
        out.push((bits | more) as i32);
    }
    out.end();
}

/// Reads a catalog entry. The counts are zero; the caller sets them.
///
/// Errors: DataCorruptionDetected, and errors of the specifications in the entry.
pub(crate) fn from_entry(entry: Document<'_>, context: &Context) -> Result<Collection> {
    let corrupted = || err!(DataCorruptionDetected, "broken catalog entry: {entry}");
    let namespace = Namespace::parse(entry.get("ns").and_then(|v| v.as_str()).ok_or_else(corrupted)?)?;
    let Some(Value::Binary { bytes, .. }) = entry.get("uuid") else { return Err(corrupted()) };
    let options = entry.get("options").and_then(|v| v.as_document()).ok_or_else(corrupted)?;
    let options = options::parse(options, &namespace, context)?;
    let ident =
        |document: Document<'_>| document.get("ident").and_then(|v| v.as_i64()).map(|n| Ident(n as u64));
    let mut indexes = Vec::new();
    for stored in entry.get("indexes").and_then(|v| v.as_array()).into_iter().flat_map(|array| array.iter()) {
        let stored = stored.as_document().ok_or_else(corrupted)?;
        let spec = stored.get("spec").and_then(|v| v.as_document()).ok_or_else(corrupted)?;
        let spec = IndexSpec::parse(spec, &namespace, context)?;
        let bits = stored.get("multikey").and_then(|v| v.as_array()).ok_or_else(corrupted)?;
        let bits: Vec<u32> = bits.iter().map(|v| v.as_i64().unwrap_or(0) as u32).collect();
        let since = stored.get("since").and_then(|v| v.as_i64()).unwrap_or(0);
        indexes.push(Arc::new(Index::new(spec, ident(stored).ok_or_else(corrupted)?, &bits, since)));
    }
    let data = match options.view {
        Some(_) => None,
        None => Some(Data::new(ident(entry).ok_or_else(corrupted)?, indexes, Arc::default())),
    };
    let uuid = bytes.try_into().map_err(|_| corrupted())?;
    Ok(Collection { namespace, uuid, options, data, generation: stored_generation(entry) })
}

/// Checks that the database can be opened with this entry.
///
/// Errors: as [`from_entry`].
pub(crate) fn check_entry(entry: &DocumentBuf) -> Result<()> {
    from_entry(entry.view(), &Context::new(0, 1, Arc::new(Uninterrupted))).map(drop)
}

/// Returns the catalog generation that wrote the entry.
pub(crate) fn stored_generation(entry: Document<'_>) -> u64 {
    entry.get("generation").and_then(|value| value.as_i64()).unwrap_or(0) as u64
}

/// An index build in progress when an entry was written.
pub(crate) struct StoredBuild<'a> {
    pub(crate) spec: Document<'a>,
    pub(crate) ident: Ident,
    pub(crate) since_millis: i64,
    /// Multikey bits reported by its writers.
    pub(crate) multikey: Vec<u32>,
}

/// Returns the index builds in progress when an entry was written.
pub(crate) fn stored_builds(entry: Document<'_>) -> Vec<StoredBuild<'_>> {
    let building = entry.get("building").and_then(|value| value.as_array());
    let builds = building.into_iter().flat_map(|array| array.iter()).filter_map(|build| {
        let build = build.as_document()?;
        Some(StoredBuild {
            spec: build.get("spec")?.as_document()?,
            ident: Ident(build.get("ident")?.as_i64()? as u64),
            since_millis: build.get("since")?.as_i64()?,
            multikey: multikey_of(build),
        })
    });
    builds.collect()
}

/// Returns the multikey bits in an entry, in the order of the indexes.
pub(crate) fn stored_multikey(entry: Document<'_>) -> Vec<Vec<u32>> {
    let indexes = entry.get("indexes").and_then(|value| value.as_array());
    let indexes = indexes.into_iter().flat_map(|array| array.iter());
    indexes.map(|index| index.as_document().map(multikey_of).unwrap_or_default()).collect()
}

/// Returns the multikey bits in an index's part of an entry; none in entries without any.
fn multikey_of(index: Document<'_>) -> Vec<u32> {
    let bits = index.get("multikey").and_then(|bits| bits.as_array());
    let bits = bits.into_iter().flat_map(|array| array.iter());
    bits.map(|bits| bits.as_i64().unwrap_or(0) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::collection::Options;
    use base::Namespace;
    use storage::cpu_slice::CpuSlice;

    fn collection(number: usize) -> Arc<Collection> {
        let namespace = Namespace::parse(&format!("d{}.c{number}", number % 7)).unwrap();
        let (uuid, options) = ([0; 16], Options::default());
        Arc::new(Collection { namespace, uuid, options, data: None, generation: 0 })
    }

    /// Returns the CPU time of 1,000 changes, each of a catalog held by a reader.
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
        let large = Arc::make_mut(&mut catalog);
        (1000..60_000).for_each(|number| _ = large.put(collection(number)).unwrap());
        let many = thousand(&mut catalog, 60_000);
        // Copying a map would take sixty times as long.
        assert!(many <= few * 6, "{few:?} with 1,000 collections, {many:?} with 60,000");
        assert_eq!((catalog.all().count(), catalog.databases().count()), (61_000, 7));
    }

    #[test]
    fn a_dropped_database_may_return_in_another_case() {
        let named = |name: &str| {
            let namespace = Namespace::parse(name).unwrap();
            Arc::new(Collection { namespace, ..Collection::clone(&collection(0)) })
        };
        let mut catalog = Catalog::default();
        catalog.put(named("Test.a")).unwrap();
        catalog.put(named("Test.b")).unwrap();
        let refused = catalog.put(named("test.a")).err().map(|error| error.code());
        assert_eq!(refused, Some(base::ErrorCode::DatabaseDifferCase));
        let old = catalog.clone();
        ["Test.a", "Test.b"].iter().for_each(|name| _ = catalog.remove(&Namespace::parse(name).unwrap()));
        catalog.put(named("test.a")).unwrap();
        assert_eq!(old.databases().collect::<Vec<_>>(), ["Test"]);
        assert_eq!(catalog.databases().collect::<Vec<_>>(), ["test"]);
    }
}
