//! `$densify`: creates documents for the missing steps of a range.
//!
//! Documents are sorted by partition and field. A counter advances along the steps and creates a document for each step
//! without one.

use super::densify_spec::{Densify, DensifyBounds};
use super::fields::set_path;
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::{Collation, Row, Sorter};
use base::bson::{Document, DocumentBuf, Element, Value, ValueBuf, compare};
use base::{Result, bail};
use std::cmp::Ordering;
use std::sync::Arc;

/// Parses `$densify`. Errors: see [`Densify::parse`].
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    Ok(Parsed::one(Densify::parse(spec)?))
}

impl Operator for Densify {
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.sort),
            interrupts: InterruptCheck::new(&environment.context),
            codec: RowCodec::new(&environment.context),
            collation: environment.context.collation.clone(),
            extremes: None,
            ahead: None,
            partition: None,
            made: 0,
            made_max: environment.context.limits.densify_documents,
        }))
    }
}

/// A blocking stage: it sorts the whole input, then returns one partition after another.
struct Running {
    stage: Arc<Densify>,
    input: Option<Stream>,
    sorter: Sorter,
    interrupts: InterruptCheck,
    codec: RowCodec,
    collation: Collation,
    /// The least and greatest value of all documents.
    extremes: Option<(ValueBuf, ValueBuf)>,
    /// The next row of the input.
    ahead: Option<Row>,
    partition: Option<Steps>,
    made: usize,
    /// Maximum number of documents that the stage may create.
    made_max: usize,
}

/// The steps of one partition.
struct Steps {
    key: Vec<u8>,
    /// Fields of created documents other than the stepped field.
    base: DocumentBuf,
    anchor: ValueBuf,
    count: i64,
    /// The next step; `None` beyond the range of dates.
    next: Option<ValueBuf>,
    /// The end of the steps, and whether it is inclusive.
    end: Option<(ValueBuf, bool)>,
}

impl Steps {
    /// Whether a value is before the end of the steps.
    fn is_within(&self, value: Value<'_>) -> bool {
        match &self.end {
            None => false,
            Some((end, inclusive)) => match compare(value, end.view()) {
                Ordering::Less => true,
                Ordering::Equal => *inclusive,
                Ordering::Greater => false,
            },
        }
    }

    fn advance(&mut self, stage: &Densify) {
        self.count += 1;
        self.next = self.next.take().and_then(|value| stage.step(&self.anchor, &value, self.count));
    }
}

