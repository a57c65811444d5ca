//! Index builds over existing documents, concurrent with reads and writes.
//! 1. [Register](crate::index::Building) the indexes with the collection. From then on, writers
//!    also write their entries.
//! 2. Read a snapshot through an external sorter, one for each index.
//! 3. Load the sorted entries, in small groups under the commit lock. Skip entries of records that
//!    have changed since the registration.
//! 4. Publish the indexes for plans.
//!
//! A writer that meets a duplicate in a unique index under construction does not know whether its own
//! write will commit. It leaves the index, and the build starts again from step 1. Only a duplicate
//! among committed documents ends a build.
//!
//! A build that ends before step 4 removes its trees. After a crash, the next open of the database
//! removes them, because the collection's entry names the trees.

use super::build_state::BuildState;
use crate::catalog::collection::{Collection, Data};
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::index::{Building, Index};
use crate::keys::{IndexEntry, RecordId};
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Document, DocumentBuf, DocumentCow};
use base::{ErrorCode, Result, err};
use query::context::Uninterrupted;
use query::{Context, Interrupt, Sorter};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;
use storage::{Direction, Range, mark, mutant};

/// Number of entries loaded under the lock at a time, about a quarter of a millisecond of work.
/// Each group copies the tree nodes shared with readers. Debug builds use few entries, so that
/// tests can run between groups.
const LOADED_AT_ONCE: usize = if cfg!(debug_assertions) { 3 } else { 512 };

/// Size of the entries after which a group ends, in bytes.
const LOADED_BYTES: usize = 1 << 20;

/// Number of times that a build starts again because of writes before it ends with DuplicateKey.
const RESTARTS_MAX: usize = 20;

/// Least memory of one index's sorter, in bytes.
const SORTER_MIN: usize = 1024 * 1024;

/// Adds finished indexes to a collection.
pub(super) type Publish<'a> =
    dyn FnMut(&mut CatalogChange<'_>, &mut Collection, &[Arc<Building>]) -> Result<()> + 'a;

/// Index builds of one collection.
pub(super) struct IndexBuild<'a> {
    pub(super) database: &'a Database,
    pub(super) operation: &'a Operation,
    pub(super) context: &'a Context,
    pub(super) state: BuildState,
}

/// An entry between the sorter and the index: key string, record id, type bits.
pub(super) struct Loaded {
    bytes: Vec<u8>,
    /// Length of the key string.
    length: usize,
}

impl Loaded {
    /// Parses an entry in the sorter's format.
    ///
    /// Errors: InternalError if it is too short.
    fn new(bytes: Vec<u8>, length: u64) -> Result<Loaded> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match bytes.len().checked_sub(length).is_some_and(|rest| rest >= size_of::<u64>()) {
            true => Ok(Loaded { bytes, length }),
            false => Err(err!(InternalError, "an index build's sorter gave a broken entry")),
        }
    }

    fn key_string(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn record(&self) -> RecordId {
        let number = self.bytes.get(self.length..).and_then(|rest| rest.first_chunk());
        RecordId(number.map_or(0, |number| u64::from_be_bytes(*number)))
    }

    fn type_bits(&self) -> &[u8] {
        self.bytes.get(self.length + size_of::<u64>()..).unwrap_or_default()
    }
}

impl CatalogChange<'_> {
    /// Registers an index build with a collection.
    pub(super) fn register_build(&mut self, data: &mut Data, index: Index) -> Arc<Building> {
        let greatest = self.greatest_record(data).0;
        let build = self.database().store.begin_build(index.ident, greatest);
        let build = Arc::new(Building { index: Arc::new(index), build });
        debug_assert!(
            data.idents().all(|ident| ident != build.index.ident),
            "the tree of an index build belongs to another index"
        );
        data.building.push(build.clone());
        build
    }
}

