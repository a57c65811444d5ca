//! LIMIT: no more than so many records.

use super::{Explainer, Record, RecordStream, Stats};
use base::Result;

/// Ends after a number of records; what lies below is not asked again.
pub(crate) struct Limit {
    input: Box<dyn RecordStream>,
    limit: u64,
    /// Whether explain shows it: not where what reads it ends by itself.
    shown: bool,
    stats: Stats,
}

impl Limit {
    pub(crate) fn new(input: Box<dyn RecordStream>, limit: u64) -> Limit {
        Limit { input, limit, shown: true, stats: Stats::default() }
    }

    /// The first record, for a write of one document.
    pub(crate) fn first(input: Box<dyn RecordStream>) -> Limit {
        Limit { shown: false, ..Limit::new(input, 1) }
    }
}

impl RecordStream for Limit {
    fn next(&mut self) -> Result<Option<Record>> {
        let record = match self.stats.advanced < self.limit {
            true => self.input.next()?,
            false => None,
        };
        match record {
            Some(_) => self.stats.advance(),
            None => self.stats.end(),
        }
        Ok(record)
    }

    fn explain(&self, out: &mut Explainer) {
        if !self.shown {
            return self.input.explain(out);
        }
        out.stage("LIMIT", None, &self.stats)
            .append(c"limitAmount", i32::try_from(self.limit).unwrap_or(i32::MAX));
        out.input(|out| self.input.explain(out));
    }
}
