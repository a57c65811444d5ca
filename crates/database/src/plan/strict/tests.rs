//! Tests of the findings for the reads and indexes of a small database.

use crate::scope::Scope;

use super::*;
use crate::{Database, InsertRequest, ManualClock, Operation, Read, index::IndexSpec};
use base::Namespace;
use base::bson::extended_json::parse;
use query::context::Uninterrupted;
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::sync::Arc;
use storage::MemoryEngine;

struct Session {
    database: Arc<Database>,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

impl Session {
    fn new() -> Session {
        let operation = Arc::new(Operation::new(1));
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let context = Arc::new(Context::new(0, 1, operation.clone()));
        Session {
            database: Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap(),
            operation,
            context,
        }
    }

    fn insert(&self, ns: &str, count: usize) {
        for n in 0..count {
            let document = parse(&format!("{{_id: {n}, a: {n}, b: {n}}}")).unwrap();
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            self.database
                .insert(
                    &Scope::new(&Arc::new(Operation::new(0)), &Namespace::parse(ns).unwrap(), &self.context),
                    insert,
                )
                .unwrap();
        }
    }

    fn index(&self, ns: &str, spec: &str) {
        let ns = Namespace::parse(ns).unwrap();
        let spec = IndexSpec::parse(parse(spec).unwrap().view(), &ns, &self.context).unwrap();
        self.database.create_indexes(&Operation::new(0), &ns, [spec], &self.context).unwrap();
    }

    fn read(&self, ns: &str, filter: &str, sort: Option<&str>, limit: u64) {
        let matcher = Matcher::parse(parse(filter).unwrap().view(), &self.context).unwrap();
        let sort = sort.map(|sort| Arc::new(SortPattern::parse(parse(sort).unwrap().view()).unwrap()));
        let read = Read { sort, limit, ..Read::new(Arc::new(matcher)) };
        let collection = self.database.collection(&Namespace::parse(ns).unwrap()).unwrap();
        let view = self.database.view();
        let mut found = self.database.read(&self.operation, &view, &collection, read, &self.context).unwrap();
        found.next().unwrap();
    }

