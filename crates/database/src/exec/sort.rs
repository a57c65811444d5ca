//! SORT: all records in order, or the first of them.
//!
//! Keys compare as bytes. With a limit only so many records are held, in a heap. Without one, all
//! keys lie in one buffer. Beyond 100 MB a sort that may not use the disk is refused as in MongoDB;
//! one that may lets go of the documents, which are in the engine already, and reads them again in
//! the end, so that only keys are held: up to [`KEYS_MAX`] bytes of them.

use super::{Explainer, PATIENCE, Record, RecordStream, Stats, Surroundings};
use crate::keys::RecordId;
use base::bson::DocumentCow;
use base::{Result, err};
use query::{Interrupt, SortPattern};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The most that a blocking sort may hold without leave to use the disk, in bytes.
pub(crate) const MEMORY_MAX: usize = 100 * 1024 * 1024;
/// The most bytes of sort keys held when documents are let go.
const KEYS_MAX: usize = 1 << 30;
/// What an entry costs beside its key and document.
const ENTRY_BYTES: usize = 64;

/// How a sort may hold what it sorts.
pub(crate) struct SortOptions {
    /// How many records are wanted; zero is all.
    pub(crate) limit: u64,
    /// Whether it may go beyond [`MEMORY_MAX`].
    pub(crate) allow_disk_use: bool,
    /// Whether each record is to carry its sort key.
    pub(crate) keep_keys: bool,
}

/// Sorts what lies below.
pub(crate) struct Sort {
    surroundings: Arc<Surroundings>,
    input: Box<dyn RecordStream>,
    pattern: Arc<SortPattern>,
    options: SortOptions,
    /// The result, once the input is read.
    sorted: Option<std::vec::IntoIter<Held>>,
    keys: Vec<u8>,
    memory: usize,
    let_go: bool,
    stats: Stats,
}

/// A record waiting for its turn.
struct Held {
    /// The first bytes of the key, which mostly decide.
    prefix: u64,
    /// Where in the common buffer the key lies; in a heap it is in `own_key`.
    start: usize,
    length: usize,
    own_key: Vec<u8>,
    /// When it came: of equal keys the first comes first.
    sequence: u64,
    id: RecordId,
    /// `None` where it was let go and is read again.
    document: Option<DocumentCow>,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order within a heap, where each record has its own key.
impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.own_key.cmp(&other.own_key).then(self.sequence.cmp(&other.sequence))
    }
}

