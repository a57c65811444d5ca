//! Documents built from index keys: PROJECTION_COVERED and RETURN_KEY.

use super::ixscan::IndexScan;
use super::{ExecContext, IdStream, Keys, RecordStream, Report, Stats, stored};
use crate::index::{IndexSpec, KeyKind};
use crate::keys::RecordId;
use base::Result;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Type};
use base::key_string::Decoder;
use query::matcher::{Matcher, Part};
use query::{Row, SortPattern};
use std::sync::Arc;

// PROJECTION_COVERED: documents built from an index's keys, without reading the collection.
//
// A key does not distinguish null from missing. If a needed part of the key is null, the document
// is read, so that the result is the same as without the index.

/// Yields documents with the index's fields.
pub(crate) struct ProjectionCovered {
    exec_context: Arc<ExecContext>,
    scan: IndexScan,
    covering: Covering,
    /// Filter on the key.
    filter: Option<Part>,
    /// Number of leading parts that form a value of which one document is enough; zero if all are
    /// needed.
    first_of: usize,
    stats: Stats,
    fetched: u64,
}

/// The index parts from which documents are built, and the fields that they fill.
#[derive(Clone)]
pub(crate) struct Covering {
    /// For each part up to the last needed one: its direction, and its path in the document.
    parts: Arc<[(bool, Option<Vec<String>>)]>,
}

impl Covering {
    /// Takes the parts selected by `needed`, except parts whose path is below another part's path.
    pub(crate) fn new(spec: &IndexSpec, needed: &dyn Fn(usize) -> bool) -> Covering {
        let below = |part: usize| {
            let path = spec.parts.get(part).map(|part| &part.path);
            spec.parts.iter().enumerate().any(|(other, ancestor)| {
                other != part && needed(other) && path.is_some_and(|path| path.starts_with(&ancestor.path))
            })
        };
        let mut parts: Vec<(bool, Option<Vec<String>>)> = Vec::new();
        for (position, part) in spec.parts.iter().enumerate() {
            let gives_field = needed(position) && part.kind != KeyKind::Hashed && !below(position);
            let names = part.path.components().iter().map(|component| component.name().to_string());
            parts.push((part.kind != KeyKind::Descending, gives_field.then(|| names.collect())));
        }
        let used = parts.iter().rposition(|(_, place)| place.is_some()).map_or(0, |last| last + 1);
        parts.truncate(used);
        Covering { parts: parts.into() }
    }

    /// Returns the fields of the documents.
    pub(super) fn fields(&self) -> DocumentBuf {
        let mut fields = Builder::new();
        for names in self.parts.iter().filter_map(|(_, place)| place.as_ref()) {
            fields.append(FieldName::trusted(&names.join(".")), 1i32);
        }
        fields.finish()
    }

    /// Returns the document of a key; `None` if a part is null.
    pub(crate) fn document(&self, key: &[u8], type_bits: &[u8]) -> Result<Option<DocumentBuf>> {
        let (document, has_null) = self.with_nulls(key, type_bits)?;
        Ok((!has_null).then_some(document))
    }

    /// Returns the record of a scan's entry, built from its key. Reads and counts the document if
    /// the key does not distinguish null from missing. Returns `None` if the record is gone.
    #[inline]
    pub(super) fn record(
        &self,
        exec_context: &ExecContext,
        scan: &IndexScan,
        id: RecordId,
        fetched: &mut u64,
    ) -> Result<Option<Row>> {
        if let Some(key) = scan.key()
            && let Some(document) = self.document(&key.key_string, &key.type_bits)?
        {
            return Ok(Some(Row::stored(id.0, document)));
        }
        *fetched += 1;
        exec_context.examine_document()?;
        Ok(exec_context.fetch(id)?.map(|value| stored(id, value.to_shared())))
    }

    /// Returns the document of a key, with null also for missing fields, and whether it has any
    /// null.
    pub(crate) fn with_nulls(&self, key: &[u8], type_bits: &[u8]) -> Result<(DocumentBuf, bool)> {
        let mut decoder = Decoder::new(key, type_bits);
        let flat = self.parts.iter().all(|(_, place)| place.as_ref().is_none_or(|names| names.len() == 1));
        let mut out = Builder::new();
        let mut values = Vec::new();
        for (ascending, place) in self.parts.iter() {
            match place.as_deref() {
                Some([name]) if flat => decoder.append_next(FieldName::new(name)?, *ascending, &mut out)?,
                Some(names) => values.push((names, decoder.next(*ascending)?)),
                None => drop(decoder.next(*ascending)?),
            }
        }
        let nested_null = values.iter().any(|(_, value)| value.kind() == Type::Null);
        nest(&values.iter().collect::<Vec<_>>(), 0, &mut out);
        let document = out.finish();
        let null = flat && document.view().iter().any(|element| element.kind() == Type::Null);
        Ok((document, null || nested_null))
    }
}

