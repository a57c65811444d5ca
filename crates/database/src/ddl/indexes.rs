//! createIndexes, dropIndexes and changes of indexes by collMod.

use super::build::IndexBuild;
use super::build_state::{BuildProgress, BuildState};
use super::collections::check_creatable;
use crate::catalog::collection::{Collection, Data, Options};
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
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use query::{Context, Interrupt};
use std::sync::Arc;
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

/// A createIndexes, which continues after each wait. Its build ends if this is dropped.
pub struct IndexCreation {
    specs: Vec<Arc<IndexSpec>>,
    outcome: CreateIndexesOutcome,
    build: BuildProgress,
}

impl IndexCreation {
    /// Returns a createIndexes that has not begun.
    pub fn new(specs: Vec<Arc<IndexSpec>>, build: BuildProgress) -> IndexCreation {
        IndexCreation { specs, outcome: CreateIndexesOutcome::default(), build }
    }

    /// Returns true if its build waits.
    pub fn has_build(&self) -> bool {
        self.build.has_build()
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
        let specs = specs.into_iter().map(Into::into).collect();
        let mut creation = IndexCreation::new(specs, BuildProgress::default());
        self.create_indexes_in_steps(operation, namespace, context, &mut creation)
    }

    /// Creates indexes, as [`create_indexes`](Self::create_indexes). A call after LockBusy continues.
    ///
    /// Errors: as `create_indexes`; LockBusy for a statement that its caller suspends.
    pub fn create_indexes_in_steps(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        context: &Context,
        creation: &mut IndexCreation,
    ) -> Result<CreateIndexesOutcome> {
        let IndexCreation { specs, outcome, build: progress } = creation;
        if let Some(transaction) = operation.transaction() {
            return self.create_indexes_within(transaction, namespace, specs, operation);
        }
        let state = match progress.state.take() {
            Some(state) => state,
            None => {
                let register = |change: &mut CatalogChange<'_>| change.register(namespace, specs, outcome);
                let Some(registration) = self.begin_builds(operation, namespace, register)? else {
                    return Ok(std::mem::take(outcome));
                };
                outcome.committed = Some(registration.committed);
                match registration.builds {
                    Some(state) => state,
                    None => return Ok(std::mem::take(outcome)),
                }
            }
        };
        let uuid = state.uuid;
        let build = IndexBuild { database: self, operation, context, state };
        let built = progress.run(build, &mut |change, collection, builds| {
            change.log(|| LoggedCommand::commit_build(collection, builds, self.random.uuid()));
            let data = collection.data.as_mut();
            data.into_iter().for_each(|data| builds.iter().for_each(|built| add_index(data, &built.index)));
            Ok(())
        });
        outcome.committed = Some(built.map_err(|error| self.build_error(namespace, &uuid, error))?);
        Ok(std::mem::take(outcome))
    }

