//! Slow operations by query shape: the shape without values, times, and a suggested index: first equality fields, then
//! sort fields, then range fields.
//!
//! Only slow operations are stored, so fast operations cost nothing. Beyond a limit, a new shape
//! replaces the shape that was seen least recently.

use super::Entry;
use crate::process::logging::now_millis;
use base::Namespace;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use database::{Database, filter_shape};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Maximum number of shapes.
const SHAPES_MAX: usize = 200;

/// Maximum size of a shape in bytes. A longer shape is stored without its parts.
const SHAPE_MAX: usize = 4096;

/// Slow operations by collection, command and shape.
#[derive(Default)]
pub(crate) struct Shapes(Mutex<ShapeTable>);

#[derive(Default)]
struct ShapeTable {
    shapes: HashMap<(String, &'static str, Vec<u8>), Sums>,
    /// Operations of replaced shapes.
    left_out: i64,
    /// Operations of all shapes.
    seen: u64,
}

/// Sums over the operations of a shape.
#[derive(Clone, Default)]
struct Sums {
    /// Number of the latest operation among all operations.
    seen: u64,
    count: i64,
    micros: i64,
    micros_max: i64,
    keys_examined: i64,
    docs_examined: i64,
    returned: i64,
    /// Plan of the latest operation.
    plan: Option<String>,
    /// Time of the latest operation, in milliseconds since 1970.
    last: i64,
    /// Key of a suggested index, if one would help.
    index: Option<DocumentBuf>,
}

impl Shapes {
    /// Adds a slow operation.
    pub(crate) fn add(&self, command: &'static str, entry: &Entry) {
        let document = entry.document.view();
        let text = |name: &str| document.get(name).and_then(|text| text.as_str());
        let number = |name: &str| document.get(name).and_then(|number| number.as_i64()).unwrap_or(0);
        let requested =
            document.get("command").and_then(|command| command.as_document()).unwrap_or(Document::EMPTY);
        let parts = Parts::of(command, requested);
        let shape = parts.shape();
        let micros = i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX);
        let mut table = self.0.lock();
        let key = (text("ns").unwrap_or("").to_string(), command, shape.view().bytes().to_vec());
        if table.shapes.len() >= SHAPES_MAX && !table.shapes.contains_key(&key) {
            let oldest = table.shapes.iter().min_by_key(|(_, sums)| sums.seen).map(|(key, _)| key.clone());
            let replaced = oldest.and_then(|oldest| table.shapes.remove(&oldest));
            table.left_out += replaced.map_or(0, |sums| sums.count);
        }
        table.seen += 1;
        let seen = table.seen;
        let sums = table
            .shapes
            .entry(key)
            .or_insert_with(|| Sums { index: index_for(parts.filter, parts.sort), ..Sums::default() });
        sums.seen = seen;
        sums.count += 1;
        sums.micros = sums.micros.saturating_add(micros);
        sums.micros_max = sums.micros_max.max(micros);
        sums.keys_examined += number("keysExamined");
        sums.docs_examined += number("docsExamined");
        sums.returned += ["nreturned", "nMatched", "ndeleted"].into_iter().map(number).sum::<i64>();
        sums.plan = text("planSummary").map(str::to_string);
        sums.last = now_millis();
    }

    /// Appends all shapes, sorted by total time, with a suggested index for each shape that still
    /// lacks one.
    pub(crate) fn append_to(&self, out: &mut Builder, database: &Database) {
        // The index lookup may take long, and slow operations wait for this lock.
        let (mut all, left_out) = {
            let table = self.0.lock();
            let all = table.shapes.iter().map(|(key, sums)| (key.clone(), sums.clone()));
            (all.collect::<Vec<_>>(), table.left_out)
        };
        all.sort_by(|(a, left), (b, right)| (Reverse(left.micros), a).cmp(&(Reverse(right.micros), b)));
        out.begin_array(c"shapes");
        for ((namespace, command, shape), sums) in &all {
            out.push_document().append(c"ns", namespace.as_str()).append(c"command", *command);
            out.append(c"shape", Document::from_valid(shape)).append(c"count", sums.count);
            out.append(c"totalMicros", sums.micros).append(c"maxMicros", sums.micros_max);
            out.append(c"keysExamined", sums.keys_examined).append(c"docsExamined", sums.docs_examined);
            out.append(c"nreturned", sums.returned).append_optional(c"planSummary", sums.plan.as_deref());
            out.append(c"lastSeen", Value::DateTime(sums.last));
            let index = sums.index.as_ref().filter(|index| {
                let scans = sums.plan.as_deref().is_some_and(|plan| plan.contains("COLLSCAN"));
                // Ten read documents for each returned document indicate a wrong index.
                let reads_much = sums.docs_examined > 10 * sums.returned.max(1);
                (scans || reads_much) && !has_index(database, namespace, index.view())
            });
            out.append_optional(c"index", index);
            out.end();
        }
        out.end().append(c"leftOut", left_out);
    }
}