impl IndexBuild<'_> {
    /// Builds the indexes and calls `publish` to add them to the catalog. A call after LockBusy continues.
    ///
    /// Errors: DuplicateKey, IndexBuildAborted if the collection or the indexes are dropped, key
    /// generation, temporary files, interruption of the operation; LockBusy for a statement that its caller suspends.
    pub(super) fn run(&mut self, publish: &mut Publish<'_>) -> Result<Committed> {
        loop {
            match self.step(publish) {
                Ok(Some(committed)) => {
                    self.state.end(self.database);
                    return Ok(committed);
                }
                Ok(None) => {}
                Err(error) if error.code() == ErrorCode::LockBusy => return Err(error),
                Err(error) => {
                    self.abort();
                    return Err(error);
                }
            }
        }
    }

    /// Builds the indexes, or registers the builds again after a failure. Returns the commit that publishes them.
    fn step(&mut self, publish: &mut Publish<'_>) -> Result<Option<Committed>> {
        if self.state.is_failed {
            self.restart()?;
            return Ok(None);
        }
        let published = self.attempt(publish)?;
        if published.is_none() {
            mark!("an index build starts again because of a write");
            self.state.is_failed = true;
            self.state.restarts += 1;
            if self.state.restarts >= RESTARTS_MAX {
                let failed = self.state.failed().or(self.state.builds.first());
                return Err(
                    failed.map_or_else(|| self.state.dropped_error(), |build| self.state.duplicate(build))
                );
            }
        }
        Ok(published)
    }

    /// Builds and publishes the indexes. Returns `None` if a writer has met a duplicate.
    fn attempt(&mut self, publish: &mut Publish<'_>) -> Result<Option<Committed>> {
        let operation = self.operation;
        operation.run_long(|| {
            if self.state.sorted.is_none() {
                self.state.sorted = Some(self.sort()?);
            }
            self.load()
        })?;
        let published = self.database.change_catalog(self.operation, |change| {
            let mut collection = self.state.registered(change)?;
            if let Some(build) = self.state.failed() {
                match mutant!("duplicates of refused writes end index builds") {
                    true => return Err(self.state.duplicate(build)),
                    false => return Ok(None),
                }
            }
            self.state.learn_from(&collection);
            publish(change, &mut collection, &self.state.builds)?;
            self.state.unregister(&mut collection);
            change.put_collection(collection).map(Some)
        })?;
        Ok(published.map(|(_, committed)| committed))
    }

    /// Registers builds of the same indexes over new trees. Waits for open transactions that have written to the
    /// collection, so that the new builds meet only later writes.
    fn restart(&mut self) -> Result<()> {
        let restarted = self.database.change_catalog(self.operation, |change| {
            let mut collection = self.state.registered(change)?;
            self.state.unregister(&mut collection);
            let Some(data) = &mut collection.data else { return Err(self.state.dropped_error()) };
            let mut builds = Vec::with_capacity(self.state.builds.len());
            for index in self.state.builds.iter().map(|build| &build.index) {
                change.drop_ident(index.ident);
                let fresh = index.with(index.spec.clone(), change.create_ident(), &[]);
                builds.push(change.register_build(data, fresh));
            }
            change.put_collection(collection)?;
            Ok(Some(builds))
        })?;
        if let Some((builds, _)) = restarted {
            self.state.end(self.database);
            let BuildState { namespace, uuid, restarts, .. } = &self.state;
            self.state =
                BuildState { restarts: *restarts, ..BuildState::new(namespace.clone(), *uuid, builds) };
        }
        Ok(())
    }

    /// Sorts the entries of a snapshot's documents for each index, including entries of records
    /// that have changed.
    pub(super) fn sort(&self) -> Result<Vec<Sorter>> {
        let view = self.database.confirmed_view();
        let collection = view.catalog.get(&self.state.namespace).filter(|now| now.uuid == self.state.uuid);
        let data = collection.and_then(|collection| collection.data.as_ref());
        let data = data.ok_or_else(|| self.state.dropped_error())?;
        let builds = &self.state.builds;
        let memory = (self.database.build_memory() / builds.len().max(1)).max(SORTER_MIN);
        let folder = self.database.spill_folder();
        let sorter = |_| Sorter::new(usize::MAX, memory, true).spilling_into(&folder);
        let mut sorters: Vec<Sorter> = builds.iter().map(sorter).collect();
        let progress = self.operation.begin_progress(
            "Index Build: scanning collection",
            data.counts.records.load(Relaxed).max(0) as u64,
        );
        let all = mutant!("writes during a build are loaded");
        let greatest = if all { u64::MAX } else { self.state.greatest_record() };
        let loaded = Range { upper: Bound::Included(RecordId(greatest).key()), ..Range::all() };
        let mut records =
            view.snapshot.scan(data.ident, loaded, Direction::Forward).map_err(storage_error)?;
        let mut sort_key = Vec::new();
        let nothing = DocumentCow::Shared(DocumentBuf::empty().into_bytes().into());
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            self.operation.check()?;
            progress.advance();
            let id = RecordId::from_key(key)?;
            for (build, sorter) in builds.iter().zip(&mut sorters) {
                let found = build.index.spec.keys_of(Document::from_valid(&value), self.context)?;
                build.index.note_multikey(&found.multikey);
                for key in found.keys {
                    sort_key.clear();
                    for part in [&key.key_string, &id.0.to_be_bytes()[..], &key.type_bits] {
                        sort_key.extend_from_slice(part);
                    }
                    sorter.add(&sort_key, key.key_string.len() as u64, nothing.clone())?;
                }
            }
        }
        sorters.iter_mut().try_for_each(Sorter::finish)?;
        Ok(sorters)
    }

    /// Loads the sorted entries into the indexes, until a writer meets a duplicate.
    fn load(&mut self) -> Result<()> {
        let (mut sorted, mut chunk) = (self.state.sorted.take(), std::mem::take(&mut self.state.chunk));
        let mut loaded = Ok(true);
        for at in self.state.loaded..self.state.builds.len() {
            let build = self.state.builds.get(at).zip(sorted.as_mut().and_then(|sorted| sorted.get_mut(at)));
            loaded = build.map_or(Ok(false), |(build, sorter)| self.load_index(build, sorter, &mut chunk));
            if !matches!(loaded, Ok(true)) {
                break;
            }
            self.state.loaded += 1;
        }
        (self.state.sorted, self.state.chunk) = (sorted, chunk);
        loaded.map(drop)
    }

    /// Loads sorted entries into an index. Returns false if a writer has met a duplicate in it.
    fn load_index(&self, build: &Building, sorter: &mut Sorter, chunk: &mut Vec<Loaded>) -> Result<bool> {
        let known = self.database.known_catalog();
        let entries = known.get(&self.state.namespace).map_or(0, |now| now.records());
        let progress = self.operation.begin_progress(
            "Index Build: inserting keys from external sorter into index",
            entries.max(0) as u64,
        );
        loop {
            self.operation.check()?;
            let mut bytes: usize = chunk.iter().map(|entry| entry.bytes.len()).sum();
            while chunk.len() < LOADED_AT_ONCE
                && bytes < LOADED_BYTES
                && let Some(entry) = next_entry(sorter)?
            {
                progress.advance();
                bytes += entry.bytes.len();
                chunk.push(entry);
            }
            if chunk.is_empty() {
                return Ok(true);
            }
            let loaded = self.database.change_catalog(self.operation, |change| {
                self.state.registered(change)?;
                if build.build.has_failed() {
                    return Ok(None);
                }
                self.load_chunk(change, build, chunk).map(Some)
            })?;
            if loaded.is_none() {
                return Ok(false);
            }
            chunk.clear();
        }
    }

    fn load_chunk(&self, change: &mut CatalogChange<'_>, build: &Building, chunk: &[Loaded]) -> Result<()> {
        let index = &build.index;
        let mut previous: Option<&Loaded> = None;
        for loaded in chunk {
            // A changed record's entries are already in the index, or the record is gone.
            if build.build.changed.contains(loaded.record().0) {
                mark!("an index build skips a changed document");
                continue;
            }
            let key_string = loaded.key_string();
            debug_assert!(
                previous.is_none_or(|previous| previous.key_string() <= key_string),
                "entries are out of order, so that a duplicate is not found"
            );
            if index.unique() {
                let same = |other: &Loaded| other.key_string() == key_string;
                let there = change.snapshot().get(index.ident, key_string).map_err(storage_error)?;
                let there = there.as_ref().map(|value| IndexEntry::from_parts(key_string, value, true));
                let there = there.transpose()?.map(|entry| entry.record);
                // An insert after the registration has added it. In a store of several processes the scan reads it too.
                if there == Some(loaded.record()) {
                    continue;
                }
                if there.is_some() || previous.is_some_and(same) {
                    mark!("an index build finds a duplicate");
                    let key = (key_string.to_vec(), loaded.type_bits().to_vec());
                    *build.build.duplicate.lock() = Some(key);
                    return Err(self.state.duplicate(build));
                }
            }
            let entry = IndexEntry { key_string, type_bits: loaded.type_bits(), record: loaded.record() };
            let (key, value) = entry.to_parts(index.unique());
            change.batch().put(index.ident, key, value);
            previous = Some(loaded);
        }
        Ok(())
    }

    /// Removes the builds and all loaded entries.
    pub(super) fn abort(&self) {
        if let Err(error) = self.state.remove(self.database, &Uninterrupted) {
            log::warn!("an index build of {} left its trees behind: {error}", self.state.namespace);
        }
        self.state.end(self.database);
    }
}

