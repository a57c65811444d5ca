//! OR of documents: what any of several sources yields, each record once, for an `$or` of which one
//! branch searches for text.

use super::seen::Seen;
use super::{Explainer, Record, RecordStream, Stats};
use base::Result;

/// Reads its inputs one after the other and drops what an earlier one has yielded.
pub(crate) struct OrRecords {
    inputs: Vec<Box<dyn RecordStream>>,
    current: usize,
    seen: Seen,
    stats: Stats,
    dropped: u64,
}

impl OrRecords {
    pub(crate) fn new(inputs: Vec<Box<dyn RecordStream>>) -> OrRecords {
        OrRecords { inputs, current: 0, seen: Seen::default(), stats: Stats::default(), dropped: 0 }
    }
}

impl RecordStream for OrRecords {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(input) = self.inputs.get_mut(self.current) {
            match input.next()? {
                Some(record) if self.seen.insert(record.id) => {
                    self.stats.advance();
                    return Ok(Some(record));
                }
                Some(_) => self.dropped += 1,
                None => self.current += 1,
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("OR", None, &self.stats);
        out.count(c"dupsTested", self.stats.advanced + self.dropped);
        out.count(c"dupsDropped", self.dropped);
        out.inputs(self.inputs.iter().map(|input| |out: &mut Explainer| input.explain(out)));
    }
}
