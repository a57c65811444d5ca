//! DISTINCT_SCAN: one record for each value that an index has at one of its parts, the other keys of the value
//! being passed over.
//!
//! A key can't tell null from missing, which is no value. So null is looked for among the documents that have
//! it in their keys.

use super::{Covering, Explainer, IdStream, IndexScan, Record, RecordStream, Stats, Surroundings};
use base::Result;
use base::bson::{Builder, Path, Type};
use std::sync::Arc;

/// Yields documents with the one path.
pub(crate) struct DistinctScan {
    surroundings: Arc<Surroundings>,
    scan: IndexScan,
    covering: Covering,
    path: Path,
    /// How many leading parts make up the value.
    parts: usize,
    stats: Stats,
    fetched: u64,
}

impl DistinctScan {
    /// The values that a scan finds at its index's part of this number, whose path is `path`.
    pub(crate) fn new(surroundings: &Arc<Surroundings>, scan: IndexScan, part: usize, path: &Path) -> Self {
        let covering = Covering::new(scan.spec(), &|other| other == part);
        DistinctScan {
            surroundings: surroundings.clone(),
            scan: scan.keeping_keys(),
            covering,
            path: path.clone(),
            parts: part + 1,
            stats: Stats::default(),
            fetched: 0,
        }
    }
}

impl RecordStream for DistinctScan {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(id) = self.scan.next()? {
            let made = match self.scan.key() {
                Some(key) => self.covering.document(&key.key_string, &key.type_bits)?,
                None => None,
            };
            if let Some(document) = made {
                self.scan.pass(self.parts)?;
                self.stats.advance();
                return Ok(Some(Record::made(id, document)));
            }
            self.fetched += 1;
            self.surroundings.examine_document()?;
            let Some(value) = self.surroundings.fetch(id)? else { continue };
            let record = Record::stored(id, &value);
            if self.path.get(record.document.view()).is_some_and(|value| value.kind() == Type::Null) {
                self.scan.pass(self.parts)?;
                self.stats.advance();
                return Ok(Some(record));
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        let mut fields = Builder::new();
        fields.append("_id", 0i32).append(self.path.as_str(), 1i32);
        out.stage("PROJECTION_COVERED", None, &self.stats).append("transformBy", &fields.finish());
        if self.fetched > 0 {
            out.docs(self.fetched);
        }
        out.input(|out| self.scan.explain_as("DISTINCT_SCAN", out));
    }
}
