//! `$lookup` without an index: a hash table of the foreign collection, so the join does not scan it for each document.
//!
//! The table returns candidates in the order of a scan: all documents that may match, and perhaps others. The caller
//! filters them as it filters a scan. The result is therefore that of the scan, for null, arrays, patterns and
//! collations too.

use super::collections::Namespace;
use super::fields::visit_values;
use super::lookup::Lookup;
use super::operator::Kind;
use super::{Environment, Pipeline};
use crate::expression::{Dependencies, Expression};
use crate::interrupt_check::{InterruptCheck, sort_in_runs};
use crate::{Arena, Context};
use base::Result;
use base::bson::{Document, DocumentBuf, Path, PathComponent, Value};
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Number of local documents joined by nested loop before a table is built. A table costs several reads.
const NESTED_LOOP_MAX: usize = 2;

/// The equality of a `$lookup`.
#[derive(Clone)]
pub(super) struct Equality {
    sides: Sides,
    /// The foreign paths of the leading filters. No table is built if an index may serve one of them.
    paths: Vec<Path>,
}

#[derive(Clone)]
enum Sides {
    /// `localField` and `foreignField`: any values at the paths.
    Fields(Path, Path),
    /// `$eq` of a path and a variable in an `$expr`.
    Expressions { foreign: Expression, variable: Expression },
}

impl Equality {
    /// Finds the equality of a stage; `None` if it has none, or if the filters may read whole documents.
    ///
    /// `context` has the variables of the pipeline.
    pub(super) fn of(
        fields: Option<&(Path, Path)>,
        pipeline: Option<&Pipeline>,
        context: &Context,
    ) -> Option<Equality> {
        let mut paths: Vec<Path> = fields.iter().map(|(_, foreign)| foreign.clone()).collect();
        let mut sides = fields.map(|(local, foreign)| Sides::Fields(local.clone(), foreign.clone()));
        for step in pipeline.iter().flat_map(|pipeline| &pipeline.steps) {
            match step.operator.kind() {
                Kind::Match(stage) => {
                    for filter in stage.written() {
                        sides = sides.or_else(|| expressions(filter, context));
                        paths.extend(read_by(filter, context)?);
                    }
                }
                Kind::Sort(_) | Kind::GeoNear(_) | Kind::Source => return None,
                _ => break,
            }
        }
        Some(Equality { sides: sides?, paths })
    }
}

/// Returns the paths that a condition reads.
fn read_by(filter: Document<'_>, context: &Context) -> Option<Vec<Path>> {
    let Some(expression) = filter.get("$expr") else { return crate::matcher::unparsed::paths(filter) };
    match Expression::parse(expression, context).ok()?.dependencies() {
        Dependencies::Paths(paths) => Some(paths.into_iter().collect()),
        Dependencies::Whole => None,
    }
}

/// Returns the sides of `{$expr: {$eq: ["$path", "$$variable"]}}`, in either order.
fn expressions(filter: Document<'_>, context: &Context) -> Option<Sides> {
    let equality = filter.get("$expr")?.as_document()?;
    let Value::Array(sides) = equality.get("$eq")? else { return None };
    let (a, b) = (sides.get(0)?.as_str()?, sides.get(1)?.as_str()?);
    let (path, variable) = if a.starts_with("$$") { (b, a) } else { (a, b) };
    let name = variable.strip_prefix("$$")?.split('.').next()?;
    let is_declared = context.variables.iter().any(|(known, _)| known == name);
    if path.starts_with("$$") || !path.starts_with('$') || !is_declared {
        return None;
    }
    let parsed = |text| Expression::parse(Value::String(text), context).ok();
    Some(Sides::Expressions { foreign: parsed(path)?, variable: parsed(variable)? })
}

/// The join algorithm of a running `$lookup`.
pub(super) enum Join {
    /// A read of the foreign collection for each local document; the number of reads so far.
    NestedLoop(usize),
    /// A hash table of the foreign collection.
    Hash(Table),
    /// Nested loop without a later table: an index may serve it, the foreign side is a view, or the table exceeds its
    /// memory limit.
    NestedLoopOnly,
}

