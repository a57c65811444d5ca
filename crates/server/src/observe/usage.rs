//! Counts and durations of commands by collection, for `top`.
//!
//! A busy connection has sums of its own, so a count touches no shared memory. They are added on request, and
//! transferred to the total when the connection is idle or closes.

use std::collections::HashMap;

/// Maximum number of collections in the total. Further collections are omitted, until dropped
/// collections have been removed.
const COLLECTIONS_MAX: usize = 10_000;

/// Number of collections at which a connection transfers its sums.
const OWN_MAX: usize = 1_000;

/// Kinds of operations in the order of `top`, without locks.
pub(crate) const KINDS: [&str; 6] = ["queries", "getmore", "insert", "update", "remove", "commands"];

/// Classes of operations in the order of `latencyStats`. Transactions belong to no collection.
pub(crate) const CLASSES: [&str; 3] = ["reads", "writes", "commands"];

/// Total time and number of operations.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) micros: i64,
    /// Operations.
    pub(crate) count: i64,
}

/// A histogram with MongoDB's buckets. Each bucket begins at twice the start of the bucket before.
/// From 2 milliseconds to 2 seconds half steps exist too.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct Histogram(Vec<(u8, i64)>);

/// Start of the last bucket as a power of two, in microseconds.
const LAST_POWER: u8 = 40;
/// Powers of two with a second bucket that begins halfway to the next power.
const HALVED: std::ops::RangeInclusive<u8> = 11..=20;

/// Returns the bucket of a duration: twice the power of two of its start, plus 1 for a half step.
fn bucket(micros: i64) -> u8 {
    let micros = u64::try_from(micros).unwrap_or(0);
    // Below 2 a single bucket begins at 0.
    let power = micros.checked_ilog2().unwrap_or(0).min(u32::from(LAST_POWER)) as u8;
    let is_upper = HALVED.contains(&power) && micros >> (power - 1) & 1 == 1;
    power * 2 + u8::from(is_upper)
}

/// Returns the start of a bucket in microseconds.
fn bucket_start(bucket: u8) -> i64 {
    match (bucket / 2, bucket % 2) {
        (0, _) => 0,
        (power, half) => (1 << power) + i64::from(half) * (1 << (power - 1)),
    }
}

impl Histogram {
    fn add(&mut self, bucket: u8, count: i64) {
        match self.0.binary_search_by_key(&bucket, |entry| entry.0) {
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 += count;
                }
            }
            Err(at) => self.0.insert(at, (bucket, count)),
        }
    }

    /// Returns the start of each filled bucket in microseconds, and its count.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().map(|(bucket, count)| (bucket_start(*bucket), *count))
    }
}

/// Durations of a class of operations.
#[derive(Clone, Default)]
pub(crate) struct Latency {
    /// Sum of all durations.
    pub(crate) sum: Sum,
    pub(crate) histogram: Histogram,
}

/// Operations on a collection.
#[derive(Clone, Default)]
pub(crate) struct CollectionUsage {
    /// By kind, in the order of [`KINDS`].
    pub(crate) kinds: [Sum; KINDS.len()],
    /// By class, in the order of [`CLASSES`].
    pub(crate) classes: [Latency; CLASSES.len()],
    /// Operations that only read.
    pub(crate) reads: Sum,
    /// Operations that may write.
    pub(crate) writes: Sum,
}

/// Sums by `database.collection`.
#[derive(Default)]
pub(crate) struct Usage {
    /// Boxed, because a map has room for several values, and each connection has a map.
    collections: HashMap<String, Box<CollectionUsage>, foldhash::fast::RandomState>,
    /// True if a collection was omitted since the latest removal.
    is_overfull: bool,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.micros += other.micros;
        self.count += other.count;
    }
}

impl Latency {
    fn add(&mut self, other: &Latency) {
        self.sum.add(other.sum);
        other.histogram.0.iter().for_each(|(bucket, count)| self.histogram.add(*bucket, *count));
    }
}

impl CollectionUsage {
    /// Returns the sum of all operations.
    pub(crate) fn total(&self) -> Sum {
        let mut total = self.reads;
        total.add(self.writes);
        total
    }

    fn add(&mut self, other: &CollectionUsage) {
        for (sum, more) in self.kinds.iter_mut().zip(other.kinds) {
            sum.add(more);
        }
        for (latency, more) in self.classes.iter_mut().zip(&other.classes) {
            latency.add(more);
        }
        self.reads.add(other.reads);
        self.writes.add(other.writes);
    }
}

impl Usage {
    /// Counts a command. Returns true if the sums should be transferred.
    pub(crate) fn record(&mut self, namespace: &str, command: &str, micros: i64) -> bool {
        let one = Sum { micros, count: 1 };
        let known = self.collections.len();
        let collection_usage = match self.collections.get_mut(namespace) {
            Some(collection_usage) => collection_usage,
            None if known >= COLLECTIONS_MAX => {
                self.is_overfull = true;
                return true;
            }
            None => self.collections.entry(namespace.to_string()).or_default(),
        };
        let (kind, writes) = kind(command);
        if let Some(sum) = collection_usage.kinds.get_mut(kind) {
            sum.add(one);
        }
        if let Some(latency) = collection_usage.classes.get_mut(class(command) as usize) {
            latency.sum.add(one);
            latency.histogram.add(bucket(micros), 1);
        }
        if writes {
            collection_usage.writes.add(one)
        } else {
            collection_usage.reads.add(one)
        }
        self.collections.len() >= OWN_MAX
    }

