//! The engine under the store, for operations on the whole engine.

use crate::barrier::Barriers;
use crate::change::steps;
use crate::commit::{Attempt, SideEffectRows, failed};
use crate::failure::{Failure, PgResult, should_continue};
use crate::front::Front;
use crate::incarnations::{incarnation_of, position};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::store::WriteConcernStatus;
use storage::{Batch, Engine, Error, Journaling, Position, Result, Snapshot, Statistics};

/// Trees in a PostgreSQL server.
pub(crate) struct PostgresEngine {
    front: Arc<Front>,
    pub(crate) barriers: Arc<Barriers>,
    /// Number of commits through this engine.
    commits: AtomicU64,
    /// Called when more commits are durable.
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl PostgresEngine {
    pub(crate) fn new(front: &Arc<Front>, barriers: &Arc<Barriers>) -> PostgresEngine {
        PostgresEngine {
            front: front.clone(),
            barriers: barriers.clone(),
            commits: AtomicU64::new(0),
            wake: Mutex::default(),
        }
    }
}

impl PostgresEngine {
    /// Waits until everything committed in an incarnation is on the server's disk.
    fn on_disk(&self, incarnation: u64) -> PgResult<()> {
        match self.barriers.wait_local(incarnation, &mut || should_continue().is_ok())? {
            WriteConcernStatus::Satisfied => Ok(()),
            WriteConcernStatus::Interrupted => Err(should_continue().err().unwrap_or_else(|| {
                Failure::Unavailable(
                    "the operation was \
                 interrupted"
                        .to_string(),
                )
            })),
            WriteConcernStatus::Cancelled(why) => Err(Failure::Unavailable(why)),
        }
    }
}

impl Engine for PostgresEngine {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(self.front.snapshot())
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        debug_assert!(!steps(batch.clone()).is_empty());
        let side_effect_rows = SideEffectRows::new(&[], 0, &|_| None, &|_| None);
        match self.front.commit_change(batch, (&[], &side_effect_rows), None, false).map_err(failed)? {
            Attempt::Done(done) => {
                Ok(position(done.incarnation, self.commits.fetch_add(1, Ordering::AcqRel) + 1))
            }
            Attempt::Refused | Attempt::Locked | Attempt::Undone => Err(Error::WriteConflict),
        }
    }

    fn latest_time(&self) -> u64 {
        self.front.time(0)
    }

    fn name(&self) -> &'static str {
        "postgres"
    }

    fn statistics(&self) -> Statistics {
        let syncs = self.barriers.passed();
        Statistics { syncs, ..Statistics::default() }
    }
}

impl Journaling for PostgresEngine {
    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.on_disk(incarnation_of(position)).map_err(failed)
    }

    fn durable(&self) -> Position {
        Position(0)
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *self.wake.lock() = Some(wake);
    }

    fn sync_soon(&self) {
        if self.front.times.has_log() {
            return self.front.follower.request_poll();
        }
        match self.on_disk(self.front.incarnations().current()) {
            Ok(()) => {
                let wake = self.wake.lock().clone();
                wake.iter().for_each(|wake| wake());
            }
            Err(failure) => log::warn!("PostgreSQL did not confirm a commit: {failure:?}"),
        }
    }

    fn has_journal(&self) -> bool {
        true
    }
}
