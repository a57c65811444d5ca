//! `$setWindowFields`: computes fields from the documents around each document.
//!
//! Documents are sorted by partition and pattern. One partition at a time is read into a buffer, in memory or in a
//! temporary file beyond the memory limit. The window functions process the partition. Their values for all its
//! documents stay in memory until the documents are returned.
//!
//! ```text
//! {$setWindowFields: {
//!     partitionBy: <expression>,              optional: a single partition by default
//!     sortBy: <sort pattern>,                 required by most functions
//!     output: {<path>: {<function>: <argument>, window: <window>}, …},
//! }}
//! ```

use super::fields::{Positions, check_options, required_option, set_fields, set_path_in_arrays};
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::field_path::{PathConflicts, checked_path};
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::window::{BufferedRows, Function, Partition, PartitionBuffer, SortBy, parse_output};
use crate::{Arena, Context, Expression, Row, RowView, SortPattern, Sorter};
use base::bson::{DocumentCow, Element, Path, Value, ValueBuf};
use base::{Error, Result, bail};
use std::cell::Cell;
use std::sync::Arc;

/// A parsed `$setWindowFields`.
struct SetWindowFields {
    partition_by: Option<Expression>,
    sort_by: Option<SortBy>,
    outputs: Outputs,
    /// The positions of the outputs by name, if there are several and all are top-level fields.
    positions: Option<Positions>,
}

/// Parses the stage. Errors: FailedToParse, 40414, 40415 for invalid, missing and unknown options; the errors of
/// functions.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        let found = spec.kind().alias();
        bail!(FailedToParse, "the $setWindowFields stage specification must be an object, found {found}");
    };
    check_options("$setWindowFields", options, &["partitionBy", "sortBy", "output"])?;
    let partition_by =
        options.get("partitionBy").map(|value| Expression::parse(value, scope.context)).transpose()?;
    let sort_by = options
        .get("sortBy")
        .filter(|value| !value.is_nullish())
        .map(|value| parse_sort_by(value, scope.context))
        .transpose()?;
    let output = required_option("$setWindowFields", options, "output")?;
    let outputs = parse_outputs(output, sort_by.as_ref(), scope.context)?;
    let are_top_level = outputs.iter().all(|(path, _)| path.components().len() == 1);
    let positions = (outputs.len() > 1 && are_top_level)
        .then(|| (0..).zip(&outputs).map(|(at, (path, _))| (path.as_str().as_bytes().into(), at)).collect());
    Ok(Parsed::one(SetWindowFields { partition_by, sort_by, outputs, positions }))
}

/// Parses `sortBy`. Errors: TypeMismatch unless it is a document, and errors of sort patterns.
fn parse_sort_by(value: Value<'_>, context: &Context) -> Result<SortBy> {
    match value {
        Value::Document(spec) => Ok(SortBy {
            pattern: SortPattern::parse(spec)?.require_metadata(context).collated(&context.collation),
        }),
        other => Err(Error::wrong_type("$setWindowFields.sortBy", other.kind(), "object")),
    }
}

/// Functions by output path.
type Outputs = Vec<(Path, Box<dyn Function>)>;

/// Parses the output fields. Errors: TypeMismatch unless it is a document, 6307900 for overlapping paths.
fn parse_outputs(value: Value<'_>, sort_by: Option<&SortBy>, context: &Context) -> Result<Outputs> {
    let Value::Document(fields) = value else {
        return Err(Error::wrong_type("$setWindowFields.output", value.kind(), "object"));
    };
    let (mut outputs, mut known) = (Outputs::new(), PathConflicts::default());
    for field in fields {
        let path = checked_path(field.name())?;
        if known.add(field.name()) {
            bail!(6307900, "$setWindowFields 'output' specification contains two conflicting paths");
        }
        outputs.push((path, parse_output(&field, sort_by, context)?));
    }
    Ok(outputs)
}

impl Operator for SetWindowFields {
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.sort),
            interrupts: InterruptCheck::new(&environment.context),
            codec: RowCodec::new(&environment.context),
            environment: environment.clone(),
            next_partition: None,
            current: ComputedPartition::default(),
        }))
    }
}

/// A blocking stage: it sorts the whole input, then computes one partition at a time.
struct Running {
    stage: Arc<SetWindowFields>,
    input: Option<Stream>,
    sorter: Sorter,
    interrupts: InterruptCheck,
    codec: RowCodec,
    environment: Environment,
    /// The key and the first document of the next partition.
    next_partition: Option<(Vec<u8>, DocumentCow)>,
    /// The current partition; its documents are removed as they are returned.
    current: ComputedPartition,
}

/// Documents of a partition, and the functions' values for them.
#[derive(Default)]
struct ComputedPartition {
    documents: BufferedRows,
    columns: Vec<std::vec::IntoIter<ValueBuf>>,
}

