//! Skip and limit: the window of a stream that a read asks for.

use super::{Record, RecordStream};
use base::Result;

/// Passes over the first records and ends after as many as are wanted.
pub(crate) struct Window {
    source: Box<dyn RecordStream>,
    skip: u64,
    /// How many are still to come; `None` is all.
    left: Option<u64>,
}

impl Window {
    /// The records after the first `skip`, at most `limit` of them, zero being all.
    pub(crate) fn new(source: Box<dyn RecordStream>, skip: u64, limit: u64) -> Window {
        Window { source, skip, left: (limit > 0).then_some(limit) }
    }
}

impl RecordStream for Window {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        while self.skip > 0 {
            self.skip -= 1;
            if self.source.next()?.is_none() {
                self.left = Some(0);
                return Ok(None);
            }
        }
        let next = self.source.next()?;
        if let Some(left) = &mut self.left {
            *left -= u64::from(next.is_some());
        }
        Ok(next)
    }
}
