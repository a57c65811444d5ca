//! Tests that deepen a value in all possible ways, followed by all stages that recurse into it.

use crate::accumulator::accumulators;
use crate::expression::{Arity, OPERATORS};
use crate::pipeline::testing::Run;
use crate::window::window_functions;
use crate::{Context, Update};
use base::bson::{Array, DocumentBuf, MAX_DEPTH, MAX_STORED_DEPTH, extended_json, nests_deeper};
use base::{Error, Result};
use std::thread;

/// The stack of a network thread, without the frames around a pipeline.
const STACK: usize = 3 * 1024 * 1024;

/// Limit of computed values, because many values double as they nest.
const COMPUTED: usize = 300_000;

/// Runs a test on a small stack. An overflow aborts the whole test run.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK).spawn(work).unwrap().join().unwrap();
}

/// Stages that recurse into `a` or the whole document.
const FOLLOWERS: &[&str] = &[
    "{$match: {$expr: {$eq: ['$a', {$concatArrays: [['$a']]}]}}}",
    "{$match: {$expr: {$in: ['$a', ['$a', '$$ROOT']]}}}",
    "{$sort: {a: 1}}",
    "{$group: {_id: '$a', s: {$addToSet: '$a'}, m: {$max: '$$ROOT'}}}",
    "{$set: {a: {$setUnion: [['$a', '$$ROOT'], ['$a']]}}}",
    "{$project: {'a.a.a.a': 0}}",
    "{$match: {'a.a.a': {$not: {$elemMatch: {$elemMatch: {a: 1}}}}}}",
    "{$redact: {$cond: [{$eq: ['$zz', 1]}, '$$PRUNE', '$$DESCEND']}}",
    "{$setWindowFields: {partitionBy: {x: '$a'}, sortBy: {a: 1}, output: {r: {$rank: {}}}}}",
    "{$set: {a: {$toString: {$bsonSize: '$$ROOT'}}}}",
    "{$replaceWith: '$a'}",
    "{$merge: {into: 'f', let: {deep: '$a'}, whenMatched: [{$set: {a: '$$deep'}}]}}",
    "{$out: 'f'}",
];

/// Returns a pipeline as JSON: a stage repeated `times` times, then another stage.
fn repeated(stage: &str, times: usize, follower: &str) -> String {
    let comma = if follower.is_empty() { "" } else { ", " };
    format!("[{}{comma}{follower}]", vec![stage; times].join(", "))
}

/// Runs a pipeline and checks that the results are within the depth limit.
fn run(pipeline: &str) -> Result<Vec<DocumentBuf>> {
    let run = Run::new("[{_id: 1, a: 1}]", pipeline)
        .with("f", "[{_id: 1, a: 1, k: 1}]")
        .memory(COMPUTED)
        .computed(COMPUTED);
    let found = run.unoptimised_result();
    for document in found.iter().flatten() {
        assert!(!nests_deeper(document.view(), MAX_DEPTH), "{pipeline:.300}");
    }
    found
}

/// Deepens a value to the limit with a stage and follows it, then beyond. Returns whether it became too deep, which
/// proves that the stage adds levels.
fn grow(stage: &str) -> bool {
    let levels = if stage.len() > 150 { 80 } else { 1 };
    for follower in FOLLOWERS {
        let _ = run(&repeated(stage, 190 / levels, follower));
    }
    run(&repeated(stage, 250 / levels + 1, "")).is_err_and(|error: Error| error.code().number() == 15)
}