impl Running {
    /// Returns the key of a document's partition. Errors: TypeMismatch for an array.
    fn partition_key(&self, row: RowView<'_>) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if let Some(expression) = &self.stage.partition_by {
            let arena = Arena::new();
            let value = expression.evaluate(row, &self.environment.context, &arena)?;
            let value = value.unwrap_or(Value::Null);
            if let Value::Array(_) = value {
                bail!(TypeMismatch, "An expression used to partition cannot evaluate to value of type array");
            }
            let context = &self.environment.context;
            context.collation.append_large_key(value, true, &*context.interrupt, &mut key)?;
        }
        Ok(key)
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        while let Some(row) = input.next()? {
            self.interrupts.check_bytes(row.document.view().bytes().len())?;
            let mut key = self.partition_key(row.view())?;
            if let Some(sort_by) = &self.stage.sort_by {
                sort_by.pattern.key_in(row.view(), &self.environment.context, &mut key)?;
            }
            self.sorter.add(&key, 0, self.codec.encode(row))?;
        }
        self.sorter.finish()?;
        self.next_partition = self.next_sorted()?;
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<(Vec<u8>, DocumentCow)>> {
        let Some((_, document)) = self.sorter.next_document()? else { return Ok(None) };
        let key = self.codec.with_row(document.view(), |row| self.partition_key(row))?;
        Ok(Some((key, document)))
    }

    /// Reads the documents of the next partition.
    ///
    /// Errors: 5643011 beyond the memory limit if spilling is not allowed; the errors of temporary files.
    fn read_partition(&mut self) -> Result<PartitionBuffer> {
        let mut documents = PartitionBuffer::new(self.codec, &self.environment.context.spills);
        let Some((key, first)) = self.next_partition.take() else { return Ok(documents) };
        let (limit, disk) = (self.environment.context.limits.window, self.environment.allow_disk_use);
        documents.add(first, limit, disk)?;
        while let Some((next_key, document)) = self.next_sorted()? {
            self.interrupts.check_bytes(document.view().bytes().len())?;
            if next_key != key {
                self.next_partition = Some((next_key, document));
                break;
            }
            documents.add(document, limit, disk)?;
        }
        // Every function copies an argument and a result for each document.
        let values = documents.len() * size_of::<ValueBuf>() * 2 * self.stage.outputs.len();
        if disk && documents.bytes() > 0 && documents.bytes() + values > limit {
            documents.spill()?;
        }
        documents.finish()?;
        Ok(documents)
    }

    /// Computes the functions' values for a partition.
    ///
    /// Errors: 5414201 beyond the memory limit.
    fn compute(&mut self, documents: PartitionBuffer) -> Result<ComputedPartition> {
        let context = Arc::clone(&self.environment.context);
        let sort_by = self.stage.sort_by.as_ref();
        let mut columns: Vec<Vec<ValueBuf>> = Vec::new();
        let partition =
            Partition { documents: &documents, sort_by, context: &context, memory_used: Cell::new(0) };
        let mut results = 0;
        for (_, function) in &self.stage.outputs {
            let values = function.compute(&partition, &mut self.interrupts)?;
            // The function's memory is free again; its values remain.
            partition.memory_used.set(results);
            values.iter().try_for_each(|value| partition.track_value(Some(value)))?;
            results = partition.memory_used.get();
            columns.push(values);
        }
        let columns = columns.into_iter().map(Vec::into_iter).collect();
        Ok(ComputedPartition { documents: documents.into_rows(), columns })
    }

    /// Returns the next row of the current partition.
    fn next_output(&mut self) -> Result<Option<Row>> {
        let Some(mut row) = self.current.documents.next()? else { return Ok(None) };
        let outputs = self.stage.outputs.iter().zip(&mut self.current.columns);
        if let Some(positions) = &self.stage.positions {
            let values: Vec<_> =
                outputs.map(|((path, _), column)| (path.first_name(), column.next())).collect();
            let set = set_fields(row.document.view(), positions, &values);
            self.environment.context.limits.check_document(set.bytes().len())?;
            row.document = set.into();
            return Ok(Some(row));
        }
        for ((path, _), column) in outputs {
            let value = column.next();
            let set = set_path_in_arrays(row.document.view(), path, value.as_ref().map(ValueBuf::view));
            self.environment.context.limits.check_document(set.bytes().len())?;
            row.document = set.into();
        }
        Ok(Some(row))
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        loop {
            self.interrupts.check()?;
            if let Some(row) = self.next_output()? {
                return Ok(Some(row));
            }
            let documents = self.read_partition()?;
            if documents.len() == 0 {
                return Ok(None);
            }
            self.current = self.compute(documents)?;
        }
    }
}

#[cfg(test)]
#[path = "set_window_fields_tests.rs"]
mod tests;