impl Join {
    /// Returns the documents that may match one local document; `None` if the collection must be read.
    ///
    /// `context` has the variables of the pipeline.
    pub(super) fn candidates(
        &mut self,
        stage: &Lookup,
        local: Document<'_>,
        context: &Context,
        environment: &Environment,
    ) -> Result<Option<Vec<DocumentBuf>>> {
        let (Some(equality), Some(from)) = (&stage.hash_equality, &stage.from) else { return Ok(None) };
        if let Join::NestedLoop(reads) = self {
            *reads += 1;
            if *reads <= NESTED_LOOP_MAX {
                return Ok(None);
            }
            *self = match Table::build(equality, from, environment)? {
                Some(table) => Join::Hash(table),
                None => Join::NestedLoopOnly,
            };
        }
        let Join::Hash(table) = self else { return Ok(None) };
        let mut hashes = Vec::new();
        match &equality.sides {
            Sides::Fields(path, _) => {
                visit_values(Value::Document(local), path.components(), &mut |value| {
                    hashes.push(table.hash(Some(value), context));
                });
                if hashes.is_empty() {
                    hashes.push(table.hash(None, context));
                }
            }
            Sides::Expressions { variable, .. } => {
                let arena = Arena::new();
                hashes.push(table.hash(variable.evaluate(Document::EMPTY, context, &arena)?, context));
            }
        }
        Ok(Some(table.of(hashes)))
    }
}

/// The documents of the foreign collection by the hashes of their values.
pub(super) struct Table {
    documents: Vec<DocumentBuf>,
    /// Hashes with the positions of their documents, sorted.
    entries: Vec<(u64, u32)>,
    state: RandomState,
}

impl Table {
    /// Reads the foreign collection; `None` if an index may serve the equality, or beyond the memory limit.
    fn build(equality: &Equality, from: &Namespace, environment: &Environment) -> Result<Option<Table>> {
        let context = &*environment.context;
        let Some(mut all) = environment.collections.scan(from, &equality.paths, environment)? else {
            return Ok(None);
        };
        let mut table = Table { documents: Vec::new(), entries: Vec::new(), state: RandomState::default() };
        let (mut bytes, mut arena, mut interrupts) = (0, Arena::new(), InterruptCheck::new(context));
        while let Some(row) = all.next()? {
            let document = row.document.view();
            let Ok(position) = u32::try_from(table.documents.len()) else { return Ok(None) };
            let mut hashes = Vec::new();
            match &equality.sides {
                Sides::Fields(_, foreign) => {
                    visit_comparable(Value::Document(document), foreign.components(), &mut |value| {
                        hashes.push(table.hash(value, context));
                    });
                }
                Sides::Expressions { foreign, .. } => {
                    hashes.push(table.hash(foreign.evaluate(document, context, &arena)?, context));
                }
            }
            arena.reset();
            let size =
                document.bytes().len() + size_of::<DocumentBuf>() + hashes.len() * size_of::<(u64, u32)>();
            bytes += size;
            if bytes > context.limits.hash_lookup {
                return Ok(None);
            }
            interrupts.check_bytes(size)?;
            table.entries.extend(hashes.into_iter().map(|hash| (hash, position)));
            table.documents.push(document.to_owned());
        }
        sort_in_runs(&mut table.entries, &*context.interrupt, Ord::cmp)?;
        table.entries.dedup();
        Ok(Some(table))
    }

    /// Returns a hash that is equal for equal values, and for null, undefined and missing.
    fn hash(&self, value: Option<Value<'_>>, context: &Context) -> u64 {
        let mut key = Vec::new();
        if let Some(value) = value.filter(|value| !value.is_nullish()) {
            context.collation.append_key(value, true, &mut key);
        }
        self.state.hash_one(&key)
    }

    /// Returns the documents with one of these hashes, in their order.
    fn of(&self, mut hashes: Vec<u64>) -> Vec<DocumentBuf> {
        hashes.sort_unstable();
        hashes.dedup();
        let mut positions = Vec::new();
        for hash in hashes {
            let first = self.entries.partition_point(|(known, _)| *known < hash);
            let equal = self.entries.iter().skip(first).take_while(|(known, _)| *known == hash);
            positions.extend(equal.map(|(_, position)| *position));
        }
        positions.sort_unstable();
        positions.dedup();
        positions.iter().filter_map(|position| self.documents.get(*position as usize)).cloned().collect()
    }
}

