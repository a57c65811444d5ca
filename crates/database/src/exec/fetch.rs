//! FETCH: the documents of the records that an index found.

use super::projection_covered::key_document;
use super::{Explainer, IdStream, Record, RecordStream, Stats, Surroundings, patiently};
use base::Result;
use base::bson::Document;
use query::DocumentMetadata;
use query::matcher::Part;
use std::sync::Arc;

/// Reads each record's document and yields it if it matches.
pub(crate) struct Fetch {
    surroundings: Arc<Surroundings>,
    input: Box<dyn IdStream>,
    /// `None` where being found proves that it matches.
    filter: Option<Part>,
    /// Whether records are to carry the keys they were found by.
    keeps_keys: bool,
    stats: Stats,
    examined: u64,
}

impl Fetch {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        mut input: Box<dyn IdStream>,
        filter: Option<Part>,
    ) -> Fetch {
        input.bring(surroundings.records);
        let (surroundings, stats) = (surroundings.clone(), Stats::default());
        Fetch { surroundings, input, filter, keeps_keys: false, stats, examined: 0 }
    }

    /// The same, each record with the key it was found by; the scans below must keep their keys.
    pub(crate) fn keeping_keys(self, keeps_keys: bool) -> Fetch {
        Fetch { keeps_keys, ..self }
    }

    /// What the index knows of the record that was found last.
    fn meta(&self) -> Result<Option<Box<DocumentMetadata>>> {
        let (true, Some(spec), Some(key)) = (self.keeps_keys, self.input.index(), self.input.key()) else {
            return Ok(None);
        };
        let index_key = Some(key_document(spec, &key.key_string, &key.type_bits)?);
        Ok(Some(Box::new(DocumentMetadata { index_key, ..DocumentMetadata::default() })))
    }

    /// The next document that matches, among so many; `None` where none of these does.
    fn search(&mut self, mut patience: u64) -> Result<Option<Option<Record>>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let Some(value) = self.surroundings.document(&mut *self.input, id)? else { continue };
            let matched = match &self.filter {
                Some(filter) => filter.matches(Document::from_valid(&value), &self.surroundings.context)?,
                None => true,
            };
            if matched {
                self.stats.advance();
                let record = Record::stored(id, value.to_shared());
                return Ok(Some(Some(Record { meta: self.meta()?, ..record })));
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

impl RecordStream for Fetch {
    fn next(&mut self) -> Result<Option<Record>> {
        patiently(self, |stage| &stage.surroundings.operation, Self::search)
    }

    fn explain(&self, out: &mut Explainer) {
        let filter = self.filter.as_ref().map(|filter| filter.describe());
        out.stage("FETCH", filter.as_ref(), &self.stats);
        out.docs(self.examined);
        out.count(c"alreadyHasObj", 0);
        out.input(|out| self.input.explain(out));
    }
}
