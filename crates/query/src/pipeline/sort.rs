//! `$sort`: sorts documents by a pattern.
//!
//! Sort keys are encoded once and passed to the [`Sorter`], which spills beyond the memory limit. With a joined
//! `$limit`, only that number of documents is kept.
//!
//! ```text
//! {$sort: {<path>: 1 | -1 | {$meta: <kind>}, …}}
//! ```

use super::operator::{Effect, Kind, Operator, Reads};
use super::parallel::{self, Fold};
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Step, Stream};
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::sorter::Statistics;
use crate::{Context, Interrupt, MetaKind, Row, SortPattern, Sorter};
use base::bson::{Builder, DocumentBuf, Element, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$sort`.
pub(crate) struct Sort {
    spec: DocumentBuf,
    pattern: SortPattern,
    limit: Option<u64>,
}

/// Parses `$sort`. Errors: 15973, 15976, and errors of sort patterns.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(keys) = spec.value() else {
        bail!(15973, "the $sort key specification must be an object");
    };
    let pattern = SortPattern::parse(keys)?.require_metadata(scope.context);
    if pattern.is_empty() {
        bail!(15976, "$sort stage must have at least one sort key");
    }
    if pattern.natural().is_some() {
        bail!(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.");
    }
    Ok(Parsed::one(Sort { spec: keys.to_owned(), pattern, limit: None }))
}

impl Sort {
    /// Returns the sort with a limit.
    pub(crate) fn limited(&self, like: &Step, limit: u64) -> Step {
        let limit = self.limit.map_or(limit, |limited| limited.min(limit));
        let mut builder = Builder::new();
        builder.begin_document(c"$sort").append(c"sortKey", &self.spec);
        builder.append(c"limit", i64::try_from(limit).unwrap_or(i64::MAX)).end();
        let (spec, pattern) = (self.spec.clone(), self.pattern.clone());
        Step::new(like.definition, builder.finish(), Arc::new(Sort { spec, pattern, limit: Some(limit) }))
    }

    /// The pattern and the limit.
    pub(crate) fn parts(&self) -> (&SortPattern, Option<u64>) {
        (&self.pattern, self.limit)
    }
}

impl Operator for Sort {
    fn kind(&self) -> Kind<'_> {
        Kind::Sort(self)
    }

    fn effect(&self) -> Effect {
        if self.limit.is_some() { Effect::Opaque } else { Effect::Reorders }
    }

    fn reads(&self) -> Reads {
        Reads::Also(self.pattern.fields().iter().map(|(path, _)| path.clone()).collect())
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let context = &environment.context;
        let sorter = environment.sorter(limit, context.limits.sort);
        let pattern = Arc::new(self.pattern.clone().collated(&context.collation));
        let rows = RowSorter::new(&pattern, sorter, context.metadata.requires_any(), context);
        Ok(Box::new(Running { input: Some(input), rows }))
    }
}

/// Sorts rows. `$sort` and find's SORT use it.
pub struct RowSorter {
    pattern: Arc<SortPattern>,
    sorter: Sorter,
    codec: RowCodec,
    context: Arc<Context>,
    interrupts: InterruptCheck,
    key: Vec<u8>,
}

impl RowSorter {
    /// Creates a sorter of rows that keeps their record ids and, if requested, their metadata.
    pub fn new(
        pattern: &Arc<SortPattern>,
        sorter: Sorter,
        keeps_metadata: bool,
        context: &Arc<Context>,
    ) -> RowSorter {
        RowSorter {
            pattern: pattern.clone(),
            sorter,
            codec: RowCodec(keeps_metadata),
            interrupts: InterruptCheck::new(context),
            context: context.clone(),
            key: Vec::new(),
        }
    }

    /// Adds at most `count` rows. Returns true at the end of the rows.
    ///
    /// Errors: those of the rows, of [`SortPattern::key`] and of [`Sorter::add`]; interruption.
    #[inline]
    pub fn add_rows(&mut self, mut next: impl FnMut() -> Result<Option<Row>>, count: u64) -> Result<bool> {
        for _ in 0..count {
            let Some(mut row) = next()? else { return Ok(true) };
            self.interrupts.check()?;
            self.key.clear();
            match row.metadata.as_ref().and_then(|metadata| metadata.order.as_deref()) {
                Some(order) => self.key.extend_from_slice(order),
                None => self.pattern.key_in(row.view(), &self.context, &mut self.key)?,
            }
            let id = std::mem::take(&mut row.record_id);
            self.sorter.add(&self.key, id, self.codec.encode(row))?;
        }
        Ok(false)
    }

    /// Adds all rows, with the help of idle processors.
    ///
    /// Errors: as [`add_rows`](Self::add_rows).
    pub fn add_all(&mut self, input: Stream) -> Result<()> {
        let context = self.context.clone();
        parallel::fold(self, input, &context)
    }

    /// Ends adding. Errors: errors of temporary files.
    pub fn finish(&mut self) -> Result<()> {
        self.sorter.finish()
    }

    /// Returns the next row in order.
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        let Some((record_id, encoded)) = self.sorter.next_document()? else { return Ok(None) };
        Ok(Some(Row { record_id, ..self.codec.decode(encoded) }))
    }

    /// Returns the number of rows added and the statistics so far.
    pub fn statistics(&self) -> (u64, Statistics) {
        (self.sorter.added(), self.sorter.statistics())
    }
}

impl Fold for RowSorter {
    fn add(&mut self, section: &mut dyn Stage) -> Result<()> {
        self.add_rows(|| section.next(), u64::MAX).map(|_| ())
    }

    fn is_worth_splitting(&self) -> bool {
        self.sorter.is_worth_splitting()
    }

    fn end_part(&mut self) -> Result<()> {
        self.sorter.end_part()
    }

    fn another(&mut self, interrupt: &Arc<dyn Interrupt>) -> RowSorter {
        let context = Arc::new(self.context.for_helper(interrupt));
        RowSorter::new(&self.pattern, self.sorter.another(), self.codec.0, &context)
    }

    fn join(&mut self, later: RowSorter) -> Result<()> {
        self.sorter.join(later.sorter);
        Ok(())
    }
}

/// A blocking stage, which sorts the whole input.
struct Running {
    input: Option<Stream>,
    rows: RowSorter,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            self.rows.add_all(input)?;
            self.rows.finish()?;
        }
        self.rows.interrupts.check()?;
        let mut row = self.rows.next_row()?;
        if let Some(row) = &mut row
            && self.rows.context.metadata.requires(MetaKind::SortKey)
        {
            self.rows.pattern.set_sort_key(row)?;
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails, gives};

    #[test]
    fn sorts_and_keeps_the_order_of_equals() {
        let input = "[{a: 2, i: 1}, {a: 1, i: 2}, {i: 3}, {a: 1, i: 4}, {a: 'x', i: 5}]";
        gives(
            input,
            "[{$sort: {a: 1}}]",
            "[{i: 3}, {a: 1, i: 2}, {a: 1, i: 4}, {a: 2, i: 1}, {a: 'x', i: 5}]",
        );
        gives(
            input,
            "[{$sort: {a: -1, i: -1}}]",
            "[{a: 'x', i: 5}, {a: 2, i: 1}, {a: 1, i: 4}, {a: 1, i: 2}, {i: 3}]",
        );
    }

    #[test]
    fn a_limit_behind_it_gives_the_first() {
        let input = "[{a: 2}, {a: 1, i: 1}, {a: 3}, {a: 1, i: 2}, {a: 1, i: 3}]";
        gives(input, "[{$sort: {a: 1}}, {$limit: 2}]", "[{a: 1, i: 1}, {a: 1, i: 2}]");
    }

    #[test]
    fn spilled_runs_merge_into_the_same_order() {
        let documents: String = (0..500).map(|i| format!("{{a: {}, i: {i}}},", (i * 7919) % 50)).collect();
        let pipeline = "[{$sort: {a: 1}}]";
        let all = Run::new(&format!("[{documents}]"), pipeline);
        assert_eq!(all.clone().memory(2000).result().unwrap(), all.clone().result().unwrap());
        let limited = Run::new(&format!("[{documents}]"), "[{$sort: {a: -1}}, {$limit: 60}]");
        assert_eq!(limited.clone().memory(2000).result().unwrap(), limited.result().unwrap());
        let error = all.memory(2000).no_disk().result().unwrap_err();
        assert_eq!(error.code().number(), 292);
    }

    #[test]
    fn refuses_bad_patterns() {
        fails("[{$sort: 1}]", 15973, "the $sort key specification must be an object");
        fails("[{$sort: {}}]", 15976, "$sort stage must have at least one sort key");
        fails("[{$sort: {a: 'x'}}]", 15974, "Illegal key in $sort specification");
    }
}
