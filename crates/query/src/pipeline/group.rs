//! `$group`: folds documents with equal `_id` into one.
//!
//! Groups are in a hash table by the bytes of their key (`1` and `1.0` are one group) and are returned in the order of
//! first occurrence. Beyond the memory limit the whole table is spilled and restarted. It is written as rows of `_id`
//! and saved accumulators, sorted by key. At the end, the rows of each key are merged into one group in the order of
//! spilling. Spilled groups are therefore returned in the order of their keys.
//!
//! A new accumulator is a file in [`accumulator`](crate::accumulator); this file needs no change.
//!
//! ```text
//! {$group: {_id: <expression>, <field>: {<accumulator>: <expression>}, …}}
//! ```

use super::operator::{Operator, Reads};
use super::parallel::{self, Fold};
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::accumulator::{Accumulation, parse_field};
use crate::accumulator_state::Accumulator;
use crate::expression::{Dependencies, Expression};
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Interrupt, Row, Sorter};
use base::bson::{Builder, DocumentBuf, DocumentCow, Element, FieldNameBuf, Value, ValueBuf};
use base::{CompatibleWith, Error, ErrorCode, Result, bail, err};
use std::collections::HashMap;
use std::sync::Arc;

/// A parsed `$group`.
pub(crate) struct Group {
    id: Expression,
    fields: Vec<(FieldNameBuf, Accumulation)>,
}

/// Parses `$group`. Errors: 15947, 15955 and the errors of accumulators.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(spec) = spec.value() else {
        bail!(15947, "a group's fields must be specified in an object");
    };
    let mut id = None;
    let mut fields: Vec<(FieldNameBuf, Accumulation)> = Vec::new();
    for field in spec {
        if field.name() == "_id" {
            if id.is_some() {
                bail!(15948, "a group's _id may only be specified once");
            }
            check_id(field.value())?;
            id = Some(Expression::parse(field.value(), scope.context)?);
            continue;
        }
        if matches!(field.name(), "$doingMerge" | "$willBeMerged") {
            bail!(17030, "{} should be true if present", field.name());
        }
        if field.name().is_empty() && scope.context.compatible_with >= CompatibleWith::V9_0 {
            bail!(BadValue, "The name of an accumulator field in $group cannot be empty");
        }
        fields.push(parse_field(&field, scope.context)?);
    }
    let id = id.ok_or_else(|| err!(15955, "a group specification must include an _id"))?;
    Ok(Parsed::one(Group { id, fields }))
}

/// Checks a document in `_id`: it contains expressions, and no numbers or booleans as in a projection.
///
/// Errors: 17390.
fn check_id(id: Value<'_>) -> Result<()> {
    let Value::Document(fields) = id else { return Ok(()) };
    let is_operator = fields.first().is_some_and(|first| first.name().starts_with('$'));
    let listed =
        |field: Element<'_>| field.value().as_number().is_some() || field.value().as_bool().is_some();
    match !is_operator && fields.iter().any(listed) {
        true => Err(err!(17390, "$group does not support inclusion-style expressions")),
        false => Ok(()),
    }
}

impl Operator for Group {
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
        let limit = environment.context.limits.group;
        let groups = Groups::new(self, environment.clone(), limit);
        Ok(Box::new(Running { groups, input: Some(input), next_row: None }))
    }
}

/// The groups in memory.
#[derive(Default)]
struct Table {
    /// Positions in `groups` by key.
    positions: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    groups: Vec<GroupState>,
    /// Number of groups returned so far.
    returned: usize,
    /// Approximate memory in bytes.
    memory_used: usize,
}

