//! External merge sort of documents by byte keys: in memory up to a limit, then in a temporary file.
//!
//! Find's blocking sort, `$sort`, index builds and all stages that sort by key use this implementation. A small limit
//! uses a heap, in which a rejected document costs one comparison. Otherwise all keys are in one buffer, and entries
//! first compare by their first sixteen bytes. Documents beyond the memory limit are written as a sorted run, and the
//! runs are merged at the end. Equal keys keep the order of arrival.
//!
//! Several threads may sort parts of the documents, each with its own sorter. The sorters share the memory limit: each
//! reserves memory in steps, and spills if the limit is reached. A part may always use an eighth of the limit. Joined
//! in the order of the parts, they give the order of one sorter.
//!
//! [`sort`](crate::sort) makes the keys and [`spill`](crate::spill) writes the runs.

use crate::spill::{self, SpillFile, SpillFolder, Spilled};
use base::bson::DocumentCow;
use base::{Result, bail, ordered_by};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum limit for which the heap is used, in documents.
const HEAP_MAX: usize = 100_000;

/// Divisor of the memory limit for the memory that the sorter of a part reserves at a time.
const RESERVATIONS: usize = 32;

/// Divisor of the memory limit for the memory that the sorter of a part may always use, so that its runs are long.
const LEAST_SHARE: usize = 8;

/// Sorts documents, each with a numeric tag, and returns all of them or the first ones.
pub struct Sorter {
    limit: usize,
    memory_limit: usize,
    /// Bytes that it may use: the memory limit, or its share if there are several parts.
    allowance: usize,
    /// Sum of the allowances of all parts.
    reserved: Option<Arc<AtomicUsize>>,
    allow_disk_use: bool,
    /// Used with a small limit: a heap of the best documents so far, with the greatest on top.
    heap: BinaryHeap<HeapEntry>,
    /// Used otherwise: the concatenated keys.
    keys: Vec<u8>,
    /// The documents in order of arrival; after sorting, the next document is last.
    entries: Vec<Entry>,
    /// Bytes of the documents and keys in memory.
    memory_used: usize,
    added: u64,
    file: SpillFile,
    runs: Vec<Run>,
    /// Used while merging: the smallest entry of each run.
    merge: BinaryHeap<Reverse<HeapEntry>>,
    returned: usize,
    last_key: LastKey,
    statistics: Statistics,
}

/// Statistics of a sort, as explain prints them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Statistics {
    /// Bytes of sorted documents and keys, including discarded ones.
    pub bytes_sorted: u64,
    /// Number of spills.
    pub spills: u64,
    /// Size of the temporary file in bytes.
    pub spilled_bytes: u64,
}

/// The key of the last returned document: its bytes, or their range in the key buffer.
enum LastKey {
    Owned(Vec<u8>),
    Buffer(Range<usize>),
}

/// A document whose key is in the common buffer.
struct Entry {
    /// The first sixteen bytes of the key, which usually decide a comparison without access to the buffer.
    prefix: (u64, u64),
    key: Range<usize>,
    number: u64,
    tag: u64,
    document: DocumentCow,
}

/// A document with its own key. Equal keys are ordered by number: the order of arrival, or the run's number in a merge,
/// because runs are written in the order of arrival.
struct HeapEntry {
    key: Vec<u8>,
    number: u64,
    tag: u64,
    document: DocumentCow,
}

ordered_by!(HeapEntry, |one, other| one.key.cmp(&other.key).then(one.number.cmp(&other.number)));

/// Sorted documents.
enum Run {
    InFile(spill::Run),
    /// The documents of a part that has not spilled.
    InMemory(Box<dyn Iterator<Item = Spilled> + Send + Sync>),
}

impl Run {
    fn next(&mut self) -> Result<Option<Spilled>> {
        match self {
            Run::InFile(run) => run.next(),
            Run::InMemory(documents) => Ok(documents.next()),
        }
    }
}

/// Returns the memory of a document and its key in bytes.
fn cost(key: usize, document: &DocumentCow) -> usize {
    size_of::<Entry>() + key + document.view().bytes().len()
}

/// Returns the first sixteen bytes as numbers in the same order.
fn prefix(key: &[u8]) -> (u64, u64) {
    let mut bytes = [0; 16];
    match key.first_chunk() {
        Some(first) => bytes = *first,
        None => key.iter().zip(&mut bytes).for_each(|(from, to)| *to = *from),
    }
    let number = u128::from_be_bytes(bytes);
    ((number >> 64) as u64, number as u64)
}

