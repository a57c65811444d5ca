//! Tests of explain output: its shape, and that its numbers are correct.

use crate::scope::Scope;

use crate::index::IndexSpec;
use crate::{
    AggregateRequest, Database, DeleteRequest, FindRequest, InsertRequest, ManualClock, Operation,
    UpdateRequest, Verbosity,
};
use base::Namespace;
use base::bson::{Document, DocumentBuf, FieldName, Value, extended_json};
use query::{Context, Matcher, Update};
use std::sync::Arc;
use storage::MemoryEngine;

struct Session {
    database: Arc<Database>,
    namespace: Namespace,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

/// Returns the value at a dotted path.
fn at<'a>(document: Document<'a>, path: &str) -> Option<Value<'a>> {
    base::bson::Path::new(FieldName::trusted(path)).get(document)
}

fn text(document: &DocumentBuf, path: &str) -> String {
    at(document.view(), path).unwrap().as_str().unwrap().to_string()
}

fn number(document: &DocumentBuf, path: &str) -> i64 {
    at(document.view(), path).unwrap().as_i64().unwrap()
}

impl Session {
    fn new() -> Session {
        let clock = Arc::new(ManualClock::new(0));
        let session = Session {
            database: Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap(),
            namespace: Namespace::parse("test.c").unwrap(),
            operation: Arc::new(Operation::new(1)),
            context: Arc::new(Context::for_tests()),
        };
        for spec in [
            "{key: {a: 1}, name: 'a_1'}",
            "{key: {b: 1, c: -1}, name: 'b_1_c_-1'}",
            "{key: {u: 1}, name: 'u_1', unique: true, sparse: true}",
        ] {
            let spec = IndexSpec::parse(json(spec).view(), &session.namespace, &session.context).unwrap();
            session
                .database
                .create_indexes(&Operation::new(0), &session.namespace, [spec], &session.context)
                .unwrap();
        }
        for i in 0..100 {
            let document = json(&format!("{{_id: {i}, a: {}, b: {}, c: {i}, u: {i}}}", i % 10, i % 3));
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            session
                .database
                .insert(
                    &Scope::new(&Arc::new(Operation::new(0)), &session.namespace, &session.context),
                    insert,
                )
                .unwrap();
        }
        session
    }

    fn find(&self, filter: &str, sort: &str, projection: &str) -> DocumentBuf {
        let (filter, sort, projection) = (json(filter), json(sort), json(projection));
        let request = FindRequest {
            sort: sort.view(),
            projection: projection.view(),
            ..FindRequest::new(filter.view())
        };
        let Session { database, namespace, operation, context } = self;
        let verbosity = Verbosity::AllPlansExecution;
        database.explain_find(&Scope::new(operation, namespace, context), &request, verbosity).unwrap()
    }

    fn examined(&self, filter: &str) -> (i64, i64, i64) {
        let out = self.find(filter, "{}", "{}");
        let of = |name: &str| number(&out, &format!("executionStats.{name}"));
        (of("nReturned"), of("totalKeysExamined"), of("totalDocsExamined"))
    }
}

#[test]
fn a_plan_is_shown_stage_by_stage() {
    let out = Session::new().find("{a: 3, c: {$gt: 50}}", "{}", "{}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.stage"), "FETCH");
    assert_eq!(text(&out, "queryPlanner.winningPlan.inputStage.stage"), "IXSCAN");
    assert_eq!(text(&out, "queryPlanner.winningPlan.inputStage.indexName"), "a_1");
    let bounds = at(out.view(), "queryPlanner.winningPlan.inputStage.indexBounds").unwrap();
    assert_eq!(bounds.to_string(), r#"{ a: [ "[3, 3]" ] }"#);
    assert_eq!(text(&out, "queryPlanner.namespace"), "test.c");
    assert_eq!(number(&out, "executionStats.executionStages.inputStage.keysExamined"), 10);
}

#[test]
fn numbers_equal_the_reads() {
    let session = Session::new();
    assert_eq!(session.examined("{}"), (100, 0, 100));
    assert_eq!(session.examined("{_id: 7}"), (1, 1, 1));
    assert_eq!(session.examined("{u: 7}"), (1, 1, 1));
    assert_eq!(session.examined("{a: 3}"), (10, 10, 10));
    assert_eq!(session.examined("{a: 3, c: 13}"), (1, 10, 10));
    assert_eq!(session.examined("{b: 1, c: {$gte: 90}}"), (3, 3, 3));
    assert_eq!(session.examined("{$or: [{a: 1}, {b: 0, c: 99}]}"), (11, 11, 11));
    assert_eq!(session.examined("{a: {$in: [1, 4]}, c: 4}").1, 22 - 1);
}

#[test]
fn a_range_before_a_bound_is_left_out_by_seeking() {
    let (returned, keys, _) = Session::new().examined("{b: {$gte: 0}, c: 5}");
    assert_eq!(returned, 1);
    assert!(keys <= 9, "{keys}");
}