impl Running {
    /// Returns the field's value; `None` if the document passes unchanged.
    fn value<'d>(&self, document: Document<'d>) -> Option<Value<'d>> {
        self.stage.field.get(document).filter(|value| !value.is_nullish())
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        while let Some(row) = input.next()? {
            self.interrupts.check()?;
            let mut key = self.partition_key(row.document.view());
            let value = self.value(row.document.view());
            if let Some(value) = value {
                self.stage.check_value(value)?;
                self.widen(value.to_owned());
            }
            self.collation.append_key(value.unwrap_or(Value::Null), true, &mut key);
            self.sorter.add(&key, 0, self.codec.encode(row))?;
        }
        self.sorter.finish()?;
        self.ahead = self.next_sorted()?;
        if self.ahead.is_none() && self.stage.partition_by.is_empty() {
            self.begin_without_documents();
        }
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<Row>> {
        Ok(self.sorter.next_document()?.map(|(_, held)| self.codec.decode(held)))
    }

    /// Extends the range of all documents' values by a value.
    fn widen(&mut self, value: ValueBuf) {
        match &mut self.extremes {
            None => self.extremes = Some((value.clone(), value)),
            Some((least, greatest)) => {
                if compare(value.view(), least.view()) == Ordering::Less {
                    *least = value;
                } else if compare(value.view(), greatest.view()) == Ordering::Greater {
                    *greatest = value;
                }
            }
        }
    }

    fn partition_key(&self, document: Document<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        for path in &self.stage.partition_by {
            self.collation.append_key(path.get(document).unwrap_or(Value::Null), true, &mut key);
        }
        key
    }

    /// Returns the steps of the partition that begins with this document, whose field has this value.
    fn begin(&self, document: Document<'_>, value: Value<'_>) -> Steps {
        let mut base = DocumentBuf::empty();
        for path in &self.stage.partition_by {
            if let Some(value) = path.get(document) {
                base = set_path(base.view(), path, Some(value));
            }
        }
        let (anchor, end) = match (&self.stage.ends, &self.extremes) {
            (DensifyBounds::Explicit(lower, upper), _) => (lower.clone(), Some((upper.clone(), false))),
            (DensifyBounds::Full, Some((least, greatest))) => (least.clone(), Some((greatest.clone(), true))),
            (DensifyBounds::Full, None) | (DensifyBounds::Partition, _) => (value.to_owned(), None),
        };
        let next = Some(anchor.clone());
        Steps { key: self.partition_key(document), base, anchor, count: 0, next, end }
    }

    /// Starts an explicit range without documents, which is filled nevertheless.
    fn begin_without_documents(&mut self) {
        if let DensifyBounds::Explicit(..) = self.stage.ends {
            self.partition = Some(self.begin(Document::EMPTY, Value::Null));
        }
    }

    /// Returns the document of the next step, if the step is before `value` (or before the end, for `None`).
    fn make(&mut self, value: Option<Value<'_>>) -> Result<Option<DocumentBuf>> {
        let Some(steps) = &mut self.partition else { return Ok(None) };
        let Some(next) = &steps.next else { return Ok(None) };
        let due = match value {
            Some(value) => {
                compare(next.view(), value) == Ordering::Less
                    && (steps.end.is_none() || steps.is_within(next.view()))
            }
            None => steps.is_within(next.view()),
        };
        if !due {
            return Ok(None);
        }
        let made = set_path(steps.base.view(), &self.stage.field, Some(next.view()));
        steps.advance(&self.stage);
        self.made += 1;
        if self.made > self.made_max {
            bail!(
                5897900,
                "Generated {} documents in $densify, which is over the limit of {}. Increase the \
                 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents",
                self.made,
                self.made_max
            );
        }
        Ok(Some(made))
    }

    /// Returns a created document before the next row, or the next row.
    fn step(&mut self, row: Row) -> Result<Row> {
        let document = row.document.view();
        let key = self.partition_key(document);
        let changes = self.partition.as_ref().is_some_and(|steps| steps.key != key);
        if changes {
            if let Some(made) = self.make(None)? {
                self.ahead = Some(row);
                return Ok(made.into());
            }
            self.partition = None;
        }
        let Some(value) = self.value(document) else {
            self.ahead = self.next_sorted()?;
            return Ok(row);
        };
        if self.partition.is_none() {
            self.partition = Some(self.begin(document, value));
        }
        if let Some(made) = self.make(Some(value))? {
            self.ahead = Some(row);
            return Ok(made.into());
        }
        if let Some(steps) = &mut self.partition
            && steps.next.as_ref().is_some_and(|next| compare(next.view(), value).is_eq())
        {
            steps.advance(&self.stage);
        }
        self.ahead = self.next_sorted()?;
        Ok(row)
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        self.interrupts.check()?;
        match self.ahead.take() {
            Some(row) => self.step(row).map(Some),
            None => Ok(self.make(None)?.map(Row::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{gives, running_fails};

    const INPUT: &str =
        "[{_id: 1, p: 'a', x: 1}, {_id: 2, p: 'a', x: 4}, {_id: 3, p: 'b', x: 2}, {_id: 4, p: 'b'}]";

    #[test]
    fn steps_between_documents() {
        gives(
            "[{x: 1}, {x: 4.5}, {y: 1}]",
            "[{$densify: {field: 'x', range: {step: 1, bounds: 'full'}}}]",
            "[{y: 1}, {x: 1}, {x: 2}, {x: 3}, {x: 4}, {x: 4.5}]",
        );
        gives(
            INPUT,
            "[{$densify: {field: 'x', partitionByFields: ['p'], range: {step: 1, bounds: 'partition'}}}]",
            "[{_id: 1, p: 'a', x: 1}, {p: 'a', x: 2}, {p: 'a', x: 3}, {_id: 2, p: 'a', x: 4}, {_id: 4, p: 'b'},
              {_id: 3, p: 'b', x: 2}]",
        );
        gives(
            INPUT,
            "[{$densify: {field: 'x', partitionByFields: ['p'], range: {step: 2, bounds: 'full'}}}]",
            "[{_id: 1, p: 'a', x: 1}, {p: 'a', x: 3}, {_id: 2, p: 'a', x: 4}, {_id: 4, p: 'b'}, {p: 'b', x: 1},
              {_id: 3, p: 'b', x: 2}, {p: 'b', x: 3}]",
        );
        gives(
            "[{x: 1}, {x: 9}]",
            "[{$densify: {field: 'x', range: {step: 2, bounds: [0, 5]}}}]",
            "[{x: 0}, {x: 1}, {x: 2}, {x: 4}, {x: 9}]",
        );
        gives("[]", "[{$densify: {field: 'x', range: {step: 2, bounds: [0, 3]}}}]", "[{x: 0}, {x: 2}]");
    }

    #[test]
    fn steps_of_time() {
        gives(
            "[{t: ISODate('2024-01-31T00:00:00Z')}, {t: ISODate('2024-03-31T00:00:00Z')}]",
            "[{$densify: {field: 't', range: {step: 1, unit: 'month', bounds: 'full'}}}]",
            "[{t: ISODate('2024-01-31T00:00:00Z')}, {t: ISODate('2024-02-29T00:00:00Z')}, {t: ISODate('2024-03-31T00:00:00Z')}]",
        );
    }

    #[test]
    fn refuses_values_of_other_types() {
        let by_number = "[{$densify: {field: 'x', range: {step: 1, bounds: 'full'}}}]";
        running_fails("[{x: 'a'}]", by_number, 5733201, "Densify field type must be numeric");
        let by_day = "[{$densify: {field: 'x', range: {step: 1, unit: 'day', bounds: 'full'}}}]";
        running_fails("[{x: 1}]", by_day, 6053600, "numeric densify value");
        let endless = "[{$densify: {field: 'x', range: {step: 1, bounds: [0, 1000000]}}}, {$count: 'n'}]";
        running_fails("[]", endless, 5897900, "over the limit of 500000");
    }
}
