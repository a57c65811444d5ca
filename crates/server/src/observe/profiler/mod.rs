//! The profiler: it selects operations for `system.profile` and the log.
//!
//! A database has a level (0: none, 1: slow, 2: all) and optionally a filter, which replaces
//! `slowms` and `sampleRate`. These two apply to the whole server. While no database has a level or
//! filter, an operation costs two more comparisons. The module `finished` builds the entry of an
//! operation after its end. Results of single statements are recorded while they run ([`Notes`]).

mod shapes;

pub(crate) use shapes::Shapes;

use base::bson::{Builder, Document, DocumentBuf};
use database::language::Matcher;
use database::{Operation, time};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

/// Profiler settings of a database.
#[derive(Clone, Default)]
pub(crate) struct Setting {
    /// 0, 1 or 2.
    pub(crate) level: i32,
    /// Selects operations in place of the slow threshold.
    pub(crate) filter: Option<Filter>,
}

/// A filter on operations: a query over their entries.
#[derive(Clone)]
pub(crate) struct Filter {
    /// The filter as sent.
    pub(crate) document: DocumentBuf,
    pub(crate) matcher: Arc<Matcher>,
}

/// An entry of `system.profile`.
pub(crate) struct Entry {
    pub(crate) document: DocumentBuf,
    pub(crate) took: Duration,
}

/// Settings of all databases.
#[derive(Default)]
pub(crate) struct Profiler {
    /// False while no database has settings, so that operations skip the lookup.
    any: AtomicBool,
    settings: RwLock<HashMap<String, Arc<Setting>>>,
    /// Settings of databases without their own.
    pub(crate) default: Option<Arc<Setting>>,
    /// Threshold and sample rate of slow operations.
    pub(crate) slow: SlowOperations,
    /// Slow operations by shape.
    pub(crate) shapes: Shapes,
}

impl Profiler {
    /// Creates a profiler with a level for all databases, a slow threshold in milliseconds and a
    /// sample rate.
    pub(crate) fn new((level, slow_millis, sample_rate): (i32, Option<i64>, Option<f64>)) -> Profiler {
        let profiler = Profiler {
            any: AtomicBool::new(level != 0),
            default: (level != 0).then(|| Arc::new(Setting { level, filter: None })),
            ..Profiler::default()
        };
        profiler.slow.set(slow_millis, sample_rate);
        profiler
    }

    /// Returns a database's settings or the default settings, if either exists.
    #[inline]
    pub(crate) fn setting(&self, database: &str) -> Option<Arc<Setting>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.settings.read().get(database).cloned().or_else(|| self.default.clone())
    }

    /// Returns a database's level.
    pub(crate) fn level(&self, database: &str) -> i32 {
        self.setting(database).map_or(0, |setting| setting.level)
    }

    /// Changes a database's settings.
    pub(crate) fn set(&self, database: &str, setting: Setting) {
        self.settings.write().insert(database.to_string(), Arc::new(setting));
        self.any.store(true, Relaxed);
    }
}

/// A finished statement.
pub(crate) struct Note {
    /// The statement as sent.
    pub(crate) statement: DocumentBuf,
    /// Counts of the statement, such as `nMatched`.
    pub(crate) counts: DocumentBuf,
    /// Numbers of examined keys and documents.
    pub(crate) examined: (i64, i64),
    /// Summary of the plan.
    pub(crate) plan: Option<String>,
    /// True if it has sorted documents.
    pub(crate) sorted: bool,
    pub(crate) took: Duration,
}

/// Recorded statements of a command.
pub(crate) struct Notes {
    began: Instant,
    examined: (i64, i64),
    pub(crate) list: Vec<Note>,
}

impl Default for Notes {
    fn default() -> Notes {
        Notes { began: time::now(), examined: (0, 0), list: Vec::new() }
    }
}

impl Notes {
    /// Records a finished statement. `operation` is the command's operation.
    pub(crate) fn add(
        &mut self,
        statement: Document<'_>,
        operation: &Operation,
        count: impl FnOnce(&mut Builder),
    ) {
        let now = time::now();
        let examined = (operation.keys_examined.load(Relaxed), operation.docs_examined.load(Relaxed));
        let mut counts = Builder::new();
        count(&mut counts);
        self.list.push(Note {
            statement: statement.to_owned(),
            counts: counts.finish(),
            examined: (examined.0 - self.examined.0, examined.1 - self.examined.1),
            plan: operation.plan_summary(),
            sorted: operation.sorts(),
            took: now - self.began,
        });
        operation.clear_plans();
        (self.began, self.examined) = (now, examined);
    }
}

/// Threshold and sample rate of slow operations.
pub(crate) struct SlowOperations {
    /// Threshold in milliseconds. Operations of this duration or longer are slow.
    threshold: AtomicI64,
    /// Share of slow operations in the log, between zero and one, as the bits of a double.
    sample_rate: AtomicU64,
}

impl Default for SlowOperations {
    /// Returns MongoDB's defaults: all operations over 100 milliseconds.
    fn default() -> SlowOperations {
        SlowOperations { threshold: AtomicI64::new(100), sample_rate: AtomicU64::new(1f64.to_bits()) }
    }
}

impl SlowOperations {
    /// Returns the threshold in milliseconds.
    pub(crate) fn threshold(&self) -> i64 {
        self.threshold.load(Relaxed)
    }

    /// Returns the share of slow operations that is logged.
    pub(crate) fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Relaxed))
    }

    /// Changes threshold and sample rate, if given.
    pub(crate) fn set(&self, threshold: Option<i64>, sample_rate: Option<f64>) {
        if let Some(threshold) = threshold {
            self.threshold.store(threshold, Relaxed);
        }
        if let Some(rate) = sample_rate {
            self.sample_rate.store(rate.to_bits(), Relaxed);
        }
    }

    /// Returns true if an operation of this duration is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        i64::try_from(took.as_millis()).unwrap_or(i64::MAX) >= self.threshold()
    }

    /// Returns true if an operation of this duration is logged. `random` returns any number.
    pub(crate) fn logs(&self, took: Duration, random: impl FnOnce() -> u64) -> bool {
        let unit = || (random() >> 11) as f64 / (1u64 << 53) as f64;
        self.is_slow(took) && unit() < self.sample_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_sampled_operations_are_logged() {
        let slow = SlowOperations::default();
        let logs = |millis, random| slow.logs(Duration::from_millis(millis), || random);
        assert!(!logs(99, 0) && logs(100, u64::MAX));
        slow.set(Some(-1), Some(0.5));
        assert!(logs(0, 0) && !logs(0, u64::MAX));
        slow.set(None, Some(0.0));
        assert!(!logs(1000, 0));
        assert_eq!((slow.threshold(), slow.sample_rate()), (-1, 0.0));
    }
}