/// Writes values at their paths, and combines common prefixes into one embedded document. The
/// length of paths limits the recursion.
fn nest(values: &[&(&[String], base::bson::ValueBuf)], depth: usize, out: &mut Builder) {
    let mut rest: Vec<&(&[String], base::bson::ValueBuf)> = values.to_vec();
    while let Some(first) = rest.first() {
        let Some(name) = first.0.get(depth) else { return };
        let (same, others): (Vec<_>, Vec<_>) =
            rest.iter().copied().partition(|(names, _)| names.get(depth) == Some(name));
        match same.as_slice() {
            [(names, value)] if names.len() == depth + 1 => {
                out.append(FieldName::trusted(name), value);
            }
            several => {
                out.begin_document(FieldName::trusted(name));
                nest(several, depth + 1, out);
                out.end();
            }
        }
        rest = others;
    }
}

impl ProjectionCovered {
    /// Returns a stream over a scan that keeps its keys.
    pub(super) fn new(
        exec_context: &Arc<ExecContext>,
        scan: IndexScan,
        covering: &Covering,
        filter: &Option<Part>,
        first_of: usize,
    ) -> ProjectionCovered {
        let (exec_context, covering, filter) = (exec_context.clone(), covering.clone(), filter.clone());
        ProjectionCovered {
            exec_context,
            scan,
            covering,
            filter,
            first_of,
            stats: Stats::default(),
            fetched: 0,
        }
    }
}

impl RecordStream for ProjectionCovered {
    fn next(&mut self) -> Result<Option<Row>> {
        while let Some(id) = self.scan.next()? {
            let record = self.covering.record(&self.exec_context, &self.scan, id, &mut self.fetched)?;
            let Some(record) = record else { continue };
            let matched = match &self.filter {
                Some(filter) => filter.matches(record.document.view(), &self.exec_context.context)?,
                None => true,
            };
            if matched {
                if self.first_of > 0 {
                    self.scan.pass(self.first_of)?;
                }
                self.stats.advance();
                return Ok(Some(record));
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs_if_any(self.fetched);
        self.scan.report(report);
    }
}

/// Returns a document of a key's fields, named by their whole paths, for `returnKey`.
pub(crate) fn key_document(spec: &IndexSpec, key: &[u8], type_bits: &[u8]) -> Result<DocumentBuf> {
    let mut decoder = Decoder::new(key, type_bits);
    if !spec.collation.is_simple() {
        decoder = decoder.collated();
    }
    let mut out = Builder::new();
    for part in &spec.parts {
        decoder.append_next(&part.path, part.kind != KeyKind::Descending, &mut out)?;
    }
    Ok(out.finish())
}

/// Returns the `returnKey` result of a document found without an index.
fn no_key() -> DocumentBuf {
    Document::EMPTY.to_owned()
}

// RETURN_KEY: index keys instead of documents.

/// Fetches and filters like FETCH, and yields the index key of each record. A sort above needs the
/// document, so this node computes the sort key.
pub(crate) struct ReturnKey {
    exec_context: Arc<ExecContext>,
    input: Box<dyn IdStream>,
    spec: Arc<IndexSpec>,
    filter: Arc<Matcher>,
    sort: Option<Arc<SortPattern>>,
    /// True if the sort key is returned.
    shows_sort_key: bool,
    stats: Stats,
    examined: u64,
}

impl ReturnKey {
    pub(super) fn new(exec_context: &Arc<ExecContext>, input: Box<dyn IdStream>, node: &Keys) -> ReturnKey {
        ReturnKey {
            exec_context: exec_context.clone(),
            input,
            spec: node.spec.clone(),
            filter: node.filter.clone(),
            sort: node.sort.clone(),
            shows_sort_key: node.shows_sort_key,
            stats: Stats::default(),
            examined: 0,
        }
    }
}

/// Sets the encoded sort key of a row, and the sort key that `$meta` shows if `shown`.
fn note_order(row: &mut Row, sort: &SortPattern, shown: bool) -> Result<()> {
    let mut order = Vec::new();
    sort.key(row.view(), &mut order)?;
    if shown {
        sort.set_sort_key(row)?;
    }
    row.metadata.get_or_insert_default().order = Some(order);
    Ok(())
}

impl RecordStream for ReturnKey {
    fn next(&mut self) -> Result<Option<Row>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.exec_context.examine_document()?;
            let Some(value) = self.exec_context.document(&mut *self.input, id)? else { continue };
            let mut row = stored(id, value.to_shared());
            if !self.filter.matches(row.document.view(), &self.exec_context.context)? {
                self.stats.need_time();
                continue;
            }
            if let Some(sort) = &self.sort {
                note_order(&mut row, sort, self.shows_sort_key)?;
            }
            let key = match self.input.key() {
                Some(key) => key_document(&self.spec, &key.key_string, &key.type_bits)?,
                None => no_key(),
            };
            self.stats.advance();
            return Ok(Some(row.with(key)));
        }
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs(self.examined);
        self.input.report(report);
    }
}

/// Yields empty documents: the result of `returnKey` without an index.
pub(crate) struct KeyOnly {
    pub(crate) input: Box<dyn RecordStream>,
    /// The sort, if its key is returned.
    pub(crate) sort: Option<Arc<SortPattern>>,
}

impl RecordStream for KeyOnly {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(mut row) = self.input.next()? else { return Ok(None) };
        if let Some(sort) = &self.sort {
            note_order(&mut row, sort, true)?;
        }
        Ok(Some(row.with(no_key())))
    }

    fn report(&self, report: &mut Report) {
        report.node(&Stats::default());
        self.input.report(report);
    }
}
