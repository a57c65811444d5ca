//! The profiler: it selects operations for `system.profile` and the log.
//!
//! A database has a level (0: none, 1: slow, 2: all) and optionally a filter, which replaces
//! `slowms` and `sampleRate`. These two apply to the whole server. While no database has a level or
//! filter, an operation costs two more comparisons. The entry of an operation is built after its
//! end ([`entry`]). Results of single statements are recorded while they run ([`Notes`]).

mod advice;
mod entry;
mod notes;
mod shapes;
mod slow;

pub(crate) use entry::Finished;
pub(crate) use notes::{Note, Notes};
pub(crate) use shapes::Shapes;
pub(crate) use slow::SlowOperations;

use crate::logging::now_millis;
use crate::server::Server;
use base::bson::{Document, DocumentBuf};
use database::Operation;
use database::language::{Context, Matcher};
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

/// Settings of all databases.
#[derive(Default)]
pub(crate) struct Profiler {
    /// False while no database has settings, so that operations skip the lookup.
    any: AtomicBool,
    settings: RwLock<HashMap<String, Arc<Setting>>>,
    /// Settings of databases without their own.
    default: Option<Arc<Setting>>,
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

/// Writes the entry of a finished operation to `system.profile` or the log. `setting` is the
/// database's setting at the start of the operation.
pub(crate) fn tell(server: &Server, setting: Option<&Setting>, finished: &Finished<'_>) {
    let slow = |took: Duration| server.profiler.slow.logs(took, || server.random());
    let Some(setting) = setting else {
        // The operation is slow, otherwise the function has returned. The log may receive only a
        // sample.
        let entries = finished.entries();
        entries.iter().for_each(|entry| server.profiler.shapes.add(finished.command.name, entry));
        if slow(finished.took) {
            finished.log(&entries);
        }
        return;
    };
    let (mut logged, mut kept) = (Vec::new(), Vec::new());
    for entry in finished.entries() {
        if server.profiler.slow.is_slow(entry.took) {
            server.profiler.shapes.add(finished.command.name, &entry);
        }
        let chosen = match &setting.filter {
            Some(filter) => filter.chooses(entry.document.view(), server),
            None => slow(entry.took),
        };
        let is_kept = setting.level == 2 || (setting.level == 1 && chosen);
        if is_kept {
            kept.push(entry.document.clone());
        }
        if chosen {
            logged.push(entry);
        }
    }
    finished.log(&logged);
    for document in kept {
        keep(server, finished.request.database, document.view());
    }
}

impl Filter {
    fn chooses(&self, entry: Document<'_>, server: &Server) -> bool {
        // A filter that fails on an entry does not select it.
        self.matcher.matches(entry, &context(server)).unwrap_or(false)
    }
}

/// Returns the evaluation context of filters and entries.
pub(crate) fn context(server: &Server) -> Context {
    Context::new(now_millis(), server.random(), Arc::new(Operation::new(0)))
}

/// Adds an entry to `system.profile`. Creates the collection if the level was set for all
/// databases.
fn keep(server: &Server, database: &str, entry: Document<'_>) {
    let context = context(server);
    let made = match server.profiler.default {
        Some(_) => server.database.create_profile(&Operation::new(0), database, &context),
        None => Ok(()),
    };
    if let Err(error) = made.and_then(|()| server.database.profile(database, entry, context)) {
        log::warn!("an operation on {database} couldn't be profiled: {error}");
    }
}
