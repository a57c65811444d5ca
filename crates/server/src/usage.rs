//! How many commands each collection took, and how much time: what `top` tells.
//!
//! Every connection keeps its own sums, so that counting shares nothing with other connections;
//! they are added up when somebody asks or the connection ends.

use std::collections::HashMap;

/// The most collections that one place keeps sums of. A connection with more hands them on; the
/// sums of closed connections then take no further names.
const COLLECTIONS_MAX: usize = 10_000;

/// The kinds of operation that `top` tells apart besides locks, in its order.
pub(crate) const KINDS: [&str; 6] = ["queries", "getmore", "insert", "update", "remove", "commands"];

/// Time and number of some operations.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Sum {
    /// Microseconds.
    pub(crate) micros: i64,
    /// Operations.
    pub(crate) count: i64,
}

/// The operations on one collection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    /// By kind, as in [`KINDS`].
    pub(crate) kinds: [Sum; KINDS.len()],
    /// Those that only read.
    pub(crate) reads: Sum,
    /// Those that may write.
    pub(crate) writes: Sum,
}

/// The sums by `database.collection`.
#[derive(Default)]
pub(crate) struct Usage {
    collections: HashMap<String, Spent>,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.micros += other.micros;
        self.count += other.count;
    }
}

impl Spent {
    /// All operations.
    pub(crate) fn total(&self) -> Sum {
        let mut total = self.reads;
        total.add(self.writes);
        total
    }

    fn add(&mut self, other: &Spent) {
        for (sum, more) in self.kinds.iter_mut().zip(other.kinds) {
            sum.add(more);
        }
        self.reads.add(other.reads);
        self.writes.add(other.writes);
    }
}

impl Usage {
    /// Counts one command. Returns whether the sums should be handed on.
    pub(crate) fn record(&mut self, namespace: &str, command: &str, micros: i64) -> bool {
        let one = Sum { micros, count: 1 };
        let spent = match self.collections.get_mut(namespace) {
            Some(spent) => spent,
            None => self.collections.entry(namespace.to_string()).or_default(),
        };
        let (kind, writes) = kind(command);
        if let Some(sum) = spent.kinds.get_mut(kind) {
            sum.add(one);
        }
        if writes {
            spent.writes.add(one)
        } else {
            spent.reads.add(one)
        }
        self.collections.len() >= COLLECTIONS_MAX
    }

    /// Adds what another place has counted.
    pub(crate) fn add(&mut self, other: &Usage) {
        for (namespace, spent) in &other.collections {
            if let Some(known) = self.collections.get_mut(namespace) {
                known.add(spent);
            } else if self.collections.len() < COLLECTIONS_MAX {
                self.collections.insert(namespace.clone(), *spent);
            }
        }
    }

    /// The sums of one collection.
    pub(crate) fn of(&self, namespace: &str) -> Option<&Spent> {
        self.collections.get(namespace)
    }

    /// The sums by name, sorted.
    pub(crate) fn sorted(&self) -> Vec<(&str, &Spent)> {
        let mut all: Vec<_> = self.collections.iter().map(|(name, spent)| (name.as_str(), spent)).collect();
        all.sort_unstable_by_key(|entry| entry.0);
        all
    }
}

/// Where a command is counted, and whether it may write.
fn kind(command: &str) -> (usize, bool) {
    match command {
        "find" => (0, false),
        "getMore" => (1, false),
        "insert" => (2, true),
        "update" => (3, true),
        "delete" => (4, true),
        "aggregate" | "count" | "distinct" | "listIndexes" | "collStats" => (5, false),
        _ => (5, true),
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
        let spent = sorted[1].1;
        assert_eq!(spent.kinds[0], Sum { micros: 7, count: 2 });
        assert_eq!((spent.reads.count, spent.writes.count, spent.total().micros), (2, 1, 12));
    }
}
