//! Creating, dropping and changing indexes.

use crate::collection::{Collection, Data};
use crate::commit::{Committed, Transaction};
use crate::database::Database;
use crate::duplicate::duplicate_key;
use crate::index::{Index, IndexSpec, KeyOf};
use crate::keys::RecordId;
use crate::options::check_id_collation;
use crate::storage_error;
use base::bson::{Document, Value};
use base::{Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most indexes a collection may have.
const INDEXES_MAX: usize = 64;

/// What createIndexes did.
#[derive(Debug, Default)]
pub struct CreateIndexesOutcome {
    /// Indexes before.
    pub before: usize,
    /// Indexes after.
    pub after: usize,
    /// Whether the collection was made for them.
    pub created_collection: bool,
    /// The commit, where anything was new.
    pub committed: Option<Committed>,
}

impl Database {
    /// Creates indexes, building them over the documents there are, all or none.
    ///
    /// Errors: IndexOptionsConflict, IndexKeySpecsConflict, DuplicateKey, those of key generation,
    /// and what interrupts the operation.
    pub fn create_indexes(
        &self,
        namespace: &Namespace,
        specs: Vec<IndexSpec>,
        context: &Context,
    ) -> Result<CreateIndexesOutcome> {
        let mut transaction = self.begin();
        let existing = transaction.catalog().get(namespace).cloned();
        let mut outcome =
            CreateIndexesOutcome { created_collection: existing.is_none(), ..Default::default() };
        let collection = match existing {
            Some(collection) => collection,
            None => transaction.create(namespace, Default::default(), self.now_millis())?,
        };
        let mut changed = Collection::clone(&collection);
        let Some(data) = &mut changed.data else {
            return Err(err!(CommandNotSupportedOnView, "Cannot create indexes on a view: {namespace}"));
        };
        outcome.before = data.indexes.len();
        for spec in specs {
            if spec.clustered {
                check_clustered(data, &spec, outcome.created_collection)?;
            }
            if spec.is_id_pattern() {
                check_id_collation(&spec.collation, &collection.options.collation)?;
            }
            if is_there(data, &spec)? {
                continue;
            }
            if data.indexes.len() >= INDEXES_MAX {
                return Err(err!(
                    CannotCreateIndex,
                    "add index fails, too many indexes for {namespace} key:{}",
                    spec.key
                ));
            }
            let index = transaction.build_index(namespace, data, spec, self.now_millis(), context)?;
            // The one on _id stands first, even if it comes late.
            let place = if index.is_id() { 0 } else { data.indexes.len() };
            data.indexes.insert(place, Arc::new(index));
        }
        outcome.after = data.indexes.len();
        if outcome.after != outcome.before || outcome.created_collection {
            transaction.put_collection(Arc::new(changed))?;
            outcome.committed = Some(transaction.commit()?);
        }
        Ok(outcome)
    }

    /// Drops indexes by name; `None` drops all but the one on `_id`. Returns how many there were.
    ///
    /// Errors: NamespaceNotFound, IndexNotFound, InvalidOptions for the index on `_id`.
    pub fn drop_indexes(
        &self,
        namespace: &Namespace,
        names: Option<&[String]>,
    ) -> Result<(usize, Committed)> {
        let mut transaction = self.begin();
        let found = transaction.catalog().get(namespace).cloned();
        let collection = found.ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
        let mut changed = Collection::clone(&collection);
        let Some(data) = &mut changed.data else {
            return Err(err!(CommandNotSupportedOnView, "Cannot drop indexes on view {namespace}"));
        };
        let before = data.indexes.len();
        if let Some(names) = names {
            for name in names {
                check_droppable(data, name)?;
            }
        }
        let goes = |index: &Arc<Index>| match names {
            Some(names) => names.contains(&index.spec.name),
            None => !index.is_id(),
        };
        for index in data.indexes.iter().filter(|index| goes(index)) {
            transaction.drop_ident(index.ident);
        }
        data.indexes.retain(|index| !goes(index));
        transaction.put_collection(Arc::new(changed))?;
        Ok((before, transaction.commit()?))
    }

    /// The name of the index that a key pattern or name means, for dropIndexes and collMod.
    ///
    /// Errors: IndexNotFound, AmbiguousIndexKeyPattern.
    pub fn index_name(&self, namespace: &Namespace, wanted: Value<'_>) -> Result<String> {
        let catalog = self.catalog();
        let collection =
            catalog.get(namespace).ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
        let data = collection.data()?;
        match wanted {
            Value::String(name) => Ok(name.to_string()),
            Value::Document(key) => index_by_key(data, key),
            _ => Err(err!(TypeMismatch, "index must be named by a string or a key pattern")),
        }
    }

    /// Changes an index in place, as collMod does.
    ///
    /// Errors: IndexNotFound.
    pub fn change_index(
        &self,
        namespace: &Namespace,
        name: &str,
        change: impl FnOnce(&mut IndexSpec) -> Result<()>,
    ) -> Result<Committed> {
        self.change_collection(namespace, |collection| {
            let Some(data) = &mut collection.data else {
                return Err(err!(InvalidOptions, "option not supported on a view: index"));
            };
            let place = data.indexes.iter_mut().find(|index| index.spec.name == name);
            let place =
                place.ok_or_else(|| err!(IndexNotFound, "cannot find index {name} for ns {namespace}"))?;
            let mut spec = IndexSpec::clone(&place.spec);
            change(&mut spec)?;
            let changed = Index::new(spec, place.ident, &place.multikey_bits(), place.since_millis);
            changed.uses.store(place.uses.load(Relaxed), Relaxed);
            *place = Arc::new(changed);
            Ok(())
        })
    }
}

/// An index with the option `clustered` must be the one that create made.
fn check_clustered(data: &Data, spec: &IndexSpec, created_collection: bool) -> Result<()> {
    if created_collection {
        return Err(err!(
            6100900,
            "Cannot implicitly create a new collection with createIndex 'clustered' option"
        ));
    }
    if data.clustered_index().is_none() || !spec.is_id_pattern() {
        return Err(err!(
            6243700,
            "the option 'clustered' is only for the index that create clustered the collection by, not for {}",
            spec.key
        ));
    }
    Ok(())
}

fn check_droppable(data: &Data, name: &str) -> Result<()> {
    if data.clustered_index().is_some_and(|index| index.spec.name == name) {
        return Err(err!(5979800, "It is illegal to drop the clusteredIndex"));
    }
    if name == "_id_" {
        return Err(err!(InvalidOptions, "cannot drop _id index"));
    }
    match data.index(name) {
        Some(_) => Ok(()),
        None => Err(err!(IndexNotFound, "index not found with name [{name}]")),
    }
}

fn index_by_key(data: &Data, key: Document<'_>) -> Result<String> {
    let same = |index: &&Arc<Index>| base::bson::compare_documents(index.spec.key.view(), key).is_eq();
    let mut found = data.indexes.iter().filter(same);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index.spec.name.clone()),
        (None, _) => Err(err!(IndexNotFound, "can't find index with key: {key}")),
        (Some(_), Some(_)) => Err(err!(
            AmbiguousIndexKeyPattern,
            "{} indexes found for key: {key}, identify by name instead.",
            data.indexes.iter().filter(same).count()
        )),
    }
}