/// Returns true if a collection has an index that begins with this key. Also true for a missing
/// collection or a view, which can have no index.
fn has_index(database: &Database, namespace: &str, key: Document<'_>) -> bool {
    let collection = Namespace::parse(namespace).ok().and_then(|namespace| database.collection(&namespace));
    let Some(data) = collection.as_ref().and_then(|collection| collection.data.as_ref()) else { return true };
    data.indexes.iter().any(|index| {
        let spec = &index.spec;
        !spec.hidden && spec.partial.is_none() && begins_with(spec.key.view(), key)
    })
}

/// Parts of a request that determine its plan.
#[derive(Default)]
struct Parts<'a> {
    filter: Option<Document<'a>>,
    sort: Option<Document<'a>>,
    /// Field of a distinct.
    key: Option<&'a str>,
    /// Stages of a pipeline.
    stages: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(command: &str, requested: Document<'a>) -> Parts<'a> {
        let document = |name: &str| requested.get(name).and_then(|value| value.as_document());
        // The first statement represents all, if they have no entries of their own.
        let first = |list: &str| {
            let list = requested.get(list).and_then(|list| list.as_array());
            list.and_then(|list| list.iter().next()?.as_document()?.get("q")?.as_document())
        };
        match command {
            "find" => Parts { filter: document("filter"), sort: document("sort"), ..Parts::default() },
            "findAndModify" => {
                Parts { filter: document("query"), sort: document("sort"), ..Parts::default() }
            }
            "count" => Parts { filter: document("query"), ..Parts::default() },
            "distinct" => Parts {
                filter: document("query"),
                key: requested.get("key").and_then(|key| key.as_str()),
                ..Parts::default()
            },
            "update" => Parts { filter: document("q").or_else(|| first("updates")), ..Parts::default() },
            "delete" => Parts { filter: document("q").or_else(|| first("deletes")), ..Parts::default() },
            "aggregate" => Parts::of_pipeline(requested),
            _ => Parts::default(),
        }
    }

    /// Returns filter and sort from the first stages of a pipeline.
    fn of_pipeline(requested: Document<'a>) -> Parts<'a> {
        let mut parts = Parts::default();
        let stages = requested.get("pipeline").and_then(|pipeline| pipeline.as_array());
        let stages = stages.into_iter().flat_map(|stages| stages.iter());
        for (at, stage) in stages.filter_map(|stage| stage.as_document()?.first()).enumerate() {
            match (stage.name(), stage.value().as_document()) {
                ("$match", Some(filter)) if at == 0 => parts.filter = Some(filter),
                ("$sort", Some(sort)) if at == usize::from(parts.filter.is_some()) => parts.sort = Some(sort),
                _ => {}
            }
            parts.stages.push(stage.name());
        }
        parts
    }

    /// Returns the shape: the parts without values.
    fn shape(&self) -> DocumentBuf {
        let mut out = Builder::new();
        if let Some(filter) = self.filter {
            out.append(c"filter", &filter_shape(filter));
        }
        if let Some(sort) = self.sort {
            out.append(c"sort", sort);
        }
        out.append_optional(c"key", self.key);
        if !self.stages.is_empty() {
            out.begin_array(c"pipeline");
            for stage in &self.stages {
                out.push(*stage);
            }
            out.end();
        }
        let shape = out.finish();
        if shape.view().bytes().len() <= SHAPE_MAX { shape } else { DocumentBuf::default() }
    }
}

/// Maximum number of fields in an index.
const FIELDS_MAX: usize = 32;

/// Fields of a filter that an index supports.
#[derive(Default)]
struct Fields<'a> {
    equal: Vec<&'a str>,
    bounded: Vec<&'a str>,
}