/// Returns the next entry of a sorter filled by [`IndexBuild::sort`].
fn next_entry(sorter: &mut Sorter) -> Result<Option<Loaded>> {
    match sorter.next_document()? {
        Some((length, _)) => Loaded::new(sorter.take_last_key(), length).map(Some),
        None => Ok(None),
    }
}

/// Calls `visit` for each group of documents that share a key, in key order.
pub(super) fn shared_keys(
    sorter: &mut Sorter,
    visit: &mut dyn FnMut(&[RecordId]) -> Result<bool>,
) -> Result<()> {
    let mut key: Vec<u8> = Vec::new();
    let mut group: Vec<RecordId> = Vec::new();
    let mut end = |group: &mut Vec<RecordId>| {
        group.sort_unstable();
        group.dedup();
        match group.len() > 1 {
            true => visit(group),
            false => Ok(true),
        }
    };
    while let Some(entry) = next_entry(sorter)? {
        if entry.key_string() != key {
            if !end(&mut group)? {
                return Ok(());
            }
            group.clear();
            key = entry.key_string().to_vec();
        }
        group.push(entry.record());
    }
    end(&mut group).map(drop)
}

#[cfg(test)]
mod tests {
    use crate::index::IndexSpec;
    use crate::{Database, InsertRequest, ManualClock, Operation, Scope};
    use base::Namespace;
    use base::bson::extended_json::parse;
    use query::Context;
    use std::sync::Arc;
    use storage::MemoryEngine;

    #[test]
    fn long_keys_are_loaded_in_small_groups() {
        let database =
            Database::open(Arc::new(MemoryEngine::new()), Arc::new(ManualClock::new(0)), 7).unwrap();
        let namespace = Namespace::parse("test.c").unwrap();
        let context = Arc::new(Context::for_tests());
        let scope = Scope::new(&Arc::new(Operation::new(0)), &namespace, &context);
        for id in 0..3 {
            let document = format!("{{_id: {id}, short: {id}, long: '{}'}}", "x".repeat(super::LOADED_BYTES));
            let document = parse(&document).unwrap();
            let request = InsertRequest { document: document.view(), bypass_validation: false };
            database.insert(&scope, request).unwrap();
        }
        let commits = |field| {
            let before = database.store.latest_position().0;
            let spec = parse(&format!("{{key: {{{field}: 1}}, name: '{field}'}}")).unwrap();
            let spec = IndexSpec::parse(spec.view(), &namespace, &context).unwrap();
            database.create_indexes(&Operation::new(0), &namespace, [spec], &context).unwrap();
            database.store.latest_position().0 - before
        };
        assert_eq!(commits("long"), commits("short") + 2);
    }
}
