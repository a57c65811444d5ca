//! The log: lines to standard error or a file. getLog returns the latest lines from memory.
//!
//! A record may have keys and values (`log::info!(port = 27017; "…")`). Two keys have a special
//! meaning: `id`, MongoDB's number of a message that tools wait for, and `c`, the component.

pub(crate) mod components;
mod line;
mod sink;

use line::{json, text};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use sink::Sink;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use line::{format_time, now_millis};

/// Number of lines for getLog, as in MongoDB.
const LINES_KEPT: usize = 1024;

/// Maximum length of a message for getLog, in bytes.
const MESSAGE_MAX: usize = 1024;

/// Options of the log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Log level.
    pub level: LevelFilter,
    /// True for JSON lines in mongod's form instead of text.
    pub json: bool,
    /// Destination of log lines.
    pub to: Destination,
}

/// Destination of log lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// Standard error.
    StandardError,
    /// Standard output, mongod's default.
    StandardOutput,
    /// A file. An existing file is extended or, as in mongod, renamed first.
    File {
        /// Path of the file.
        path: PathBuf,
        /// True to append to an existing file.
        append: bool,
    },
}

/// The latest lines, and the number of all lines.
#[derive(Default)]
struct Ring {
    lines: VecDeque<String>,
    written: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring { lines: VecDeque::new(), written: 0 });
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SINK: Mutex<Sink> = Mutex::new(Sink::StandardError);
static JSON: AtomicBool = AtomicBool::new(false);
/// Maximum length of a message or attribute, in bytes: `maxLogSizeKB`.
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

/// Keeps a line for getLog in mongod's form, which shells parse.
fn keep(line: String) {
    let mut ring = RING.lock();
    if ring.lines.len() == LINES_KEPT {
        ring.lines.pop_front();
    }
    ring.lines.push_back(line);
    ring.written += 1;
}

/// Sets the maximum length of a message or attribute in kilobytes; 0 is unlimited.
pub(crate) fn set_longest(kilobytes: usize) {
    let bytes = if kilobytes == 0 { usize::MAX } else { kilobytes.saturating_mul(1024) };
    LONGEST.store(bytes, Ordering::Relaxed);
}

/// Starts logging. A second call only changes the options.
///
/// # Errors
/// A file that cannot be opened.
pub fn start(options: &Options) -> io::Result<()> {
    *SINK.lock() = Sink::open(&options.to)?;
    JSON.store(options.json, Ordering::Relaxed);
    // Fails only if a logger is already set, which is this logger.
    let _ = log::set_logger(&Logger);
    components::begin(options.level);
    Ok(())
}

/// Opens the log file again, for example after an external rename.
///
/// # Errors
/// A file that cannot be opened. Lines continue in the old file.
pub fn reopen() -> io::Result<()> {
    SINK.lock().reopen()
}

/// Returns the path of the log file; `None` if the log is not a file.
pub(crate) fn file() -> Option<PathBuf> {
    SINK.lock().path().map(Path::to_path_buf)
}

/// Renames the log file with a timestamp and begins a new file; `None` if the log is not a file.
///
/// # Errors
/// A file that cannot be renamed or opened. Lines continue in the old file.
pub fn rotate() -> io::Result<Option<PathBuf>> {
    SINK.lock().rotate(now_millis())
}

/// Logs a warning and keeps it for `getLog startupWarnings`, which shells print.
pub fn startup_warning(message: &str) {
    log::warn!(c = "CONTROL"; "{message}");
    store_for_get_log(message);
}

/// Logs a note that the banner already prints and that needs no action. Shells print it, a terminal
/// does not.
pub fn startup_note(message: &str) {
    log::info!(c = "CONTROL"; "{message}");
    store_for_get_log(message);
}

fn store_for_get_log(message: &str) {
    let record_at = now_millis();
    WARNINGS.lock().push(line::plain(record_at, message));
}

/// Returns the latest lines, oldest first, and the number of all lines.
pub(crate) fn recent() -> (Vec<String>, u64) {
    let ring = RING.lock();
    (ring.lines.iter().cloned().collect(), ring.written)
}

/// Returns the texts of [`startup_warning`].
pub(crate) fn startup_warnings() -> (Vec<String>, u64) {
    let warnings = WARNINGS.lock().clone();
    let count = warnings.len() as u64;
    (warnings, count)
}
