//! createIndexes, dropIndexes and changes of indexes by collMod.

use super::build::{BuildState, IndexBuild};
use super::collections::check_creatable;
use crate::catalog::collection::{Collection, Data};
use crate::catalog::options::check_id_collation;
use crate::changes::logged::LoggedCommand;
use crate::changes::open_transaction::OpenTransaction;
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::index::{Building, Index, IndexSpec};
use crate::operation::{Operation, Ready};
use crate::storage_error;
use base::bson::{Document, Value};
use base::encoding;
use base::{ErrorCode, Namespace, Result, bail, err};
use query::{Context, Interrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Duration;
use storage::store::Committed;
use storage::time;

/// Most indexes of a collection.
const INDEXES_MAX: usize = 64;

/// Result of createIndexes.
#[derive(Debug, Default)]
pub struct CreateIndexesOutcome {
    /// Number of indexes before.
    pub before: usize,
    /// Number of indexes after.
    pub after: usize,
    /// True if the collection was created.
    pub created_collection: bool,
    /// The commit, if any index is new.
    pub committed: Option<Committed>,
}

/// Progress of a createIndexes whose build waits. The build ends if this is dropped.
#[derive(Default)]
pub struct IndexProgress {
    /// The database; `None` for an operation that is not suspended.
    database: Option<Arc<Database>>,
    build: Option<(BuildState, CreateIndexesOutcome)>,
}

impl IndexProgress {
    /// Returns the progress of a command that has not begun.
    pub fn new(database: &Arc<Database>) -> IndexProgress {
        IndexProgress { database: Some(database.clone()), build: None }
    }

    /// Returns true if a build waits.
    pub fn has_build(&self) -> bool {
        self.build.is_some()
    }
}

impl Drop for IndexProgress {
    fn drop(&mut self) {
        if let (Some(database), Some((state, _))) = (&self.database, self.build.take()) {
            database.remove_later(state.into_removal(database));
        }
    }
}

impl Database {
    /// Parses one element of createIndexes' `indexes`, with a cache of parsed elements.
    ///
    /// Errors: errors of [`IndexSpec::parse`].
    pub fn index_spec(
        &self,
        specification: Document<'_>,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<Arc<IndexSpec>> {
        self.known_specs.parse(specification, namespace, context)
    }

    /// Creates all indexes or none, and builds them over existing documents. Reads and writes
    /// continue during the build.
    ///
    /// Errors: IndexOptionsConflict, IndexKeySpecsConflict, DuplicateKey, IndexBuildAborted if the
    /// collection is dropped, key generation, interruption of the operation.
    pub fn create_indexes(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        specs: impl IntoIterator<Item: Into<Arc<IndexSpec>>>,
        context: &Context,
    ) -> Result<CreateIndexesOutcome> {
        let specs: Vec<Arc<IndexSpec>> = specs.into_iter().map(Into::into).collect();
        self.create_indexes_in_steps(operation, namespace, &specs, context, &mut IndexProgress::default())
    }

    /// Creates indexes, as [`create_indexes`](Self::create_indexes). A call after LockBusy continues with the same
    /// `progress`.
    ///
    /// Errors: as `create_indexes`; LockBusy for a statement that its caller suspends.
    pub fn create_indexes_in_steps(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        specs: &[Arc<IndexSpec>],
        context: &Context,
        progress: &mut IndexProgress,
    ) -> Result<CreateIndexesOutcome> {
        if let Some((state, outcome)) = progress.build.take() {
            let build = IndexBuild { database: self, operation, context, state };
            return self.build_indexes(build, outcome, progress);
        }
        if let Some(transaction) = operation.transaction() {
            return self.create_indexes_within(transaction, namespace, specs, operation);
        }
        let mut outcome = CreateIndexesOutcome::default();
        loop {
            let mut under_way = None;
            let registered = self.change_catalog(operation, |change| {
                under_way = None;
                match change.register(namespace, specs, self.now_millis(), &mut outcome)? {
                    Registered::Nothing => Ok(None),
                    Registered::After(build) => {
                        under_way = Some(build);
                        Ok(None)
                    }
                    Registered::New(builds, uuid) => Ok(Some((builds, uuid))),
                }
            })?;
            if let Some(build) = under_way {
                self.wait_for_build(operation, namespace, &build)?;
                continue;
            }
            let Some(((builds, uuid), committed)) = registered else { return Ok(outcome) };
            outcome.committed = Some(committed);
            if builds.is_empty() {
                return Ok(outcome);
            }
            let state = BuildState::new(namespace.clone(), uuid, builds);
            let build = IndexBuild { database: self, operation, context, state };
            return self.build_indexes(build, outcome, progress);
        }
    }

    /// Builds and publishes registered indexes.
    fn build_indexes(
        &self,
        mut build: IndexBuild<'_>,
        mut outcome: CreateIndexesOutcome,
        progress: &mut IndexProgress,
    ) -> Result<CreateIndexesOutcome> {
        let built = build.run(&mut |change, collection, builds| {
            for built in builds {
                change.log(|| LoggedCommand::create_index(collection, &built.index.spec));
            }
            let data = collection.data.as_mut();
            data.into_iter().for_each(|data| builds.iter().for_each(|built| add_index(data, &built.index)));
            Ok(())
        });
        match built {
            Ok(committed) => {
                outcome.committed = Some(committed);
                Ok(outcome)
            }
            Err(error) if error.code() == ErrorCode::LockBusy => {
                progress.build = Some((build.state, outcome));
                Err(error)
            }
            Err(error) => Err(self.prefix_build_error(&build, error)),
        }
    }

    /// Creates an empty collection with the options and indexes of another collection, if given.
    ///
    /// Errors: CommandNotSupportedOnView; interrupted waits; LockBusy for a statement that its caller suspends.
    pub(crate) fn create_like(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        other: Option<&Collection>,
    ) -> Result<Committed> {
        let data = other.map(Collection::data).transpose()?;
        let options = other.map(|other| other.options.clone()).unwrap_or_default();
        let indexes = data.iter().flat_map(|data| data.indexes.iter().skip(1));
        let specs: Vec<Arc<IndexSpec>> = indexes.map(|index| index.spec.clone()).collect();
        self.must_change_catalog(operation, |change| {
            let made = change.make(namespace, options.clone(), None)?;
            let mut outcome = CreateIndexesOutcome { created_collection: true, ..Default::default() };
            change.add_indexes(made, &specs, self.now_millis(), &mut outcome).map(drop)
        })
    }

    /// Adds the failed build to an error's message, except to errors that ended the command.
    fn prefix_build_error(&self, build: &IndexBuild<'_>, error: base::Error) -> base::Error {
        if matches!(error.code(), ErrorCode::Interrupted | ErrorCode::MaxTimeMSExpired) {
            return error;
        }
        let (id, uuid) = (encoding::uuid(&self.random.uuid()), encoding::uuid(&build.state.uuid));
        error.context(&format!("Index build failed: {id}: Collection {} ( {uuid} )", build.state.namespace))
    }

    fn create_indexes_within(
        &self,
        transaction: &OpenTransaction,
        namespace: &Namespace,
        specs: &[Arc<IndexSpec>],
        operation: &Operation,
    ) -> Result<CreateIndexesOutcome> {
        let created_collection = transaction.view().catalog.get(namespace).is_none();
        let collection = self.collection_or_create(operation, namespace)?;
        let data = collection.data()?;
        let mut new: Vec<Arc<IndexSpec>> = Vec::new();
        for spec in specs {
            check_repeated(&new, spec)?;
            if !index_exists(data, spec)? {
                check_text_alone(data.written_indexes().map(|index| &index.spec).chain(&new), spec)?;
                new.push(spec.clone());
            }
        }
        let before = data.listed_indexes();
        let after = before + new.len();
        if !new.is_empty() {
            self.index_within(transaction, &collection, new)?;
        }
        Ok(CreateIndexesOutcome { before, after, created_collection, committed: None })
    }

    /// Waits for the end of a build of the same index by another client.
    ///
    /// Errors: interrupted waits; LockBusy for a statement that its caller suspends.
    fn wait_for_build(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        build: &Arc<Building>,
    ) -> Result<()> {
        const ASK: Duration = Duration::from_millis(5);
        let is_registered = || {
            let collection = self.collection(namespace);
            let data = collection.as_ref().and_then(|collection| collection.data.as_ref());
            data.is_some_and(|data| data.building.iter().any(|known| known.index.ident == build.index.ident))
        };
        // Another process that shares the store does not report the end.
        let mut ended = || {
            let mut ended = build.build.ended.listen(0);
            let ready = move |waker: &Waker| ended.has_happened(waker);
            self.store.known_generation().is_none().then(|| Box::new(ready) as Ready)
        };
        if let Some(suspended) = operation.suspend_until(&mut ended) {
            return Err(suspended);
        }
        self.waiting(operation, |should_continue| {
            while is_registered() && should_continue() {
                time::sleep(ASK);
            }
        })
    }

    /// Drops indexes by name; `None` drops all indexes except `_id`. Returns the number of indexes
    /// before.
    ///
    /// Errors: NamespaceNotFound, IndexNotFound, InvalidOptions for the `_id` index.
    pub fn drop_indexes(
        &self,
        interrupt: &dyn Interrupt,
        namespace: &Namespace,
        names: Option<&[String]>,
    ) -> Result<(usize, Committed)> {
        let mut before = 0;
        let committed = self.must_change_catalog(interrupt, |change| {
            let found = change.catalog().get(namespace).cloned();
            let collection = found.ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
            let mut changed = Collection::clone(&collection);
            let Some(data) = &mut changed.data else {
                bail!(CommandNotSupportedOnView, "Cannot drop indexes on view {namespace}");
            };
            before = data.indexes.len();
            if let Some(names) = names {
                for (at, name) in names.iter().enumerate() {
                    check_droppable(data, name)?;
                    if names.iter().take(at).any(|earlier| earlier == name) {
                        return Err(no_index(name));
                    }
                }
            }
            let goes = |index: &Arc<Index>| match names {
                Some(names) => names.contains(&index.spec.name),
                None => !index.is_id(),
            };
            for index in data.written_indexes().filter(|index| goes(index)) {
                change.drop_ident(index.ident);
            }
            for index in data.indexes.iter().filter(|index| goes(index)) {
                change.log(|| LoggedCommand::drop_index(&collection, &index.spec));
            }
            data.indexes.retain(|index| !goes(index));
            data.building.retain(|build| !goes(&build.index));
            change.put_collection(changed).map(drop)
        })?;
        Ok((before, committed))
    }

    /// Returns the name of the index with a key pattern or name, for dropIndexes and collMod.
    ///
    /// Errors: IndexNotFound, AmbiguousIndexKeyPattern.
    pub fn index_name(&self, namespace: &Namespace, name_or_key: Value<'_>) -> Result<String> {
        let catalog = self.catalog();
        let collection =
            catalog.get(namespace).ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
        let data = collection.data()?;
        match name_or_key {
            Value::String(name) => Ok(name.to_string()),
            Value::Document(key) => index_by_key(data, key),
            _ => Err(err!(TypeMismatch, "index must be named by a string or a key pattern")),
        }
    }

    /// Changes an index in place for collMod.
    ///
    /// Errors: IndexNotFound.
    pub fn change_index(
        &self,
        interrupt: &dyn Interrupt,
        namespace: &Namespace,
        name: &str,
        mut change: impl FnMut(&mut IndexSpec) -> Result<()>,
    ) -> Result<Committed> {
        self.change_collection(interrupt, namespace, |collection| {
            let Some(data) = &mut collection.data else {
                bail!(InvalidOptions, "option not supported on a view: index");
            };
            let slot = data.indexes.iter_mut().find(|index| index.spec.name == name);
            let slot =
                slot.ok_or_else(|| err!(IndexNotFound, "cannot find index {name} for ns {namespace}"))?;
            let mut spec = IndexSpec::clone(&slot.spec);
            change(&mut spec)?;
            let changed = Index::new(spec, slot.ident, &slot.multikey_bits(), slot.since_millis);
            changed.uses.store(slot.uses.load(Relaxed), Relaxed);
            *slot = Arc::new(changed);
            Ok(())
        })
    }
}

/// Checks that an index with the option `clustered` equals the clustered index made by create.
fn check_clustered(data: &Data, spec: &IndexSpec, created_collection: bool) -> Result<()> {
    if created_collection {
        bail!(6100900, "Cannot implicitly create a new collection with createIndex 'clustered' option");
    }
    if data.clustered_index().is_none() || !spec.is_id_pattern() {
        bail!(
            6243700,
            "the option 'clustered' is only for the index that create clustered the collection by, not for {}",
            spec.key
        );
    }
    Ok(())
}

fn check_droppable(data: &Data, name: &str) -> Result<()> {
    if data.clustered_index().is_some_and(|index| index.spec.name == name) {
        bail!(5979800, "It is illegal to drop the clusteredIndex");
    }
    if name == "_id_" {
        bail!(InvalidOptions, "cannot drop _id index");
    }
    match data.index(name).or_else(|| data.written_indexes().find(|index| index.spec.name == name)) {
        Some(_) => Ok(()),
        None => Err(no_index(name)),
    }
}

fn no_index(name: &str) -> base::Error {
    err!(IndexNotFound, "index not found with name [{name}]")
}

fn index_by_key(data: &Data, key: Document<'_>) -> Result<String> {
    let same = |index: &&Arc<Index>| base::bson::compare_documents(index.spec.key.view(), key).is_eq();
    let mut matches = data.indexes.iter().filter(same);
    match (matches.next(), matches.next()) {
        (Some(index), None) => Ok(index.spec.name.clone()),
        (None, _) => Err(err!(IndexNotFound, "can't find index with key: {key}")),
        (Some(_), Some(_)) => Err(err!(
            AmbiguousIndexKeyPattern,
            "{} indexes found for key: {key}, identify by name instead.",
            data.indexes.iter().filter(same).count()
        )),
    }
}

/// Checks that a collection has at most one text index.
///
/// Errors: CannotCreateIndex.
fn check_text_alone<'s>(
    mut indexes: impl Iterator<Item = &'s Arc<IndexSpec>>,
    spec: &IndexSpec,
) -> Result<()> {
    match indexes.find(|index| index.text.is_some()).filter(|_| spec.text.is_some()) {
        Some(other) => Err(err!(
            CannotCreateIndex,
            "only one text index per collection allowed, found existing text index \"{}\"",
            other.name
        )),
        None => Ok(()),
    }
}

