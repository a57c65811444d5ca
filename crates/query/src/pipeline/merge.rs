//! `$merge`: writes the documents into a collection. [`merge_spec`](super::merge_spec) has its options and modes.

use super::collections::Namespace;
use super::definition::{Requester, Resource, Right, values};
use super::merge_spec::{INTERNAL_DATABASE, Matched, Merge, NotMatched};
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Context, Row, RowView, Update};
use base::bson::{Builder, Document, DocumentBuf, Element, Path, Value};
use base::{ErrorCode, Result, bail, err};
use std::collections::VecDeque;
use std::sync::Arc;

/// Parses `$merge`. Errors: see [`Merge::parse`].
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    Ok(Parsed::one(Merge::parse(spec, scope.context)?))
}

/// Returns the required rights, which depend on the modes.
pub(crate) fn rights<'v>(specification: Value<'v>, _requester: &Requester<'_>) -> Vec<Right<'v>> {
    let Value::Document(options) = specification else {
        return vec![Right { on: Resource::Target(specification), actions: &["insert", "update"] }];
    };
    let text = |name: &str| options.get(name).and_then(|mode| mode.as_str());
    let updates = !matches!(text("whenMatched"), Some("keepExisting" | "fail"));
    let inserts = !matches!(text("whenNotMatched"), Some("discard" | "fail"));
    let actions: &[&str] = match (updates, inserts) {
        (true, false) => &["update"],
        (false, true) => &["insert"],
        _ => &["insert", "update"],
    };
    values(options, "into").map(|into| Right { on: Resource::Target(into), actions }).collect()
}

impl Merge {
    /// Refuses a target in an internal database. Errors: 31320.
    fn check_database(&self, environment: &Environment) -> Result<()> {
        self.into.check_database(environment.collections.namespace().0, "$merge", INTERNAL_DATABASE)
    }

    /// Returns true if null and missing fields match null, because the unique index on the fields has a key for them.
    ///
    /// Errors: 51183 without a unique index.
    fn takes_null(&self, environment: &Environment) -> Result<bool> {
        if matches!(self.on.as_slice(), [only] if only.as_str() == "_id") {
            return Ok(false);
        }
        let fields: Vec<String> = self.on.iter().map(|path| path.to_string()).collect();
        let collation = &environment.context.collation;
        match environment.collections.unique_index(&self.into, &fields, collation)? {
            Some(index) => Ok(!index.is_sparse),
            None => Err(err!(51183, "Cannot find index to verify that join fields will be unique")),
        }
    }
}

impl Operator for Merge {
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        self.check_database(environment)?;
        let takes_null = self.takes_null(environment)?;
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            takes_null,
            batch: Batch::default(),
            failure: None,
            environment: environment.clone(),
        }))
    }

    fn check_target(&self, environment: &Environment) -> Result<()> {
        self.check_database(environment)?;
        self.takes_null(environment).map(drop)
    }
}

/// Writes the input in batches. A call after LockBusy continues.
struct Running {
    stage: Arc<Merge>,
    /// `None` after its end.
    input: Option<Stream>,
    /// Whether a null or missing field matches null: the unique index has a key for it.
    takes_null: bool,
    batch: Batch,
    /// First error of a document of the batch.
    failure: Option<base::Error>,
    environment: Environment,
}

/// Maximum documents and bytes of a batch.
const BATCH_DOCUMENTS: usize = 1000;
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Documents that are not written yet, each with its filter.
#[derive(Default)]
struct Batch {
    writes: VecDeque<(Option<DocumentBuf>, Row)>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, filter: Option<DocumentBuf>, row: Row) {
        self.bytes += row.document.view().bytes().len();
        self.writes.push_back((filter, row));
    }

    fn pop(&mut self) {
        let written = self.writes.pop_front();
        self.bytes -= written.map_or(0, |(_, row)| row.document.view().bytes().len());
    }

    fn is_full(&self) -> bool {
        self.writes.len() >= BATCH_DOCUMENTS || self.bytes >= BATCH_BYTES
    }
}

impl Stage for Running {
    /// Merges all documents and returns none.
    fn next(&mut self) -> Result<Option<Row>> {
        let mut interrupts = InterruptCheck::new(&self.environment.context);
        self.write()?;
        while let Some(input) = &mut self.input {
            while !self.batch.is_full() {
                let Some(row) = input.next()? else {
                    self.input = None;
                    break;
                };
                interrupts.check()?;
                let filter = filter(&self.stage.on, row.document.view(), self.takes_null)?;
                self.batch.push(filter, row);
            }
            self.write()?;
        }
        Ok(None)
    }
}

impl Running {
    fn into(&self) -> &Namespace {
        &self.stage.into
    }

