//! SORT_MERGE: several scans of one index, each in order, as one scan in order.

use super::seen::Seen;
use super::{Explainer, IdStream, IndexKey, IndexScan, Stats};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
use base::bson::DocumentBuf;
use storage::{Ident, Value};

/// Merges scans by what their keys hold behind the values that set the scans apart.
pub(crate) struct SortMerge {
    inputs: Vec<Input>,
    forward: bool,
    pattern: DocumentBuf,
    started: bool,
    /// The input that gave the last record.
    last: usize,
    seen: Seen,
    stats: Stats,
    dropped: u64,
}

struct Input {
    scan: IndexScan,
    /// How many bytes of each key are the same throughout the scan.
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
    pub(crate) fn new(scans: Vec<(IndexScan, usize)>, forward: bool, pattern: DocumentBuf) -> SortMerge {
        let input = |(scan, prefix)| Input { scan, prefix, head: None };
        SortMerge {
            inputs: scans.into_iter().map(input).collect(),
            forward,
            pattern,
            started: false,
            last: 0,
            seen: Seen::default(),
            stats: Stats::default(),
            dropped: 0,
        }
    }

    /// Moves on the input that was read last; all of them at first.
    fn refill(&mut self) -> Result<()> {
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

    /// The input whose head comes first. There are few, so looking at each beats a heap.
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

    fn bring(&mut self, records: Ident) {
        self.inputs.iter_mut().for_each(|input| input.scan.bring(records));
    }

    fn record(&mut self) -> Result<Option<Value>> {
        self.inputs.get_mut(self.last).map_or(Ok(None), |input| input.scan.record())
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("SORT_MERGE", None, &self.stats).append(c"sortPattern", &self.pattern);
        out.count(c"dupsTested", self.stats.advanced + self.dropped);
        out.count(c"dupsDropped", self.dropped);
        out.inputs(self.inputs.iter().map(|input| |out: &mut Explainer| input.scan.explain(out)));
    }
}