/// Returns true if the same index already exists. Returns an error if an existing index conflicts.
fn index_exists(data: &Data, spec: &IndexSpec) -> Result<bool> {
    if spec.is_id_pattern() {
        return Ok(data.id_index().is_some());
    }
    is_among(data.indexes.iter().map(|index| &index.spec), spec)
}

/// Returns true if a specification is among `others`. Returns an error if one of them conflicts.
///
/// Errors: IndexKeySpecsConflict for another index of the same name, IndexOptionsConflict for the
/// same index with other options or another name.
fn is_among<'s>(others: impl Iterator<Item = &'s Arc<IndexSpec>> + Clone, spec: &IndexSpec) -> Result<bool> {
    if let Some(same_name) = others.clone().find(|other| other.name == spec.name) {
        if !same_name.same_signature(spec) {
            bail!(
                IndexKeySpecsConflict,
                "An existing index has the same name as the requested index. When index names are not \
                 specified, they are auto generated and can cause conflicts. Please refer to our \
                 documentation. Requested index: {}, existing index: {}",
                spec.to_document(),
                same_name.to_document()
            );
        }
        if !same_name.same_options(spec) {
            bail!(
                IndexOptionsConflict,
                "An equivalent index already exists with the same name but different options. Requested \
                 index: {}, existing index: {}",
                spec.to_document(),
                same_name.to_document()
            );
        }
        return Ok(true);
    }
    let mut others = others;
    let Some(same_keys) = others.find(|other| other.same_signature(spec)) else { return Ok(false) };
    if same_keys.same_options(spec) {
        bail!(IndexOptionsConflict, "Index already exists with a different name: {}", same_keys.name);
    }
    Err(err!(
        IndexOptionsConflict,
        "An equivalent index already exists with a different name and options. Requested index: {}, \
         existing index: {}",
        spec.to_document(),
        same_keys.to_document()
    ))
}