/// A group: its `_id` and one state per accumulator.
struct GroupState {
    id: ValueBuf,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// Approximate memory of a group in bytes, without its key and its accumulators.
const GROUP_OVERHEAD: usize = 96;

impl Table {
    fn insert(&mut self, key: &[u8], state: GroupState) -> usize {
        let position = self.groups.len();
        self.memory_used += key.len() + state.id.bytes().len() + GROUP_OVERHEAD;
        self.memory_used += state.accumulators.iter().map(|state| state.memory()).sum::<usize>();
        self.positions.insert(key.into(), position);
        self.groups.push(state);
        position
    }
}

/// Groups of a part of the input, in memory and spilled.
struct Groups {
    stage: Arc<Group>,
    /// Memory limit of the table in bytes.
    limit: usize,
    table: Table,
    /// Rows of spilled groups.
    spilled: Option<Sorter>,
    environment: Environment,
    interrupts: InterruptCheck,
    arena: Arena,
    /// Number of rows read.
    rows: usize,
}

/// Rows for each group below which groups are too many to be joined.
const ROWS_PER_GROUP_MIN: usize = 8;

/// Divisor of the memory limit for the groups of one helping thread.
const HELPER_SHARE: usize = 4;

impl Groups {
    fn new(stage: Arc<Group>, environment: Environment, limit: usize) -> Groups {
        Groups {
            limit,
            table: Table::default(),
            spilled: None,
            interrupts: InterruptCheck::new(&environment.context),
            environment,
            stage,
            arena: Arena::new(),
            rows: 0,
        }
    }

    /// Prepares the groups for their return, after the whole input.
    fn end_input(&mut self) -> Result<()> {
        if self.spilled.is_some() {
            self.spill()?;
        }
        self.spilled.as_mut().map_or(Ok(()), Sorter::finish)
    }

    /// Creates an empty group.
    fn new_group(&self, id: Value<'_>) -> Result<GroupState> {
        let start = |(_, accumulation): &(FieldNameBuf, Accumulation)| {
            accumulation.start(id, &self.environment.context)
        };
        let accumulators = self.stage.fields.iter().map(start).collect::<Result<_>>()?;
        Ok(GroupState { id: id.to_owned(), accumulators })
    }

    fn add_argument(&mut self, position: usize, at: usize, argument: Option<Value<'_>>) -> Result<()> {
        let state = self.table.groups.get_mut(position).and_then(|group| group.accumulators.get_mut(at));
        let Some(state) = state else { return Ok(()) };
        if !state.grows() {
            return state.add(argument);
        }
        let before = state.memory();
        state.add(argument)?;
        self.table.memory_used = (self.table.memory_used + state.memory()).saturating_sub(before);
        // A single document may add much to many accumulators. The next spill comes only after it.
        self.environment.context.limits.check_document(self.table.memory_used.saturating_sub(self.limit))
    }

    /// Writes all groups of the table as rows.
    ///
    /// Errors: 292 if spilling is not allowed; the errors of temporary files.
    fn spill(&mut self) -> Result<()> {
        if !self.environment.allow_disk_use {
            bail!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in."
            );
        }
        let mut table = std::mem::take(&mut self.table);
        let folder = &self.environment.context.spills;
        let rows = self
            .spilled
            .get_or_insert_with(|| Sorter::new(usize::MAX, self.limit, true).spilling_into(folder));
        for (key, position) in table.positions.drain() {
            self.interrupts.check()?;
            let Some(group) = table.groups.get_mut(position) else { continue };
            let mut row = Builder::new();
            row.append(c"_id", &group.id);
            for (at, state) in std::mem::take(&mut group.accumulators).iter().enumerate() {
                row.append(&FieldNameBuf::of_number(at), &state.save());
            }
            rows.add(&key, 0, row.finish().into())?;
        }
        rows.spill()
    }

    fn read_row(&mut self) -> Result<Option<(Vec<u8>, DocumentCow)>> {
        let Some(spilled) = &mut self.spilled else { return Ok(None) };
        let Some((_, row)) = spilled.next_document()? else { return Ok(None) };
        Ok(Some((spilled.last_key().to_vec(), row)))
    }

    /// Adds a group of a later part.
    fn join_group(&mut self, key: &[u8], group: GroupState) -> Result<()> {
        let known = self.table.positions.get(key);
        let Some(known) = known.and_then(|position| self.table.groups.get_mut(*position)) else {
            self.table.insert(key, group);
            return Ok(());
        };
        for (state, later) in known.accumulators.iter_mut().zip(&group.accumulators) {
            let before = state.memory();
            state.merge(later.save().view())?;
            self.table.memory_used = (self.table.memory_used + state.memory()).saturating_sub(before);
        }
        Ok(())
    }