impl Sort {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn RecordStream>,
        pattern: &Arc<SortPattern>,
        options: SortOptions,
    ) -> Sort {
        Sort {
            surroundings: surroundings.clone(),
            input,
            pattern: pattern.clone(),
            options,
            sorted: None,
            keys: Vec::new(),
            memory: 0,
            let_go: false,
            stats: Stats::default(),
        }
    }

    fn fill(&mut self) -> Result<Vec<Held>> {
        // A heap pays only where it stays small; a great limit sorts all.
        match usize::try_from(self.options.limit) {
            Ok(limit @ 1..=100_000) => self.fill_top(limit),
            _ => self.fill_all(),
        }
    }

    fn fill_top(&mut self, limit: usize) -> Result<Vec<Held>> {
        let mut heap: BinaryHeap<Held> = BinaryHeap::new();
        if !self.gather_top(&mut heap, limit, PATIENCE)? {
            let operation = self.surroundings.operation.clone();
            operation.at_length(|| self.gather_top(&mut heap, limit, u64::MAX))?;
        }
        Ok(heap.into_sorted_vec())
    }

    /// Reads records until so many have been read in all; whether that was the end.
    fn gather_top(&mut self, heap: &mut BinaryHeap<Held>, limit: usize, upto: u64) -> Result<bool> {
        let mut key = Vec::new();
        while self.stats.works < upto {
            let Some(record) = self.input.next()? else { return Ok(true) };
            self.stats.need_time();
            let sequence = self.stats.works;
            key.clear();
            match &record.sort_key {
                Some(made) => key.extend_from_slice(made),
                None => self.pattern.key(record.document.view(), &mut key)?,
            }
            if heap.len() == limit {
                if heap.peek().is_some_and(|worst| key >= worst.own_key) {
                    continue;
                }
                if let Some(out) = heap.pop() {
                    self.memory -= out.bytes();
                }
            }
            let mut held = Held::new(record, key.clone(), sequence);
            if self.let_go {
                held = held.without_document();
            }
            let held_before = self.let_go;
            self.hold(held.bytes())?;
            heap.push(held);
            if self.let_go && !held_before {
                *heap = std::mem::take(heap).into_iter().map(Held::without_document).collect();
                self.memory = heap.iter().map(Held::bytes).sum();
            }
        }
        Ok(false)
    }

    fn fill_all(&mut self) -> Result<Vec<Held>> {
        let mut all: Vec<Held> = Vec::new();
        match self.gather_all(&mut all, PATIENCE)? {
            true => self.arrange(all),
            false => {
                let operation = self.surroundings.operation.clone();
                operation.at_length(|| {
                    self.gather_all(&mut all, u64::MAX)?;
                    self.arrange(all)
                })
            }
        }
    }

    /// Reads records until so many have been read in all; whether that was the end.
    fn gather_all(&mut self, all: &mut Vec<Held>, upto: u64) -> Result<bool> {
        while self.stats.works < upto {
            let Some(record) = self.input.next()? else { return Ok(true) };
            self.stats.need_time();
            let start = self.keys.len();
            match &record.sort_key {
                Some(made) => self.keys.extend_from_slice(made),
                None => self.pattern.key(record.document.view(), &mut self.keys)?,
            }
            let length = self.keys.len() - start;
            let mut held = Held::new(record, Vec::new(), all.len() as u64);
            (held.start, held.length) = (start, length);
            held.prefix = prefix(self.keys.get(start..).unwrap_or(&[]));
            if self.let_go {
                held = held.without_document();
            }
            self.hold(held.bytes() + length)?;
            all.push(held);
            if self.let_go && all.first().is_some_and(|first| first.document.is_some()) {
                *all = std::mem::take(all).into_iter().map(Held::without_document).collect();
            }
        }
        Ok(false)
    }

    /// Sorts what was read.
    fn arrange(&self, mut all: Vec<Held>) -> Result<Vec<Held>> {
        self.surroundings.operation.check()?;
        let keys = &self.keys;
        let key = |held: &Held| keys.get(held.start..held.start + held.length).unwrap_or(&[]);
        all.sort_unstable_by(|a, b| {
            let order = a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b)));
            order.then_with(|| a.sequence.cmp(&b.sequence))
        });
        if self.options.limit > 0 {
            all.truncate(usize::try_from(self.options.limit).unwrap_or(usize::MAX));
        }
        Ok(all)
    }

    /// Accounts for what is held; beyond the limit documents are let go, if that is allowed.
    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.memory += bytes;
        if self.memory <= MEMORY_MAX || (self.let_go && self.memory <= KEYS_MAX) {
            return Ok(());
        }
        if !self.options.allow_disk_use {
            return Err(err!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Sort exceeded memory limit of {MEMORY_MAX} bytes, but did not opt in to external sorting."
            ));
        }
        if self.let_go {
            return Err(err!(ExceededMemoryLimit, "Sort keys exceed {KEYS_MAX} bytes"));
        }
        self.let_go = true;
        Ok(())
    }

    fn restore(&self, held: Held) -> Result<Record> {
        let document = match held.document {
            Some(document) => document,
            None => DocumentCow::Shared(self.surroundings.fetch(held.id)?.to_shared()),
        };
        let sort_key = self.options.keep_keys.then(|| match held.own_key.is_empty() {
            true => self.keys.get(held.start..held.start + held.length).unwrap_or(&[]).to_vec(),
            false => held.own_key,
        });
        Ok(Record { id: held.id, document, sort_key })
    }
}

/// The first eight bytes as a number that compares as they do.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    key.iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
    u64::from_be_bytes(bytes)
}

impl Held {
    fn new(record: Record, own_key: Vec<u8>, sequence: u64) -> Held {
        let document = Some(record.document);
        Held { prefix: 0, start: 0, length: 0, own_key, sequence, id: record.id, document }
    }

    fn without_document(self) -> Held {
        Held { document: None, ..self }
    }

    fn bytes(&self) -> usize {
        let document = self.document.as_ref().map_or(0, |document| document.view().bytes().len());
        ENTRY_BYTES + self.own_key.len() + document
    }
}

impl RecordStream for Sort {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.sorted.is_none() {
            let sorted = self.fill()?;
            self.sorted = Some(sorted.into_iter());
        }
        match self.sorted.as_mut().and_then(Iterator::next) {
            Some(held) => {
                self.stats.advance();
                self.restore(held).map(Some)
            }
            None => {
                self.stats.end();
                Ok(None)
            }
        }
    }

    fn explain(&self, out: &mut Explainer) {
        let builder = out.stage("SORT", None, &self.stats);
        builder.begin_document("sortPattern");
        for (path, ascending) in self.pattern.fields() {
            builder.append(path.as_str(), if *ascending { 1i32 } else { -1 });
        }
        builder.end();
        builder.append("memLimit", MEMORY_MAX as i32);
        if self.options.limit > 0 {
            builder.append("limitAmount", i32::try_from(self.options.limit).unwrap_or(i32::MAX));
        }
        builder.append("type", "default");
        out.count("totalDataSizeSorted", self.memory as u64);
        if out.executed() {
            out.out().append("usedDisk", self.let_go);
        }
        out.count("spills", u64::from(self.let_go));
        out.input(|out| self.input.explain(out));
    }
}
