//! The property: every plan has the result of the collection scan.

use crate::scope::Scope;

use super::generate::Random;
use crate::catalog::history::View;
use crate::database::Database;
use crate::explain::Verbosity;
use crate::index::KeyKind;
use crate::plan::bounds::is_positional;
use crate::plan::build;
use crate::{AggregateRequest, FindRequest, Hint, InsertRequest, ManualClock, Operation, Read};
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value};
use base::{CompatibleWith, Namespace, Result};
use query::matcher::Matcher;
use query::{Collation, Context, Row, SortPattern};
use std::sync::Arc;
use storage::MemoryEngine;

struct World {
    database: Arc<Database>,
    namespace: Namespace,
    operation: Arc<Operation>,
    context: Arc<Context>,
    text: String,
}

/// Result of a read for comparison: the ids in order, and their sort keys.
#[derive(Debug, PartialEq)]
struct Outcome {
    ids: Vec<u64>,
    keys: Vec<Vec<u8>>,
}

fn collation(random: &mut Random) -> Collation {
    match random.collation() {
        Some(document) => Collation::parse(document.view(), "collation").unwrap(),
        None => Collation::SIMPLE,
    }
}

/// Returns a version of MongoDB: rules for null differ.
fn version(random: &mut Random) -> CompatibleWith {
    if random.chance(30) { CompatibleWith::V9_0 } else { CompatibleWith::default() }
}

impl World {
    fn new(random: &mut Random) -> World {
        let clock = Arc::new(ManualClock::new(0));
        let world = World {
            database: Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap(),
            namespace: Namespace::parse("test.c").unwrap(),
            operation: Arc::new(Operation::new(1)),
            context: Arc::new(
                Context::for_tests().with_collation(collation(random)).with_version(version(random)),
            ),
            text: String::new(),
        };
        world.fill(random)
    }

    fn fill(mut self, random: &mut Random) -> World {
        let arrays = if random.chance(40) { 0 } else { random.below(50) };
        if random.chance(15) {
            let options = base::bson::extended_json::parse("{clusteredIndex: {key: {_id: 1}, unique: true}}");
            let options = options.unwrap();
            let (database, context) = (&self.database, &self.context);
            database.create_collection(&Operation::new(0), &self.namespace, options.view(), context).unwrap();
            self.text += "clustered\n";
        }
        for number in 0..1 + random.below(4) as usize {
            let spec = random.index(number);
            // An index without a collation is simple here, like its collection.
            let simple = Context::for_tests();
            let parsed = crate::index::IndexSpec::parse(spec.view(), &self.namespace, &simple);
            let Ok(parsed) = parsed else { continue };
            if self
                .database
                .create_indexes(&Operation::new(0), &self.namespace, [parsed], &self.context)
                .is_ok()
            {
                self.text += &format!("{spec}\n");
            }
        }
        for id in 0..random.below(24) as i32 {
            let document = random.document(id, arrays);
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            if self
                .database
                .insert(&Scope::new(&Arc::new(Operation::new(0)), &self.namespace, &self.context), insert)
                .is_ok()
            {
                self.text += &format!("{document}\n");
            }
        }
        self
    }

    fn run(&self, view: &View, read: &Read, rejected: Option<usize>) -> Result<Vec<Row>> {
        let collection = view.catalog.get(&self.namespace).unwrap();
        let mut stream = match rejected {
            None => self.database.read(&self.operation, view, collection, read.clone(), &self.context)?,
            Some(position) => {
                let plan = build::plan(&self.operation, view, collection, read.clone(), &self.context)?;
                plan.open(&plan.rejected()[position])?
            }
        };
        let mut records = Vec::new();
        while let Some(record) = stream.next()? {
            records.push(record);
        }
        Ok(records)
    }
}

fn outcome(records: &[Row], read: &Read, document_of: &dyn Fn(u64) -> DocumentBuf) -> Outcome {
    let ids: Vec<u64> = records.iter().map(|record| record.record_id).collect();
    let sort = read.sort.as_ref();
    let key = |id: &u64| {
        let mut key = Vec::new();
        if let Some(sort) = sort {
            sort.key(document_of(*id).view(), &mut key).unwrap();
        }
        key
    };
    Outcome { keys: ids.iter().map(key).collect(), ids }
}

/// Runs one case. Returns whether the plan used an index.
fn case(seed: u64) {
    let mut random = Random::new(seed);
    let world = World::new(&mut random);
    if world.database.collection(&world.namespace).is_none() {
        return;
    }
    let view = world.database.view();
    for _ in 0..40 {
        query(&world, &view, &mut random, seed);
    }
}

