//! Unions of several inputs, each record once: OR, SORT_MERGE, and TEXT_OR, which adds the scores of a search.

use super::ixscan::{IndexKey, IndexScan};
use super::prefetch::ReadAhead;
use super::{ExecContext, IdStream, RecordStream, Report, Stats, stored};
use crate::index::{IndexSpec, TextIndex};
use crate::keys::RecordId;
use base::Result;
use query::{DocumentMetadata, Row};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use storage::Value;

// OR: the records of several inputs, each once. The inputs are index scans. For an `$or` with a
// text search in one branch, they are streams of documents.

/// Reads its inputs one after the other and drops records that an earlier input has yielded.
pub(crate) struct Or<S> {
    inputs: Vec<S>,
    current: usize,
    seen: SeenIds,
    stats: Stats,
    dropped: u64,
}

impl<S> Or<S> {
    pub(crate) fn new(inputs: Vec<S>) -> Or<S> {
        Or { inputs, current: 0, seen: SeenIds::default(), stats: Stats::default(), dropped: 0 }
    }

    fn find<T>(
        &mut self,
        next: impl Fn(&mut S) -> Result<Option<T>>,
        id: impl Fn(&T) -> RecordId,
    ) -> Result<Option<T>> {
        while let Some(input) = self.inputs.get_mut(self.current) {
            match next(input)? {
                Some(found) if self.seen.insert(id(&found)) => {
                    self.stats.advance();
                    return Ok(Some(found));
                }
                Some(_) => self.dropped += 1,
                None => self.current += 1,
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }
}

impl IdStream for Or<IndexScan> {
    fn next(&mut self) -> Result<Option<RecordId>> {
        self.find(|input| input.next(), |id| *id)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.inputs.get(self.current).and_then(|input| input.key())
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.inputs.get(self.current).and_then(|input| input.index())
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        self.inputs.get_mut(self.current).map_or(Ok(None), |input| input.prefetched_record())
    }

    fn report(&self, report: &mut Report) {
        report.merged(&self.stats, self.dropped);
        self.inputs.iter().for_each(|input| input.report(report));
    }
}

impl RecordStream for Or<Box<dyn RecordStream>> {
    fn next(&mut self) -> Result<Option<Row>> {
        self.find(|input| input.next(), RecordId::of)
    }

    fn report(&self, report: &mut Report) {
        report.merged(&self.stats, self.dropped);
        self.inputs.iter().for_each(|input| input.report(report));
    }
}

// SORT_MERGE: merges several sorted scans of one index into one sorted scan.

/// Merges scans by the part of their keys after the values that distinguish the scans.
pub(crate) struct SortMerge {
    inputs: Vec<Input>,
    forward: bool,
    started: bool,
    /// The input of the last record.
    last: usize,
    seen: SeenIds,
    stats: Stats,
    dropped: u64,
}

struct Input {
    scan: IndexScan,
    /// Length in bytes of the common prefix of all keys of the scan.
    prefix: usize,
    head: Option<RecordId>,
}

impl Input {
    fn rest(&self) -> &[u8] {
        self.scan.key().and_then(|key| key.key_string.get(self.prefix..)).unwrap_or(&[])
    }
}

impl SortMerge {
    /// Merges scans that keep their keys, each with the length of its prefix.
    pub(crate) fn new(scans: impl Iterator<Item = (IndexScan, usize)>, forward: bool) -> SortMerge {
        let input = |(scan, prefix)| Input { scan, prefix, head: None };
        SortMerge {
            inputs: scans.map(input).collect(),
            forward,
            started: false,
            last: 0,
            seen: SeenIds::default(),
            stats: Stats::default(),
            dropped: 0,
        }
    }

    /// Advances the input read last; at first, all inputs.
    fn refill(&mut self) -> Result<()> {
        debug_assert!(self.last < self.inputs.len().max(1), "no input {}", self.last);
        if !self.started {
            self.started = true;
            for input in &mut self.inputs {
                input.head = input.scan.next()?;
            }
        } else if let Some(input) = self.inputs.get_mut(self.last) {
            input.head = input.scan.next()?;
        }
        Ok(())
    }

    /// Returns the input with the smallest head. The inputs are few, so a linear search is faster
    /// than a heap.
    fn first(&self) -> Option<(usize, RecordId)> {
        let mut best: Option<(usize, RecordId, &[u8])> = None;
        for (position, input) in self.inputs.iter().enumerate() {
            let Some(id) = input.head else { continue };
            let rest = input.rest();
            let better = best.is_none_or(|(_, _, other)| match self.forward {
                true => rest < other,
                false => rest > other,
            });
            if better {
                best = Some((position, id, rest));
            }
        }
        best.map(|(position, id, _)| (position, id))
    }
}

impl IdStream for SortMerge {
    fn next(&mut self) -> Result<Option<RecordId>> {
        loop {
            self.refill()?;
            let Some((position, id)) = self.first() else {
                self.stats.end();
                return Ok(None);
            };
            self.last = position;
            if self.seen.insert(id) {
                self.stats.advance();
                return Ok(Some(id));
            }
            self.dropped += 1;
            self.stats.need_time();
        }
    }

    fn key(&self) -> Option<&IndexKey> {
        self.inputs.get(self.last).and_then(|input| input.scan.key())
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.inputs.get(self.last).and_then(|input| input.scan.index())
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        self.inputs.get_mut(self.last).map_or(Ok(None), |input| input.scan.prefetched_record())
    }

    fn report(&self, report: &mut Report) {
        report.merged(&self.stats, self.dropped);
        self.inputs.iter().for_each(|input| input.scan.report(report));
    }
}

// Records already yielded by a plan, for indexes with several keys per record.

/// A set of record ids. The server assigns them in order, so a simple hash is enough.
#[derive(Default)]
pub(crate) struct SeenIds(HashSet<RecordId, BuildHasherDefault<Spread>>);

impl SeenIds {
    /// Adds a record. Returns true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: RecordId) -> bool {
        self.0.insert(id)
    }
}

/// Spreads a number over all bits by a multiplication.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// Reads all terms' keys and adds up their scores. It then yields the documents in the collection's
/// order, each with its score. MongoDB guarantees no order.
pub(crate) struct TextOr {
    exec_context: Arc<ExecContext>,
    index: Arc<TextIndex>,
    /// A scan of each term's keys, and the position of the score in its keys.
    terms: Vec<(IndexScan, usize)>,
    /// The records with their scores after the keys have been read, the next one last.
    scores: Option<Vec<(RecordId, f64)>>,
    documents: ReadAhead,
    stats: Stats,
    examined: u64,
}

impl TextOr {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        index: &Arc<TextIndex>,
        terms: impl Iterator<Item = (IndexScan, usize)>,
    ) -> TextOr {
        let (exec_context, index) = (exec_context.clone(), index.clone());
        TextOr {
            exec_context,
            index,
            terms: terms.collect(),
            scores: None,
            documents: ReadAhead::default(),
            stats: Stats::default(),
            examined: 0,
        }
    }

