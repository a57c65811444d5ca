//! The profiler: which operations a database's `system.profile` and the log tell of.
//!
//! A database has a level (0: none, 1: slow ones, 2: all) and perhaps a filter, which decides instead of `slowms` and
//! `sampleRate`; those two are the server's. While no database has either, an operation costs two comparisons more.
//! What is told of an operation is put together once it is over ([`entry`]); what statements of one command did each
//! is noted while they run ([`Notes`]).

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

/// What one database tells of its operations.
#[derive(Clone, Default)]
pub(crate) struct Setting {
    /// 0, 1 or 2.
    pub(crate) level: i32,
    /// Which operations, instead of the slow ones.
    pub(crate) filter: Option<Filter>,
}

/// Which operations are told of: a query over their entries.
#[derive(Clone)]
pub(crate) struct Filter {
    /// As it was given.
    pub(crate) document: DocumentBuf,
    pub(crate) matcher: Arc<Matcher>,
}

/// The settings of all databases.
#[derive(Default)]
pub(crate) struct Profiler {
    /// Whether any is set, so that operations needn't look.
    any: AtomicBool,
    settings: RwLock<HashMap<String, Arc<Setting>>>,
    /// That of databases without one of their own.
    default: Option<Arc<Setting>>,
    /// Which operations are slow.
    pub(crate) slow: SlowOperations,
    /// What they have in common.
    pub(crate) shapes: Shapes,
}

impl Profiler {
    /// A profiler that begins with a level for all databases, what counts as slow, and how much of it is told of.
    pub(crate) fn new((level, slow_millis, sample_rate): (i32, Option<i64>, Option<f64>)) -> Profiler {
        let profiler = Profiler {
            any: AtomicBool::new(level != 0),
            default: (level != 0).then(|| Arc::new(Setting { level, filter: None })),
            ..Profiler::default()
        };
        profiler.slow.set(slow_millis, sample_rate);
        profiler
    }

    /// A database's setting, where it or that of all databases has been set.
    #[inline]
    pub(crate) fn setting(&self, database: &str) -> Option<Arc<Setting>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.settings.read().get(database).cloned().or_else(|| self.default.clone())
    }

    /// A database's level.
    pub(crate) fn level(&self, database: &str) -> i32 {
        self.setting(database).map_or(0, |setting| setting.level)
    }

    /// Changes a database's setting.
    pub(crate) fn set(&self, database: &str, setting: Setting) {
        self.settings.write().insert(database.to_string(), Arc::new(setting));
        self.any.store(true, Relaxed);
    }
}

/// Tells of an operation that is over, where its database's setting, as it was when the operation began, or its time
/// asks for it.
pub(crate) fn tell(server: &Server, setting: Option<&Setting>, finished: &Finished<'_>) {
    let slow = |took: Duration| server.profiler.slow.logs(took, || server.random());
    let Some(setting) = setting else {
        // It is slow, or nobody would ask; the log may be told of a share.
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
        // A filter that fails on an entry doesn't choose it.
        self.matcher.matches(entry, &context(server)).unwrap_or(false)
    }
}

/// What filters and entries are evaluated in.
pub(crate) fn context(server: &Server) -> Context {
    Context::new(now_millis(), server.random(), Arc::new(Operation::new(0)))
}

/// Adds an entry to `system.profile`, made where the level was set for all databases.
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