/// Calls `visit` for every value at a path that a filter may compare, and perhaps for others. `None` stands for
/// missing.
fn visit_comparable<'a>(
    value: Value<'a>,
    components: &[PathComponent],
    visit: &mut dyn FnMut(Option<Value<'a>>),
) {
    let Some((first, rest)) = components.split_first() else {
        visit(Some(value));
        if let Value::Array(array) = value {
            array.iter().for_each(|element| visit(Some(element)));
        }
        return;
    };
    match value {
        Value::Document(document) => match document.get(first.name()) {
            Some(inner) => visit_comparable(inner, rest, visit),
            None => visit(None),
        },
        Value::Array(array) => {
            visit(None);
            for element in array.iter() {
                if let Value::Document(_) = element {
                    visit_comparable(element, components, visit);
                }
            }
            if let Some(inner) = first.index().and_then(|index| array.get(index)) {
                visit_comparable(inner, rest, visit);
            }
        }
        _ => visit(None),
    }
}

#[cfg(test)]
mod tests {
    use crate::Collation;
    use crate::pipeline::testing::{Run, parse};
    use proptest::prelude::*;

    /// Values that filters and expressions compare in unequal ways.
    const VALUES: [&str; 22] = [
        "null",
        "1",
        "1.0",
        "NumberLong(2)",
        "NaN",
        "'a'",
        "'A'",
        "/a/",
        "[]",
        "[1, 2]",
        "[[1, 2]]",
        "[null]",
        "{}",
        "{b: 1}",
        "{b: null}",
        "{b: [1, 2]}",
        "[{b: 1}, {b: 'a'}]",
        "[{c: 1}]",
        "[[{b: 1}]]",
        "{b: {c: 1}}",
        "true",
        "{'0': 1}",
    ];

    const STAGES: [&str; 8] = [
        "localField: 'a', foreignField: 'a'",
        "localField: 'a.b', foreignField: 'a'",
        "localField: 'a', foreignField: 'a.b'",
        "localField: 'a', foreignField: 'a.0'",
        "localField: 'a', foreignField: 'a', pipeline: [{$match: {a: {$ne: 1}}}, {$project: {_id: 1}}]",
        "let: {x: '$a'}, pipeline: [{$match: {$expr: {$eq: ['$a', '$$x']}}}]",
        "let: {x: '$a'}, pipeline: [{$match: {$expr: {$eq: ['$$x.b', '$a.b']}, _id: {$gt: 3}}}, {$limit: 2}]",
        "let: {x: '$a'}, pipeline: [{$match: {$expr: {$eq: ['$a', '$$x']}, $or: [{a: 1}, {a: null}]}}]",
    ];

    fn collection(values: &[usize]) -> String {
        let document = |(id, at): (usize, &usize)| match VALUES.get(*at) {
            Some(value) => format!("{{_id: {id}, a: {value}}}"),
            None => format!("{{_id: {id}}}"),
        };
        format!("[{}]", values.iter().enumerate().map(document).collect::<Vec<_>>().join(", "))
    }

    proptest! {
        #[test]
        fn a_table_equals_reads(
            local in prop::collection::vec(0..=VALUES.len(), 3..12),
            foreign in prop::collection::vec(0..=VALUES.len(), 0..20),
            stage in prop::sample::select(STAGES.to_vec()),
            unwinds: bool,
            collated: bool,
            limit in prop::sample::select(vec![100, 100_000]),
        ) {
            let unwind = if unwinds { ", {$unwind: '$r'}" } else { "" };
            let pipeline = format!("[{{$lookup: {{from: 'f', as: 'r', {stage}}}}}{unwind}]");
            let result = |scans: bool| {
                let run = Run::new(&collection(&local), &pipeline).with("f", &collection(&foreign));
                let collation = match collated {
                    true => Collation::parse(parse("{locale: 'en', strength: 2}").view(), "collation").unwrap(),
                    false => Collation::SIMPLE,
                };
                if scans {
                    run.collections.allow_scans();
                }
                run.joined(limit, collation).result().unwrap()
            };
            prop_assert_eq!(result(true), result(false));
        }
    }

    #[test]
    fn many_documents_are_joined_by_a_table() {
        let documents = collection(&[1; 20]);
        let run =
            Run::new(&documents, "[{$lookup: {from: 'f', localField: '_id', foreignField: '_id', as: 'r'}}]");
        let run = run.with("f", &documents);
        run.collections.allow_scans();
        run.result().unwrap();
        let log = run.collections.log.lock();
        assert_eq!(log[..3], ["find f { _id: { $eq: 0 } }", "find f { _id: { $eq: 1 } }", "scan f"]);
    }
}