fn query(world: &World, view: &View, random: &mut Random, seed: u64) {
    let filter = random.filter();
    let Ok(matcher) = Matcher::parse(filter.view(), &world.context) else { return };
    let sort = if random.chance(50) { random.sort() } else { DocumentBuf::empty() };
    let mut read = Read::new(Arc::new(matcher));
    if !sort.view().is_empty() {
        read.sort =
            Some(Arc::new(SortPattern::parse(sort.view()).unwrap().collated(&world.context.collation)));
    }
    let scan = Read { hint: Some(Hint::Natural { forward: true }), ..read.clone() };
    let all = Read {
        sort: None,
        matcher: Arc::new(Matcher::parse(Document::EMPTY, &world.context).unwrap()),
        ..scan.clone()
    };
    let everything = world.run(view, &all, None).unwrap();
    let document_of =
        |id: u64| everything.iter().find(|record| record.record_id == id).unwrap().document.view().to_owned();
    // Parallel arrays cannot be sorted. An index detects them only if its fields have them.
    let Ok(expected) = world.run(view, &scan, None) else { return };
    let expected = outcome(&expected, &read, &document_of);
    let about = |label: &str| {
        format!(
            "seed {seed}: {label}\nfilter {filter}\nsort {sort}\n{:?}\n{}",
            world.context.collation, world.text
        )
    };
    let check = |records: Result<Vec<Row>>, label: &str| {
        let found = outcome(&records.unwrap(), &read, &document_of);
        let (mut a, mut b) = (found.ids.clone(), expected.ids.clone());
        a.sort_unstable();
        b.sort_unstable();
        assert!(a == b, "{}\nfound {a:?}\nwanted {b:?}", about(label));
        assert!(
            found.keys == expected.keys,
            "{}\nfound {:?}\nwanted {:?}",
            about(label),
            found.ids,
            expected.ids
        );
    };
    check(world.run(view, &read, None), "chosen plan");
    let plan_of = |read: &Read| {
        let collection = view.catalog.get(&world.namespace).unwrap();
        build::plan(&world.operation, view, collection, read.clone(), &world.context).unwrap()
    };
    let plan = plan_of(&read);
    for position in 0..plan.rejected().len() {
        check(world.run(view, &read, Some(position)), "rejected plan");
    }
    if is_served(world, &filter) {
        let plan = explained(world, &filter);
        assert!(!plan.contains("COLLSCAN"), "{}\n{plan}", about("an index was not used"));
    }
    plan.each_index(|index| assert!(!index.spec.hidden, "{}", about("a hidden index was used")));
    let data = world.database.collection(&world.namespace).unwrap();
    for index in &data.data().unwrap().indexes {
        let all = !index.spec.sparse && index.spec.partial.is_none();
        if !all || index.spec.hidden || !index.spec.serves_plain_queries() {
            continue;
        }
        let hinted = Read { hint: Some(Hint::Name(index.spec.name.clone())), ..read.clone() };
        let found = world.run(view, &hinted, None);
        // A wildcard index may be unusable.
        if index.spec.wildcard.is_some() && found.is_err() {
            continue;
        }
        check(found, &format!("hint {}", index.spec.name));
        covered(
            world,
            view,
            &hinted,
            index.spec.parts.iter().map(|p| p.path.clone()).collect(),
            &document_of,
            &about,
        );
        counted(world, view, &hinted, expected.ids.len(), &about);
    }
    counted(world, view, &read, expected.ids.len(), &about);
    distinct(world, random.path(), &filter, &about);
    grouped(world, random, &filter, &about);
    by_partial(world, &about);
    limited(world, view, &read, &expected, random, &about);
}

/// Returns true if an index bounds a filter by numbers: it has all documents with numbers at a path
/// of the filter.
fn is_served(world: &World, filter: &DocumentBuf) -> bool {
    let collection = world.database.collection(&world.namespace).unwrap();
    let indexes = &collection.data().unwrap().indexes;
    filter.view().iter().any(|condition| {
        let (path, ranges) = (Path::new(condition.field_name()), ["$eq", "$gt", "$gte", "$lt", "$lte"]);
        let is_number = |value: Value<'_>| matches!(value, Value::Int32(_));
        let (number, equal) = match condition.value() {
            Value::Document(operators) => {
                let all = |among: &[&str]| {
                    let mut each = operators.iter();
                    each.all(|operator| among.contains(&operator.name()) && is_number(operator.value()))
                };
                (all(&ranges) && !operators.is_empty(), all(&["$eq"]))
            }
            value => (is_number(value), true),
        };
        let serves = |index: &Arc<crate::index::Index>| {
            let spec = &index.spec;
            let Some(first) = spec.parts.first() else { return false };
            let plain = spec.serves_plain_queries() && spec.partial.is_none() && !spec.hidden;
            plain
                && match &spec.wildcard {
                    Some(wildcard) => wildcard.part == 0 && wildcard.covers(&path) && !is_positional(&path),
                    None => first.path == path && (first.kind != KeyKind::Hashed || equal),
                }
        };
        number && indexes.iter().any(serves)
    })
}

