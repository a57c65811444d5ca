//! COUNT_SCAN: how many records lie within an index's bounds; no document is read.

use super::{Explainer, IdStream, IndexScan, Record, RecordStream};
use base::Result;
use base::bson::{Document, DocumentCow};

/// Yields records without content.
pub(crate) struct CountScan(pub(crate) IndexScan);

impl RecordStream for CountScan {
    fn next(&mut self) -> Result<Option<Record>> {
        let id = self.0.next()?;
        Ok(id.map(|id| Record {
            id,
            document: DocumentCow::Owned(Document::EMPTY.to_owned()),
            sort_key: None,
            meta: None,
        }))
    }

    fn count(&mut self) -> Result<u64> {
        self.0.count()
    }

    fn explain(&self, out: &mut Explainer) {
        self.0.explain_as("COUNT_SCAN", out);
    }
}