    fn finish(&self, group: &GroupState) -> Result<DocumentBuf> {
        let mut builder = Builder::new();
        builder.append(c"_id", &group.id);
        for ((name, _), state) in self.stage.fields.iter().zip(&group.accumulators) {
            builder.append(name, &state.finish()?);
            self.environment.context.limits.check_document(builder.len())?;
        }
        Ok(builder.finish())
    }
}

impl Fold for Groups {
    fn add(&mut self, section: &mut dyn Stage) -> Result<()> {
        let stage = Arc::clone(&self.stage);
        let context = Arc::clone(&self.environment.context);
        let mut arena = std::mem::take(&mut self.arena);
        let mut key = Vec::new();
        while let Some(row) = section.next()? {
            self.rows += 1;
            let root = row.view();
            self.interrupts.check_bytes(root.document.bytes().len())?;
            arena.reset();
            let id = stage.id.evaluate(root, &context, &arena)?.unwrap_or(Value::Null);
            key.clear();
            context.collation.append_large_key(id, true, &*context.interrupt, &mut key)?;
            let position = match self.table.positions.get(key.as_slice()) {
                Some(position) => *position,
                None => self.table.insert(&key, self.new_group(id)?),
            };
            for (at, (_, accumulation)) in stage.fields.iter().enumerate() {
                let argument = accumulation.argument(root, &context, &arena).map_err(division_error)?;
                self.add_argument(position, at, argument)?;
            }
            if self.table.memory_used > self.limit {
                self.spill()?;
            }
        }
        self.arena = arena;
        Ok(())
    }

    /// Without spilling, a part could reach its share of the memory limit with groups that fit into the whole.
    fn is_worth_splitting(&self) -> bool {
        let groups = &self.table.groups;
        let joins = |group: &GroupState| group.accumulators.iter().all(|state| state.joins_exactly());
        self.environment.allow_disk_use
            && self.spilled.is_none()
            && groups.len() * ROWS_PER_GROUP_MIN <= self.rows
            && groups.first().is_none_or(joins)
    }

    fn another(&mut self, interrupt: &Arc<dyn Interrupt>) -> Groups {
        let environment = self.environment.with_context(self.environment.context.for_helper(interrupt));
        let limit = environment.context.limits.group / HELPER_SHARE;
        Groups::new(self.stage.clone(), environment, limit)
    }

    fn join(&mut self, mut later: Groups) -> Result<()> {
        if later.spilled.is_some() {
            self.spill()?;
            later.spill()?;
            if let Some(rows) = &mut later.spilled {
                rows.finish()?;
            }
            while let (Some((key, row)), Some(rows)) = (later.read_row()?, &mut self.spilled) {
                self.interrupts.check()?;
                rows.add(&key, 0, row)?;
            }
            return Ok(());
        }
        let mut keys = vec![Box::<[u8]>::default(); later.table.groups.len()];
        for (key, position) in later.table.positions.drain() {
            if let Some(slot) = keys.get_mut(position) {
                *slot = key;
            }
        }
        for (key, group) in keys.iter().zip(later.table.groups) {
            self.interrupts.check()?;
            self.join_group(key, group)?;
        }
        if self.table.memory_used > self.limit { self.spill() } else { Ok(()) }
    }
}

/// A blocking stage, which reads its entire input before it returns groups.
struct Running {
    groups: Groups,
    input: Option<Stream>,
    /// The next spilled row and its key, read ahead to find the end of a group.
    next_row: Option<(Vec<u8>, DocumentCow)>,
}

impl Running {
    /// Returns the next group of the table.
    fn next_in_memory(&mut self) -> Result<Option<DocumentBuf>> {
        let table = &mut self.groups.table;
        let Some(group) = table.groups.get_mut(table.returned) else { return Ok(None) };
        table.returned += 1;
        // The accumulators are moved out, so memory shrinks as groups are returned.
        let group =
            GroupState { id: group.id.clone(), accumulators: std::mem::take(&mut group.accumulators) };
        self.groups.finish(&group).map(Some)
    }

