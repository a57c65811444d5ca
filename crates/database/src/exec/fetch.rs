//! FETCH: the documents of records, and filters over documents already read.
//!
//! EXPRESS: lookup of one document by a unique key, mostly `_id`.
//!
//! Most reads and writes by `_id` are two lookups without a scan. MongoDB's explain has few fields
//! for them.

use super::covered::key_document;
use super::{ExecContext, IdStream, RecordStream, Report, Stats, TextSearch, search_within_budget, stored};
use crate::access::Access;
use crate::keys::IndexEntry;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::Document;
use base::{ErrorCode, Result};
use query::matcher::{Matcher, Part};
use query::{Context, DocumentMetadata, Interrupt, Row};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Ident, Snapshot, Value};

// FETCH: the documents of records found by an index.

/// Reads each record's document and yields it if it matches.
pub(crate) struct Fetch {
    exec_context: Arc<ExecContext>,
    input: Box<dyn IdStream>,
    /// `None` if the index proves that the document matches.
    filter: Option<Part>,
    /// True if records carry their index keys.
    keeps_keys: bool,
    stats: Stats,
    examined: u64,
}

impl Fetch {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        input: Box<dyn IdStream>,
        filter: Option<Part>,
        keeps_keys: bool,
    ) -> Fetch {
        let (exec_context, stats) = (exec_context.clone(), Stats::default());
        Fetch { exec_context, input, filter, keeps_keys, stats, examined: 0 }
    }

    /// Returns the index key of the last record as metadata.
    fn metadata(&self) -> Result<Option<Box<DocumentMetadata>>> {
        let (true, Some(spec), Some(key)) = (self.keeps_keys, self.input.index(), self.input.key()) else {
            return Ok(None);
        };
        let index_key = Some(key_document(spec, &key.key_string, &key.type_bits)?);
        Ok(Some(Box::new(DocumentMetadata { index_key, ..DocumentMetadata::default() })))
    }

    /// Returns the next matching document among `budget` examined ones; `None` if none of them
    /// matches.
    fn search(&mut self, mut budget: u64) -> Result<Option<Option<Row>>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.exec_context.examine_document()?;
            let Some(value) = self.exec_context.document(&mut *self.input, id)? else { continue };
            let matched = match &self.filter {
                Some(filter) => filter.matches(Document::from_valid(&value), &self.exec_context.context)?,
                None => true,
            };
            if matched {
                self.stats.advance();
                return Ok(Some(Some(Row { metadata: self.metadata()?, ..stored(id, value.to_shared()) })));
            }
            self.stats.need_time();
            budget -= 1;
            if budget == 0 {
                return Ok(None);
            }
        }
        self.stats.end();
        Ok(Some(None))
    }
}

impl RecordStream for Fetch {
    fn next(&mut self) -> Result<Option<Row>> {
        search_within_budget(self, |stage| &stage.exec_context.operation, Self::search)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs(self.examined).count(c"alreadyHasObj", 0);
        self.input.report(report);
    }
}

// FETCH of documents already read, and TEXT_MATCH: the rest of a filter or of a search, for streams
// that find whole documents by themselves.

/// A condition on documents.
pub(super) enum Test {
    Filter(Part),
    /// The phrases and negations of a search.
    Text(Arc<TextSearch>),
}

/// Yields the documents that pass.
pub(crate) struct FilterStage {
    exec_context: Arc<ExecContext>,
    input: Box<dyn RecordStream>,
    test: Test,
    stats: Stats,
    examined: u64,
}

impl FilterStage {
    pub(super) fn new(
        exec_context: &Arc<ExecContext>,
        input: Box<dyn RecordStream>,
        test: Test,
    ) -> FilterStage {
        let (exec_context, stats) = (exec_context.clone(), Stats::default());
        FilterStage { exec_context, input, test, stats, examined: 0 }
    }

    fn passes(&self, document: Document<'_>) -> Result<bool> {
        match &self.test {
            Test::Filter(filter) => filter.matches(document, &self.exec_context.context),
            Test::Text(text) if text.search.is_by_terms_alone() => Ok(true),
            Test::Text(text) => text.search.matches(document, &text.text.spec),
        }
    }

    /// Returns the next passing document among `budget` examined ones; `None` if none of them
    /// passes.
    fn search(&mut self, mut budget: u64) -> Result<Option<Option<Row>>> {
        while let Some(record) = self.input.next()? {
            self.examined += 1;
            if self.passes(record.document.view())? {
                self.stats.advance();
                return Ok(Some(Some(record)));
            }
            self.exec_context.operation.check()?;
            self.stats.need_time();
            budget -= 1;
            if budget == 0 {
                return Ok(None);
            }
        }
        self.stats.end();
        Ok(Some(None))
    }
}

