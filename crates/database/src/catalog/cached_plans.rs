//! Plan cache: results of trials between plans by query shape, as in MongoDB.
//!
//! If rules rank several indexes equal, the keys within their bounds are counted. The result is
//! stored, at first inactive. The second trial without more works activates the entry. Queries of
//! the shape then start with the winning index, and look at the other indexes only if it has ten
//! times the keys. A trial counts few keys, so the cache saves no more than that. Plans themselves
//! are always rebuilt, because bounds depend on the constants.
//!
//! Cached plans belong to their collection, as index filters do. They end with the collection or
//! with the process.
//!
//! Index filters: the allowed indexes of one query shape.
//!
//! A filter ends with its collection or with the process, as in MongoDB: the catalog does not store
//! it. It may name missing indexes. If all of them are missing, the query scans the collection. A
//! filter overrides hints except `$natural`.

use crate::index::Index;
use base::bson::{Builder, DocumentBuf, Value, compare_documents};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// Most cached shapes of a collection. A new shape replaces the oldest.
const SHAPES_MAX: usize = 5000;

/// A new trial runs if the winning index needs this many times the works of its trial.
const REPLAN_FACTOR: u64 = 10;

/// Result of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The query shape.
    pub(crate) shape: Vec<u8>,
    /// Indexes of the collection at the time, see [`fingerprint`].
    pub(crate) indexes: u64,
    /// The winning index, by its unique candidate name.
    pub(crate) winner: String,
    /// Number of keys counted within the bounds of each candidate; the winner is first.
    pub(crate) keys: Vec<u64>,
    /// Works of the winner: its keys, and the step that found their end.
    pub(crate) works: u64,
    /// True if the cached plan had become too slow.
    pub(crate) again: bool,
}

/// Fields of a cached plan for `$planCacheStats`.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedFields {
    /// The query of the plan.
    pub(crate) filter: DocumentBuf,
    pub(crate) sort: DocumentBuf,
    pub(crate) projection: DocumentBuf,
    pub(crate) collation: Option<DocumentBuf>,
    /// Hashes of its shape, and of its shape with the indexes.
    pub(crate) hashes: (String, String),
    /// True if an index filter applied.
    pub(crate) filtered: bool,
    /// Stages of each candidate; the winner is first.
    pub(crate) stages: Vec<DocumentBuf>,
}

/// A plan chosen by trial.
#[derive(Clone, Debug)]
pub(crate) struct CachedPlan {
    pub(crate) trial: Trial,
    pub(crate) shown: CachedFields,
    /// True if queries use the plan.
    pub(crate) active: bool,
    /// Expected works. Each trial that needs more increases them.
    pub(crate) works: u64,
    /// Time of creation, in milliseconds since 1970.
    pub(crate) since_millis: i64,
}

/// The plan cache of a collection.
#[derive(Default)]
pub struct PlanCache {
    plans: Mutex<HashMap<Vec<u8>, Arc<CachedPlan>>>,
}

/// Returns a hash of a set of indexes. Trials among other indexes are invalid.
pub(crate) fn fingerprint(indexes: &[Arc<Index>]) -> u64 {
    indexes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, index| {
        let number = (index.ident.0 << 1) | u64::from(index.spec.hidden);
        (hash ^ number).wrapping_mul(0x0100_0000_01B3)
    })
}

impl CachedPlan {
    /// Returns the document for `$planCacheStats`.
    pub(crate) fn to_document(&self, host: &str) -> DocumentBuf {
        let CachedFields { filter, sort, projection, collation, hashes: (shape, key), filtered, stages } =
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
        let size = documents.sum::<usize>() + self.trial.shape.len() + size_of::<CachedPlan>();
        out.append(c"estimatedSizeBytes", size as i64).append(c"host", host);
        out.finish()
    }

    /// Returns the works after which another trial runs.
    pub(crate) fn works_max(&self) -> u64 {
        self.works.saturating_mul(REPLAN_FACTOR)
    }
}

impl PlanCache {
    /// Returns the active plan of a shape.
    pub(crate) fn active(&self, shape: &[u8], indexes: u64) -> Option<Arc<CachedPlan>> {
        let plans = self.plans.lock();
        plans.get(shape).filter(|cached| cached.active && cached.trial.indexes == indexes).cloned()
    }