/// Wraps an expression in `levels` arrays.
fn wrapped(levels: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn stages_that_nest_their_input_end_in_an_error() {
    on_small_stack(|| {
        let deep = format!("{{$set: {{a: {}}}}}", wrapped(80, "'$a'"));
        let dotted = format!("{{$project: {{'{}': '$$ROOT'}}}}", ["a"; 100].join("."));
        let nested = format!("{{$set: {}'$$ROOT'{}}}", "{a: ".repeat(80), "}".repeat(80));
        for stage in [
            deep.as_str(),
            dotted.as_str(),
            nested.as_str(),
            "{$set: {a: ['$a']}}",
            "{$addFields: {a: {a: '$a'}}}",
            "{$set: {'a.a': '$a'}}",
            "{$project: {a: ['$a']}}",
            "{$project: {a: {a: '$$ROOT'}}}",
            "{$replaceWith: {a: '$$ROOT'}}",
            "{$replaceRoot: {newRoot: {a: ['$$ROOT']}}}",
            "{$group: {_id: {a: '$$ROOT'}}}",
            "{$group: {_id: '$$ROOT'}}",
            "{$group: {_id: 1, a: {$first: {a: '$$ROOT'}}}}",
            "{$sortByCount: '$$ROOT'}",
            "{$bucketAuto: {groupBy: '$k', buckets: 1, output: {a: {$push: '$a'}}}}",
            "{$bucket: {groupBy: 1, boundaries: [0, 2], output: {a: {$push: '$a'}}}}",
            "{$facet: {a: [{$limit: 1}]}}",
            "{$lookup: {from: 'f', let: {r: '$$ROOT'}, pipeline: [{$set: {a: '$$r'}}], as: 'a'}}",
            "{$lookup: {from: 'f', let: {r: '$a'}, pipeline: [{$replaceWith: {a: '$$r'}}], as: 'a.a'}}",
            "{$setWindowFields: {sortBy: {_id: 1}, output: {a: {$push: '$a'}}}}",
            "{$setWindowFields: {sortBy: {_id: 1}, output: {'a.a': {$shift: {output: {a: '$a'}, by: 0}}}}}",
            "{$fill: {output: {a: {value: ['$a']}, b: {value: 1}}}}",
            "{$set: {a: {$map: {input: ['$a'], in: '$$this'}}}}",
            "{$set: {a: {$reduce: {input: [1, 2, 3], initialValue: '$a', in: ['$$value']}}}}",
            "{$set: {a: {$reduce: {input: [1], initialValue: [], in: {$concatArrays: ['$$value', ['$a']]}}}}}",
            "{$set: {a: {$zip: {inputs: [['$a'], [1]]}}}}",
            "{$set: {a: {$objectToArray: {a: '$a'}}}}",
            "{$set: {a: {$arrayToObject: [[{k: 'a', v: '$a'}]]}}}",
            "{$set: {a: {$setField: {field: 'a', input: '$$ROOT', value: '$a'}}}}",
            "{$set: {a: {$mergeObjects: [{a: '$a'}]}}}",
            "{$set: {a: {$let: {vars: {x: ['$a']}, in: ['$$x']}}}}",
            "{$set: {a: {$cond: [true, ['$a'], 1]}}}",
            "{$set: {a: {$switch: {branches: [{case: true, then: {a: '$a'}}]}}}}",
            "{$set: {a: {$filter: {input: [['$a']], cond: true}}}}",
            "{$set: {a: {$sortArray: {input: [['$a'], 1], sortBy: 1}}}}",
        ] {
            let fills_once = stage.starts_with("{$fill") || stage.starts_with("{$bucket:");
            assert!(
                grow(stage) || fills_once || stage.contains("$arrayToObject"),
                "{stage:.200} grows nothing"
            );
        }
    });
}

#[test]
fn every_operator_may_take_part() {
    on_small_stack(|| {
        for operator in OPERATORS {
            let name = operator.name;
            let mut forms = vec![
                format!("{{{name}: '$a'}}"),
                format!("{{{name}: ['$a']}}"),
                format!("{{{name}: ['$a', '$a']}}"),
                format!("{{{name}: ['$a', '$a', '$a']}}"),
                format!("{{{name}: {{input: '$a', in: ['$$this'], initialValue: '$a'}}}}"),
                format!("{{{name}: {{input: '$a', in: ['$$this']}}}}"),
            ];
            if let Arity::Named(named) = operator.arity {
                let all = named.parameters.iter().map(|parameter| format!("{}: '$a'", parameter.name));
                forms.push(format!("{{{name}: {{{}}}}}", all.collect::<Vec<_>>().join(", ")));
            }
            for form in forms {
                for around in [format!("[{form}]"), format!("{{a: ['$a', {form}]}}")] {
                    let stage = format!("{{$set: {{a: {{$ifNull: [{around}, ['$a']]}}}}}}");
                    let _ = run(&repeated(&stage, 40, "{$match: {$expr: {$eq: ['$a', ['$a']]}}}"));
                }
            }
        }
    });
}

#[test]
fn every_accumulator_may_take_part() {
    on_small_stack(|| {
        for name in accumulators().chain(window_functions()) {
            for argument in [
                "'$$ROOT'",
                "['$a']",
                "{input: ['$a'], n: 1}",
                "{output: ['$a'], sortBy: {a: 1}, n: 2}",
                "{output: '$a', by: 0}",
            ] {
                let call = format!("{{{name}: {argument}}}");
                for stage in [
                    format!("{{$group: {{_id: {{k: 1}}, a: {call}}}}}"),
                    format!("{{$bucketAuto: {{groupBy: '$_id', buckets: 1, output: {{a: {call}}}}}}}"),
                    format!("{{$setWindowFields: {{sortBy: {{_id: 1}}, output: {{a: {call}}}}}}}"),
                ] {
                    let _ = run(&repeated(&stage, 40, "{$match: {$expr: {$eq: ['$a', ['$a']]}}}"));
                }
            }
        }
    });
}

#[test]
fn updates_store_no_deeper_than_documents_may() {
    fn update(document: &DocumentBuf, update: &str) -> Result<DocumentBuf> {
        let wrapped = extended_json::parse(&format!("{{u: {update}}}"))?;
        let context = Context::for_tests();
        let update = Update::parse(wrapped.view().get("u").unwrap(), &[], &context)?;
        Ok(update.apply(document.view(), None, false, &context)?.unwrap_or_else(|| document.clone()))
    }
    on_small_stack(|| {
        let deep = wrapped(150, "1");
        for stage in [
            "[{$set: {a: ['$a']}}]".to_string(),
            repeated("{$set: {a: ['$a']}}", 900, "{$set: {b: {$eq: ['$a', ['$a']]}}}"),
            "[{$replaceWith: {_id: 1, a: '$$ROOT'}}]".to_string(),
            format!("{{$set: {{'a.b': {deep}}}, $unset: {{'a.b': 1}}}}"),
            format!("{{$push: {{'{}': {deep}}}}}", ["c"; 20].join(".")),
            format!("{{$addToSet: {{'{}': {deep}}}}}", ["d"; 20].join(".")),
            format!("{{$push: {{e: {{$each: [{deep}], $sort: 1}}}}}}"),
            "{$rename: {a: 'f.f.f.f.f.f.f.f.f.f'}}".to_string(),
            "{$rename: {f: 'a'}}".to_string(),
            format!("{{_id: 1, a: {deep}}}"),
            format!("{{$max: {{'{}': {deep}}}}}", ["g"; 30].join(".")),
        ] {
            let mut document = extended_json::parse("{_id: 1, a: {b: 1}}").unwrap();
            for _ in 0..if stage.contains("$each") { 20 } else { 200 } {
                match update(&document, &stage) {
                    Ok(updated) => document = updated,
                    Err(_) => break,
                }
                assert!(!nests_deeper(document.view(), MAX_STORED_DEPTH), "{stage:.200}");
            }
        }
        let once = extended_json::parse(&format!("{{_id: 1, a: {}}}", wrapped(179, "1"))).unwrap();
        assert!(update(&once, "{$set: {b: 1}}").is_ok());
        for deeper in ["[{$set: {a: ['$a']}}]", "{$rename: {a: 'b.c'}}"] {
            let error = update(&once, deeper).unwrap_err();
            assert_eq!(error.message(), "Document exceeds maximum nesting depth of 180", "{deeper}");
        }
    });
}

#[test]
fn a_projection_of_a_find_is_no_deeper_than_a_client_takes() {
    on_small_stack(|| {
        let stored = extended_json::parse(&format!("{{_id: 1, a: {}}}", wrapped(179, "1"))).unwrap();
        let project = |spec: &str| {
            let context = Context::for_tests();
            let projection = crate::Projection::parse_find(extended_json::parse(spec)?.view(), &context)?;
            projection.apply(stored.view(), None, &context, &crate::Arena::new())
        };
        assert!(project(&format!("{{b: {}}}", wrapped(19, "'$$ROOT'"))).is_ok());
        let error = project(&format!("{{b: {}}}", wrapped(20, "'$$ROOT'"))).unwrap_err();
        assert_eq!(error.code().number(), 15, "{error}");
    });
}

#[test]
fn usual_pipelines_add_little_depth() {
    let growth = |pipeline: &str| {
        let wrapped = extended_json::parse(&format!("{{p: {pipeline}}}")).unwrap();
        let stages = wrapped.view().get("p").and_then(|value| value.as_array()).unwrap_or(Array::EMPTY);
        let pipeline = crate::Pipeline::parse(stages, &Context::for_tests()).unwrap();
        pipeline.steps.iter().map(|step| step.growth).sum::<usize>()
    };
    assert_eq!(growth("[{$match: {'a.b.c': {$gt: 1}}}, {$sort: {a: 1}}, {$limit: 3}, {$unwind: '$a.b'}]"), 0);
    let usual = "[{$match: {a: 1}}, {$lookup: {from: 'f', localField: 'a', foreignField: 'b', as: 'c.d'}},
        {$group: {_id: {x: '$a', y: '$b'}, n: {$sum: {$multiply: ['$a', '$b']}}}}, {$project: {n: 1, m: {$round: ['$n', 2]}}}]";
    assert!(growth(usual) <= super::ROOM, "{}", growth(usual));
}