    fn lines(&self) -> Vec<String> {
        self.database.strict_report().lines()
    }
}

#[test]
fn nothing_is_collected_until_it_is_switched_on() {
    let session = Session::new();
    session.insert("test.c", 1001);
    session.read("test.c", "{a: 1}", None, 0);
    assert_eq!(session.lines(), ["nothing to report"]);
    session.database.enable_strict_mode();
    session.read("test.c", "{a: 1}", None, 0);
    assert_eq!(session.lines().len(), 1);
}

#[test]
fn reads_are_counted_by_shape_across_databases() {
    let session = Session::new();
    session.database.enable_strict_mode();
    for ns in ["one.c", "two.c", "one.few"] {
        session.insert(ns, if ns == "one.few" { 1000 } else { 1001 });
        session.read(ns, "{a: 1}", None, 0);
        session.read(ns, "{a: 2}", None, 0);
    }
    session.read("one.c", "{_id: 1}", None, 0);
    session.read("one.c", "{_id: {$gt: 1}}", Some("{_id: -1}"), 0);
    session.read("one.c", "{}", None, 1);
    session.read("one.few", "{a: {$gt: 5}}", Some("{b: -1, a: 1}"), 3);
    let expected = [
        r#"collection scan: { ns: "one.c", filter: { a: { $eq: "?" } }, count: 4, documents: 1001 }"#,
        r#"in-memory sort: { ns: "one.few", filter: { a: { $gt: "?" } }, sort: { b: -1, a: 1 }, count: 1 }"#,
    ];
    assert_eq!(session.lines(), expected);
    session.database.clear_reads();
    assert_eq!(session.lines(), ["nothing to report"]);
}

#[test]
fn further_shapes_are_counted_together() {
    let session = Session::new();
    session.database.enable_strict_mode();
    session.insert("test.c", 1);
    for n in 0..ENTRIES_MAX + 5 {
        session.read("test.c", &format!("{{f{n}: 1}}"), Some("{a: 1}"), 0);
    }
    let report = session.database.strict_report();
    assert_eq!((report.in_memory_sorts.len(), report.left_out), (ENTRIES_MAX, 5));
}

#[test]
fn values_are_no_part_of_a_shape() {
    let context = Session::new().context;
    let shape = |filter: &str| {
        let matcher = Matcher::parse(parse(filter).unwrap().view(), &context).unwrap();
        of_read(&Read::new(Arc::new(matcher))).to_string()
    };
    for (filter, expected) in [
        ("{}", "{ filter: {} }"),
        ("{a: {$in: [1, 2, 3]}}", r#"{ filter: { a: { $in: "?" } } }"#),
        ("{a: {secret: 1}}", r#"{ filter: { a: { $eq: "?" } } }"#),
        ("{a: /secret/i}", r#"{ filter: { a: { $regex: "?", $options: "?" } } }"#),
        (
            "{$or: [{a: 1, b: 2}, {a: 3, b: 4}]}",
            r#"{ filter: { $or: [ { $and: [ { a: { $eq: "?" } }, { b: { $eq: "?" } } ] } ] } }"#,
        ),
        ("{a: {$elemMatch: {b: 1}}}", r#"{ filter: { a: { $elemMatch: { b: { $eq: "?" } } } } }"#),
        ("{a: {$not: {$gt: 1}}}", r#"{ filter: { a: { $not: { $gt: "?" } } } }"#),
        ("{$expr: {$eq: ['$a', 'secret']}}", r#"{ filter: { $expr: "?" } }"#),
    ] {
        assert_eq!(shape(filter), expected, "{filter}");
    }
}

#[test]
fn an_index_used_in_one_database_is_used() {
    let session = Session::new();
    session.database.enable_strict_mode();
    for ns in ["template.c", "copy.c"] {
        session.insert(ns, 3);
        session.index(ns, "{key: {a: 1}, name: 'a_1'}");
        session.index(ns, "{key: {b: 1}, name: 'b_1'}");
        session.index(ns, "{key: {u: 1}, name: 'u_1', unique: true, sparse: true}");
        session.index(ns, "{key: {t: 1}, name: 't_1', expireAfterSeconds: 60}");
    }
    session.read("copy.c", "{a: 1}", None, 0);
    session.database.drop_database(&Uninterrupted, "copy").unwrap();
    assert_eq!(session.lines(), [r#"unused index: { ns: "template.c", name: "b_1", key: { b: 1 } }"#]);
}

#[test]
fn duplicates_are_covered_by_another_index() {
    let found = |specs: &[&str]| {
        let session = Session::new();
        session.insert("test.c", 1);
        specs.iter().for_each(|spec| session.index("test.c", spec));
        let text = |finding: &DocumentBuf, name| {
            finding.view().get(name).and_then(|value| value.as_str()).unwrap().to_string()
        };
        let report = session.database.strict_report();
        report
            .duplicate_indexes
            .iter()
            .map(|d| [text(d, "name"), text(d, "coveredBy")].join(" by "))
            .collect()
    };
    let none: Vec<String> = Vec::new();
    for (specs, expected) in [
        (&["{key: {a: 1}, name: 'a'}", "{key: {a: 1, b: 1}, name: 'ab'}"][..], Some("a by ab")),
        (&["{key: {a: 1, b: -1}, name: 'x'}", "{key: {a: -1, b: 1, c: 1}, name: 'y'}"], Some("x by y")),
        (&["{key: {a: 1}, name: 'x'}", "{key: {a: -1}, name: 'y'}"], Some("y by x")),
        (&["{key: {a: 1}, name: 'x'}", "{key: {a: -1}, name: 'y', unique: true}"], Some("x by y")),
        (&["{key: {a: 1, b: 1}, name: 'x'}", "{key: {a: 1, b: -1}, name: 'y'}"], None),
        (&["{key: {a: 1}, name: 'x', unique: true}", "{key: {a: 1, b: 1}, name: 'y', unique: true}"], None),
        (&["{key: {a: 1}, name: 'x', sparse: true}", "{key: {a: 1, b: 1}, name: 'y', sparse: true}"], None),
        (&["{key: {a: 1}, name: 'x'}", "{key: {a: 1, b: 1}, name: 'y', hidden: true}"], None),
        (
            &["{key: {a: 1}, name: 'x'}", "{key: {a: 1, b: 1}, name: 'y', partialFilterExpression: {a: 1}}"],
            None,
        ),
        (&["{key: {a: 1}, name: 'x', expireAfterSeconds: 9}", "{key: {a: 1, b: 1}, name: 'y'}"], None),
        (&["{key: {a: 1}, name: 'x', collation: {locale: 'de'}}", "{key: {a: 1, b: 1}, name: 'y'}"], None),
        (&["{key: {_id: 1, a: 1}, name: 'x'}"], None),
    ] {
        let expected: Vec<String> = expected.map_or(none.clone(), |text| vec![text.to_string()]);
        let actual: Vec<String> = found(specs);
        assert_eq!(actual, expected, "{specs:?}");
    }
}

#[test]
fn a_wildcard_index_is_used_by_a_read_of_any_of_its_paths() {
    let session = Session::new();
    session.database.enable_strict_mode();
    session.index("one.c", "{key: {'$**': 1}, name: 'used', wildcardProjection: {a: 1}}");
    session.index("one.c", "{key: {'$**': 1}, name: 'other', wildcardProjection: {b: 1}}");
    session.index("two.c", "{key: {'$**': 1}, name: 'used', wildcardProjection: {a: 1}}");
    session.insert("one.c", 3);
    session.read("one.c", "{a: 1}", None, 0);
    assert_eq!(session.lines(), ["unused index: { ns: \"one.c\", name: \"other\", key: { $**: 1 } }"]);
}
