//! Tells `$meta` what plans know of the records they find.

use super::Documents;
use crate::exec::RecordStream;
use crate::plan::note;
use base::Result;
use base::bson::DocumentCow;
use query::{Context, SortPattern, Stage};
use std::sync::Arc;

/// A plan's records as the source of a pipeline, whose stages may ask for metadata.
pub(crate) fn documents(
    records: Box<dyn RecordStream>,
    sort: Option<Arc<SortPattern>>,
    context: &Arc<Context>,
) -> Box<dyn Stage> {
    match context.metadata.wants_any() {
        true => Box::new(Described { records, sort, context: context.clone() }),
        false => Box::new(Documents(records)),
    }
}

/// Documents whose metadata is noted as they pass.
struct Described {
    records: Box<dyn RecordStream>,
    sort: Option<Arc<SortPattern>>,
    context: Arc<Context>,
}

impl Stage for Described {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let Some(record) = self.records.next()? else { return Ok(None) };
        note(&record, self.sort.as_deref(), &self.context)?;
        Ok(Some(record.document))
    }
}
