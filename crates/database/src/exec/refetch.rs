//! FETCH of documents that are at hand already: what is left of a filter, for the stages that find
//! whole documents by themselves.

use super::{Explainer, Record, RecordStream, Stats, Surroundings, patiently};
use base::Result;
use query::matcher::Part;
use std::sync::Arc;

/// Yields the documents that match.
pub(crate) struct Refetch {
    surroundings: Arc<Surroundings>,
    input: Box<dyn RecordStream>,
    filter: Part,
    stats: Stats,
    examined: u64,
}

impl Refetch {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn RecordStream>,
        filter: Part,
    ) -> Refetch {
        let (surroundings, stats) = (surroundings.clone(), Stats::default());
        Refetch { surroundings, input, filter, stats, examined: 0 }
    }

    /// The next document that matches, among so many; `None` where none of these does.
    fn search(&mut self, mut patience: u64) -> Result<Option<Option<Record>>> {
        while let Some(record) = self.input.next()? {
            self.examined += 1;
            if self.filter.matches(record.document.view(), &self.surroundings.context)? {
                self.stats.advance();
                return Ok(Some(Some(record)));
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
}

impl RecordStream for Refetch {
    fn next(&mut self) -> Result<Option<Record>> {
        patiently(self, |stage| &stage.surroundings.operation, Self::search)
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("FETCH", Some(&self.filter.describe()), &self.stats);
        out.docs(self.examined);
        out.count(c"alreadyHasObj", self.examined);
        out.input(|out| self.input.explain(out));
    }
}
