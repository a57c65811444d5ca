//! What trials between plans came to, by the shape of their queries: MongoDB's plan cache.
//!
//! Where rules leave several indexes equal, the keys within their bounds are counted. What that decided is kept,
//! at first without effect; from the second trial that took no more works on, queries of the shape begin with the
//! index that won, and the others are only looked at where it has ten times the keys. A trial counts so few keys
//! that this is all there is to gain; the plans themselves are made anew, since bounds are of the constants.
//!
//! Plans kept live beside their collection, as index filters do, and die with it or with the process.
//!
//! Index filters: which indexes queries of one shape may use.
//!
//! A filter lives beside its collection and dies with it, or with the process, as in MongoDB: the
//! catalog doesn't keep it. It names indexes that need not be there (yet); where none of them is,
//! the query scans the collection. It takes the place of a hint, but for `$natural`.

use crate::index::Index;
use base::bson::{Builder, DocumentBuf, Value, compare_documents};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// How many shapes a collection keeps plans of; the oldest makes room for the next.
const SHAPES_MAX: usize = 5000;

/// How many times the works of a trial the index that won may take before there is another.
const REPLAN_FACTOR: u64 = 10;

/// What a trial came to.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The shape of the query.
    pub(crate) shape: Vec<u8>,
    /// The indexes there were, see [`fingerprint`].
    pub(crate) indexes: u64,
    /// The index that won, as candidates are told apart.
    pub(crate) winner: String,
    /// Keys counted within the bounds of each candidate, the winner first.
    pub(crate) keys: Vec<u64>,
    /// What the winner took: its keys, and the step that found their end.
    pub(crate) works: u64,
    /// Whether the plan kept turned out to be a bad one.
    pub(crate) again: bool,
}

/// What is shown of a kept plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// The query that it was made for.
    pub(crate) filter: DocumentBuf,
    pub(crate) sort: DocumentBuf,
    pub(crate) projection: DocumentBuf,
    pub(crate) collation: Option<DocumentBuf>,
    /// The hashes of its shape, and of its shape with the indexes.
    pub(crate) hashes: (String, String),
    /// Whether an index filter had a say.
    pub(crate) filtered: bool,
    /// The stages of each candidate, the winner's first.
    pub(crate) stages: Vec<DocumentBuf>,
}

/// A plan chosen by trial.
#[derive(Clone, Debug)]
pub(crate) struct KeptPlan {
    pub(crate) trial: Trial,
    pub(crate) shown: Shown,
    /// Whether queries begin with it.
    pub(crate) active: bool,
    /// What it may take, which grows with each trial that takes more.
    pub(crate) works: u64,
    /// Since when it is kept, in milliseconds since 1970.
    pub(crate) since_millis: i64,
}

/// The kept plans of a collection.
#[derive(Default)]
pub struct KeptPlans {
    plans: Mutex<HashMap<Vec<u8>, Arc<KeptPlan>>>,
}

/// Tells sets of indexes apart: what was decided among others is void.
pub(crate) fn fingerprint(indexes: &[Arc<Index>]) -> u64 {
    indexes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, index| {
        let number = (index.ident.0 << 1) | u64::from(index.spec.hidden);
        (hash ^ number).wrapping_mul(0x0100_0000_01B3)
    })
}

impl KeptPlan {
    /// The document that `$planCacheStats` shows.
    pub(crate) fn to_document(&self, host: &str) -> DocumentBuf {
        let Shown { filter, sort, projection, collation, hashes: (shape, key), filtered, stages } =
            &self.shown;
        let mut out = Builder::new();
        out.append(c"version", "1").append(c"queryHash", shape.as_str());
        out.append(c"planCacheShapeHash", shape.as_str()).append(c"planCacheKey", key.as_str());
        out.append(c"isActive", self.active)
            .append(c"works", self.works as i64)
            .append(c"worksType", "works");
        out.append(c"timeOfCreation", Value::DateTime(self.since_millis));
        out.begin_document(c"createdFromQuery");
        out.append(c"query", filter).append(c"sort", sort).append(c"projection", projection);
        out.append_optional(c"collation", collation.as_ref()).end();
        out.append_optional(c"cachedPlan", stages.first());
        out.begin_array(c"creationExecStats");
        for (keys, stages) in self.trial.keys.iter().zip(stages) {
            out.push_document()
                .append(c"totalKeysExamined", *keys as i64)
                .append(c"executionStages", stages)
                .end();
        }
        out.end().append(c"indexFilterSet", *filtered);
        let documents =
            [filter, sort, projection].into_iter().chain(stages).map(|shown| shown.view().bytes().len());
        let size = documents.sum::<usize>() + self.trial.shape.len() + size_of::<KeptPlan>();
        out.append(c"estimatedSizeBytes", size as i64).append(c"host", host);
        out.finish()
    }

    /// How many works its index may take before there is another trial.
    pub(crate) fn works_max(&self) -> u64 {
        self.works.saturating_mul(REPLAN_FACTOR)
    }
}

impl KeptPlans {
    /// The plan that queries of a shape begin with.
    pub(crate) fn active(&self, shape: &[u8], indexes: u64) -> Option<Arc<KeptPlan>> {
        let plans = self.plans.lock();
        plans.get(shape).filter(|kept| kept.active && kept.trial.indexes == indexes).cloned()
    }

