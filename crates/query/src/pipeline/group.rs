//! `$group`: documents with the same `_id` folded into one.
//!
//! Groups live in a hash table by the bytes of their key (`1` and `1.0` are one group) and come
//! out in the order they were first seen. Beyond the memory, documents of groups that are not in
//! the table yet wait in a file, as rows of `_id` and arguments; when the table has been given
//! out, the rows are grouped likewise. So no two halves of a group are ever merged, and the order
//! within each group stays as it was.

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::spill::{Run, RunWriter};
use super::{Environment, Stage, Stream};
use crate::Arena;
use crate::accumulator::{Accumulation, Accumulator, parse_field};
use crate::expression::{Dependencies, Expression};
use crate::tick::Tick;
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, Element, Value, ValueBuf};
use base::{Result, err};
use std::collections::HashMap;
use std::sync::Arc;

/// A parsed `$group`.
pub(crate) struct Group {
    id: Expression,
    fields: Vec<(String, Accumulation)>,
}

/// Errors: 15947, 15955 and those of accumulators.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(spec) = spec.value() else {
        return Err(err!(15947, "a group's fields must be specified in an object"));
    };
    let mut id = None;
    let mut fields: Vec<(String, Accumulation)> = Vec::new();
    for field in spec {
        if field.name() == "_id" {
            if id.is_some() {
                return Err(err!(15948, "a group's _id may only be specified once"));
            }
            id = Some(Expression::parse(field.value(), scope.context)?);
            continue;
        }
        if matches!(field.name(), "$doingMerge" | "$willBeMerged") {
            return Err(err!(17030, "{} should be true if present", field.name()));
        }
        fields.push(parse_field(&field, scope.context)?);
    }
    let id = id.ok_or_else(|| err!(15955, "a group specification must include an _id"))?;
    Ok(Parsed::one(Group { id, fields }))
}

impl Operator for Group {
    fn name(&self) -> &'static str {
        "$group"
    }

    fn reads(&self) -> Reads {
        let all = std::iter::once(self.id.dependencies())
            .chain(self.fields.iter().map(|(_, accumulation)| accumulation.dependencies()));
        let mut paths = Vec::new();
        for dependencies in all {
            match dependencies {
                Dependencies::Paths(read) => paths.extend(read),
                Dependencies::Whole => return Reads::Everything,
            }
        }
        Reads::Only(paths)
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            table: Table::new(&self, environment),
            tick: Tick::new(&environment.context),
            environment: environment.clone(),
            stage: self,
            input: Some(input),
            rows: None,
            arena: Arena::new(),
        }))
    }
}

/// The groups held in memory.
struct Table {
    positions: HashMap<Box<[u8]>, usize>,
    groups: Vec<State>,
    given: usize,
    held: usize,
    /// Rows of groups that didn't fit.
    overflow: Option<RunWriter>,
    limit: usize,
}

struct State {
    id: ValueBuf,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// Roughly what a group takes besides its key and its accumulators.
const GROUP_OVERHEAD: usize = 96;

impl Table {
    fn new(_stage: &Group, environment: &Environment) -> Table {
        Table {
            positions: HashMap::new(),
            groups: Vec::new(),
            given: 0,
            held: 0,
            overflow: None,
            limit: environment.memory_limit,
        }
    }

    /// The group with this key, if it is in the table.
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.positions.get(key).copied()
    }

    fn insert(&mut self, key: &[u8], state: State) -> usize {
        let position = self.groups.len();
        self.held += key.len() + state.id.bytes().len() + GROUP_OVERHEAD;
        self.held += state.accumulators.iter().map(|state| state.memory()).sum::<usize>();
        self.positions.insert(key.into(), position);
        self.groups.push(state);
        position
    }

    fn is_full(&self) -> bool {
        self.held > self.limit
    }
}