    /// Writes the rest of the batch and returns the first error of the batch, as MongoDB does.
    fn write(&mut self) -> Result<()> {
        let mut arena = Arena::new();
        while let Some((filter, row)) = self.batch.writes.front() {
            arena.reset();
            match self.merge(filter.as_ref(), row.view(), &arena).map_err(|error| self.explained(error)) {
                Err(error) if concerns_one_document(error.code()) => _ = self.failure.get_or_insert(error),
                outcome => outcome?,
            }
            self.batch.pop();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Adds MongoDB's context to an error of a write.
    fn explained(&self, error: base::Error) -> base::Error {
        let fails = matches!(self.stage.matched, Matched::Fail);
        match error.code() {
            ErrorCode::ImmutableField => error.context(
                "$merge failed to update the matching document, did you attempt to modify the _id or the shard key?",
            ),
            ErrorCode::DuplicateKey if fails && self.is_on_fields(&error) => error.context(
                "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields",
            ),
            ErrorCode::DuplicateKey => error.context("$merge failed due to a DuplicateKey error"),
            _ => error,
        }
    }

    /// Whether a duplicate key is one of the index on the fields of `on`.
    fn is_on_fields(&self, duplicate: &base::Error) -> bool {
        let key = duplicate.info().and_then(|info| info.get("keyPattern")?.as_document());
        key.is_some_and(|key| {
            key.iter().count() == self.stage.on.len()
                && self.stage.on.iter().all(|path| key.find(path.as_str()).is_some())
        })
    }

    /// Merges one document by the stage's modes. `whenMatched: "fail"` is an insert, whose duplicate key error is the
    /// result.
    fn merge(&self, filter: Option<&DocumentBuf>, row: RowView<'_>, arena: &Arena) -> Result<()> {
        let (collections, context) = (&self.environment.collections, &self.environment.context);
        let not_matched = self.stage.not_matched;
        let Some(filter) = filter else {
            // A document without `_id` cannot match; the insert creates one.
            return match not_matched {
                NotMatched::Insert => collections.insert(self.into(), row.document, context),
                NotMatched::Discard => Ok(()),
                NotMatched::Fail => Err(no_match()),
            };
        };
        if let Matched::Fail = self.stage.matched {
            let filled = self.filled(row.document);
            return collections.insert(
                self.into(),
                filled.as_ref().map_or(row.document, DocumentBuf::view),
                context,
            );
        }
        let matched = self.update(filter.view(), row, arena)?;
        match not_matched {
            NotMatched::Fail if !matched => Err(no_match()),
            _ => Ok(()),
        }
    }

    /// Returns the document to insert, with null for fields of `on` that are missing; `None` if none is.
    fn filled(&self, document: Document<'_>) -> Option<DocumentBuf> {
        let is_missing = |path: &&Path| {
            let name = path.as_str();
            self.takes_null && name != "_id" && path.components().len() == 1 && document.find(name).is_none()
        };
        let missing: Vec<&Path> = self.stage.on.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return None;
        }
        let mut out = Builder::new();
        document.find("_id").iter().for_each(|id| _ = out.append_element(id));
        missing.into_iter().for_each(|path| _ = out.append(path, Value::Null));
        let others = document.iter().filter(|field| field.name() != "_id");
        others.for_each(|field| _ = out.append_element(&field));
        Some(out.finish())
    }

    /// Updates the matching document, or inserts if the mode is to insert. Returns whether a document matched.
    fn update(&self, filter: Document<'_>, row: RowView<'_>, arena: &Arena) -> Result<bool> {
        let document = row.document;
        let (collections, context) = (&self.environment.collections, &self.environment.context);
        let inserts = matches!(self.stage.not_matched, NotMatched::Insert);
        let filled = self.filled(document).filter(|_| inserts);
        let insert = inserts.then_some(filled.as_ref().map_or(document, DocumentBuf::view));
        let operator = match &self.stage.matched {
            Matched::Pipeline { update, pipeline, variables } => {
                let update = update.clone()?;
                let context: Arc<Context> = Arc::new(variables.set(row, context, arena)?);
                // MongoDB parses the pipeline for each document. A variable without a value is unknown then.
                if let Some(known) = variables.without_missing(&context) {
                    Update::parse(pipeline.view(), &[], &known)?;
                }
                return collections.update(self.into(), filter, update, insert, &context);
            }
            Matched::Replace => {
                let update = Arc::new(Update::replacement(document));
                return collections.update(self.into(), filter, update, insert, context);
            }
            Matched::Merge => c"$set",
            Matched::KeepExisting | Matched::Fail => c"$setOnInsert",
        };
        let mut update = Builder::new();
        update.append(operator, document);
        let update = Arc::new(Update::parse(Value::from(&update.finish()), &[], context)?);
        collections.update(self.into(), filter, update, insert, context)
    }
}

/// Whether an error concerns a single document, so the remaining documents are still written.
fn concerns_one_document(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::DuplicateKey
            | ErrorCode::DocumentValidationFailure
            | ErrorCode::ImmutableField
            | ErrorCode::DollarPrefixedFieldName
            | ErrorCode::BSONObjectTooLarge
            | ErrorCode::Location(13113)
    )
}