/// Returns the key of an index for a filter and a sort; `None` if no index helps or the `_id` index
/// suffices.
pub(super) fn index_for(filter: Option<Document<'_>>, sort: Option<Document<'_>>) -> Option<DocumentBuf> {
    let mut fields = Fields::default();
    if let Some(filter) = filter {
        fields.gather(filter);
    }
    if fields.equal.contains(&"_id") {
        return None;
    }
    let mut key: Vec<(&str, i32)> = Vec::new();
    let mut add = |name, direction| {
        if !key.iter().any(|(known, _)| *known == name) {
            key.push((name, direction));
        }
    };
    fields.equal.iter().for_each(|name| add(name, 1));
    // An index can only provide a sort by fields.
    for element in sort.unwrap_or(Document::EMPTY) {
        match element.value().as_number().map(|direction| direction.to_i64_clamped()) {
            Some(direction @ (1 | -1)) => add(element.name(), direction as i32),
            _ => return None,
        }
    }
    fields.bounded.iter().for_each(|name| add(name, 1));
    if key.is_empty() || key.len() > FIELDS_MAX || matches!(key.first(), Some(("_id", _))) {
        return None;
    }
    let mut out = Builder::new();
    for (name, direction) in key {
        out.append(FieldName::trusted(name), direction);
    }
    Some(out.finish())
}

impl<'a> Fields<'a> {
    fn gather(&mut self, filter: Document<'a>) {
        for element in filter {
            match (element.name(), element.value()) {
                ("$and", Value::Array(branches)) => {
                    branches
                        .iter()
                        .filter_map(|branch| branch.as_document())
                        .for_each(|branch| self.gather(branch));
                }
                // `$or` and similar operators need more than one index.
                (name, _) if name.starts_with('$') => {}
                (name, Value::Document(operators))
                    if operators.first().is_some_and(|first| first.name().starts_with('$')) =>
                {
                    let has =
                        |names: &[&str]| operators.iter().any(|operator| names.contains(&operator.name()));
                    if has(&["$eq", "$in", "$all"]) {
                        self.equal.push(name);
                    } else if has(&["$gt", "$gte", "$lt", "$lte"]) {
                        self.bounded.push(name);
                    }
                }
                (name, Value::Regex { pattern, .. }) => {
                    if pattern.starts_with('^') {
                        self.bounded.push(name);
                    }
                }
                (name, _) => self.equal.push(name),
            }
        }
    }
}