impl RecordStream for FilterStage {
    fn next(&mut self) -> Result<Option<Row>> {
        search_within_budget(self, |stage| &stage.exec_context.operation, Self::search)
    }

    fn report(&self, report: &mut Report) {
        let ran = report.node(&self.stats);
        match &self.test {
            Test::Filter(_) => ran.docs(self.examined).count(c"alreadyHasObj", self.examined),
            Test::Text(_) => ran.count(c"docsRejected", self.examined - self.stats.advanced),
        };
        self.input.report(report);
    }
}

// The first record of a stream, read at the start of the statement. Over a shared store the first read finds out
// whether the plan's catalog is the latest.

/// A stream whose first record has been read.
pub(crate) struct PeekedStream {
    /// An error is returned to the reader.
    first: Option<Result<Row>>,
    /// `None` after the end.
    rest: Option<Box<dyn RecordStream>>,
}

impl PeekedStream {
    /// Reads the first record of a stream.
    ///
    /// Errors: StaleConfig for an invalid plan.
    pub(crate) fn begin(mut stream: Box<dyn RecordStream>) -> Result<Box<dyn RecordStream>> {
        let first = match stream.next() {
            Err(error) if error.code() == ErrorCode::StaleConfig => return Err(error),
            first => first.transpose(),
        };
        let rest = first.is_some().then_some(stream);
        Ok(Box::new(PeekedStream { first, rest }))
    }
}

impl RecordStream for PeekedStream {
    fn next(&mut self) -> Result<Option<Row>> {
        match (self.first.take(), &mut self.rest) {
            (Some(first), _) => first.map(Some),
            (None, Some(rest)) => rest.next(),
            (None, None) => Ok(None),
        }
    }

    fn count(&mut self) -> Result<u64> {
        let first = u64::from(self.first.take().transpose()?.is_some());
        let rest = self.rest.as_mut().map_or(Ok(0), |rest| rest.count());
        Ok(first + rest?)
    }
}

/// Yields the document of a key, looked up at the first call.
pub(crate) struct Express {
    exec_context: Arc<ExecContext>,
    access: Arc<Access>,
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    keys_examined: u64,
    docs_examined: u64,
}

/// Looks up the document of a key in a unique index.
#[allow(clippy::too_many_arguments)]
pub(crate) fn lookup(
    operation: &Operation,
    snapshot: &dyn Snapshot,
    index: Ident,
    records: Ident,
    key: &[u8],
    filter: Option<&Matcher>,
    context: &Context,
) -> Result<(u64, u64, Option<Row>)> {
    finish_lookup(operation, snapshot.lookup(index, key, records), key, filter, context)
}

/// Counts and filters the result of a lookup. Returns the numbers of examined keys and documents, and the record if it
/// matches.
pub(crate) fn finish_lookup(
    operation: &Operation,
    entry: storage::Result<Option<(Value, Value)>>,
    key: &[u8],
    filter: Option<&Matcher>,
    context: &Context,
) -> Result<(u64, u64, Option<Row>)> {
    operation.check()?;
    let Some((entry, value)) = entry.map_err(storage_error)? else { return Ok((0, 0, None)) };
    operation.keys_examined.fetch_add(1, Relaxed);
    operation.docs_examined.fetch_add(1, Relaxed);
    let id = IndexEntry::from_parts(key, &entry, true)?.record;
    let matched = match filter {
        Some(filter) => filter.matches(Document::from_valid(&value), context)?,
        None => true,
    };
    Ok((1, 1, matched.then(|| stored(id, value.to_shared()))))
}

impl Express {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        access: &Arc<Access>,
        filter: Option<Arc<Matcher>>,
    ) -> Express {
        Express {
            exec_context: exec_context.clone(),
            access: access.clone(),
            filter,
            stats: Stats::default(),
            keys_examined: 0,
            docs_examined: 0,
        }
    }
}

impl RecordStream for Express {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.stats.works > 0 {
            self.stats.end();
            return Ok(None);
        }
        let around = &self.exec_context;
        let (keys, docs, record) = lookup(
            &around.operation,
            around.snapshot.as_ref(),
            self.access.index.ident,
            around.records,
            &self.access.single_key(),
            self.filter.as_deref(),
            &around.context,
        )?;
        (self.keys_examined, self.docs_examined) = (keys, docs);
        match record {
            Some(_) => self.stats.advance(),
            None => self.stats.end(),
        }
        Ok(record)
    }

    fn report(&self, report: &mut Report) {
        let ran = report.node(&self.stats).keys(self.keys_examined).docs(self.docs_examined);
        ran.count(c"nReturned", self.stats.advanced);
    }
}

/// The record, if any, of a finished lookup, or its error.
pub(crate) struct SingleRecord(pub(crate) Option<Result<Row>>);

impl RecordStream for SingleRecord {
    fn next(&mut self) -> Result<Option<Row>> {
        self.0.take().transpose()
    }
}
