//! SKIP: passes over the first records.

use super::{Explainer, Record, RecordStream, Stats};
use base::Result;

/// Leaves out the first records of what lies below.
pub(crate) struct Skip {
    input: Box<dyn RecordStream>,
    skip: u64,
    left: u64,
    stats: Stats,
}

impl Skip {
    pub(crate) fn new(input: Box<dyn RecordStream>, skip: u64) -> Skip {
        Skip { input, skip, left: skip, stats: Stats::default() }
    }
}

impl RecordStream for Skip {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(record) = self.input.next()? {
            if self.left == 0 {
                self.stats.advance();
                return Ok(Some(record));
            }
            self.left -= 1;
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("SKIP", None, &self.stats)
            .append("skipAmount", i32::try_from(self.skip).unwrap_or(i32::MAX));
        out.input(|out| self.input.explain(out));
    }
}