/// Returns the explanation of a filter's plan.
fn explained(world: &World, filter: &DocumentBuf) -> String {
    let request = FindRequest::new(filter.view());
    let (database, operation) = (&world.database, &world.operation);
    let verbosity = Verbosity::QueryPlanner;
    let explained = database
        .explain_find(&Scope::new(operation, &world.namespace, &world.context), &request, verbosity)
        .unwrap();
    explained
        .view()
        .get("queryPlanner")
        .and_then(|plan| plan.as_document()?.get("winningPlan"))
        .unwrap()
        .to_string()
}

/// Checks that a covered plan returns the values of the documents.
fn covered(
    world: &World,
    view: &View,
    read: &Read,
    paths: Vec<Path>,
    document_of: &dyn Fn(u64) -> DocumentBuf,
    about: &dyn Fn(&str) -> String,
) {
    let read = Read { covering: Some(paths.clone()), ..read.clone() };
    for record in world.run(view, &read, None).unwrap() {
        let document = document_of(record.record_id);
        for path in &paths {
            let (found, expected) = (path.get(record.document.view()), path.get(document.view()));
            let show = |value: Option<Value<'_>>| value.map(|value| value.to_owned());
            let same = show(found) == show(expected);
            assert!(same, "{}\n{path}: {found:?} {expected:?}", about("covered"));
        }
    }
}

fn counted(world: &World, view: &View, read: &Read, expected: usize, about: &dyn Fn(&str) -> String) {
    let read = Read { covering: Some(Vec::new()), sort: None, ..read.clone() };
    let collection = view.catalog.get(&world.namespace).unwrap();
    let start =
        || world.database.read(&world.operation, view, collection, read.clone(), &world.context).unwrap();
    assert_eq!(start().count().unwrap(), expected as u64, "{}", about("count"));
    let mut stream = start();
    let mut count = 0;
    while stream.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, expected, "{}", about("count by records"));
}

/// Checks that the distinct values of a path are equal for every plan.
fn distinct(world: &World, path: &str, filter: &DocumentBuf, about: &dyn Fn(&str) -> String) {
    let values = |hint| {
        let (operation, context) = (&world.operation, &world.context);
        world.database.distinct(&Scope::new(operation, &world.namespace, context), path, filter.view(), hint)
    };
    // An expression may fail on documents that a plan skips.
    let Ok(expected) = values(Some(Hint::Natural { forward: true })) else { return };
    let found = values(None).unwrap();
    let same = |a: &DocumentBuf, b: &DocumentBuf| {
        let values = |from: &DocumentBuf| -> Vec<_> {
            let values = from.view().get("values").and_then(|values| values.as_array());
            values.into_iter().flat_map(|values| values.iter()).map(|value| value.to_owned()).collect()
        };
        let (a, b) = (values(a), values(b));
        let equal = |(a, b): (&base::bson::ValueBuf, &base::bson::ValueBuf)| {
            world.context.collation.equal(a.view(), b.view())
        };
        a.len() == b.len() && a.iter().zip(&b).all(equal)
    };
    assert!(
        same(&found, &expected),
        "{}\nfound {found}\nwanted {expected}",
        about(&format!("distinct {path}"))
    );
}

/// Checks that a distinct scan for a `$group` returns the groups of the collection scan.
fn grouped(world: &World, random: &mut Random, filter: &DocumentBuf, about: &dyn Fn(&str) -> String) {
    let (path, fold) = (random.path(), ["$first", "$last"][random.below(2) as usize]);
    let (matches, sorts) = (random.chance(50), random.chance(60));
    let mut out = Builder::new();
    out.begin_array(c"pipeline");
    if matches {
        out.push_document().append(c"$match", filter).end();
    }
    if sorts {
        out.push_document()
            .begin_document(c"$sort")
            .append(FieldName::trusted(path), 1i32)
            .append(c"b", -1i32)
            .end()
            .end();
    }
    out.push_document().begin_document(c"$group").append(c"_id", format!("${path}").as_str());
    if sorts {
        out.begin_document(c"b").append(FieldName::trusted(fold), "$b").end();
    }
    out.end().end().end();
    let pipeline = out.finish();
    let groups = |hint| -> Result<Vec<DocumentBuf>> {
        let stages = pipeline.view().get("pipeline").and_then(|stages| stages.as_array()).unwrap();
        let request = AggregateRequest { hint, ..AggregateRequest::new(stages) };
        let cursor = world
            .database
            .aggregate(&Scope::new(&world.operation, &world.namespace, &world.context), &request)?;
        let mut source = cursor.into_source();
        let mut found = Vec::new();
        while let Some(group) = source.next()? {
            found.push(group.document.view().to_owned());
        }
        Ok(found)
    };
    // Parallel arrays cannot be sorted. An expression may fail on documents that a plan skips.
    let Ok(expected) = groups(Some(Hint::Natural { forward: true })) else { return };
    let found = groups(None).unwrap();
    let collation = &world.context.collation;
    let key = |group: &DocumentBuf, name: &str| {
        let mut key = Vec::new();
        collation.append_key(group.view().get(name).unwrap_or(Value::Null), true, &mut key);
        key
    };
    let array = |group: &DocumentBuf| matches!(group.view().get("b"), Some(Value::Array(_)));
    let is_there = |group: &DocumentBuf| {
        let mut same = expected.iter().filter(|other| key(other, "_id") == key(group, "_id"));
        // The sort does not decide the order of arrays.
        same.any(|other| array(group) || array(other) || key(other, "b") == key(group, "b"))
    };
    let about = || format!("{}\n{pipeline}\nfound {found:?}\nwanted {expected:?}", about("groups"));
    assert!(found.len() == expected.len() && found.iter().all(is_there), "{}", about());
}

