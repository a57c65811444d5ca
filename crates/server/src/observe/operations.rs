//! Counts, failures and durations of commands by database. `serverStatus` reports sums, `/metrics`
//! all values.
//!
//! A connection caches the counters of its last used database, so counting an operation takes two
//! additions.

use crate::process::Counter;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum number of databases with their own counters. Other databases share counters, until dropped
/// databases have been removed.
const DATABASES_MAX: usize = 64;

/// Number of duration buckets: below 16 microseconds, below each doubling up to 16.8 seconds, and
/// longer.
pub(crate) const BUCKETS: usize = 22;

/// First bound as a power of two, in microseconds.
pub(crate) const FIRST_BOUND: u32 = 4;

/// Returns the bounds of all buckets but the last, in seconds.
pub(crate) fn bounds() -> impl Iterator<Item = f64> {
    (0..BUCKETS - 1).map(|at| (1u64 << (FIRST_BOUND as usize + at)) as f64 / 1e6)
}

/// A histogram of durations.
#[derive(Default)]
pub(crate) struct LatencyHistogram {
    nanos: Counter,
    counts: [Counter; BUCKETS],
}

/// A snapshot of a histogram.
#[derive(Clone, Copy, Default)]
pub(crate) struct HistogramSnapshot {
    /// Total time in nanoseconds.
    pub(crate) nanos: u64,
    /// Counts by the buckets of [`bounds`], then longer durations.
    pub(crate) counts: [u64; BUCKETS],
}

impl LatencyHistogram {
    /// Counts a duration.
    pub(crate) fn record(&self, took: Duration) {
        self.nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1 << (FIRST_BOUND - 1));
        let span = (micros.ilog2() - (FIRST_BOUND - 1)) as usize;
        if let Some(count) = self.counts.get(span.min(BUCKETS - 1)) {
            count.add(1);
        }
    }

    fn add(&self, other: &HistogramSnapshot) {
        self.nanos.add(other.nanos);
        self.counts.iter().zip(other.counts).for_each(|(sum, count)| sum.add(count));
    }

    /// Returns a snapshot.
    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let mut counts = [0; BUCKETS];
        for (sum, count) in counts.iter_mut().zip(&self.counts) {
            *sum = count.get() as u64;
        }
        HistogramSnapshot { nanos: self.nanos.get() as u64, counts }
    }
}

impl HistogramSnapshot {
    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn add(&mut self, other: &HistogramSnapshot) {
        self.nanos += other.nanos;
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
    }
}

/// Counters of a command on a database.
#[derive(Default)]
pub(crate) struct CommandCounters {
    pub(crate) times: LatencyHistogram,
    pub(crate) failed: Counter,
}

/// Sums of a command over all databases.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommandSum {
    /// Executions.
    pub(crate) total: i64,
    pub(crate) failed: i64,
    /// Total time in microseconds.
    pub(crate) micros: i64,
}

/// Counters of all commands on a database.
pub(crate) struct DatabaseOperations {
    /// Name of the database; empty for the shared counters.
    pub(crate) name: String,
    /// Counters in the order of the command table. A command that never ran takes one word.
    commands: Box<[OnceLock<Box<CommandCounters>>]>,
    /// True once the database was removed.
    is_removed: AtomicBool,
}

impl DatabaseOperations {
    fn new(name: &str, commands: usize) -> Arc<DatabaseOperations> {
        let commands = (0..commands).map(|_| OnceLock::new()).collect();
        Arc::new(DatabaseOperations { name: name.to_string(), commands, is_removed: AtomicBool::new(false) })
    }

    fn add(&self, other: &DatabaseOperations) {
        for (at, counters) in other.commands() {
            let Some(command) = self.commands.get(at) else { continue };
            let command = command.get_or_init(Box::default);
            command.times.add(&counters.times.snapshot());
            command.failed.add(counters.failed.get() as u64);
        }
    }

    /// Counts an execution of the command at this position in the table.
    pub(crate) fn record(&self, at: usize, took: Duration, has_failed: bool) {
        let Some(command) = self.commands.get(at) else { return };
        let command = command.get_or_init(Box::default);
        command.times.record(took);
        if has_failed {
            command.failed.add(1);
        }
    }

    /// Returns the commands that have run, with their positions in the table.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (usize, &CommandCounters)> {
        self.commands.iter().enumerate().filter_map(|(at, command)| Some((at, &**command.get()?)))
    }
}

/// Counters of all commands on all databases.
pub(crate) struct Operations {
    named: RwLock<BTreeMap<String, Arc<DatabaseOperations>>>,
    others: Arc<DatabaseOperations>,
    /// The counts of dropped databases, for the sums. Another series with them would count their operations twice.
    removed: Arc<DatabaseOperations>,
    /// Number of rows in the command table.
    commands: usize,
}

impl Default for Operations {
    fn default() -> Operations {
        Operations::new(0)
    }
}

impl Operations {
    /// Creates counters for a table of this many commands.
    pub(crate) fn new(commands: usize) -> Operations {
        let [others, removed] = [(); 2].map(|()| DatabaseOperations::new("", commands));
        Operations { named: RwLock::default(), others, removed, commands }
    }