    /// Stores the result of a trial. `show` runs only if the result is kept.
    pub(crate) fn add_trial(&self, trial: &Trial, now_millis: i64, show: impl FnOnce() -> CachedFields) {
        let mut plans = self.plans.lock();
        let known = plans.get_mut(&trial.shape).filter(|cached| cached.trial.indexes == trial.indexes);
        let Some(known) = known else {
            if plans.len() >= SHAPES_MAX && !plans.contains_key(&trial.shape) {
                let oldest = plans.iter().min_by_key(|(_, cached)| cached.since_millis);
                let oldest = oldest.map(|(shape, _)| shape.clone());
                oldest.map(|shape| plans.remove(&shape));
            }
            let cached = CachedPlan {
                trial: trial.clone(),
                shown: show(),
                active: false,
                works: trial.works,
                since_millis: now_millis,
            };
            plans.insert(trial.shape.clone(), Arc::new(cached));
            return;
        };
        let cached = Arc::make_mut(known);
        cached.active &= !trial.again;
        match cached.active {
            // Another query was faster.
            true => {}
            false if trial.works <= cached.works => {
                let (shown, since_millis) = (show(), now_millis);
                *cached = CachedPlan {
                    trial: trial.clone(),
                    shown,
                    active: true,
                    works: trial.works,
                    since_millis,
                };
            }
            false => cached.works = cached.works.saturating_mul(2).max(cached.works + 1),
        }
    }

    /// Removes the plan of a shape, or all plans.
    pub(crate) fn clear(&self, shape: Option<&[u8]>) {
        let mut plans = self.plans.lock();
        match shape {
            Some(shape) => _ = plans.remove(shape),
            None => plans.clear(),
        }
    }

    /// Returns all plans, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<CachedPlan>> {
        let mut all: Vec<_> = self.plans.lock().values().cloned().collect();
        all.sort_by(|a, b| (a.since_millis, &a.trial.shape).cmp(&(b.since_millis, &b.trial.shape)));
        all
    }
}

/// The allowed indexes of one query shape.
pub struct IndexFilter {
    pub(crate) shape: Vec<u8>,
    /// The query given with the filter.
    pub query: DocumentBuf,
    /// The sort given with the filter.
    pub sort: DocumentBuf,
    /// The projection given with the filter.
    pub projection: DocumentBuf,
    /// The collation given with the filter, if any.
    pub collation: Option<DocumentBuf>,
    /// Key patterns of the allowed indexes, sorted as documents.
    pub keys: Vec<DocumentBuf>,
    /// Names of the allowed indexes.
    pub names: Vec<String>,
}

impl IndexFilter {
    /// Returns true if the filter allows an index.
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
    /// Returns the filter of a query's shape. `shape` runs only if filters exist.
    pub(crate) fn find(&self, shape: impl FnOnce() -> Vec<u8>) -> Option<Arc<IndexFilter>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = shape();
        filters.iter().find(|filter| filter.shape == shape).cloned()
    }

    /// Sets a filter and replaces the filter of its shape.
    pub(crate) fn set(&self, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.retain(|other| other.shape != filter.shape);
        filters.push(Arc::new(filter));
    }

    /// Removes the filter of a shape, or all filters.
    pub(crate) fn clear(&self, shape: Option<&[u8]>) {
        self.filters.write().retain(|filter| shape.is_some_and(|shape| filter.shape != shape));
    }

    /// Returns all filters in the order of their creation.
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

    fn state(plans: &PlanCache) -> Vec<(bool, u64)> {
        plans.all().iter().map(|cached| (cached.active, cached.works)).collect()
    }

    #[test]
    fn a_plan_counts_from_its_second_good_trial_on() {
        let plans = PlanCache::default();
        let note = |works, again| plans.add_trial(&trial(works, again), 0, CachedFields::default);
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
        let plans = PlanCache::default();
        for number in 0..SHAPES_MAX as u64 + 10 {
            let trial = Trial { shape: number.to_be_bytes().to_vec(), ..trial(1, false) };
            plans.add_trial(&trial, number as i64, CachedFields::default);
        }
        let cached = plans.all();
        assert_eq!((cached.len(), cached[0].since_millis), (SHAPES_MAX, 10));
    }
}
