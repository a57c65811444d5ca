//! Sorting: a blocking stage that yields its input in the order of a pattern.
//!
//! Each record's key is made once; comparing is `memcmp`. Where only the first few are wanted, a
//! heap keeps no more than those. Records with equal keys stay in the order in which they came.

use super::{Record, RecordStream};
use base::{Result, err};
use query::SortPattern;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// What a blocking sort may hold unless it may spill, as MongoDB's.
const BYTES_MAX: usize = 100 * 1024 * 1024;

/// Reads all records, then yields them in order.
pub(crate) struct Sort {
    source: Box<dyn RecordStream>,
    pattern: Arc<SortPattern>,
    /// The most that are wanted; zero is all.
    limit: usize,
    bounded: bool,
    sorted: Option<std::vec::IntoIter<Entry>>,
}

/// A record with what it is ordered by.
struct Entry {
    key: Vec<u8>,
    number: u64,
    record: Record,
}

impl Sort {
    /// Sorts what `source` yields; `limit` is how many records are wanted, zero being all, and
    /// `bounded` refuses to hold more than MongoDB does without a disk to spill to.
    pub(crate) fn new(
        source: Box<dyn RecordStream>,
        pattern: Arc<SortPattern>,
        limit: u64,
        bounded: bool,
    ) -> Sort {
        Sort { source, pattern, limit: limit as usize, bounded, sorted: None }
    }

    fn sort(&mut self) -> Result<Vec<Entry>> {
        let mut heap = BinaryHeap::new();
        let mut bytes = 0;
        let mut number = 0;
        while let Some(record) = self.source.next()? {
            let mut key = Vec::new();
            self.pattern.key(record.document.view(), &mut key)?;
            let entry = Entry { key, number, record };
            number += 1;
            bytes += entry.bytes();
            heap.push(entry);
            if self.limit > 0 && heap.len() > self.limit {
                bytes -= heap.pop().map_or(0, |last| last.bytes());
            }
            if self.bounded && bytes > BYTES_MAX {
                return Err(err!(
                    QueryExceededMemoryLimitNoDiskUseAllowed,
                    "Sort exceeded memory limit of {BYTES_MAX} bytes, but did not opt in to external sorting."
                ));
            }
        }
        Ok(heap.into_sorted_vec())
    }
}

impl RecordStream for Sort {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.sorted.is_none() {
            self.sorted = Some(self.sort()?.into_iter());
        }
        let next = self.sorted.as_mut().and_then(Iterator::next);
        Ok(next.map(|entry| Record { sort_key: Some(entry.key), ..entry.record }))
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        self.key.len() + self.record.document.view().bytes().len()
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.key.cmp(&other.key).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::RecordId;
    use base::bson::{Builder, DocumentCow};

    struct Given(std::vec::IntoIter<i32>);

    impl RecordStream for Given {
        fn next(&mut self) -> Result<Option<Record>> {
            Ok(self.0.next().map(|n| {
                let mut out = Builder::new();
                out.append("a", n % 10).append("n", n);
                Record { id: RecordId(n as u64), document: DocumentCow::Owned(out.finish()), sort_key: None }
            }))
        }
    }

    fn sorted(limit: u64) -> Vec<u64> {
        let mut pattern = Builder::new();
        pattern.append("a", -1);
        let pattern = Arc::new(SortPattern::parse(pattern.finish().view()).unwrap());
        let given = Given(vec![12, 3, 25, 2, 33].into_iter());
        let mut sort = Sort::new(Box::new(given), pattern, limit, true);
        std::iter::from_fn(|| sort.next().unwrap()).map(|record| record.id.0).collect()
    }

    #[test]
    fn records_come_in_order_and_equal_ones_as_they_were() {
        assert_eq!(sorted(0), [25, 3, 33, 12, 2]);
        assert_eq!(sorted(2), [25, 3]);
    }
}
