//! The places where the server gives way to the simulation: commits, which the model applies, waits and slow syncs.

use crate::action::{Action, BUILT, Outcome};
use crate::client::{Client, Step};
use crate::world::{World, event, world};
use base::bson::Document;
use std::sync::Arc;
use storage::{Batch, DiskEngine, Engine, Ident, Op, Position, Room};

/// The tree of the catalog.
const CATALOG: Ident = Ident(0);

impl World {
    /// Returns true if a batch stores a document of the running request.
    pub(crate) fn stores(&self, batch: &Batch) -> bool {
        let Some(number) = self.current.get() else { return false };
        let client = self.clients[number].borrow();
        let Some(request) = &client.request else { return false };
        if !request.action().is_some_and(|(action, ..)| action.stores()) {
            return false;
        }
        let mut marker = b"\x10w\0".to_vec();
        marker.extend((request.w as i32).to_le_bytes());
        contains(batch, &marker)
    }

    /// Returns the ids of the documents of `t` that a batch of the background work removes.
    pub(crate) fn expired(&self, batch: &Batch) -> Vec<i64> {
        if !self.is_ticking.get() || self.current.get().is_some() {
            return Vec::new();
        }
        let mut ids = self.model.borrow().expiring();
        ids.retain(|id| {
            let mut marker = b"\x10_id\0".to_vec();
            marker.extend((*id as i32).to_le_bytes());
            contains(batch, &marker)
        });
        ids
    }

    /// Applies a commit of the engine to the model. `entries` are the collections whose catalog entries it stores.
    pub(crate) fn committed(&self, position: u64, stores: bool, entries: &[(&'static str, bool)]) {
        let Some(number) = self.current.get() else {
            // The background work removes an index build.
            let mut model = self.model.borrow_mut();
            entries.iter().for_each(|(collection, _)| model.change_indexes(collection, position));
            return;
        };
        event!(self, "commit {position} of c{number}{}", if stores { ", a document" } else { "" });
        let mut client = self.clients[number].borrow_mut();
        let Client { request, transaction, .. } = &mut *client;
        let Some(request) = request else { return };
        let mut model = self.model.borrow_mut();
        let result = match (&request.step, request.action()) {
            (Step::Single(_), Some(_)) if request.applied.is_some() => match stores {
                true => Err("it is applied twice".to_string()),
                false => Ok(None),
            },
            (Step::Single(action), Some((_, collection, _))) if action.stores() && !stores => {
                if matches!(action, Action::Insert(_)) {
                    model.create(collection, position);
                }
                Ok(None)
            }
            // Only the first commit creates the collection. Others load entries. The last one ends the build, perhaps
            // after a rename.
            (Step::Single(Action::Index(_)), _) if request.has_committed => {
                model.load_index(position);
                Ok(None)
            }
            (Step::Single(_), Some(statement)) => model.commit_statement(statement, position),
            (Step::Statement(_), _) if stores => Err("it is stored before the commit".to_string()),
            (Step::Commit, _) => match transaction {
                Some(transaction) if transaction.incarnation == self.incarnation.get() => {
                    match &transaction.views {
                        _ if request.applied.is_some() => Ok(None),
                        Some(views) if !views.changes.is_empty() => {
                            model.commit_transaction(views, position).map(|()| Some(Outcome::Done))
                        }
                        _ => Ok(None),
                    }
                }
                _ => Err("it commits a transaction of an earlier process".to_string()),
            },
            _ => Ok(None),
        };
        if let Step::Single(Action::Index(_) | Action::DropIndex(_)) = &request.step {
            // A collection that was renamed during its build has another name than the request.
            entries.iter().for_each(|(collection, _)| model.change_indexes(collection, position));
        }
        request.has_committed = true;
        match result {
            Ok(None) => {}
            Ok(Some(outcome)) => request.applied = Some((position, outcome)),
            Err(message) => self.fail(format!("c{number}: {message}: {request:?}")),
        }
    }
}

/// Returns which unique indexes exist in the catalog entries that a batch stores.
pub(crate) fn built(batch: &Batch) -> Vec<(&'static str, bool)> {
    let place_of = |entry: Document<'_>| {
        let name = entry.get("ns")?.as_str()?.strip_prefix("test.")?;
        entry.get("generation")?;
        BUILT.iter().find(|(collection, _)| *collection == name).map(|(collection, _)| *collection)
    };
    let found = batch.ops().iter().filter_map(|op| {
        let Op::Put { ident: CATALOG, value, .. } = op else { return None };
        let entry = Document::from_valid(value);
        let indexes = entry.get("indexes").and_then(|indexes| indexes.as_array());
        let specs = indexes.into_iter().flat_map(|indexes| indexes.iter());
        let mut specs = specs.filter_map(|index| index.as_document()?.get("spec")?.as_document());
        Some((
            place_of(entry)?,
            specs.any(|spec| spec.get("name").and_then(|name| name.as_str()) == Some("v")),
        ))
    });
    found.collect()
}

/// Returns true if a value of a batch contains some bytes. Entries of the catalog do not count: their `_id: 1` is the
/// key of an index.
fn contains(batch: &Batch, marker: &[u8]) -> bool {
    batch.ops().iter().any(|op| match op {
        Op::Put { ident, value, .. } if *ident != CATALOG => {
            value.windows(marker.len()).any(|window| window == marker)
        }
        _ => false,
    })
}

/// Passes on everything to the engine. Shows commits to the world.
struct Observer(Arc<DiskEngine>);

impl storage::Wrapper for Observer {
    type Wrapped = DiskEngine;

    fn wrapped(&self) -> &DiskEngine {
        &self.0
    }

    fn commit(&self, batch: Batch) -> storage::Result<Position> {
        let Some(world) = world() else { return self.wrapped().commit(batch) };
        let (stores, expired, built) = (world.stores(&batch), world.expired(&batch), built(&batch));
        let time = batch.time();
        let position = self.wrapped().commit(batch)?;
        world.model.borrow_mut().times.insert(position.0, time);
        world.committed(position.0, stores, &built);
        if !built.is_empty()
            && let Err(violation) = world.model.borrow_mut().set_built(&built, position.0)
        {
            world.fail(violation);
        }
        if !expired.is_empty()
            && let Err(violation) = world.model.borrow_mut().expire(&expired, position.0, world.now_millis())
        {
            world.fail(violation);
        }
        Ok(position)
    }

    fn room(&self) -> storage::Result<Room> {
        if let Some(world) = world() {
            world.pause();
        }
        self.wrapped().room()
    }
}

/// Runs a wait of a statement, or other long work.
pub(crate) fn wait(work: &mut dyn FnMut()) {
    match world() {
        Some(world) => world.wait(work),
        None => work(),
    }
}

/// Lets clients run during a slow sync.
pub(crate) fn meanwhile() {
    if let Some(world) = world() {
        world.pause_for_sync();
    }
}

/// Wraps an engine.
pub(crate) fn observe(engine: Arc<DiskEngine>) -> Arc<dyn Engine> {
    Arc::new(Observer(engine))
}