/// Checks that a command names each new index once.
///
/// Errors: IndexAlreadyExists, and errors of conflicting indexes.
fn check_repeated(new: &[Arc<IndexSpec>], spec: &IndexSpec) -> Result<()> {
    match is_among(new.iter(), spec)? {
        true => Err(err!(IndexAlreadyExists, "Identical index already exists: {}", spec.name)),
        false => Ok(()),
    }
}

/// Result of registering indexes.
enum Registered {
    /// All indexes already exist.
    Nothing,
    /// Another client builds one of the indexes. The command must wait for its end.
    After(Arc<Building>),
    /// New indexes to build; none if the collection has no documents.
    New(Vec<Arc<Building>>, [u8; 16]),
}

/// Adds an index to the indexes used by plans.
fn add_index(data: &mut Data, index: &Arc<Index>) {
    // The `_id` index is first, even if it is created later.
    let position = if index.is_id() { 0 } else { data.indexes.len() };
    data.indexes.insert(position, index.clone());
}

impl CatalogChange<'_> {
    /// Removes abandoned builds. Their own clean-up failed, for example because the disk was full.
    /// Returns true if it removed any.
    fn drop_abandoned(&mut self, data: &mut Data) -> bool {
        let store = &self.database().store;
        let is_abandoned = |build: &Arc<Building>| store.build(build.index.ident).is_none();
        let (abandoned, building) = std::mem::take(&mut data.building).into_iter().partition(is_abandoned);
        data.building = building;
        let abandoned: Vec<Arc<Building>> = abandoned;
        abandoned.iter().for_each(|build| self.drop_ident(build.index.ident));
        !abandoned.is_empty()
    }

    /// Adds indexes to a collection, which is created if it does not exist.
    fn register(
        &mut self,
        namespace: &Namespace,
        specs: &[Arc<IndexSpec>],
        now_millis: i64,
        outcome: &mut CreateIndexesOutcome,
    ) -> Result<Registered> {
        let existing = self.catalog().get(namespace).map(|existing| Collection::clone(existing));
        *outcome = CreateIndexesOutcome { created_collection: existing.is_none(), ..Default::default() };
        let collection = match existing {
            Some(collection) => collection,
            None => {
                check_creatable(namespace)?;
                self.make(namespace, Default::default(), None)?
            }
        };
        self.add_indexes(collection, specs, now_millis, outcome)
    }

    /// Adds indexes to an empty collection, or registers their builds with a collection that has
    /// documents.
    fn add_indexes(
        &mut self,
        mut collection: Collection,
        specs: &[Arc<IndexSpec>],
        now_millis: i64,
        outcome: &mut CreateIndexesOutcome,
    ) -> Result<Registered> {
        let Some(data) = &mut collection.data else {
            bail!(CommandNotSupportedOnView, "Cannot create indexes on a view: {}", collection.namespace);
        };
        outcome.before = data.listed_indexes();
        let is_empty =
            outcome.created_collection || self.snapshot().entries(data.ident).map_err(storage_error)? == 0;
        let has_dropped = self.drop_abandoned(data);
        let mut new = Vec::with_capacity(specs.len());
        for spec in specs {
            if spec.clustered {
                check_clustered(data, spec, outcome.created_collection)?;
            }
            if spec.is_id_pattern() {
                check_id_collation(&spec.collation, &collection.options.collation)?;
            }
            check_repeated(&new, spec)?;
            if index_exists(data, spec)? {
                continue;
            }
            if let Some(build) = data.building.iter().find(|build| build.index.spec.name == spec.name) {
                return Ok(Registered::After(build.clone()));
            }
            check_text_alone(data.written_indexes().map(|index| &index.spec).chain(&new), spec)?;
            if data.written_indexes().count() + new.len() >= INDEXES_MAX {
                bail!(
                    CannotCreateIndex,
                    "add index fails, too many indexes for {} key:{}",
                    collection.namespace,
                    spec.key
                );
            }
            new.push(spec.clone());
        }
        let mut builds = Vec::new();
        data.indexes.reserve(if is_empty { new.len() } else { 0 });
        for spec in &new {
            let index = Index::new(spec.clone(), self.create_ident(), &[], now_millis);
            match is_empty {
                true => add_index(data, &index.into()),
                false => builds.push(self.register_build(data, index)),
            }
        }
        outcome.after = data.listed_indexes() + builds.len();
        if outcome.after == outcome.before && !outcome.created_collection && !has_dropped {
            return Ok(Registered::Nothing);
        }
        if is_empty {
            new.iter().for_each(|spec| self.log(|| LoggedCommand::create_index(&collection, spec)));
        }
        let uuid = collection.uuid;
        self.put_collection(collection)?;
        Ok(Registered::New(builds, uuid))
    }
}