impl Sorter {
    /// Creates a sorter that returns at most `limit` documents (`usize::MAX` for all) and uses at most `memory_limit`
    /// bytes. Temporary files are in the system's directory.
    pub fn new(limit: usize, memory_limit: usize, allow_disk_use: bool) -> Sorter {
        Sorter {
            limit,
            memory_limit,
            allowance: memory_limit,
            reserved: None,
            allow_disk_use,
            heap: BinaryHeap::new(),
            keys: Vec::new(),
            entries: Vec::new(),
            memory_used: 0,
            added: 0,
            file: SpillFile::default(),
            runs: Vec::new(),
            merge: BinaryHeap::new(),
            returned: 0,
            last_key: LastKey::Owned(Vec::new()),
            statistics: Statistics::default(),
        }
    }

    /// Sets the directory of the temporary file.
    pub fn spilling_into(self, folder: &SpillFolder) -> Sorter {
        Sorter { file: SpillFile::within(folder), ..self }
    }

    /// The number of documents added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        let spilled_bytes = self.statistics.spilled_bytes + self.file.size();
        Statistics { spilled_bytes, ..self.statistics }
    }

    /// Returns true if another thread may sort a later part. Without spilling the memory limit is exact, and a part
    /// could reach it with documents that one sorter would discard.
    pub(crate) fn is_worth_splitting(&self) -> bool {
        self.allow_disk_use && self.runs.is_empty()
    }

    /// Returns an empty sorter for a later part of the documents.
    pub(crate) fn another(&mut self) -> Sorter {
        if self.reserved.is_none() {
            self.allowance = self.memory_used;
        }
        let allowance = self.allowance;
        let reserved = self.reserved.get_or_insert_with(|| Arc::new(AtomicUsize::new(allowance)));
        Sorter {
            allowance: 0,
            reserved: Some(reserved.clone()),
            file: self.file.another(),
            ..Sorter::new(self.limit, self.memory_limit, self.allow_disk_use)
        }
    }

    /// Sorts the documents of a part, on the thread that has added them.
    ///
    /// Errors: errors of temporary files.
    pub(crate) fn end_part(&mut self) -> Result<()> {
        if !self.runs.is_empty() {
            return self.spill();
        }
        self.sort_entries();
        let keys = std::mem::take(&mut self.keys);
        let heap = std::mem::take(&mut self.heap).into_sorted_vec().into_iter();
        let heap = heap.map(|top| Spilled { key: top.key, tag: top.tag, document: top.document });
        let entries = std::mem::take(&mut self.entries).into_iter().map(move |entry| {
            let key = keys.get(entry.key).unwrap_or(&[]).to_vec();
            Spilled { key, tag: entry.tag, document: entry.document }
        });
        self.runs.push(Run::InMemory(Box::new(heap.chain(entries))));
        self.memory_used = 0;
        Ok(())
    }

    /// Adds the documents of the following part. Both parts have ended.
    pub(crate) fn join(&mut self, mut later: Sorter) {
        self.runs.append(&mut later.runs);
        self.added += later.added;
        let (own, of_later) = (&mut self.statistics, later.statistics());
        own.bytes_sorted += of_later.bytes_sorted;
        own.spills += of_later.spills;
        own.spilled_bytes += of_later.spilled_bytes;
    }

    /// Adds a document.
    ///
    /// Errors: 292 beyond the memory limit if spilling is not allowed; errors of temporary files.
    #[inline]
    pub fn add(&mut self, key: &[u8], tag: u64, document: DocumentCow) -> Result<()> {
        let number = self.added;
        self.added += 1;
        if self.limit > HEAP_MAX {
            self.add_entry(key, number, tag, document);
        } else if self.heap.len() < self.limit {
            self.charge_memory(cost(key.len(), &document));
            self.heap.push(HeapEntry { key: key.to_vec(), number, tag, document });
        } else {
            self.replace_greatest(key, number, tag, document);
        }
        if self.memory_used > self.allowance { self.reserve_or_spill() } else { Ok(()) }
    }

    /// Reserves memory for a part, or spills.
    #[cold]
    fn reserve_or_spill(&mut self) -> Result<()> {
        let Some(reserved) = &self.reserved else { return self.spill() };
        let more = (self.memory_used - self.allowance).max(self.memory_limit / RESERVATIONS);
        let allowance = self.allowance + more;
        let total = reserved.fetch_add(more, Relaxed) + more;
        if total <= self.memory_limit || allowance <= self.memory_limit / LEAST_SHARE {
            self.allowance = allowance;
            return Ok(());
        }
        reserved.fetch_sub(more, Relaxed);
        self.spill()
    }

    fn charge_memory(&mut self, bytes: usize) {
        self.memory_used += bytes;
        self.statistics.bytes_sorted += bytes as u64;
    }

    fn add_entry(&mut self, key: &[u8], number: u64, tag: u64, document: DocumentCow) {
        self.charge_memory(cost(key.len(), &document));
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key_range = start..self.keys.len();
        self.entries.push(Entry { prefix: prefix(key), key: key_range, number, tag, document });
    }

    /// Replaces the greatest document of the heap, unless the new key is equal or greater.
    #[inline]
    fn replace_greatest(&mut self, key: &[u8], number: u64, tag: u64, document: DocumentCow) {
        let Some(mut greatest) = self.heap.peek_mut() else { return };
        if key >= greatest.key.as_slice() {
            return;
        }
        let bytes = cost(key.len(), &document);
        let before = cost(greatest.key.len(), &greatest.document);
        self.memory_used = (self.memory_used + bytes).saturating_sub(before);
        self.statistics.bytes_sorted += bytes as u64;
        greatest.key.clear();
        greatest.key.extend_from_slice(key);
        (greatest.number, greatest.tag, greatest.document) = (number, tag, document);
    }

    /// Sorts `entries` and removes the documents beyond the limit.
    fn sort_entries(&mut self) {
        let keys = &self.keys;
        let key = |entry: &Entry| keys.get(entry.key.clone()).unwrap_or(&[]);
        // Comparing the number too makes an unstable sort stable.
        self.entries.sort_unstable_by(|a, b| {
            let order = a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b)));
            order.then_with(|| a.number.cmp(&b.number))
        });
        self.entries.truncate(self.limit);
    }

    /// Writes the documents in memory, if any, as a sorted run.
    ///
    /// Errors: 292 if spilling is not allowed; errors of temporary files.
    pub fn spill(&mut self) -> Result<()> {
        if self.memory_used == 0 {
            return Ok(());
        }
        if !self.allow_disk_use {
            bail!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting.",
                self.memory_limit
            );
        }
        let mut writer = self.file.begin()?;
        for top in std::mem::take(&mut self.heap).into_sorted_vec() {
            writer.write(&top.key, top.tag, top.document.view().bytes())?;
        }
        self.sort_entries();
        for entry in self.entries.drain(..) {
            let key = self.keys.get(entry.key).unwrap_or(&[]);
            writer.write(key, entry.tag, entry.document.view().bytes())?;
        }
        self.runs.push(Run::InFile(self.file.end(writer)?));
        self.keys.clear();
        self.memory_used = 0;
        self.statistics.spills += 1;
        Ok(())
    }

    /// Ends adding and prepares the merge.
    pub fn finish(&mut self) -> Result<()> {
        if self.runs.is_empty() {
            self.sort_entries();
            self.entries.reverse();
            for top in std::mem::take(&mut self.heap) {
                self.merge.push(Reverse(top));
            }
            return Ok(());
        }
        self.spill()?;
        (self.keys, self.entries) = (Vec::new(), Vec::new());
        let each = self.memory_limit / self.runs.len().max(1);
        for run in &mut self.runs {
            if let Run::InFile(run) = run {
                run.set_buffer_size(each);
            }
        }
        (0..self.runs.len()).try_for_each(|run| self.refill(run))
    }

    /// Moves the next record of a run into the merge heap.
    fn refill(&mut self, run: usize) -> Result<()> {
        if let Some(source) = self.runs.get_mut(run)
            && let Some(next) = source.next()?
        {
            let Spilled { key, tag, document } = next;
            self.merge.push(Reverse(HeapEntry { key, number: run as u64, tag, document }));
        }
        Ok(())
    }

    /// Returns the next document in order and its tag.
    pub fn next_document(&mut self) -> Result<Option<(u64, DocumentCow)>> {
        if self.returned == self.limit {
            return Ok(None);
        }
        self.returned += 1;
        if let Some(entry) = self.entries.pop() {
            self.last_key = LastKey::Buffer(entry.key);
            return Ok(Some((entry.tag, entry.document)));
        }
        let Some(mut least) = self.merge.peek_mut() else { return Ok(None) };
        let number = least.0.number;
        let run = usize::try_from(number).ok().and_then(|run| self.runs.get_mut(run));
        let next = run.map_or(Ok(None), Run::next)?;
        let Reverse(top) = match next {
            Some(Spilled { key, tag, document }) => {
                std::mem::replace(&mut *least, Reverse(HeapEntry { key, number, tag, document }))
            }
            None => PeekMut::pop(least),
        };
        self.last_key = LastKey::Owned(top.key);
        Ok(Some((top.tag, top.document)))
    }

    /// The key of the last returned document.
    pub fn last_key(&self) -> &[u8] {
        match &self.last_key {
            LastKey::Owned(key) => key,
            LastKey::Buffer(range) => self.keys.get(range.clone()).unwrap_or(&[]),
        }
    }

    /// Takes the key of the last returned document.
    pub fn take_last_key(&mut self) -> Vec<u8> {
        match &mut self.last_key {
            LastKey::Owned(key) => std::mem::take(key),
            LastKey::Buffer(range) => self.keys.get(std::mem::take(range)).unwrap_or(&[]).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;

    /// Sorts numbers by `number % 50`. Returns keys, numbers and the count of spills.
    fn sort(count: u64, limit: usize, memory: usize) -> (Vec<(u8, u64)>, u64) {
        let mut sorter = Sorter::new(limit, memory, true);
        for number in 0..count {
            let mut builder = Builder::new();
            builder.append(c"n", number as i64);
            sorter.add(&[(number * 7919 % 50) as u8], number, builder.finish().into()).unwrap();
            assert!(sorter.memory_used <= memory, "{} bytes held", sorter.memory_used);
        }
        sorter.finish().unwrap();
        let mut sorted = Vec::new();
        while let Some((tag, document)) = sorter.next_document().unwrap() {
            assert_eq!(document.view().get("n").unwrap().as_i64(), Some(tag as i64));
            sorted.push((sorter.last_key()[0], tag));
        }
        assert!(sorter.next_document().unwrap().is_none());
        (sorted, sorter.statistics().spills)
    }

    #[test]
    fn runs_merge_into_the_order_that_memory_gives() {
        let mut expected: Vec<(u8, u64)> = (0..1000).map(|n| ((n * 7919 % 50) as u8, n)).collect();
        expected.sort();
        for limit in [usize::MAX, HEAP_MAX + 1, 400, 3, 1] {
            let first = &expected[..limit.min(1000)];
            let (in_memory, spills) = sort(1000, limit, 1 << 20);
            assert_eq!((in_memory.as_slice(), spills), (first, 0));
            let (on_disk, spills) = sort(1000, limit, 3000);
            assert_eq!(on_disk, first);
            assert_eq!(spills > 0, limit > 3, "limit {limit}");
        }
        assert!(sort(0, usize::MAX, 10).0.is_empty());
    }

    #[test]
    fn sorters_of_parts_share_the_memory_limit() {
        let document = DocumentCow::from(base::bson::DocumentBuf::empty());
        let each = cost(1, &document);
        let memory = 320 * each;
        let mut first = Sorter::new(usize::MAX, memory, true);
        let add = |sorter: &mut Sorter, numbers: Range<u64>| {
            numbers.for_each(|number| sorter.add(&[(number % 7) as u8], number, document.clone()).unwrap());
        };
        add(&mut first, 0..100);
        let mut second = first.another();
        let mut third = second.another();
        add(&mut second, 200..310);
        add(&mut third, 400..510);
        assert!(first.memory_used + second.memory_used + third.memory_used <= memory);
        assert_eq!(third.allowance + second.allowance + first.allowance, memory);
        add(&mut first, 100..200);
        assert_eq!((first.statistics.spills, second.statistics.spills), (1, 0));
        add(&mut second, 310..400);
        add(&mut third, 510..600);
        [&mut first, &mut second, &mut third].into_iter().try_for_each(Sorter::end_part).unwrap();
        second.join(third);
        first.join(second);
        first.finish().unwrap();
        let mut expected: Vec<u64> = (0..600).collect();
        expected.sort_by_key(|number| number % 7);
        let tags: Vec<u64> =
            std::iter::from_fn(|| first.next_document().unwrap().map(|(tag, _)| tag)).collect();
        assert_eq!(tags, expected);
        assert_eq!(first.statistics().bytes_sorted, 600 * each as u64);
    }

    #[test]
    fn without_leave_to_spill_it_refuses() {
        let mut sorter = Sorter::new(usize::MAX, 100, false);
        let error = (0..10).find_map(|_| sorter.add(b"k", 0, base::bson::DocumentBuf::empty().into()).err());
        assert_eq!(error.unwrap().code().number(), 292);
    }
}
