//! EOF: a filter that nothing can match.

use super::{Explainer, Record, RecordStream, Stats};
use base::Result;

/// Yields nothing and reads nothing.
#[derive(Default)]
pub(crate) struct Eof {
    stats: Stats,
}

impl RecordStream for Eof {
    fn next(&mut self) -> Result<Option<Record>> {
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("EOF", None, &self.stats);
    }
}
