//! `$sort`: documents in the order of a pattern.
//!
//! Keys of bytes are made once and compared as bytes. With the `$limit` behind it joined to it, a
//! heap keeps only so many documents. What exceeds the memory is written in sorted runs, which
//! are merged at the end. Equal keys keep the order they came in.

use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::spill::{Run, RunWriter};
use super::{Environment, Stage, Step, Stream};
use crate::SortPattern;
use crate::tick::Tick;
use base::bson::{Builder, DocumentBuf, DocumentCow, Element, Value};
use base::{Result, err};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A parsed `$sort`.
pub(crate) struct Sort {
    spec: DocumentBuf,
    pattern: SortPattern,
    limit: Option<u64>,
}

/// Errors: 15973, 15976, and those of sort patterns.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(keys) = spec.value() else {
        return Err(err!(15973, "the $sort key specification must be an object"));
    };
    let pattern = SortPattern::parse(keys)?;
    if pattern.is_empty() {
        return Err(err!(15976, "$sort stage must have at least one sort key"));
    }
    if pattern.natural().is_some() {
        return Err(err!(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField."
        ));
    }
    Ok(Parsed::one(Sort { spec: keys.to_owned(), pattern, limit: None }))
}

impl Sort {
    /// The same sort of which only the first documents are wanted.
    pub(crate) fn limited(pattern: &DocumentBuf, limit: u64) -> Result<Step> {
        let sort =
            Sort { spec: pattern.clone(), pattern: SortPattern::parse(pattern.view())?, limit: Some(limit) };
        let mut builder = Builder::new();
        builder.begin_document("$sort").append("sortKey", pattern);
        builder.append("limit", i64::try_from(limit).unwrap_or(i64::MAX)).end();
        Ok(Step { spec: builder.finish(), operator: Arc::new(sort) })
    }
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "$sort"
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Sort { pattern: &self.spec, limit: self.limit }
    }

    fn effect(&self) -> Effect {
        if self.limit.is_some() { Effect::Opaque } else { Effect::Reorders }
    }

    fn reads(&self) -> Reads {
        Reads::Also(self.pattern.fields().iter().map(|(path, _)| path.clone()).collect())
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let sorter = Sorter::new(limit, environment);
        let tick = Tick::new(&environment.context);
        let pattern = self.pattern.clone().collated(&environment.context.collation);
        Ok(Box::new(Running { pattern, input: Some(input), tick, sorter }))
    }
}

struct Running {
    pattern: SortPattern,
    input: Option<Stream>,
    tick: Tick,
    sorter: Sorter,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        if let Some(mut input) = self.input.take() {
            while let Some(document) = input.next()? {
                self.tick.check()?;
                let mut key = Vec::new();
                self.pattern.key(document.view(), &mut key)?;
                self.sorter.add(key, document)?;
            }
            self.sorter.finish()?;
        }
        self.tick.check()?;
        self.sorter.next()
    }
}

/// A document, its key and its number: ordered by key, equal keys by number.
struct Entry {
    key: Vec<u8>,
    number: u64,
    document: DocumentCow,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key.cmp(&other.key).then(self.number.cmp(&other.number))
    }
}

impl Entry {
    fn memory(&self) -> usize {
        size_of::<Entry>() + self.key.len() + self.document.view().bytes().len()
    }
}

/// Sorts documents by keys: all, or the first so many.
pub(crate) struct Sorter {
    limit: usize,
    memory_limit: usize,
    allow_disk_use: bool,
    /// While adding with a limit: the greatest on top.
    heap: BinaryHeap<Entry>,
    /// While adding without: as they came. Afterwards: sorted backwards, the next one last.
    entries: Vec<Entry>,
    held: usize,
    added: u64,
    runs: Vec<Run>,
    /// While merging: the smallest of each run (the run's number stands for the entry's).
    merge: BinaryHeap<Reverse<Entry>>,
    given: usize,
}

impl Sorter {
    /// A sorter that gives at most `limit` documents.
    pub(crate) fn new(limit: usize, environment: &Environment) -> Sorter {
        Sorter {
            limit,
            memory_limit: environment.memory_limit,
            allow_disk_use: environment.allow_disk_use,
            heap: BinaryHeap::new(),
            entries: Vec::new(),
            held: 0,
            added: 0,
            runs: Vec::new(),
            merge: BinaryHeap::new(),
            given: 0,
        }
    }

    /// Takes one more document.
    ///
    /// Errors: 292 beyond the memory where spilling isn't allowed; those of temporary files.
    pub(crate) fn add(&mut self, key: Vec<u8>, document: DocumentCow) -> Result<()> {
        let entry = Entry { key, number: self.added, document };
        self.added += 1;
        if self.limit == usize::MAX {
            self.held += entry.memory();
            self.entries.push(entry);
        } else {
            self.add_to_heap(entry);
        }
        if self.held > self.memory_limit { self.spill() } else { Ok(()) }
    }

    fn add_to_heap(&mut self, entry: Entry) {
        if self.heap.len() == self.limit {
            match self.heap.peek() {
                Some(greatest) if entry < *greatest => {
                    self.held -= self.heap.pop().map_or(0, |greatest| greatest.memory());
                }
                _ => return,
            }
        }
        self.held += entry.memory();
        self.heap.push(entry);
    }

    /// What is held, sorted.
    fn take_sorted(&mut self) -> Vec<Entry> {
        self.held = 0;
        if !self.heap.is_empty() {
            return std::mem::take(&mut self.heap).into_sorted_vec();
        }
        let mut entries = std::mem::take(&mut self.entries);
        // By number too, so that an unstable sort is as good as a stable one.
        entries.sort_unstable();
        entries
    }

    fn spill(&mut self) -> Result<()> {
        if !self.allow_disk_use {
            return Err(err!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting.",
                self.memory_limit
            ));
        }
        let mut writer = RunWriter::create()?;
        for entry in self.take_sorted() {
            writer.write(&entry.key, entry.document.view().bytes())?;
        }
        self.runs.push(writer.finish()?);
        Ok(())
    }

    /// Ends adding.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.runs.is_empty() {
            self.entries = self.take_sorted();
            self.entries.reverse();
            return Ok(());
        }
        self.spill()?;
        (0..self.runs.len()).try_for_each(|run| self.refill(run))
    }

    /// Takes the next entry of a run into the merge. Runs were written in the order of their
    /// documents' coming, so equal keys go by run.
    fn refill(&mut self, run: usize) -> Result<()> {
        if let Some(source) = self.runs.get_mut(run)
            && let Some((key, document)) = source.next()?
        {
            self.merge.push(Reverse(Entry { key, number: run as u64, document: document.into() }));
        }
        Ok(())
    }

    /// The next document in order.
    pub(crate) fn next(&mut self) -> Result<Option<DocumentCow>> {
        if self.given == self.limit {
            return Ok(None);
        }
        self.given += 1;
        if let Some(entry) = self.entries.pop() {
            return Ok(Some(entry.document));
        }
        let Some(Reverse(entry)) = self.merge.pop() else { return Ok(None) };
        self.refill(entry.number as usize)?;
        Ok(Some(entry.document))
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
