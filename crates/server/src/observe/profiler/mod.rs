//! The profiler: it selects operations for `system.profile` and the log.
//!
//! A database has a level (0: none, 1: slow, 2: all) and optionally a filter, which replaces
//! `slowms` and `sampleRate`. These two apply to the whole server. While no database has a level or
//! filter, an operation costs two more comparisons. The module `finished` builds the entry of an
//! operation after its end. Results of single statements are recorded while they run ([`Notes`]).

mod advice;
mod notes;
mod shapes;
mod slow;

pub(crate) use notes::{Note, Notes};
pub(crate) use shapes::Shapes;
pub(crate) use slow::SlowOperations;

use base::bson::DocumentBuf;
use database::language::Matcher;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

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