    /// Returns the next spilled group.
    fn next_spilled(&mut self) -> Result<Option<DocumentBuf>> {
        let Some((key, mut row)) = self.next_row.take() else { return Ok(None) };
        let mut group = self.groups.new_group(row.view().get("_id").unwrap_or(Value::Null))?;
        loop {
            self.groups.interrupts.check()?;
            let saved = row.view().iter().skip(1);
            for (state, saved) in group.accumulators.iter_mut().zip(saved) {
                state.merge(saved.value())?;
            }
            match self.groups.read_row()? {
                Some((next_key, next)) if next_key == key => row = next,
                other => {
                    self.next_row = other;
                    return self.groups.finish(&group).map(Some);
                }
            }
        }
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            let context = Arc::clone(&self.groups.environment.context);
            parallel::fold(&mut self.groups, input, &context)?;
            self.groups.end_input()?;
            self.next_row = self.groups.read_row()?;
        }
        self.groups.interrupts.check()?;
        let group = match self.next_in_memory()? {
            Some(group) => Some(group),
            None => self.next_spilled()?,
        };
        Ok(group.map(Row::from))
    }
}

/// Replaces the codes of divisions by zero, which differ in the accumulators of MongoDB's `$group`.
fn division_error(error: Error) -> Error {
    match (error.code(), error.message()) {
        (ErrorCode::BadValue, message @ "can't $divide by zero") => err!(4848401, "{message}"),
        (ErrorCode::Location(16610), message) => err!(4848403, "{message}"),
        _ => error,
    }
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
    fn compound_ids_distinguish_missing_from_null() {
        gives(
            "[{a: 1}, {a: 1, b: null}, {a: 1}]",
            "[{$group: {_id: {a: '$a', b: '$b'}, n: {$count: {}}}}]",
            "[{_id: {a: 1}, n: 2}, {_id: {a: 1, b: null}, n: 1}]",
        );
    }

    /// All accumulators, over 300 groups whose documents are far apart.
    const ALL: &str = "[{$group: {_id: '$a', first: {$first: '$i'}, all: {$push: '$i'}, n: {$sum: 1},
        last: {$last: '$s'}, set: {$addToSet: {$mod: ['$i', 3]}}, mean: {$avg: '$i'}, top: {$topN:
        {n: 2, sortBy: {i: -1}, output: '$i'}}, least: {$minN: {n: 2, input: '$i'}}, count: {$count: {}},
        deviation: {$stdDevPop: 1}, max: {$max: '$i'}, tail: {$lastN: {n: 2, input: '$i'}}, median:
        {$median: {input: '$i', method: 'approximate'}}, merged: {$mergeObjects: {x: '$i', y: '$s'}},
        joined: {$concatArrays: {$range: [0, 2]}}, union: {$setUnion: {$range: [0, 3]}}, d: {$sum: {$toDecimal: '$i'}},
        half: {$sum: {$divide: ['$i', 2]}}, none: {$first: '$nope'}}}, {$sort: {_id: 1}}]";

    #[test]
    fn spilled_groups_equal_groups_in_memory() {
        let documents: String =
            (0..2000).map(|i| format!("{{a: {}, i: {i}, s: 'x{i}'}},", (i * 7919) % 300)).collect();
        let run = Run::new(&format!("[{documents}]"), ALL);
        let spilled = run.clone().memory(50_000).result().unwrap();
        assert_eq!(spilled, run.clone().result().unwrap());
        assert_eq!(spilled.len(), 300);
        run.memory(50_000)
            .no_disk()
            .fails(292, "Exceeded memory limit for $group, but didn't allow external");
    }

    #[test]
    fn states_that_grow_count_towards_the_memory() {
        let documents: String = (0..200).map(|i| format!("{{a: {}, i: {i}}},", i % 2)).collect();
        let run = Run::new(&format!("[{documents}]"), "[{$group: {_id: '$a', all: {$push: '$i'}}}]");
        run.clone().memory(10_000).result().unwrap();
        run.clone().memory(500).fails(146, "$push used too much memory and spilling to disk cannot reduce");
        run.memory(500).no_disk().fails(292, "Exceeded memory limit for $group");
        let run = Run::new(&format!("[{documents}]"), "[{$group: {_id: 1, all: {$addToSet: '$i'}}}]");
        run.memory(2000).fails(146, "$addToSet used too much memory");
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
