//! The log: lines to standard error or a file, the last of them kept in memory for getLog.
//!
//! A record may carry keys and values (`log::info!(port = 27017; "…")`). Two keys have a meaning of
//! their own: `id`, MongoDB's number of a message that tools wait for, and `c`, the component.

pub(crate) mod components;
mod line;
mod sink;
mod time;

use line::{json, text};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use sink::Sink;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use time::{format_time, now_millis};

/// How many lines getLog can show, as many as MongoDB keeps.
const LINES_KEPT: usize = 1024;

/// The longest message kept for getLog, in bytes.
const MESSAGE_MAX: usize = 1024;

/// How to log.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much.
    pub level: LevelFilter,
    /// Whether lines are JSON objects of mongod's form, not text.
    pub json: bool,
    /// Where to.
    pub to: Destination,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// Standard error.
    StandardError,
    /// Standard output, where mongod logs unless told otherwise.
    StandardOutput,
    /// A file, which is appended to or, as mongod does, first given another name.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether lines follow those that are there.
        append: bool,
    },
}

/// The lines kept, and how many there have been in all.
#[derive(Default)]
struct Ring {
    lines: VecDeque<String>,
    written: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring { lines: VecDeque::new(), written: 0 });
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SINK: Mutex<Sink> = Mutex::new(Sink::StandardError);
static JSON: AtomicBool = AtomicBool::new(false);
/// The most of a message, or of an attribute, that is written, in bytes: `maxLogSizeKB`.
static LONGEST: AtomicUsize = AtomicUsize::new(10 * 1024);

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || !components::shows(record) {
            return;
        }
        let now = now_millis();
        let longest = LONGEST.load(Ordering::Relaxed);
        let line = match JSON.load(Ordering::Relaxed) {
            true => json(record, now, longest),
            false => text(record, now, longest),
        };
        SINK.lock().write(line);
        if record.level() <= Level::Info {
            keep(json(record, now, MESSAGE_MAX.min(longest)));
        }
    }

    fn flush(&self) {}
}

/// Keeps a line for getLog, in mongod's form, which shells take apart.
fn keep(line: String) {
    let mut ring = RING.lock();
    if ring.lines.len() == LINES_KEPT {
        ring.lines.pop_front();
    }
    ring.lines.push_back(line);
    ring.written += 1;
}

/// Says how many kilobytes of one message or attribute are written; 0 is all of it.
pub(crate) fn set_longest(kilobytes: usize) {
    let bytes = if kilobytes == 0 { usize::MAX } else { kilobytes.saturating_mul(1024) };
    LONGEST.store(bytes, Ordering::Relaxed);
}

/// Starts logging; called again, only how to log changes.
///
/// # Errors
/// A file that cannot be opened.
pub fn start(options: &Options) -> io::Result<()> {
    *SINK.lock() = Sink::open(&options.to)?;
    JSON.store(options.json, Ordering::Relaxed);
    // Fails only when a logger is set already, which is this one.
    let _ = log::set_logger(&Logger);
    components::begin(options.level);
    Ok(())
}

/// Opens the log's file again, which something else may have moved away.
///
/// # Errors
/// A file that cannot be opened: lines go on into the old one.
pub fn reopen() -> io::Result<()> {
    SINK.lock().reopen()
}

/// Gives the log's file another name, with the time in it, and begins a new one; `None` where the
/// log goes to no file.
///
/// # Errors
/// A file that cannot be renamed or opened: lines go on into the old one.
pub fn rotate() -> io::Result<Option<PathBuf>> {
    SINK.lock().rotate(now_millis())
}

/// Logs something that whoever connects with a shell should be told: `getLog startupWarnings`.
pub fn startup_warning(what: &str) {
    log::warn!(c = "CONTROL"; "{what}");
    keep_for_shells(what);
}

/// The same for what the banner says already, and needs no action: shells show it, a terminal doesn't.
pub fn startup_note(what: &str) {
    log::info!(c = "CONTROL"; "{what}");
    keep_for_shells(what);
}

fn keep_for_shells(what: &str) {
    let record_at = now_millis();
    WARNINGS.lock().push(line::plain(record_at, what));
}

/// The lines kept, oldest first, and how many have been written in all.
pub(crate) fn recent() -> (Vec<String>, u64) {
    let ring = RING.lock();
    (ring.lines.iter().cloned().collect(), ring.written)
}

/// What [`startup_warning`] was told.
pub(crate) fn startup_warnings() -> (Vec<String>, u64) {
    let warnings = WARNINGS.lock().clone();
    let count = warnings.len() as u64;
    (warnings, count)
}