struct Running {
    stage: Arc<Group>,
    input: Option<Stream>,
    /// Rows of an earlier round that are to be grouped in this one.
    rows: Option<Run>,
    table: Table,
    environment: Environment,
    tick: Tick,
    arena: Arena,
}

impl Running {
    /// Groups the input.
    fn load(&mut self, mut input: Stream) -> Result<()> {
        let stage = Arc::clone(&self.stage);
        let context = Arc::clone(&self.environment.context);
        let mut key = Vec::new();
        while let Some(document) = input.next()? {
            self.tick.check()?;
            self.arena.reset();
            let arena = std::mem::take(&mut self.arena);
            let root = document.view();
            let id = stage.id.evaluate(root, &context, &arena)?.unwrap_or(Value::Null);
            key.clear();
            context.collation.append_key(id, true, &mut key);
            match self.place(&key, id)? {
                Some(position) => {
                    for (at, (_, accumulation)) in stage.fields.iter().enumerate() {
                        let argument = accumulation.argument(root, &context, &arena)?;
                        self.add(position, at, argument)?;
                    }
                }
                None => {
                    let mut row = Builder::new();
                    row.append("_id", id);
                    for (at, (_, accumulation)) in stage.fields.iter().enumerate() {
                        row.append_optional(&at.to_string(), accumulation.argument(root, &context, &arena)?);
                    }
                    self.overflow(&key, row.finish().view())?;
                }
            }
            self.arena = arena;
        }
        Ok(())
    }

    /// Groups rows that an earlier round left.
    fn load_rows(&mut self, mut rows: Run) -> Result<()> {
        let stage = Arc::clone(&self.stage);
        while let Some((key, row)) = rows.next()? {
            self.tick.check()?;
            let row = row.view();
            match self.place(&key, row.get("_id").unwrap_or(Value::Null))? {
                Some(position) => {
                    for at in 0..stage.fields.len() {
                        self.add(position, at, row.get(&at.to_string()))?;
                    }
                }
                None => self.overflow(&key, row)?,
            }
        }
        Ok(())
    }

    /// The position of the group, which is made where there is room; `None` where it must wait.
    fn place(&mut self, key: &[u8], id: Value<'_>) -> Result<Option<usize>> {
        if let Some(position) = self.table.position(key) {
            return Ok(Some(position));
        }
        // The first group of a round always fits, so every round gets on.
        if self.table.is_full() && !self.table.groups.is_empty() {
            return Ok(None);
        }
        let start =
            |(_, accumulation): &(String, Accumulation)| accumulation.start(id, &self.environment.context);
        let accumulators = self.stage.fields.iter().map(start).collect::<Result<_>>()?;
        Ok(Some(self.table.insert(key, State { id: id.to_owned(), accumulators })))
    }

    fn add(&mut self, position: usize, at: usize, argument: Option<Value<'_>>) -> Result<()> {
        let state = self.table.groups.get_mut(position).and_then(|group| group.accumulators.get_mut(at));
        let Some(state) = state else { return Ok(()) };
        if !state.grows() {
            return state.add(argument);
        }
        let before = state.memory();
        state.add(argument)?;
        self.table.held = (self.table.held + state.memory()).saturating_sub(before);
        if self.table.is_full() && !self.environment.allow_disk_use {
            return Err(too_much_memory(self.table.limit));
        }
        Ok(())
    }

    fn overflow(&mut self, key: &[u8], row: Document<'_>) -> Result<()> {
        if !self.environment.allow_disk_use {
            return Err(too_much_memory(self.table.limit));
        }
        if self.table.overflow.is_none() {
            self.table.overflow = Some(RunWriter::create()?);
        }
        match &mut self.table.overflow {
            Some(writer) => writer.write(key, row.bytes()),
            None => Ok(()),
        }
    }

