//! The parts of a store, and its bookkeeping of commits.
//!
//! [`KnownCounts`] has the counts of the collections known to this process, by tree and by address. A commit names
//! counts by their address. The address index makes the lookup of their tree independent of the number of collections.

use crate::barrier::Barriers;
use crate::builds::Builds;
use crate::commit::SideEffectRows;
use crate::front::Front;
use crate::group::Done;
use crate::incarnations::position;
use crate::open_transactions::OpenTransactions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::store::{Change, Committed, Counts, SideEffect};
use storage::{Engine, Ident};

/// A store over a PostgreSQL server, for one of the processes that share it.
pub struct PostgresStore {
    pub(crate) front: Arc<Front>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) barriers: Arc<Barriers>,
    pub(crate) counts: Mutex<KnownCounts>,
    pub(crate) builds: Builds,
    pub(crate) open_transactions: OpenTransactions,
    /// Number of the next transaction.
    pub(crate) owners: AtomicU64,
    /// Number of the last commit of this process.
    pub(crate) position: AtomicU64,
    pub(crate) frozen: AtomicU64,
}

impl PostgresStore {
    /// Returns the parts of a change outside its batch.
    pub(crate) fn side_effect_rows(&self, side_effects: &[SideEffect]) -> SideEffectRows {
        let count_ident = |one: &SideEffect| {
            let SideEffect::Count { counts, .. } = one else { return None };
            self.counts.lock().ident_of(counts)
        };
        let slot = self.position.load(Ordering::Relaxed);
        SideEffectRows::new(side_effects, slot, &count_ident, &|one| self.builds.ident_of(one))
    }

    /// Records a successful commit.
    pub(crate) fn committed(&self, change: &Change, done: Done) -> Committed {
        for side_effect in &change.side_effects {
            match side_effect {
                SideEffect::Count { counts, records, bytes } => {
                    counts.records.fetch_add(*records, Ordering::Relaxed);
                    counts.bytes.fetch_add(*bytes, Ordering::Relaxed);
                }
                SideEffect::Generation(ident, None) => {
                    // A renamed collection exists under its new name, and keeps its counts.
                    let is_renamed = change.side_effects.iter().any(|other| match other {
                        SideEffect::Generation(set, Some(_)) => set == ident,
                        _ => false,
                    });
                    if !is_renamed {
                        self.counts.lock().remove(*ident);
                    }
                }
                _ => {}
            }
        }
        let time = self.front.time_of(done.time, change.earliest, change.ticks);
        let number = self.position.fetch_add(1, Ordering::AcqRel) + 1;
        Committed { position: position(done.incarnation, number), cluster_time: time }
    }
}

/// Counts, shared by the writers of each collection.
#[derive(Default)]
pub(crate) struct KnownCounts {
    counts: HashMap<Ident, Arc<Counts>>,
    /// Trees by the address of their counts, which is stable while the counts are known.
    idents: HashMap<usize, Ident>,
}

/// Returns the address of the counts, the key of the reverse index.
fn address(counts: &Arc<Counts>) -> usize {
    Arc::as_ptr(counts).addr()
}

impl KnownCounts {
    /// Returns the counts of a tree.
    pub(crate) fn get(&self, ident: Ident) -> Option<&Arc<Counts>> {
        self.counts.get(&ident)
    }

    /// Returns the tree of these counts.
    pub(crate) fn ident_of(&self, counts: &Arc<Counts>) -> Option<Ident> {
        self.idents.get(&address(counts)).copied()
    }

    /// Returns the counts of a tree. Inserts `counts` if the tree has none.
    pub(crate) fn or_insert(&mut self, ident: Ident, counts: Arc<Counts>) -> &Arc<Counts> {
        self.assert_valid();
        self.counts.entry(ident).or_insert_with(|| {
            self.idents.insert(address(&counts), ident);
            counts
        })
    }

    /// Removes a tree.
    pub(crate) fn remove(&mut self, ident: Ident) {
        if let Some(counts) = self.counts.remove(&ident) {
            let known = self.idents.remove(&address(&counts));
            debug_assert_eq!(known, Some(ident), "the counts were found under another tree");
        }
        self.assert_valid();
    }

    /// Asserts that each tree has counts at an address of their own.
    fn assert_valid(&self) {
        debug_assert_eq!(self.counts.len(), self.idents.len(), "two trees share their counts");
    }

    /// Removes counts without another owner, which belong to collections that other fronts dropped. Runs when the map
    /// is full.
    pub(crate) fn tidy(&mut self) {
        if self.counts.len() == self.counts.capacity() {
            let KnownCounts { counts, idents } = self;
            counts.retain(|_, known| {
                let is_shared = Arc::strong_count(known) > 1;
                if !is_shared {
                    idents.remove(&address(known));
                }
                is_shared
            });
        }
        self.assert_valid();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_identity_and_dropped_with_their_owners() {
        let mut known = KnownCounts::default();
        let handles: Vec<_> =
            (0..100).map(|ident| known.or_insert(Ident(ident), Arc::default()).clone()).step_by(10).collect();
        assert_eq!(known.ident_of(&handles[3]), Some(Ident(30)));
        assert!(Arc::ptr_eq(known.or_insert(Ident(30), Arc::default()), &handles[3]));
        for ident in 100..1_000 {
            known.tidy();
            known.or_insert(Ident(ident), Arc::default());
        }
        let idents: Vec<_> = handles.iter().filter_map(|one| known.ident_of(one)).collect();
        assert_eq!(idents, (0..100).step_by(10).map(Ident).collect::<Vec<_>>());
        assert!(known.counts.len() < 300 && known.idents.len() == known.counts.len());
        known.remove(Ident(30));
        assert!(known.get(Ident(30)).is_none() && known.ident_of(&handles[3]).is_none());
    }
}
