//! RETURN_KEY: index keys in place of documents.

use super::projection_covered::{key_document, no_key};
use super::{Explainer, IdStream, Record, RecordStream, Stats, Surroundings};
use crate::index::IndexSpec;
use base::Result;
use base::bson::{Document, DocumentCow};
use query::matcher::Matcher;
use query::{DocumentMetadata, SortPattern};
use std::sync::Arc;

/// Fetches and filters as FETCH does, and yields the key by which an index found each record. A
/// sort above needs the document, so its key is computed here.
pub(crate) struct ReturnKey {
    surroundings: Arc<Surroundings>,
    input: Box<dyn IdStream>,
    spec: IndexSpec,
    filter: Arc<Matcher>,
    sort: Option<Arc<SortPattern>>,
    /// Whether the key is to be shown.
    shows_sort_key: bool,
    stats: Stats,
    examined: u64,
}

impl ReturnKey {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn IdStream>,
        spec: &IndexSpec,
        filter: &Arc<Matcher>,
        sort: Option<Arc<SortPattern>>,
    ) -> ReturnKey {
        ReturnKey {
            surroundings: surroundings.clone(),
            input,
            spec: spec.clone(),
            filter: filter.clone(),
            sort,
            shows_sort_key: false,
            stats: Stats::default(),
            examined: 0,
        }
    }

    /// The same, each record with the values that it is sorted by.
    pub(crate) fn showing_sort_key(self, shows_sort_key: bool) -> ReturnKey {
        ReturnKey { shows_sort_key, ..self }
    }
}

/// What a record is sorted by: to compare, and to be shown.
fn sort_key(
    document: Document<'_>,
    meta: Option<Box<DocumentMetadata>>,
    sort: &SortPattern,
    shown: bool,
) -> Result<(Vec<u8>, Option<Box<DocumentMetadata>>)> {
    let mut key = Vec::new();
    let mut meta = meta.unwrap_or_default();
    sort.key_of(document, &meta, &mut key)?;
    if !shown {
        return Ok((key, None));
    }
    meta.sort_key = Some(sort.values(document, &meta)?);
    Ok((key, Some(meta)))
}

impl RecordStream for ReturnKey {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let Some(value) = self.surroundings.document(&mut *self.input, id)? else { continue };
            let record = Record::stored(id, value.to_shared());
            let document = record.document.view();
            if !self.filter.matches(document, &self.surroundings.context)? {
                self.stats.need_time();
                continue;
            }
            let (sort_key, meta) = match &self.sort {
                Some(sort) => {
                    let (key, meta) = sort_key(document, None, sort, self.shows_sort_key)?;
                    (Some(key), meta)
                }
                None => (None, None),
            };
            let key = match self.input.key() {
                Some(key) => key_document(&self.spec, &key.key_string, &key.type_bits)?,
                None => no_key(),
            };
            self.stats.advance();
            return Ok(Some(Record { id, document: DocumentCow::Owned(key), sort_key, meta }));
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("RETURN_KEY", Some(&self.filter.describe()), &self.stats);
        out.docs(self.examined);
        out.input(|out| self.input.explain(out));
    }
}

/// Yields empty documents: what `returnKey` gives where no index is used.
pub(crate) struct KeyOnly {
    pub(crate) input: Box<dyn RecordStream>,
    /// What they are sorted by, where that is to be shown.
    pub(crate) sort: Option<Arc<SortPattern>>,
}

impl RecordStream for KeyOnly {
    fn next(&mut self) -> Result<Option<Record>> {
        let Some(record) = self.input.next()? else { return Ok(None) };
        let empty = DocumentCow::Owned(no_key());
        let Some(sort) = &self.sort else { return Ok(Some(Record { document: empty, ..record })) };
        let (key, meta) = sort_key(record.document.view(), record.meta, sort, true)?;
        Ok(Some(Record { id: record.id, document: empty, sort_key: Some(key), meta }))
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("RETURN_KEY", None, &Stats::default());
        out.input(|out| self.input.explain(out));
    }
}