    /// The next group of the table.
    fn give(&mut self) -> Result<Option<DocumentBuf>> {
        let Some(group) = self.table.groups.get_mut(self.table.given) else { return Ok(None) };
        self.table.given += 1;
        let mut builder = Builder::new();
        builder.append("_id", &group.id);
        // Taken out, so that memory shrinks as groups are given.
        let accumulators = std::mem::take(&mut group.accumulators);
        for ((name, _), state) in self.stage.fields.iter().zip(accumulators) {
            builder.append(name, &state.finish()?);
        }
        Ok(Some(builder.finish()))
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        loop {
            if let Some(input) = self.input.take() {
                self.load(input)?;
            } else if let Some(rows) = self.rows.take() {
                self.load_rows(rows)?;
            }
            self.tick.check()?;
            if let Some(group) = self.give()? {
                return Ok(Some(group.into()));
            }
            let Some(overflow) = self.table.overflow.take() else { return Ok(None) };
            self.table = Table::new(&self.stage, &self.environment);
            self.rows = Some(overflow.finish()?);
        }
    }
}

fn too_much_memory(limit: usize) -> base::Error {
    err!(
        QueryExceededMemoryLimitNoDiskUseAllowed,
        "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in. \
         Limit: {limit} bytes"
    )
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails, gives};

    #[test]
    fn folds_documents_by_id() {
        let input = "[{a: 1, b: 1}, {a: 2, b: 2}, {a: 1.0, b: 3}, {b: 4}, {a: null, b: 5}]";
        gives(
            input,
            "[{$group: {_id: '$a', n: {$sum: 1}, b: {$push: '$b'}}}]",
            "[{_id: 1, n: 2, b: [1, 3]}, {_id: 2, n: 1, b: [2]}, {_id: null, n: 2, b: [4, 5]}]",
        );
        gives(input, "[{$group: {_id: null, b: {$avg: '$b'}}}]", "[{_id: null, b: 3.0}]");
        gives("[]", "[{$group: {_id: null, n: {$sum: 1}}}]", "[]");
    }

    #[test]
    fn compound_ids_tell_missing_from_null() {
        gives(
            "[{a: 1}, {a: 1, b: null}, {a: 1}]",
            "[{$group: {_id: {a: '$a', b: '$b'}, n: {$count: {}}}}]",
            "[{_id: {a: 1}, n: 2}, {_id: {a: 1, b: null}, n: 1}]",
        );
    }

    #[test]
    fn what_does_not_fit_waits_and_gives_the_same_groups() {
        let documents: String = (0..2000).map(|i| format!("{{a: {}, i: {i}}},", (i * 7919) % 300)).collect();
        let pipeline = "[{$group: {_id: '$a', first: {$first: '$i'}, all: {$push: '$i'}, n: {$sum: 1}}}]";
        let run = Run::new(&format!("[{documents}]"), pipeline);
        let spilled = run.clone().memory(20_000).result().unwrap();
        assert_eq!(spilled, run.clone().result().unwrap());
        assert_eq!(spilled.len(), 300);
        assert_eq!(run.memory(20_000).no_disk().result().unwrap_err().code().number(), 292);
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$group: 1}]", 15947, "a group's fields must be specified in an object");
        fails("[{$group: {}}]", 15955, "a group specification must include an _id");
        fails("[{$group: {_id: 1, a: 1}}]", 40234, "The field 'a' must be an accumulator object");
        fails("[{$group: {_id: 1, 'a.b': {$sum: 1}}}]", 40235, "The field name 'a.b' cannot contain '.'");
        fails("[{$group: {_id: 1, $a: {$sum: 1}}}]", 40236, "The field name '$a' cannot be an operator name");
        fails("[{$group: {_id: 1, a: {$sum: [1, 2]}}}]", 40237, "The $sum accumulator is a unary operator");
        fails(
            "[{$group: {_id: 1, a: {$sum: 1, $avg: 1}}}]",
            40238,
            "The field 'a' must specify one accumulator",
        );
        fails("[{$group: {_id: 1, a: {$nope: 1}}}]", 15952, "unknown group operator '$nope'");
    }
}