    /// Adds up the scores of all records.
    fn gather(&mut self) -> Result<Vec<(RecordId, f64)>> {
        let mut positions: HashMap<RecordId, usize, foldhash::fast::FixedState> = HashMap::default();
        let mut scores: Vec<(RecordId, f64)> = Vec::new();
        for (scan, behind_term) in &mut self.terms {
            while let Some(id) = scan.next()? {
                self.stats.need_time();
                let key = scan.key().map_or(&[][..], |key| &key.key_string);
                let score = self.index.score(key, *behind_term)?;
                let position = *positions.entry(id).or_insert(scores.len());
                match scores.get_mut(position) {
                    Some((_, sum)) => *sum += score,
                    None => scores.push((id, score)),
                }
            }
        }
        scores.sort_unstable_by_key(|(id, _)| Reverse(*id));
        Ok(scores)
    }

    /// Returns the document of the record that was just removed from the list.
    fn document(&mut self, id: RecordId) -> Result<Option<Value>> {
        let left = self.scores.as_deref().unwrap_or_default();
        self.documents.document(&self.exec_context, id, left.iter().rev().map(|(id, _)| *id))
    }
}

impl RecordStream for TextOr {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.scores.is_none() {
            let operation = self.exec_context.operation.clone();
            self.scores = Some(operation.run_long(|| self.gather())?);
        }
        while let Some((id, score)) = self.scores.as_mut().and_then(Vec::pop) {
            self.examined += 1;
            self.exec_context.examine_document()?;
            // After a read of entries from an earlier state, the document may be gone.
            let Some(value) = self.document(id)? else { continue };
            self.stats.advance();
            let metadata = DocumentMetadata { text_score: Some(score), ..DocumentMetadata::default() };
            return Ok(Some(Row { metadata: Some(Box::new(metadata)), ..stored(id, value.to_shared()) }));
        }
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs(self.examined);
        self.terms.iter().for_each(|(scan, _)| scan.report(report));
    }
}
