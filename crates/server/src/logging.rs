//! The log: lines to standard error, the last of them kept in memory for getLog.

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many lines getLog can show, as many as MongoDB keeps.
const LINES_KEPT: usize = 1024;

/// The longest line kept, in bytes; the log itself gets all of it.
const LINE_MAX: usize = 1024;

/// The lines kept, and how many there have been in all.
#[derive(Default)]
struct Ring {
    lines: VecDeque<String>,
    written: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring { lines: VecDeque::new(), written: 0 });

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!(
            "{} {:<5} {}: {}",
            format_time(now_millis()),
            record.level(),
            record.target().split("::").next().unwrap_or_default(),
            record.args()
        );
        // Nobody is left to be told when standard error is gone.
        let _ = writeln!(std::io::stderr(), "{line}");
        keep(line, record.level());
    }

    fn flush(&self) {}
}

fn keep(mut line: String, level: Level) {
    if level > Level::Info {
        return;
    }
    let mut end = line.len().min(LINE_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    let mut ring = RING.lock();
    if ring.lines.len() == LINES_KEPT {
        ring.lines.pop_front();
    }
    ring.lines.push_back(line);
    ring.written += 1;
}

/// Starts logging at this level; called again, only the level changes.
pub fn start(level: LevelFilter) {
    // Fails only when a logger is set already, which is this one.
    let _ = log::set_logger(&Logger);
    log::set_max_level(level);
}

/// The lines kept, oldest first, and how many have been written in all.
pub(crate) fn recent() -> (Vec<String>, u64) {
    let ring = RING.lock();
    (ring.lines.iter().cloned().collect(), ring.written)
}

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// A time in the form `2026-01-31T08:09:10.011Z`.
pub(crate) fn format_time(millis: i64) -> String {
    let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day counted from 1970, by the arithmetic of 400-year cycles.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_the_calendar() {
        assert_eq!(format_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_time(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(format_time(1_795_168_570_124), "2026-11-20T09:56:10.124Z");
        assert_eq!(format_time(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        keep("é".repeat(LINE_MAX), Level::Info);
        let (lines, written) = recent();
        assert!(lines.last().is_some_and(|line| line.len() <= LINE_MAX) && written > 0);
    }
}
