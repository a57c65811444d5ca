//! `$setWindowFields`: fields computed from the documents around each one.
//!
//! Documents are sorted by partition and pattern; one partition at a time is held in memory and
//! handed to the window functions.

use super::fields::set_path;
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::expression::checked_path;
use crate::tick::Tick;
use crate::window::{Function, Partition, SortBy, parse_output};
use crate::{Arena, Context, Expression, SortPattern, Sorter};
use base::bson::{Document, DocumentBuf, DocumentCow, Element, Path, Value};
use base::{Result, err};
use std::sync::Arc;

struct SetWindowFields {
    partition_by: Option<Expression>,
    sort_by: Option<SortBy>,
    outputs: Vec<(Path, Box<dyn Function>)>,
}

/// Errors: FailedToParse, 40414, 40415 for bad, missing and unknown options; those of functions.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        let found = spec.kind().alias();
        return Err(err!(
            FailedToParse,
            "the $setWindowFields stage specification must be an object, found {found}"
        ));
    };
    for option in options {
        if !matches!(option.name(), "partitionBy" | "sortBy" | "output") {
            return Err(err!(40415, "BSON field '$setWindowFields.{}' is an unknown field.", option.name()));
        }
    }
    let partition_by =
        options.get("partitionBy").map(|value| Expression::parse(value, scope.context)).transpose()?;
    let sort_by = options.get("sortBy").map(|value| parse_sort_by(value, scope.context)).transpose()?;
    let Some(output) = options.get("output") else {
        return Err(err!(40414, "BSON field '$setWindowFields.output' is missing but a required field"));
    };
    let outputs = parse_outputs(output, sort_by.as_ref(), scope.context)?;
    Ok(Parsed::one(SetWindowFields { partition_by, sort_by, outputs }))
}

fn parse_sort_by(value: Value<'_>, context: &Context) -> Result<SortBy> {
    match value {
        Value::Document(spec) => {
            Ok(SortBy { pattern: SortPattern::parse(spec)?.collated(&context.collation) })
        }
        other => Err(err!(
            TypeMismatch,
            "BSON field '$setWindowFields.sortBy' is the wrong type '{}', expected type 'object'",
            other.kind().alias()
        )),
    }
}

type Outputs = Vec<(Path, Box<dyn Function>)>;

fn parse_outputs(value: Value<'_>, sort_by: Option<&SortBy>, context: &Context) -> Result<Outputs> {
    let Value::Document(fields) = value else {
        return Err(err!(
            TypeMismatch,
            "BSON field '$setWindowFields.output' is the wrong type '{}', expected type 'object'",
            value.kind().alias()
        ));
    };
    let mut outputs: Outputs = Vec::new();
    for field in fields {
        let path = checked_path(field.name())?;
        let conflict = outputs.iter().find(|(other, _)| other.starts_with(&path) || path.starts_with(other));
        if let Some((other, _)) = conflict {
            return Err(err!(
                40176,
                "specification contains two conflicting paths. Cannot specify both '{path}' and '{other}'"
            ));
        }
        outputs.push((path, parse_output(&field, sort_by, context)?));
    }
    Ok(outputs)
}

impl Operator for SetWindowFields {
    fn name(&self) -> &'static str {
        "$setWindowFields"
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.sort),
            tick: Tick::new(&environment.context),
            environment: environment.clone(),
            ahead: None,
            ready: Vec::new().into_iter(),
        }))
    }
}

struct Running {
    stage: Arc<SetWindowFields>,
    input: Option<Stream>,
    sorter: Sorter,
    tick: Tick,
    environment: Environment,
    /// The first document of the next partition and that partition's key.
    ahead: Option<(Vec<u8>, DocumentCow)>,
    /// The rest of the partition that is being given out.
    ready: std::vec::IntoIter<DocumentBuf>,
}

impl Running {
    /// Errors: TypeMismatch where the partition is an array.
    fn partition_key(&self, document: Document<'_>) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if let Some(expression) = &self.stage.partition_by {
            let arena = Arena::new();
            let value = expression.evaluate(document, &self.environment.context, &arena)?;
            let value = value.unwrap_or(Value::Null);
            if let Value::Array(_) = value {
                return Err(err!(
                    TypeMismatch,
                    "An expression used to partition cannot evaluate to value of type array"
                ));
            }
            self.environment.context.collation.append_key(value, true, &mut key);
        }
        Ok(key)
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        while let Some(document) = input.next()? {
            self.tick.check()?;
            let mut key = self.partition_key(document.view())?;
            if let Some(sort_by) = &self.stage.sort_by {
                sort_by.pattern.key(document.view(), &mut key)?;
            }
            self.sorter.add(&key, 0, document)?;
        }
        self.sorter.finish()?;
        self.ahead = self.next_sorted()?;
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<(Vec<u8>, DocumentCow)>> {
        let Some((_, document)) = self.sorter.give()? else { return Ok(None) };
        Ok(Some((self.partition_key(document.view())?, document)))
    }

    /// The documents of the next partition.
    ///
    /// Errors: 5414201 beyond the memory.
    fn gather(&mut self) -> Result<Vec<DocumentCow>> {
        let Some((key, first)) = self.ahead.take() else { return Ok(Vec::new()) };
        let mut held = first.view().bytes().len();
        let mut documents = vec![first];
        while let Some((next_key, document)) = self.next_sorted()? {
            self.tick.check()?;
            if next_key != key {
                self.ahead = Some((next_key, document));
                break;
            }
            held += document.view().bytes().len() + size_of::<DocumentCow>();
            if held > self.environment.context.limits.window {
                return Err(err!(
                    5414201,
                    "Exceeded memory limit in DocumentSourceSetWindowFields, used {held} bytes but max allowed is {} \
                     bytes",
                    self.environment.context.limits.window
                ));
            }
            documents.push(document);
        }
        Ok(documents)
    }

    /// The documents of a partition with their new fields.
    fn compute(&mut self, documents: &[DocumentCow]) -> Result<Vec<DocumentBuf>> {
        let stage = Arc::clone(&self.stage);
        let context = Arc::clone(&self.environment.context);
        let partition = Partition { documents, sort_by: stage.sort_by.as_ref(), context: &context };
        let mut results: Vec<DocumentBuf> = Vec::new();
        for (at, (path, function)) in stage.outputs.iter().enumerate() {
            let values = function.compute(&partition, &mut self.tick)?;
            if at == 0 {
                let documents = documents.iter().zip(&values);
                results = documents.map(|(d, value)| set_path(d.view(), path, Some(value.view()))).collect();
                continue;
            }
            for (result, value) in results.iter_mut().zip(&values) {
                *result = set_path(result.view(), path, Some(value.view()));
            }
        }
        if stage.outputs.is_empty() {
            results = documents.iter().map(|document| document.view().to_owned()).collect();
        }
        Ok(results)
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        loop {
            if let Some(document) = self.ready.next() {
                return Ok(Some(document.into()));
            }
            let documents = self.gather()?;
            if documents.is_empty() {
                return Ok(None);
            }
            self.ready = self.compute(&documents)?.into_iter();
        }
    }
}

#[cfg(test)]
#[path = "set_window_fields_tests.rs"]
mod tests;
