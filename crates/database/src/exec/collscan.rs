//! COLLSCAN: every document, in natural order or backwards.

use super::natural::Natural;
use super::{Explainer, PATIENCE, Record, RecordStream, Stats, Surroundings, patiently};
use base::Result;
use query::matcher::Matcher;
use std::sync::Arc;
use storage::Direction;

/// Reads the collection and yields what matches.
pub(crate) struct CollScan {
    surroundings: Arc<Surroundings>,
    cursor: Natural,
    forward: bool,
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    examined: u64,
}

impl CollScan {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        forward: bool,
        filter: Option<Arc<Matcher>>,
    ) -> Result<CollScan> {
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        Ok(CollScan {
            surroundings: surroundings.clone(),
            cursor: surroundings.natural.walk(&surroundings.snapshot, direction)?,
            forward,
            filter,
            stats: Stats::default(),
            examined: 0,
        })
    }
}

impl CollScan {
    /// The next document that matches, among so many; `None` where none of these does.
    fn search(&mut self, mut patience: u64) -> Result<Option<Option<Record>>> {
        while let Some((id, value)) = self.cursor.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let matched = match &self.filter {
                Some(filter) => self.surroundings.matches(filter, &value)?,
                None => true,
            };
            if matched {
                self.stats.advance();
                return Ok(Some(Some(Record::stored(id, value.to_shared()))));
            }
            self.stats.need_time();
            patience -= 1;
            if patience == 0 {
                return Ok(None);
            }
        }
        self.stats.end();
        Ok(Some(None))
    }

    /// Counts those that match among so many, and whether that was the end.
    fn count_some(&mut self, mut patience: u64) -> Result<(u64, bool)> {
        let mut count = 0;
        while let Some((_, value)) = self.cursor.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let matched = match &self.filter {
                Some(filter) => self.surroundings.matches(filter, &value)?,
                None => true,
            };
            self.stats.need_time();
            count += u64::from(matched);
            patience -= 1;
            if patience == 0 {
                return Ok((count, false));
            }
        }
        Ok((count, true))
    }
}

impl RecordStream for CollScan {
    fn next(&mut self) -> Result<Option<Record>> {
        patiently(self, |stage| &stage.surroundings.operation, Self::search)
    }

    fn count(&mut self) -> Result<u64> {
        let (mut count, ended) = self.count_some(PATIENCE)?;
        if !ended {
            let operation = self.surroundings.operation.clone();
            count += operation.at_length(|| self.count_some(u64::MAX))?.0;
        }
        self.stats.advanced += count;
        self.stats.end();
        Ok(count)
    }

    fn explain(&self, out: &mut Explainer) {
        let filter = self.filter.as_ref().map(|filter| filter.describe());
        out.stage("COLLSCAN", filter.as_ref(), &self.stats)
            .append(c"direction", if self.forward { "forward" } else { "backward" });
        out.docs(self.examined);
    }
}