/// Checks that a partial index serves a filter that includes the index's filter.
fn by_partial(world: &World, about: &dyn Fn(&str) -> String) {
    let collection = world.database.collection(&world.namespace).unwrap();
    for index in &collection.data().unwrap().indexes {
        let (spec, simple) = (&index.spec, world.context.collation.is_simple());
        let Some(partial) = &spec.partial else { continue };
        let first = spec.parts.first().filter(|first| first.kind != KeyKind::Hashed);
        let Some(first) = first.filter(|_| spec.serves_plain_queries() && spec.wildcard.is_none()) else {
            continue;
        };
        // The collations of index and filter may differ.
        if spec.hidden || !simple || !spec.collation.is_simple() {
            continue;
        }
        let mut out = Builder::new();
        out.begin_array(c"$and").push(&partial.matcher.describe());
        out.push_document().begin_document(&first.path).append(c"$gte", 1i32).end().end().end();
        let filter = out.finish();
        let plan = explained(world, &filter);
        assert!(!plan.contains("COLLSCAN"), "{}\n{filter}\n{plan}", about("a partial index was not used"));
    }
}

fn limited(
    world: &World,
    view: &View,
    read: &Read,
    expected: &Outcome,
    random: &mut Random,
    about: &dyn Fn(&str) -> String,
) {
    let (skip, limit) = (random.below(4), 1 + random.below(6));
    let read = Read { skip, limit, ..read.clone() };
    let found = world.run(view, &read, None).unwrap();
    let count = expected.ids.len().saturating_sub(skip as usize).min(limit as usize);
    assert_eq!(found.len(), count, "{}", about("limit"));
    if let Some(sort) = &read.sort {
        for (record, expected_key) in found.iter().zip(expected.keys.iter().skip(skip as usize)) {
            let mut key = Vec::new();
            sort.key(record.document.view(), &mut key).unwrap();
            assert!(key == *expected_key, "{}", about("limit and order"));
        }
    }
}

#[test]
fn every_plan_equals_the_collection_scan() {
    let seeds = std::env::var("PLAN_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150);
    let from = std::env::var("PLAN_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(1);
    // Each worker takes every `WORKERS`-th seed.
    const WORKERS: u64 = 2;
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || (from + worker..from + seeds).step_by(WORKERS as usize).for_each(case));
        }
    });
}

#[test]
fn sources_are_of_every_kind() {
    let mut kinds = [0; 7];
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let world = World::new(&mut random);
        let view = world.database.view();
        let Some(collection) = view.catalog.get(&world.namespace) else { continue };
        for _ in 0..10 {
            let filter = random.filter();
            let Ok(matcher) = Matcher::parse(filter.view(), &world.context) else { continue };
            let read = Read::new(Arc::new(matcher));
            let plan = build::plan(&world.operation, &view, collection, read, &world.context).unwrap();
            let mut leaves = Vec::new();
            plan.tree.each_leaf(&mut |leaf| leaves.push(leaf));
            kinds[match leaves.as_slice() {
                [("EOF", _)] => 0,
                [("COLLSCAN", _)] => 1,
                // A path of a wildcard index, by its values or by the leaves below it.
                [("IXSCAN", Some(access))] if access.index.spec.path_part.is_some() => {
                    5 + usize::from(access.parts.iter().any(|part| part.as_slice().len() == 2))
                }
                [(_, Some(access))] if access.index.unique() && access.is_single_key() => 2,
                [("IXSCAN", _)] => 3,
                _ => 4,
            }] += 1;
        }
    }
    assert!(kinds.iter().all(|count| *count > 3), "{kinds:?}");
}
