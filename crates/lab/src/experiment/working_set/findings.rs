//! What `working-set` makes of its figures: where gets became slower, and what going over the same documents again costs.

use super::{FOCUSES, REPETITIONS, cache};
use crate::experiment::sentences;
use crate::report::figures;
use crate::result::{Row, Section};

/// What each target makes of growing working sets.
pub(super) fn findings(section: &Section, in_memory: impl Fn(&str) -> bool) -> Vec<String> {
    let told = |target: &&str| {
        let lines = FOCUSES.iter().map(|(share, case)| (*share, *case, line(section, target, case)));
        let lines: Vec<_> = lines.filter(|(_, _, line)| line.len() > 1).collect();
        let knees: Vec<String> = lines
            .iter()
            .filter_map(|(share, case, line)| knee(line).map(|knee| knee.told(*share, case)))
            .collect();
        match lines.iter().filter_map(|(_, _, line)| line.last()).next() {
            None => None,
            Some(largest) if in_memory(target) => Some(all_in_memory(target, largest)),
            Some(_) if !knees.is_empty() => Some(format!("{target}: {}.", knees.join("; "))),
            Some(largest) => {
                let missed = lines.iter().filter_map(|(_, case, line)| missed(case, line.last()?));
                Some(fitted(target, largest, missed.max_by(|a, b| a.0.total_cmp(&b.0))))
            }
        }
    };
    sentences::targets(section).iter().filter_map(told).collect()
}

/// Beside repetitions: how long all gets of a round took.
pub(super) const SECONDS_OF_ALL: &str = "seconds for all gets";

/// "disk: with 1,000,000 documents 30,000 gets take 4.21 s at first, 1.90 s the second time and 1.88 s the third".
pub(super) fn repetitions(section: &Section) -> Vec<String> {
    let told = |target: &&str| {
        let rows: Vec<&Row> =
            REPETITIONS.iter().filter_map(|case| line(section, target, case).last().copied()).collect();
        let times = rows
            .iter()
            .filter_map(|row| row.extra.get(SECONDS_OF_ALL))
            .map(|seconds| figures::seconds(*seconds));
        let times: Vec<String> = times.collect();
        let [first, second, third] = times.as_slice() else { return None };
        let largest = rows.first()?;
        let gets = largest.operations / largest.rounds.len().max(1) as u64;
        Some(format!(
            "{target}: with {} documents {} gets take {first} at first, {second} the second time and {third} the third.",
            figures::count(largest.x.unwrap_or(0.0) as u64),
            figures::count(gets)
        ))
    };
    sentences::targets(section).iter().filter_map(told).collect()
}

/// The rows of one target and focus, from the smallest size to the largest.
fn line<'a>(section: &'a Section, target: &str, case: &str) -> Vec<&'a Row> {
    let rows = section.rows.iter();
    let mut rows: Vec<&Row> =
        rows.filter(|row| row.target == target && row.case == case && row.operations > 0).collect();
    rows.sort_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)));
    // With several numbers of connections the fewest speak for all.
    let fewest = rows.iter().map(|row| row.connections).min();
    rows.retain(|row| Some(row.connections) == fewest);
    rows
}

fn all_in_memory(target: &str, largest: &Row) -> String {
    let resident =
        largest.resident_bytes.map(|bytes| format!(", which take {} of memory", figures::bytes(bytes)));
    format!(
        "{target}: keeps everything in memory, so that every working set fits, up to {} documents{}.",
        figures::count(largest.x.unwrap_or(0.0) as u64),
        resident.unwrap_or_default()
    )
}

/// Cache misses per 100 gets and the focus, where there are enough of them to say that it didn't fit.
fn missed<'a>(case: &'a str, row: &Row) -> Option<(f64, &'a str)> {
    row.extra.get(cache::MISSES).filter(|misses| **misses > MORE_MISSES).map(|misses| (*misses, case))
}

/// What is said where nothing became slower; `missed` is the focus that missed the cache most.
fn fitted(target: &str, largest: &Row, missed: Option<(f64, &str)>) -> String {
    let stored = largest.extra.get(cache::STORAGE).filter(|stored| **stored > 0.0);
    let stored = stored.map(|megabytes| format!(" ({} stored)", figures::bytes((megabytes * 1e6) as u64)));
    let (documents, stored) = (figures::count(largest.x.unwrap_or(0.0) as u64), stored.unwrap_or_default());
    match missed {
        None => format!("{target}: every working set fitted, up to {documents} documents{stored}."),
        Some((misses, case)) => format!(
            "{target}: gets became hardly slower, up to {documents} documents{stored}, although with {} they missed the \
             cache {} times per 100 gets: the system's own file cache has answered.",
            case.replacen("focus", "the focus on", 1),
            figures::number(misses)
        ),
    }
}

/// From one size to the next gets became slower, because the cache missed.
#[derive(Debug)]
struct Knee<'a> {
    before: &'a Row,
    after: &'a Row,
}

/// A median or a p95 this many times as long, from one size to the next, is a knee …
const SLOWER: f64 = 1.6;

/// A working set of up to this share of what the cache holds fits into it.
const FITS: f64 = 0.8;

/// … if so many more gets of a hundred found something missing in the cache. Of a server that tells
/// nothing of its cache, the median must have become longer: a p95 does so for other reasons, too.
const MORE_MISSES: f64 = 5.0;

fn knee<'a>(line: &[&'a Row]) -> Option<Knee<'a>> {
    line.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        let slower = |share: f64| after.latency.quantile(share) > SLOWER * before.latency.quantile(share);
        let misses = |row: &Row| row.extra.get(cache::MISSES).copied();
        let is_knee = match misses(after) {
            Some(now) => (slower(0.5) || slower(0.95)) && now - misses(before).unwrap_or(0.0) > MORE_MISSES,
            None => slower(0.5),
        };
        is_knee.then_some(Knee { before, after })
    })
}

impl Knee<'_> {
    fn told(&self, share: f64, case: &str) -> String {
        let documents = |row: &Row| figures::count(row.x.unwrap_or(0.0) as u64);
        let p95 = |row: &Row| figures::latency(row.latency.quantile(0.95));
        let misses = self.after.extra.get(cache::MISSES).copied();
        let [stored, held] = [cache::STORAGE, cache::HELD].map(|name| self.after.extra.get(name).copied());
        // What is asked for fits into what the cache held: then it was something else that made it miss.
        let fits = stored.zip(held).is_some_and(|(stored, held)| stored * share < FITS * held);
        let told = match misses {
            Some(_) if !fits => "the working set stopped fitting",
            _ => "gets became slower",
        };
        let misses = match misses {
            Some(misses) if fits => format!(
                ", with {} cache misses per 100 gets although the cache held {}, more than the focus: it was still being \
                 filled, or gave room to something else",
                figures::number(misses),
                figures::bytes((held.unwrap_or(0.0) * 1e6) as u64)
            ),
            Some(misses) => format!(", with {} cache misses per 100 gets", figures::number(misses)),
            None => "; as it tells nothing of its cache, this may have other reasons".to_string(),
        };
        let stored =
            stored.map(|megabytes| format!(" (about {})", figures::bytes((megabytes * 1e6 * share) as u64)));
        format!(
            "with {} {told} between {} and {} documents{}: p95 went from {} to {}{misses}",
            case.replacen("focus", "the focus on", 1),
            documents(self.before),
            documents(self.after),
            stored.unwrap_or_default(),
            p95(self.before),
            p95(self.after),
        )
    }
}