    pub(crate) fn add(&mut self, other: &Usage) {
        for (namespace, collection_usage) in &other.collections {
            if let Some(known) = self.collections.get_mut(namespace) {
                known.add(collection_usage);
            } else if self.collections.len() < COLLECTIONS_MAX {
                self.collections.insert(namespace.clone(), collection_usage.clone());
            } else {
                self.is_overfull = true;
            }
        }
    }

    /// Removes the sums of a collection.
    pub(crate) fn remove(&mut self, namespace: &str) {
        self.collections.remove(namespace);
    }

    /// Removes the sums of the collections of a database.
    pub(crate) fn remove_database(&mut self, database: &str) {
        self.collections.retain(|namespace, _| {
            !namespace.strip_prefix(database).is_some_and(|rest| rest.starts_with('.'))
        });
    }

    /// Returns true if a collection was omitted since the latest removal.
    pub(crate) fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Removes the sums of collections that do not exist.
    pub(crate) fn remove_dropped(&mut self, exists: impl Fn(&str) -> bool) {
        self.collections.retain(|namespace, _| exists(namespace));
        self.is_overfull = false;
    }

    /// Returns the sums of a collection.
    pub(crate) fn of(&self, namespace: &str) -> Option<&CollectionUsage> {
        self.collections.get(namespace).map(|collection_usage| &**collection_usage)
    }

    /// Returns the sums, sorted by name.
    pub(crate) fn sorted(&self) -> Vec<(&str, &CollectionUsage)> {
        let mut all: Vec<_> = self
            .collections
            .iter()
            .map(|(name, collection_usage)| (name.as_str(), &**collection_usage))
            .collect();
        all.sort_unstable_by_key(|entry| entry.0);
        all
    }
}

/// Returns the kind of a command, and true if it may write.
fn kind(command: &str) -> (usize, bool) {
    match command {
        "find" => (0, false),
        "getMore" => (1, false),
        "insert" => (2, true),
        "update" => (3, true),
        "delete" => (4, true),
        "aggregate" | "count" | "distinct" | "explain" | "listIndexes" | "collStats" => (5, false),
        _ => (5, true),
    }
}

/// Class of a command, in the order of [`CLASSES`].
#[derive(Clone, Copy)]
pub(crate) enum Class {
    Reads,
    Writes,
    Commands,
}

/// Returns the class of a command.
pub(crate) fn class(command: &str) -> Class {
    match command {
        "find" | "getMore" | "aggregate" | "count" | "distinct" => Class::Reads,
        "bulkWrite" | "insert" | "update" | "delete" | "findAndModify" => Class::Writes,
        _ => Class::Commands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_kind_and_added_up() {
        let (mut one, mut other) = (Usage::default(), Usage::default());
        one.record("d.c", "find", 3);
        one.record("d.c", "insert", 5);
        other.record("d.c", "find", 4);
        other.record("d.a", "count", 1);
        one.add(&other);
        let sorted = one.sorted();
        assert_eq!(sorted.iter().map(|entry| entry.0).collect::<Vec<_>>(), ["d.a", "d.c"]);
        let collection_usage = sorted[1].1;
        assert_eq!(collection_usage.kinds[0], Sum { micros: 7, count: 2 });
        assert_eq!(
            (collection_usage.reads.count, collection_usage.writes.count, collection_usage.total().micros),
            (2, 1, 12)
        );
        assert_eq!(collection_usage.classes[0].sum, Sum { micros: 7, count: 2 });
        assert_eq!(collection_usage.classes[0].histogram.counts().collect::<Vec<_>>(), [(2, 1), (4, 1)]);
        assert_eq!(collection_usage.classes[1].histogram.counts().collect::<Vec<_>>(), [(4, 1)]);
    }

    #[test]
    fn dropped_collections_make_room() {
        let (mut total, mut one) = (Usage::default(), Usage::default());
        (0..COLLECTIONS_MAX).for_each(|number| _ = total.record(&format!("old.c{number}"), "find", 1));
        assert!(!total.is_overfull());
        one.record("new.c", "find", 1);
        total.add(&one);
        total.record("new.d", "find", 1);
        assert!(total.is_overfull() && total.of("new.c").is_none() && total.of("new.d").is_none());
        total.remove_dropped(|namespace| namespace == "old.c7");
        total.add(&one);
        let names: Vec<&str> = total.sorted().iter().map(|entry| entry.0).collect();
        assert!(!total.is_overfull() && names == ["new.c", "old.c7"], "{names:?}");
    }

    #[test]
    fn spans_begin_where_mongodbs_do() {
        let bounds: Vec<i64> = (0..=LAST_POWER * 2 + 1).map(bucket_start).collect();
        let reached = |micros: &i64| bucket_start(bucket(*micros)) == *micros;
        let mut bounds: Vec<i64> = bounds.into_iter().filter(reached).collect();
        bounds.dedup();
        assert_eq!(bounds.len(), 51);
        assert_eq!(bounds[..6], [0, 2, 4, 8, 16, 32]);
        assert_eq!(bounds[10..18], [1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384]);
        assert_eq!(bounds[28..33], [786_432, 1_048_576, 1_572_864, 2_097_152, 4_194_304]);
        assert_eq!(bounds[50], 1 << 40);
        for (at, bound) in bounds.iter().enumerate() {
            assert_eq!(bucket_start(bucket(*bound)), *bound);
            let end = bounds.get(at + 1).map_or(i64::MAX, |next| next - 1);
            assert_eq!(bucket_start(bucket(end)), *bound, "{end}");
        }
        assert_eq!(bucket_start(bucket(-1)), 0);
    }
}