    /// Commits a change of the catalog that may register index builds. Waits for builds of the same indexes by other
    /// clients, and begins again. Returns `None` if nothing needs to change.
    ///
    /// Errors: errors of `register`; interrupted waits; LockBusy for a statement that its caller suspends.
    pub(super) fn begin_builds(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        mut register: impl FnMut(&mut CatalogChange<'_>) -> Result<Registered>,
    ) -> Result<Option<Registration>> {
        loop {
            let mut under_way = None;
            let registered = self.change_catalog(operation, |change| {
                under_way = None;
                match register(change)? {
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
            let Some(((builds, uuid), committed)) = registered else { return Ok(None) };
            let builds = (!builds.is_empty()).then(|| BuildState::new(namespace.clone(), uuid, builds));
            return Ok(Some(Registration { builds, committed }));
        }
    }

    /// Creates a collection with indexes.
    ///
    /// Errors: interrupted waits; LockBusy for a statement that its caller suspends.
    pub(crate) fn create_with_indexes(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        options: &Options,
        specs: &[Arc<IndexSpec>],
    ) -> Result<[u8; 16]> {
        let mut uuid = [0; 16];
        self.must_change_catalog(operation, |change| {
            let made = change.make(namespace, options.clone(), None)?;
            uuid = made.uuid;
            let is_new = true;
            change.add_indexes(made, is_new, specs, &mut CreateIndexesOutcome::default()).map(drop)
        })?;
        Ok(uuid)
    }

    /// Adds the failed build to an error's message, except to errors that ended or suspended the command.
    pub(super) fn build_error(&self, namespace: &Namespace, uuid: &[u8; 16], error: Error) -> Error {
        if matches!(error.code(), ErrorCode::Interrupted | ErrorCode::MaxTimeMSExpired | ErrorCode::LockBusy)
        {
            return error;
        }
        let (id, uuid) = (encoding::uuid(&self.random.uuid()), encoding::uuid(uuid));
        error.context(&format!("Index build failed: {id}: Collection {namespace} ( {uuid} )"))
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
        const ASKS_PER_LEASE_CHECK: u32 = 200;
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
        // A process that is killed leaves its build in the catalog. Only the store knows the end of its lease.
        let mut asks = 0u32;
        let mut is_abandoned = || {
            asks += 1;
            self.store.known_generation().is_some()
                && asks.is_multiple_of(ASKS_PER_LEASE_CHECK)
                && self.store.build(build.index.ident).is_none()
        };
        self.waiting(operation, |should_continue| {
            while is_registered() && should_continue() && !is_abandoned() {
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
            let found = change.catalog().get(namespace);
            let found = found.ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
            let mut changed = Collection::clone(found);
            let Some(data) = &changed.data else {
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
            change.drop_indexes(&mut changed, |index| match names {
                Some(names) => names.contains(&index.spec.name),
                None => !index.is_id(),
            });
            change.put_collection(changed).map(drop)
        })?;
        Ok((before, committed))
    }

    /// Returns the name of the index with a key pattern or name, for dropIndexes.
    ///
    /// Errors: NamespaceNotFound, IndexNotFound, AmbiguousIndexKeyPattern.
    pub fn index_name(&self, namespace: &Namespace, name_or_key: Value<'_>) -> Result<String> {
        let catalog = self.catalog();
        let collection =
            catalog.get(namespace).ok_or_else(|| err!(NamespaceNotFound, "ns not found {namespace}"))?;
        name_of_index(collection.data()?, name_or_key)
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

/// Returns the name of the index with a key pattern or name.
///
/// Errors: IndexNotFound, AmbiguousIndexKeyPattern.
pub(super) fn name_of_index(data: &Data, name_or_key: Value<'_>) -> Result<String> {
    match name_or_key {
        Value::String(name) => Ok(name.to_string()),
        Value::Document(key) => index_by_key(data, key),
        _ => Err(err!(TypeMismatch, "index must be named by a string or a key pattern")),
    }
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
pub(super) enum Registered {
    /// Nothing needs to change.
    Nothing,
    /// Another client builds one of the indexes. The command must wait for its end.
    After(Arc<Building>),
    /// New indexes to build, of the collection with this UUID; none if the change is complete.
    New(Vec<Arc<Building>>, [u8; 16]),
}

/// A committed change of the catalog.
pub(super) struct Registration {
    /// The index builds that it registers.
    pub(super) builds: Option<BuildState>,
    pub(super) committed: Committed,
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
    pub(super) fn drop_abandoned(&mut self, data: &mut Data) -> bool {
        let store = &self.database().store;
        let is_abandoned = |build: &Arc<Building>| store.build(build.index.ident).is_none();
        let (abandoned, building) = std::mem::take(&mut data.building).into_iter().partition(is_abandoned);
        data.building = building;
        let abandoned: Vec<Arc<Building>> = abandoned;
        abandoned.iter().for_each(|build| self.drop_ident(build.index.ident));
        !abandoned.is_empty()
    }

    /// Drops indexes of a collection, also those under construction. The caller puts it into the catalog.
    pub(crate) fn drop_indexes(&mut self, collection: &mut Collection, goes: impl Fn(&Index) -> bool) {
        let dropped = collection.data.iter().flat_map(Data::written_indexes).filter(|index| goes(index));
        dropped.for_each(|index| self.drop_ident(index.ident));
        for index in collection.data.iter().flat_map(|data| &data.indexes).filter(|index| goes(index)) {
            self.log(|| LoggedCommand::drop_index(collection, &index.spec));
        }
        if let Some(data) = &mut collection.data {
            data.indexes.retain(|index| !goes(index));
            data.building.retain(|build| !goes(&build.index));
        }
    }

    /// Adds indexes to a collection, which is created if it does not exist.
    fn register(
        &mut self,
        namespace: &Namespace,
        specs: &[Arc<IndexSpec>],
        outcome: &mut CreateIndexesOutcome,
    ) -> Result<Registered> {
        let existing = self.catalog().get(namespace).map(|existing| Collection::clone(existing));
        let is_new = existing.is_none();
        *outcome = CreateIndexesOutcome { created_collection: is_new, ..Default::default() };
        let collection = match existing {
            Some(collection) => collection,
            None => {
                check_creatable(namespace)?;
                self.make(namespace, Default::default(), None)?
            }
        };
        self.add_indexes(collection, is_new, specs, outcome)
    }

    /// Adds indexes to an empty collection, or registers their builds with a collection that has
    /// documents. `is_new` is true if this change creates the collection.
    fn add_indexes(
        &mut self,
        mut collection: Collection,
        is_new: bool,
        specs: &[Arc<IndexSpec>],
        outcome: &mut CreateIndexesOutcome,
    ) -> Result<Registered> {
        let Some(data) = &mut collection.data else {
            bail!(CommandNotSupportedOnView, "Cannot create indexes on a view: {}", collection.namespace);
        };
        outcome.before = data.listed_indexes();
        let is_empty = is_new || self.snapshot().entries(data.ident).map_err(storage_error)? == 0;
        let has_dropped = self.drop_abandoned(data);
        let mut new = Vec::with_capacity(specs.len());
        for spec in specs {
            if spec.clustered {
                check_clustered(data, spec, is_new)?;
            }
            if spec.is_id_pattern() {
                check_id_collation(&spec.collation, &collection.options.collation)?;
            }
            check_repeated(&new, spec)?;
            if spec.hidden && collection.namespace.collection().starts_with("system.") {
                bail!(BadValue, "Can't hide index on system collection");
            }
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
        let (mut builds, now_millis) = (Vec::new(), self.database().now_millis());
        data.indexes.reserve(if is_empty { new.len() } else { 0 });
        for spec in &new {
            let index = Index::new(spec.clone(), self.create_ident(), &[], now_millis);
            match is_empty {
                true => add_index(data, &index.into()),
                false => builds.push(self.register_build(data, index)),
            }
        }
        outcome.after = data.listed_indexes() + builds.len();
        if outcome.after == outcome.before && !is_new && !has_dropped {
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
