//! RETURN_KEY: index keys in place of documents.

use super::projection_covered::{key_document, no_key};
use super::{Explainer, IdStream, Record, RecordStream, Stats, Surroundings};
use crate::index::IndexSpec;
use base::Result;
use base::bson::DocumentCow;
use query::SortPattern;
use query::matcher::Matcher;
use std::sync::Arc;

/// Fetches and filters as FETCH does, and yields the key by which an index found each record. A
/// sort above needs the document, so its key is computed here.
pub(crate) struct ReturnKey {
    surroundings: Arc<Surroundings>,
    input: Box<dyn IdStream>,
    spec: IndexSpec,
    filter: Arc<Matcher>,
    sort: Option<Arc<SortPattern>>,
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
            stats: Stats::default(),
            examined: 0,
        }
    }
}

impl RecordStream for ReturnKey {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let record = Record::stored(id, &self.surroundings.fetch(id)?);
            let document = record.document.view();
            if !self.filter.matches(document, &self.surroundings.context)? {
                self.stats.need_time();
                continue;
            }
            let sort_key = match &self.sort {
                Some(sort) => {
                    let mut key = Vec::new();
                    sort.key(document, &mut key)?;
                    Some(key)
                }
                None => None,
            };
            let key = match self.input.key() {
                Some(key) => key_document(&self.spec, &key.key_string, &key.type_bits)?,
                None => no_key(),
            };
            self.stats.advance();
            return Ok(Some(Record { id, document: DocumentCow::Owned(key), sort_key }));
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

/// Computes sort keys before documents are given up: for a projection that asks for them, where
/// an index gave the order.
pub(crate) struct SortKeys {
    pub(crate) input: Box<dyn RecordStream>,
    pub(crate) sort: Arc<SortPattern>,
}

impl RecordStream for SortKeys {
    fn next(&mut self) -> Result<Option<Record>> {
        let Some(mut record) = self.input.next()? else { return Ok(None) };
        if record.sort_key.is_none() {
            let mut key = Vec::new();
            self.sort.key(record.document.view(), &mut key)?;
            record.sort_key = Some(key);
        }
        Ok(Some(record))
    }

    fn explain(&self, out: &mut Explainer) {
        self.input.explain(out);
    }
}

/// Yields empty documents: what `returnKey` gives where no index is used.
pub(crate) struct KeyOnly(pub(crate) Box<dyn RecordStream>);

impl RecordStream for KeyOnly {
    fn next(&mut self) -> Result<Option<Record>> {
        let record = self.0.next()?;
        Ok(record.map(|record| Record { document: DocumentCow::Owned(no_key()), ..record }))
    }

    fn explain(&self, out: &mut Explainer) {
        out.stage("RETURN_KEY", None, &Stats::default());
        out.input(|out| self.0.explain(out));
    }
}
