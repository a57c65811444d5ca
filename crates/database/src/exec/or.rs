//! OR: what any of several index scans finds, each record once.

use super::seen::Seen;
use super::{Explainer, IdStream, IndexKey, Stats};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
use storage::{Ident, Value};

/// Reads its inputs one after the other and drops what an earlier one has yielded.
pub(crate) struct Or {
    inputs: Vec<Box<dyn IdStream>>,
    current: usize,
    seen: Seen,
    stats: Stats,
    dropped: u64,
}

impl Or {
    pub(crate) fn new(inputs: Vec<Box<dyn IdStream>>) -> Or {
        Or { inputs, current: 0, seen: Seen::default(), stats: Stats::default(), dropped: 0 }
    }
}

impl IdStream for Or {
    fn next(&mut self) -> Result<Option<RecordId>> {
        while let Some(input) = self.inputs.get_mut(self.current) {
            match input.next()? {
                Some(id) if self.seen.insert(id) => {
                    self.stats.advance();
                    return Ok(Some(id));
                }
                Some(_) => self.dropped += 1,
                None => self.current += 1,
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.inputs.get(self.current).and_then(|input| input.key())
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.inputs.get(self.current).and_then(|input| input.index())
    }

    fn bring(&mut self, records: Ident) {
        self.inputs.iter_mut().for_each(|input| input.bring(records));
    }

    fn record(&mut self) -> Result<Option<Value>> {
        self.inputs.get_mut(self.current).map_or(Ok(None), |input| input.record())
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("OR", None, &self.stats);
        out.count(c"dupsTested", self.stats.advanced + self.dropped);
        out.count(c"dupsDropped", self.dropped);
        out.inputs(self.inputs.iter().map(|input| |out: &mut Explainer| input.explain(out)));
    }
}