    /// Notes what a trial came to; what is shown of it is asked for only where it is kept.
    pub(crate) fn note(&self, trial: &Trial, now_millis: i64, show: impl FnOnce() -> Shown) {
        let mut plans = self.plans.lock();
        let known = plans.get_mut(&trial.shape).filter(|kept| kept.trial.indexes == trial.indexes);
        let Some(known) = known else {
            if plans.len() >= SHAPES_MAX && !plans.contains_key(&trial.shape) {
                let oldest = plans.iter().min_by_key(|(_, kept)| kept.since_millis);
                let oldest = oldest.map(|(shape, _)| shape.clone());
                oldest.map(|shape| plans.remove(&shape));
            }
            let kept = KeptPlan {
                trial: trial.clone(),
                shown: show(),
                active: false,
                works: trial.works,
                since_millis: now_millis,
            };
            plans.insert(trial.shape.clone(), Arc::new(kept));
            return;
        };
        let kept = Arc::make_mut(known);
        kept.active &= !trial.again;
        match kept.active {
            // Another query was quicker.
            true => {}
            false if trial.works <= kept.works => {
                let (shown, since_millis) = (show(), now_millis);
                *kept =
                    KeptPlan { trial: trial.clone(), shown, active: true, works: trial.works, since_millis };
            }
            false => kept.works = kept.works.saturating_mul(2).max(kept.works + 1),
        }
    }

    /// Forgets the plan of a shape, or all.
    pub(crate) fn clear(&self, shape: Option<&[u8]>) {
        let mut plans = self.plans.lock();
        match shape {
            Some(shape) => _ = plans.remove(shape),
            None => plans.clear(),
        }
    }

    /// All plans, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<KeptPlan>> {
        let mut all: Vec<_> = self.plans.lock().values().cloned().collect();
        all.sort_by(|a, b| (a.since_millis, &a.trial.shape).cmp(&(b.since_millis, &b.trial.shape)));
        all
    }
}

/// The indexes that queries of one shape may use.
pub struct IndexFilter {
    pub(crate) shape: Vec<u8>,
    /// The filter it was set with.
    pub query: DocumentBuf,
    /// The order it was set with.
    pub sort: DocumentBuf,
    /// The projection it was set with.
    pub projection: DocumentBuf,
    /// The collation that it was set with, if any.
    pub collation: Option<DocumentBuf>,
    /// The key patterns of the indexes allowed, in the order of documents.
    pub keys: Vec<DocumentBuf>,
    /// The names of the indexes allowed.
    pub names: Vec<String>,
}

impl IndexFilter {
    /// Whether it allows an index.
    pub(crate) fn allows(&self, index: &Index) -> bool {
        let spec = &index.spec;
        self.names.contains(&spec.name)
            || self.keys.iter().any(|key| compare_documents(key.view(), spec.key.view()).is_eq())
    }
}

/// The index filters of a collection.
#[derive(Default)]
pub struct IndexFilters {
    filters: RwLock<Vec<Arc<IndexFilter>>>,
}

impl IndexFilters {
    /// The filter for a query's shape, which is asked for only where there are filters.
    pub(crate) fn find(&self, shape: impl FnOnce() -> Vec<u8>) -> Option<Arc<IndexFilter>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = shape();
        filters.iter().find(|filter| filter.shape == shape).cloned()
    }

    /// Puts a filter in the place of the one of its shape.
    pub(crate) fn set(&self, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.retain(|other| other.shape != filter.shape);
        filters.push(Arc::new(filter));
    }

    /// Forgets the filter of a shape, or all.
    pub(crate) fn clear(&self, shape: Option<&[u8]>) {
        self.filters.write().retain(|filter| shape.is_some_and(|shape| filter.shape != shape));
    }

    /// All filters, in the order in which they were set.
    pub(crate) fn all(&self) -> Vec<Arc<IndexFilter>> {
        self.filters.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(works: u64, again: bool) -> Trial {
        let winner = "a_1".to_string();
        Trial { shape: b"s".to_vec(), indexes: 1, winner, keys: vec![works - 1], works, again }
    }

    fn state(plans: &KeptPlans) -> Vec<(bool, u64)> {
        plans.all().iter().map(|kept| (kept.active, kept.works)).collect()
    }

    #[test]
    fn a_plan_counts_from_its_second_good_trial_on() {
        let plans = KeptPlans::default();
        let note = |works, again| plans.note(&trial(works, again), 0, Shown::default);
        note(4, false);
        assert_eq!(state(&plans), [(false, 4)]);
        assert!(plans.active(b"s", 1).is_none());
        note(5, false);
        assert_eq!(state(&plans), [(false, 8)]);
        note(5, false);
        assert_eq!(state(&plans), [(true, 5)]);
        assert_eq!(plans.active(b"s", 1).unwrap().works_max(), 50);
        assert!(plans.active(b"s", 2).is_none(), "other indexes");
        note(60, true);
        assert_eq!(state(&plans), [(false, 10)]);
        plans.clear(Some(b"t"));
        assert_eq!(state(&plans).len(), 1);
        plans.clear(Some(b"s"));
        assert!(state(&plans).is_empty());
    }

    #[test]
    fn there_are_so_many_at_most() {
        let plans = KeptPlans::default();
        for number in 0..SHAPES_MAX as u64 + 10 {
            let trial = Trial { shape: number.to_be_bytes().to_vec(), ..trial(1, false) };
            plans.note(&trial, number as i64, Shown::default);
        }
        let kept = plans.all();
        assert_eq!((kept.len(), kept[0].since_millis), (SHAPES_MAX, 10));
    }
}
