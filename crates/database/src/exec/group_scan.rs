//! DISTINCT_SCAN for `$group`: of each value that an index has at one of its parts the first document, the other keys
//! of the value being passed over.

use super::{Covering, Explainer, IdStream, IndexKey, IndexScan, Record, RecordStream, Stats, Surroundings};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
use base::bson::Builder;
use std::sync::Arc;

/// Yields the ids of the first documents.
pub(crate) struct FirstIds {
    scan: IndexScan,
    /// How many leading parts make up the value.
    parts: usize,
}

impl FirstIds {
    /// The first of each value that the scan finds at its index's part of this number.
    pub(crate) fn new(scan: IndexScan, part: usize) -> FirstIds {
        FirstIds { scan: scan.keeping_keys(), parts: part + 1 }
    }
}

impl IdStream for FirstIds {
    fn next(&mut self) -> Result<Option<RecordId>> {
        let found = self.scan.next()?;
        if found.is_some() {
            self.scan.pass(self.parts)?;
        }
        Ok(found)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.scan.key()
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.scan.index()
    }

    fn explain(&self, out: &mut Explainer) {
        self.scan.explain_as("DISTINCT_SCAN", out);
    }
}

/// Yields the first documents, made of the keys.
pub(crate) struct FirstCovered {
    surroundings: Arc<Surroundings>,
    ids: FirstIds,
    covering: Covering,
    stats: Stats,
    fetched: u64,
}

impl FirstCovered {
    pub(crate) fn new(surroundings: &Arc<Surroundings>, ids: FirstIds, covering: Covering) -> FirstCovered {
        FirstCovered {
            surroundings: surroundings.clone(),
            ids,
            covering,
            stats: Stats::default(),
            fetched: 0,
        }
    }
}

impl RecordStream for FirstCovered {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(id) = self.ids.scan.next()? {
            let made = match self.ids.scan.key() {
                Some(key) => self.covering.document(&key.key_string, &key.type_bits)?,
                None => None,
            };
            // A key can't tell null from missing.
            let record = match made {
                Some(document) => Record::made(id, document),
                None => {
                    self.fetched += 1;
                    self.surroundings.examine_document()?;
                    let Some(value) = self.surroundings.fetch(id)? else { continue };
                    Record::stored(id, value.to_shared())
                }
            };
            self.ids.scan.pass(self.ids.parts)?;
            self.stats.advance();
            return Ok(Some(record));
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        let fields = out.projection.clone().unwrap_or_else(|| Builder::new().finish());
        out.stage("PROJECTION_COVERED", None, &self.stats).append(c"transformBy", &fields);
        if self.fetched > 0 {
            out.docs(self.fetched);
        }
        out.input(|out| self.ids.explain(out));
    }
}