/// Returns true if an index key begins with another key, with equal or with all reversed
/// directions.
pub(super) fn begins_with(more: Document<'_>, less: Document<'_>) -> bool {
    let matches = |sign: i64| {
        let direction = |value: Value<'_>| value.as_number().map(|number| number.to_i64_clamped());
        let mut more = more.iter();
        less.iter().all(|field| {
            more.next().is_some_and(|part| {
                part.name() == field.name()
                    && direction(part.value())
                        .is_some_and(|part| Some(part * sign) == direction(field.value()))
            })
        })
    };
    matches(1) || matches(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::{parse, to_shell};
    use std::time::Duration;

    fn shape(command: &str, requested: &str) -> String {
        let requested = parse(requested).unwrap();
        to_shell(Parts::of(command, requested.view()).shape().view())
    }

    #[test]
    fn values_are_left_out() {
        for (command, requested, expected) in [
            (
                "find",
                "{find: 'c', filter: {a: 5, b: {$gt: 7}}, sort: {d: -1}}",
                "{filter: {a: '?', b: {$gt: '?'}}, sort: {d: -1}}",
            ),
            ("update", "{q: {a: 5}, u: {$set: {a: 6}}}", "{filter: {a: '?'}}"),
            ("delete", "{delete: 'c', deletes: [{q: {a: 5}, limit: 0}]}", "{filter: {a: '?'}}"),
            ("distinct", "{distinct: 'c', key: 'a', query: {b: 1}}", "{filter: {b: '?'}, key: 'a'}"),
            (
                "aggregate",
                "{aggregate: 'c', pipeline: [{$match: {a: 1}}, {$sort: {b: 1}}, {$group: {_id: 'secret'}}]}",
                "{filter: {a: '?'}, sort: {b: 1}, pipeline: ['$match', '$sort', '$group']}",
            ),
            (
                "aggregate",
                "{aggregate: 'c', pipeline: [{$limit: 1}, {$sort: {b: 1}}]}",
                "{pipeline: ['$limit', '$sort']}",
            ),
            ("getMore", "{getMore: 7, collection: 'c'}", "{}"),
        ] {
            assert_eq!(parse(&shape(command, requested)).unwrap(), parse(expected).unwrap(), "{requested}");
        }
    }

    #[test]
    fn shapes_are_bounded() {
        let shapes = Shapes::default();
        for number in 0..SHAPES_MAX + 7 {
            for _ in 0..2 {
                let document = parse(&format!(
                    "{{ns: 'd.c', command: {{find: 'c', filter: {{a{number}: 5}}}}, docsExamined: 100, nreturned: 1, planSummary: 'COLLSCAN'}}"
                ));
                shapes.add("find", &Entry { document: document.unwrap(), took: Duration::from_millis(3) });
            }
        }
        let table = shapes.0.lock();
        assert_eq!((table.shapes.len(), table.left_out), (SHAPES_MAX, 14));
        let has = |number: usize| {
            let filter = format!("{{filter: {{a{number}: '?'}}}}");
            let shape = parse(&filter).unwrap().view().bytes().to_vec();
            table.shapes.contains_key(&("d.c".to_string(), "find", shape))
        };
        assert!(!has(6) && has(7) && has(SHAPES_MAX + 6), "a new shape replaces the oldest");
        let sums = table.shapes.values().next().unwrap();
        assert_eq!((sums.count, sums.micros, sums.docs_examined, sums.returned), (2, 6000, 200, 2));
        assert!(sums.index.is_some());
    }

    #[test]
    fn equality_precedes_sort_and_sort_precedes_range() {
        for (filter, sort, expected) in [
            ("{a: 1}", "{}", Some("{a: 1}")),
            ("{a: {$gt: 1}, b: {$in: [1, 2]}}", "{c: -1, d: 1}", Some("{b: 1, c: -1, d: 1, a: 1}")),
            ("{$and: [{a: 1}, {b: {$lt: 1}}], c: {$exists: true}}", "{a: -1}", Some("{a: 1, b: 1}")),
            ("{a: /^x/, b: /x/, c: {$ne: 1}}", "{}", Some("{a: 1}")),
            ("{}", "{a: -1}", Some("{a: -1}")),
            ("{_id: 1, a: 2}", "{}", None),
            ("{_id: {$gt: 1}}", "{}", None),
            ("{}", "{_id: 1, a: 1}", None),
            ("{a: 1}", "{b: {$meta: 'textScore'}}", None),
            ("{$or: [{a: 1}, {b: 1}]}", "{}", None),
            ("{}", "{}", None),
        ] {
            let [given, order] = [filter, sort].map(|text| parse(text).unwrap());
            let found = index_for(Some(given.view()), Some(order.view()));
            assert_eq!(found, expected.map(|text| parse(text).unwrap()), "{filter} {sort}");
        }
        assert_eq!(index_for(None, None), None);
    }

    #[test]
    fn an_index_serves_its_prefixes() {
        let begins =
            |more: &str, less: &str| begins_with(parse(more).unwrap().view(), parse(less).unwrap().view());
        assert!(begins("{a: 1, b: -1, c: 1}", "{a: 1, b: -1}") && begins("{a: -1, b: 1}", "{a: 1, b: -1}"));
        assert!(!begins("{a: 1}", "{a: 1, b: 1}") && !begins("{a: 1, b: 1}", "{a: 1, b: -1}"));
        assert!(!begins("{a: 'hashed'}", "{a: 1}"));
    }
}
