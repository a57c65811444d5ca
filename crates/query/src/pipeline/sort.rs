//! `$sort`: sorts documents by a pattern.
//!
//! Sort keys are encoded once and passed to the [`Sorter`], which spills beyond the memory limit. With a joined
//! `$limit`, only that number of documents is kept.
//!
//! ```text
//! {$sort: {<path>: 1 | -1 | {$meta: <kind>}, …}}
//! ```

use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Step, Stream};
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::{Context, MetaKind, Row, SortPattern, Sorter};
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
        let sorter = environment.sorter(limit, environment.context.limits.sort);
        let interrupts = InterruptCheck::new(&environment.context);
        let pattern = self.pattern.clone().collated(&environment.context.collation);
        let codec = RowCodec::new(&environment.context);
        let context = environment.context.clone();
        Ok(Box::new(Running { pattern, input: Some(input), interrupts, sorter, codec, context }))
    }
}

/// A blocking stage, which sorts the whole input.
struct Running {
    pattern: SortPattern,
    input: Option<Stream>,
    interrupts: InterruptCheck,
    sorter: Sorter,
    codec: RowCodec,
    context: Arc<Context>,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(mut input) = self.input.take() {
            let mut key = Vec::new();
            while let Some(row) = input.next()? {
                self.interrupts.check()?;
                key.clear();
                self.pattern.key_in(row.view(), &self.context, &mut key)?;
                self.sorter.add(&key, 0, self.codec.encode(row))?;
            }
            self.sorter.finish()?;
        }
        self.interrupts.check()?;
        let Some((_, held)) = self.sorter.next_document()? else { return Ok(None) };
        let mut row = self.codec.decode(held);
        if self.context.metadata.requires(MetaKind::SortKey) {
            self.pattern.set_sort_key(&mut row)?;
        }
        Ok(Some(row))
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