#[test]
fn a_covered_plan_reads_no_documents() {
    let out = Session::new().find("{b: 2}", "{}", "{b: 1, c: 1, _id: 0}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.stage"), "PROJECTION_COVERED");
    assert_eq!(number(&out, "executionStats.totalDocsExamined"), 0);
    assert_eq!(number(&out, "executionStats.nReturned"), 33);
}

#[test]
fn an_order_is_from_an_index_or_a_sort() {
    let session = Session::new();
    let out = session.find("{b: 1}", "{c: 1}", "{}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.stage"), "FETCH");
    assert_eq!(text(&out, "queryPlanner.winningPlan.inputStage.direction"), "backward");
    let out = session.find("{b: {$in: [0, 1]}}", "{c: 1}", "{}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.inputStage.stage"), "SORT_MERGE");
    let out = session.find("{a: 1}", "{c: 1}", "{}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.stage"), "SORT");
}

#[test]
fn a_count_scans_keys() {
    let Session { database, namespace, operation, context } = Session::new();
    let filter = json("{a: {$gte: 8}}");
    let explain = |verbosity| {
        database
            .explain_count(
                &Scope::new(&operation, &namespace, &context),
                filter.view(),
                None,
                (0, 0),
                verbosity,
            )
            .unwrap()
    };
    let out = explain(Verbosity::ExecutionStats);
    assert_eq!(text(&out, "executionStats.executionStages.stage"), "COUNT");
    assert_eq!(text(&out, "executionStats.executionStages.inputStage.stage"), "COUNT_SCAN");
    assert_eq!(number(&out, "executionStats.executionStages.nCounted"), 20);
    assert_eq!(number(&out, "executionStats.totalDocsExamined"), 0);
    assert!(explain(Verbosity::QueryPlanner).view().get("executionStats").is_none());
}

#[test]
fn writes_are_counted_and_not_done() {
    let session = Session::new();
    let Session { database, namespace, operation, context } = &session;
    let matcher = |filter: &str| Arc::new(Matcher::parse(json(filter).view(), context).unwrap());
    let delete = DeleteRequest { matcher: matcher("{a: 2}"), single: false, hint: None };
    let verbosity = Verbosity::ExecutionStats;
    let out =
        database.explain_delete(&Scope::new(operation, namespace, context), &delete, verbosity).unwrap();
    assert_eq!(number(&out, "executionStats.executionStages.nWouldDelete"), 10);
    let update = json("{$set: {b: 1}}");
    let update = UpdateRequest {
        matcher: matcher("{a: 2}"),
        update: Update::parse(Value::Document(update.view()), &[], context).unwrap().into(),
        multi: true,
        upsert: false,
        sort: None,
        hint: None,
        bypass_validation: false,
    };
    let out =
        database.explain_update(&Scope::new(operation, namespace, context), &update, verbosity).unwrap();
    assert_eq!(number(&out, "executionStats.executionStages.nMatched"), 10);
    assert_eq!(number(&out, "executionStats.executionStages.nWouldModify"), 7);
    assert_eq!(session.examined("{a: 2, b: 1}").0, 3);
}

#[test]
fn a_pipeline_shows_its_plan_and_its_other_stages() {
    let Session { database, namespace, operation, context } = Session::new();
    let explain = |pipeline: &str| {
        let holder = json(&format!("{{pipeline: {pipeline}}}"));
        let stages = holder.view().get("pipeline").unwrap().as_array().unwrap();
        let request = AggregateRequest::new(stages);
        let verbosity = Verbosity::ExecutionStats;
        database.explain_aggregate(&Scope::new(&operation, &namespace, &context), &request, verbosity)
    };
    let out = explain("[{$match: {a: 1}}, {$sort: {a: 1}}]").unwrap();
    assert_eq!(number(&out, "executionStats.nReturned"), 10);
    let out = explain("[{$match: {a: 1}}, {$unwind: '$b'}, {$group: {_id: '$b'}}]").unwrap();
    let stages = out.view().get("stages").unwrap().as_array().unwrap();
    let stage = |position| stages.get(position).unwrap().as_document().unwrap();
    assert_eq!(at(stage(0), "$cursor.executionStats.totalKeysExamined").unwrap().as_i64(), Some(10));
    assert_eq!(at(stage(2), "nReturned").unwrap().as_i64(), Some(3));
    assert!(stage(2).find("$group").is_some());
    let out = explain("[{$match: {a: 1}}, {$group: {_id: '$b'}}]").unwrap();
    assert_eq!(text(&out, "queryPlanner.winningPlan.queryPlan.stage"), "GROUP");
    assert_eq!(number(&out, "executionStats.nReturned"), 3);
    assert_eq!(number(&out, "executionStats.executionStages.nReturned"), 3);
    assert_eq!(number(&out, "executionStats.totalKeysExamined"), 10);
    assert_eq!(explain("[{$out: 'x'}]").unwrap_err().code().number(), 51029);
}

#[test]
fn a_missing_collection_has_nothing_to_find() {
    let session = Session { namespace: Namespace::parse("test.none").unwrap(), ..Session::new() };
    let out = session.find("{a: 1}", "{}", "{}");
    assert_eq!(text(&out, "queryPlanner.winningPlan.stage"), "EOF");
    assert_eq!(number(&out, "executionStats.nReturned"), 0);
}
