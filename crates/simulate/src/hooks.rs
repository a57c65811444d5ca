//! The places where the server gives way to the simulation: commits, waits and slow syncs.

use crate::commits::built;
use crate::world::world;
use std::sync::Arc;
use storage::{Batch, DiskEngine, Engine, Position};

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

    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> storage::Result<()> {
        if let Some(world) = world() {
            world.pause();
        }
        self.wrapped().wait_for_space(should_continue)
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