fn no_match() -> base::Error {
    err!(
        13113,
        "$merge could not find a matching document in the target collection for at least one document in the source \
         collection"
    )
}

/// Returns the filter of equalities on the fields; `None` without `_id`.
///
/// Errors: 51132 for a missing or null field unless `takes_null`, 51185 for an array.
fn filter(on: &[Path], document: Document<'_>, takes_null: bool) -> Result<Option<DocumentBuf>> {
    let mut builder = Builder::new();
    for path in on {
        check_no_arrays(path, document)?;
        match path.get(document) {
            None if path.as_str() == "_id" => return Ok(None),
            None | Some(Value::Null | Value::Undefined) if path.as_str() != "_id" && takes_null => {
                builder.begin_document(path).append(c"$eq", Value::Null).end();
            }
            None | Some(Value::Null | Value::Undefined) if path.as_str() != "_id" => {
                bail!(
                    51132,
                    "$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
                );
            }
            Some(Value::Array(_)) => {
                bail!(51185, "$merge write error: 'on' field '{path}' is an array");
            }
            None => return Ok(None),
            Some(value) => {
                builder.begin_document(path).append(c"$eq", value).end();
            }
        }
    }
    Ok(Some(builder.finish()))
}

/// Checks the path of a field. Errors: 51132 for an array on the path.
fn check_no_arrays(path: &Path, document: Document<'_>) -> Result<()> {
    let mut inner = document;
    let Some((_, parents)) = path.components().split_last() else { return Ok(()) };
    for component in parents {
        match inner.get(component.name()) {
            Some(Value::Array(_)) => {
                bail!(
                    51132,
                    "$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
                );
            }
            Some(Value::Document(next)) => inner = next,
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::Run;

    const TARGET: &str = "[{_id: 1, a: 1, b: 1}, {_id: 2, a: 2}]";
    const SOURCE: &str = "[{_id: 1, a: 9}, {_id: 3, a: 3}]";

    fn merge(spec: &str) -> Run {
        Run::new(SOURCE, &format!("[{{$merge: {spec}}}]")).with("t", TARGET)
    }

    #[track_caller]
    fn leaves(spec: &str, expected: &str) {
        let run = merge(spec);
        run.gives("[]");
        run.holds("t", expected);
    }

    #[test]
    fn modes_of_matched_documents() {
        leaves("'t'", "[{_id: 1, a: 9, b: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}]");
        leaves("{into: 't', whenMatched: 'replace'}", "[{_id: 1, a: 9}, {_id: 2, a: 2}, {_id: 3, a: 3}]");
        leaves(
            "{into: 't', whenMatched: 'keepExisting'}",
            "[{_id: 1, a: 1, b: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}]",
        );
        leaves(
            "{into: 't', let: {x: '$_id'}, whenMatched: [{$set: {n: '$$new.a', x: '$$x'}}]}",
            "[{_id: 1, a: 1, b: 1, n: 9, x: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}]",
        );
        merge("{into: 't', whenMatched: 'fail'}").fails(11000, "duplicate key");
    }

    #[test]
    fn modes_of_others() {
        leaves("{into: 't', whenNotMatched: 'discard'}", "[{_id: 1, a: 9, b: 1}, {_id: 2, a: 2}]");
        let run = merge("{into: 't', whenNotMatched: 'fail'}");
        run.fails(13113, "could not find a matching document");
        run.holds("t", "[{_id: 1, a: 9, b: 1}, {_id: 2, a: 2}]");
    }

    #[test]
    fn a_failure_does_not_keep_others_from_being_written() {
        let run = Run::new("[{_id: 8}, {_id: 2, b: 2}]", "[{$merge: {into: 't', whenNotMatched: 'fail'}}]");
        let run = run.with("t", TARGET);
        run.fails(13113, "could not find a matching document");
        run.holds("t", "[{_id: 1, a: 1, b: 1}, {_id: 2, a: 2, b: 2}]");
    }

    #[test]
    fn other_fields_need_a_unique_index() {
        let spec = "[{$project: {_id: 0}}, {$merge: {into: 't', on: 'a'}}]";
        Run::new("[{_id: 7, a: 2, c: 5}]", spec).with("t", TARGET).fails(51183, "Cannot find index");
        let run = Run::new("[{_id: 7, a: 2, c: 5}]", spec).with("t", TARGET).unique("a");
        run.gives("[]");
        run.holds("t", "[{_id: 1, a: 1, b: 1}, {_id: 2, a: 2, c: 5}]");
        let run = Run::new("[{_id: 7}, {_id: 8, a: null, b: 1}]", spec).unique("a");
        run.gives("[]");
        run.holds("t", "[{a: null, b: 1}]");
        Run::new("[{_id: 7, a: [1]}]", spec).unique("a").fails(51185, "'on' field 'a' is an array");
    }
}
