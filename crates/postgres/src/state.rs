//! What a store consists of, and what it notes of commits.

use crate::barrier::Barriers;
use crate::builds::Builds;
use crate::claims::Claims;
use crate::commit::{Besides, Done};
use crate::counts::KnownCounts;
use crate::front::Front;
use crate::lives::position;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Engine;
use storage::store::{Beside, Change, Written};

/// A store over a PostgreSQL server, for one of the processes that share it.
pub struct PostgresStore {
    pub(crate) front: Arc<Front>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) barriers: Arc<Barriers>,
    pub(crate) counts: Mutex<KnownCounts>,
    pub(crate) builds: Builds,
    pub(crate) claims: Claims,
    pub(crate) owners: AtomicU64,
    pub(crate) position: AtomicU64,
    pub(crate) frozen: AtomicU64,
}

impl PostgresStore {
    /// What a change says besides its batch.
    pub(crate) fn besides(&self, beside: &[Beside]) -> Besides {
        let count_ident = |one: &Beside| {
            let Beside::Count { counts, .. } = one else { return None };
            self.counts.lock().ident_of(counts)
        };
        let slot = self.position.load(Ordering::Relaxed);
        Besides::new(beside, slot, &count_ident, &|one| self.builds.ident_of(one))
    }

    /// Notes a commit that was carried out.
    pub(crate) fn committed(&self, change: Change, done: Done) -> Written {
        for beside in &change.beside {
            match beside {
                Beside::Count { counts, records, bytes } => {
                    counts.records.fetch_add(*records, Ordering::Relaxed);
                    counts.bytes.fetch_add(*bytes, Ordering::Relaxed);
                }
                Beside::Generation(of, None) => {
                    // One that was renamed is there under its new name, and goes on with the same counts.
                    let is_set =
                        |other: &Beside| matches!(other, Beside::Generation(set, Some(_)) if set == of);
                    if !change.beside.iter().any(is_set) {
                        self.counts.lock().remove(*of);
                    }
                }
                _ => {}
            }
        }
        let time = self.front.time_of(done.time, change.earliest, change.ticks);
        let number = self.position.fetch_add(1, Ordering::AcqRel) + 1;
        Written { position: position(done.life, number), time }
    }
}