    /// Returns the counters of a database. `last` is the connection's cache. Only an existing
    /// database gets counters of its own, so that clients cannot fill the table.
    pub(crate) fn of<'a>(
        &self,
        last: &'a mut Option<Arc<DatabaseOperations>>,
        database: &str,
        exists: impl FnOnce() -> bool,
    ) -> &'a DatabaseOperations {
        let is_other =
            |last: &Arc<DatabaseOperations>| last.name != database || last.is_removed.load(Ordering::Relaxed);
        if last.as_ref().is_none_or(is_other) {
            *last = None;
        }
        last.get_or_insert_with(|| self.look_up(database, exists))
    }

    fn look_up(&self, database: &str, exists: impl FnOnce() -> bool) -> Arc<DatabaseOperations> {
        let known = {
            let named = self.named.read();
            named.get(database).cloned().ok_or(named.len())
        };
        match known {
            Ok(known) => known,
            Err(count) if count >= DATABASES_MAX || database.is_empty() || !exists() => self.others.clone(),
            Err(_) => {
                let mut named = self.named.write();
                if named.len() >= DATABASES_MAX && !named.contains_key(database) {
                    return self.others.clone();
                }
                let new = || DatabaseOperations::new(database, self.commands);
                named.entry(database.to_string()).or_insert_with(new).clone()
            }
        }
    }

    /// Returns true if further databases get no counters of their own.
    pub(crate) fn is_full(&self) -> bool {
        self.named.read().len() >= DATABASES_MAX
    }

    /// Removes the counters of databases that do not exist.
    pub(crate) fn remove_dropped(&self, exists: impl Fn(&str) -> bool) {
        self.named.write().retain(|name, database| {
            let exists = exists(name);
            if !exists {
                database.is_removed.store(true, Ordering::Relaxed);
                self.removed.add(database);
            }
            exists
        });
    }

    /// Returns the counters of all databases by name. The shared counters come last.
    pub(crate) fn all(&self) -> Vec<Arc<DatabaseOperations>> {
        let mut all: Vec<_> = self.named.read().values().cloned().collect();
        all.push(self.others.clone());
        all
    }

    /// Returns the sums of each command over all databases.
    pub(crate) fn sums(&self) -> Vec<CommandSum> {
        let mut sums = vec![(HistogramSnapshot::default(), 0); self.commands];
        // The lock keeps removals out, so each count is read once.
        let named = self.named.read();
        for database in named.values().chain([&self.others, &self.removed]) {
            for (at, command) in database.commands() {
                if let Some((times, failed)) = sums.get_mut(at) {
                    times.add(&command.times.snapshot());
                    *failed += command.failed.get();
                }
            }
        }
        let sum = |(times, failed): (HistogramSnapshot, i64)| CommandSum {
            total: times.count() as i64,
            failed,
            micros: (times.nanos / 1000) as i64,
        };
        sums.into_iter().map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_buckets_double() {
        let times = LatencyHistogram::default();
        for micros in [0, 1, 15, 16, 31, 32, (1 << 24) - 1, 1 << 24, 1 << 50] {
            times.record(Duration::from_micros(micros));
        }
        let snapshot = times.snapshot();
        assert_eq!((snapshot.counts[0], snapshot.counts[1], snapshot.counts[2]), (3, 2, 1));
        assert_eq!((snapshot.counts[BUCKETS - 2], snapshot.counts[BUCKETS - 1], snapshot.count()), (1, 2, 9));
        let bounds: Vec<f64> = bounds().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[BUCKETS - 2]), (BUCKETS - 1, 0.000_016, 16.777_216));
    }

    #[test]
    fn databases_are_counted_separately_up_to_a_limit() {
        let operations = Operations::new(2);
        let mut last = None;
        for number in 0..DATABASES_MAX + 5 {
            operations.of(&mut last, &format!("d{number}"), || true).record(
                0,
                Duration::from_micros(7),
                false,
            );
        }
        operations.of(&mut last, "nowhere", || false).record(0, Duration::from_micros(7), true);
        operations.of(&mut last, "d0", || unreachable!()).record(1, Duration::from_millis(7), true);
        assert_eq!(last.as_ref().unwrap().name, "d0");
        let all = operations.all();
        assert_eq!(all.len(), DATABASES_MAX + 1);
        assert_eq!(all.last().unwrap().name, "");
        let count =
            |of: &DatabaseOperations| of.commands().map(|(_, one)| one.times.snapshot().count()).sum::<u64>();
        assert_eq!((count(all.last().unwrap()), count(&all[0])), (6, 2));
        let sums = operations.sums();
        assert_eq!(
            (sums[0].total, sums[0].failed, sums[0].micros),
            (DATABASES_MAX as i64 + 6, 1, 7 * (DATABASES_MAX as i64 + 6))
        );
        assert_eq!((sums[1].total, sums[1].failed, sums[1].micros), (1, 1, 7000));

        // A connection still has the counters of d0, which is dropped and created again.
        assert!(operations.is_full());
        operations.remove_dropped(|name| name == "d1");
        let after = operations.sums();
        assert_eq!((after[0].total, after[0].failed, after[1].micros), (sums[0].total, 1, 7000));
        for name in ["d0", "new"] {
            operations.of(&mut last, name, || true).record(0, Duration::from_micros(7), false);
        }
        let all = operations.all();
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["d0", "d1", "new", ""]);
        assert_eq!(all[..3].iter().map(|one| count(one)).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(count(all.last().unwrap()), 6, "the operations of dropped databases count twice");
        assert_eq!(operations.sums()[0].total, sums[0].total + 2);
    }
}
