//! LIMIT and SKIP: part of the records, by count.

use super::{Explainer, IdStream, IndexKey, Record, RecordStream, Stats};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
use storage::{Ident, Value};

// LIMIT: no more than so many records.

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

// SKIP: passes over the first records.

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
        explain(self.skip, &self.stats, out);
        out.input(|out| self.input.explain(out));
    }
}

/// The same of what an index finds, so that nothing is fetched in vain.
pub(crate) struct SkipIds {
    input: Box<dyn IdStream>,
    skip: u64,
    left: u64,
    stats: Stats,
}

impl SkipIds {
    pub(crate) fn new(input: Box<dyn IdStream>, skip: u64) -> SkipIds {
        SkipIds { input, skip, left: skip, stats: Stats::default() }
    }
}

impl IdStream for SkipIds {
    fn next(&mut self) -> Result<Option<RecordId>> {
        while let Some(id) = self.input.next()? {
            if self.left == 0 {
                self.stats.advance();
                return Ok(Some(id));
            }
            self.left -= 1;
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.input.key()
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.input.index()
    }

    fn bring(&mut self, records: Ident) {
        self.input.bring(records);
    }

    fn expect_few(&mut self, ids: u64) {
        self.input.expect_few(ids.saturating_add(self.skip));
    }

    fn record(&mut self) -> Result<Option<Value>> {
        self.input.record()
    }

    fn explain(&self, out: &mut Explainer) {
        explain(self.skip, &self.stats, out);
        out.input(|out| self.input.explain(out));
    }
}

fn explain(skip: u64, stats: &Stats, out: &mut Explainer) {
    out.stage("SKIP", None, stats).append(c"skipAmount", i32::try_from(skip).unwrap_or(i32::MAX));
}