/// Whether the very index is there already; an error where one conflicts with it.
fn is_there(data: &Data, spec: &IndexSpec) -> Result<bool> {
    if spec.is_id_pattern() {
        return Ok(data.id_index().is_some());
    }
    if let Some(same_name) = data.index(&spec.name) {
        if !same_name.spec.same_signature(spec) {
            return Err(err!(
                IndexKeySpecsConflict,
                "An existing index has the same name as the requested index. When index names are not \
                 specified, they are auto generated and can cause conflicts. Please refer to our \
                 documentation. Requested index: {}, existing index: {}",
                spec.to_document(),
                same_name.spec.to_document()
            ));
        }
        if !same_name.spec.same_options(spec) {
            return Err(err!(
                IndexOptionsConflict,
                "An equivalent index already exists with the same name but different options. Requested \
                 index: {}, existing index: {}",
                spec.to_document(),
                same_name.spec.to_document()
            ));
        }
        return Ok(true);
    }
    let Some(same_keys) = data.indexes.iter().find(|index| index.spec.same_signature(spec)) else {
        return Ok(false);
    };
    if same_keys.spec.same_options(spec) {
        return Err(err!(
            IndexOptionsConflict,
            "Index already exists with a different name: {}",
            same_keys.spec.name
        ));
    }
    Err(err!(
        IndexOptionsConflict,
        "An equivalent index already exists with a different name and options. Requested index: {}, \
         existing index: {}",
        spec.to_document(),
        same_keys.spec.to_document()
    ))
}

impl Transaction<'_> {
    /// Makes an index and fills it from the documents there are.
    fn build_index(
        &mut self,
        namespace: &Namespace,
        data: &Data,
        spec: IndexSpec,
        now_millis: i64,
        context: &Context,
    ) -> Result<Index> {
        let index = Index::new(spec, self.create_ident(), &[], now_millis);
        if data.counts.records.load(Relaxed) == 0 {
            return Ok(index);
        }
        let entries = self.index_entries(data, &index, context)?;
        if index.unique()
            && let Some(pair) = entries.windows(2).find(|pair| pair[0].0.key_string == pair[1].0.key_string)
        {
            return Err(duplicate_key(namespace, &index, &pair[1].0));
        }
        self.fill_index(&index, &entries);
        Ok(index)
    }

    /// The entries that an index has for the documents there are, sorted; notes what is multikey.
    pub(super) fn index_entries(
        &self,
        data: &Data,
        index: &Index,
        context: &Context,
    ) -> Result<Vec<(KeyOf, RecordId)>> {
        let mut entries: Vec<(KeyOf, RecordId)> = Vec::new();
        let mut records = self.oldest(data)?;
        let mut seen = 0u32;
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            seen = seen.wrapping_add(1);
            if seen.is_multiple_of(128) {
                context.interrupt.check()?;
            }
            let id = RecordId::from_key(key)?;
            let found = index.spec.keys_of(Document::from_valid(value), context)?;
            index.note_multikey(&found.multikey);
            entries.extend(found.keys.into_iter().map(|key| (key, id)));
        }
        entries.sort_unstable();
        Ok(entries)
    }
}
