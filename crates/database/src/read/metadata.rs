//! Tells `$meta` what plans know of the records they find.

use super::Documents;
use crate::exec::{Record, RecordStream};
use base::Result;
use base::bson::DocumentCow;
use query::{Context, MetaKind, SortPattern, Stage};
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

/// Notes in the context what `$meta` may ask of a record.
pub(super) fn note(record: &Record, sort: Option<&SortPattern>, context: &Context) -> Result<()> {
    let mut noted = record.meta.as_deref().cloned().unwrap_or_default();
    noted.record_id = i64::try_from(record.id.0).ok();
    if let (None, Some(sort), true) = (&noted.sort_key, sort, context.metadata.wants(MetaKind::SortKey)) {
        noted.sort_key = Some(sort.values(record.document.view(), &noted)?);
    }
    context.metadata.note(noted);
    Ok(())
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
