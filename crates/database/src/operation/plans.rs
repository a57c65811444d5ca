//! Plans of an operation, for `planSummary` and explain.

use super::Operation;
use crate::index::Index;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of plans recorded for one operation. It may run one plan for each document joined by `$lookup`.
const PLANS_MAX: usize = 32;

/// Read of a plan for `planSummary`.
#[derive(Clone)]
pub(crate) enum PlanUse {
    /// A stage that reads no index.
    Stage(&'static str),
    /// A stage that reads an index.
    Index(&'static str, Arc<Index>),
}

impl PlanUse {
    /// A read of a missing collection.
    pub(crate) const EOF: PlanUse = PlanUse::Stage("EOF");
}

/// Plans that the operation has run.
#[derive(Default)]
pub(super) struct Plans {
    /// The plans, latest last.
    uses: Mutex<Vec<PlanUse>>,
    /// True if the operation found a document by `_id` without planning.
    by_id: AtomicBool,
    /// True if the operation has sorted documents.
    sorts: AtomicBool,
    /// True if its plan runs for explain.
    explained: AtomicBool,
}

impl Operation {
    /// Records a plan that it runs.
    pub(crate) fn record_plan(&self, uses: impl IntoIterator<Item = PlanUse>) {
        let mut plans = self.plans.uses.lock();
        if plans.len() < PLANS_MAX {
            plans.extend(uses);
        }
    }

    /// Marks the plan of the operation as explained.
    pub(crate) fn mark_explained(&self) {
        self.plans.explained.store(true, Relaxed);
    }

    /// Returns true if its plan runs for explain.
    pub(crate) fn is_explained(&self) -> bool {
        self.plans.explained.load(Relaxed)
    }

    /// Marks a lookup by `_id` without planning, for `planSummary`.
    pub(crate) fn mark_by_id(&self) {
        self.plans.by_id.store(true, Relaxed);
    }

    /// Counts a blocking sort of a plan or of the stages behind it.
    pub(crate) fn count_sort(&self) {
        self.plans.sorts.store(true, Relaxed);
        self.shared.sorts.fetch_add(1, Relaxed);
    }

    /// Returns true if the operation has sorted documents.
    pub fn sorts(&self) -> bool {
        self.plans.sorts.load(Relaxed)
    }

    /// Returns its plans in the format of MongoDB's `planSummary`; `None` without any plan.
    pub fn plan_summary(&self) -> Option<String> {
        let by_id = self.plans.by_id.load(Relaxed).then(|| "EXPRESS_IXSCAN { _id: 1 }".to_string());
        let mut parts: Vec<String> = by_id.into_iter().collect();
        for used in self.plans.uses.lock().iter() {
            let part = match used {
                PlanUse::Stage(stage) => stage.to_string(),
                PlanUse::Index(stage, index) => format!("{stage} {}", index.spec.key),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Discards the recorded plans before the next statement.
    pub fn clear_plans(&self) {
        self.plans.by_id.store(false, Relaxed);
        self.plans.sorts.store(false, Relaxed);
        self.plans.uses.lock().clear();
    }
}
