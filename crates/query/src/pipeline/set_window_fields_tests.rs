//! Tests of window functions in `$setWindowFields`.

use crate::pipeline::testing::{Run, fails, gives, running_fails};

const INPUT: &str =
    "[{_id: 1, p: 'a', x: 3, v: 30}, {_id: 2, p: 'b', x: 1, v: 5}, {_id: 3, p: 'a', x: 1, v: 10},
    {_id: 4, p: 'a', x: 2, v: 20}, {_id: 5, p: 'a', x: 2, v: 40}]";

/// Checks the field `r` for the documents of `INPUT`, ordered by partition and x: 3, 4, 5, 1 and 2.
#[track_caller]
fn windows(function: &str, expected: &str) {
    let stage =
        format!("{{$setWindowFields: {{partitionBy: '$p', sortBy: {{x: 1}}, output: {{r: {function}}}}}}}");
    let rest = "{$group: {_id: null, ids: {$push: '$_id'}, r: {$push: '$r'}}}";
    let expected = format!("[{{_id: null, ids: [3, 4, 5, 1, 2], r: {expected}}}]");
    gives(INPUT, &format!("[{stage}, {rest}]"), &expected);
}

#[test]
fn accumulators_over_frames() {
    windows("{$sum: '$v'}", "[100, 100, 100, 100, 5]");
    windows("{$sum: '$v', window: {documents: ['unbounded', 'current']}}", "[10, 30, 70, 100, 5]");
    windows("{$sum: '$v', window: {documents: [-1, 0]}}", "[10, 30, 60, 70, 5]");
    windows("{$sum: '$v', window: {documents: [1, 2]}}", "[60, 70, 30, 0, 0]");
    windows("{$push: '$v', window: {documents: [2, 5]}}", "[[40, 30], [30], [], [], []]");
    windows("{$sum: '$v', window: {range: [-1, 0]}}", "[10, 70, 70, 90, 5]");
    windows("{$count: {}, window: {range: [0, {$add: [0, 0]}]}}", "[1, 2, 2, 1, 1]");
    windows("{$push: '$v', window: {range: ['current', 0]}}", "[[10], [20, 40], [40], [30], [5]]");
    windows(
        "{$push: '$v', window: {range: [-1, 'current']}}",
        "[[10], [10, 20], [10, 20, 40], [20, 40, 30], [5]]",
    );
    windows("{$avg: '$v', window: {documents: [0, 1]}}", "[15.0, 30.0, 35.0, 30.0, 5.0]");
}

#[test]
fn outputs_are_set_in_every_element_of_arrays() {
    gives(
        "[{_id: 1, x: 1, docs: [{a: 0}, {b: 0}, 5, [{}, [6]]], arr: [1, 2], s: 7}]",
        "[{$setWindowFields: {output: {'docs.a': {$sum: '$x'}, 'arr.0.b': {$sum: '$x'}, 's.t': {$sum: '$x'}}}}]",
        "[{_id: 1, x: 1, docs: [{a: 1}, {b: 0, a: 1}, {a: 1}, [{a: 1}, [{a: 1}]]],
           arr: [{'0': {b: 1}}, {'0': {b: 1}}], s: {t: 1}}]",
    );
    gives(
        "[{_id: 1, a: [{b: 3}, {c: 0}]}]",
        "[{$fill: {sortBy: {_id: 1}, output: {'a.b': {method: 'locf'}}}}]",
        "[{_id: 1, a: [{b: [3]}, {c: 0, b: [3]}]}]",
    );
}

#[test]
fn sums_of_frames_that_lose_documents_are_narrowed() {
    let run = |window: &str, expected: &str| {
        let stage = format!(
            "[{{$setWindowFields: {{sortBy: {{_id: 1}}, output: {{v: {{$sum: '$v', window: {window}}}}}}}}}, {{$project: {{t: {{$type: '$v'}}, v: 1}}}}]"
        );
        let input = "[{_id: 1, v: NumberLong(1)}, {_id: 2, v: NumberLong(2)}, {_id: 3, v: NumberLong(3)}]";
        Run::new(input, &stage).gives(expected);
    };
    run(
        "{documents: [-1, 0]}",
        "[{_id: 1, v: 1, t: 'int'}, {_id: 2, v: 3, t: 'int'}, {_id: 3, v: 5, t: 'int'}]",
    );
    run(
        "{documents: ['unbounded', 0]}",
        "[{_id: 1, v: NumberLong(1), t: 'long'}, {_id: 2, v: NumberLong(3), t: 'long'},
          {_id: 3, v: NumberLong(6), t: 'long'}]",
    );
}

#[test]
fn places() {
    windows("{$rank: {}}", "[1, 2, 2, 4, 1]");
    windows("{$denseRank: {}}", "[1, 2, 2, 3, 1]");
    windows("{$documentNumber: {}}", "[1, 2, 3, 4, 1]");
    windows("{$shift: {output: '$v', by: 1}}", "[20, 40, 30, null, null]");
    windows("{$shift: {output: '$v', by: -1, default: 'none'}}", "['none', 10, 20, 40, 'none']");
}

#[test]
fn rates_and_means() {
    windows(
        "{$derivative: {input: '$v'}, window: {documents: ['unbounded', 'current']}}",
        "[null, 10.0, 30.0, 10.0, null]",
    );
    windows("{$integral: {input: '$v'}}", "[50.0, 50.0, 50.0, 50.0, 0]");
    windows("{$expMovingAvg: {input: '$v', alpha: 0.5}}", "[10.0, 15.0, 27.5, 28.75, 5.0]");
    windows("{$expMovingAvg: {input: '$v', N: 3}}", "[10.0, 15.0, 27.5, 28.75, 5.0]");
    windows("{$covariancePop: ['$x', '$x']}", "[0.5, 0.5, 0.5, 0.5, 0.0]");
    windows("{$covarianceSamp: ['$x', '$v'], window: {documents: [0, 0]}}", "[null, null, null, null, null]");
    windows("{$minMaxScaler: {input: '$v', min: 0, max: 3}}", "[0.0, 1.0, 3.0, 2.0, 0]");
}

#[test]
fn gaps_are_filled() {
    let input = "[{x: 0, v: 1}, {x: 1}, {x: 3, v: null}, {x: 4, v: 9}, {x: 5}]";
    let run = |function: &str, expected: &str| {
        let stage =
            format!("[{{$setWindowFields: {{sortBy: {{x: 1}}, output: {{v: {{{function}: '$v'}}}}}}}}]");
        Run::new(input, &stage).gives(expected);
    };
    run("$locf", "[{x: 0, v: 1}, {x: 1, v: 1}, {x: 3, v: 1}, {x: 4, v: 9}, {x: 5, v: 9}]");
    run("$linearFill", "[{x: 0, v: 1}, {x: 1, v: 3.0}, {x: 3, v: 7.0}, {x: 4, v: 9}, {x: 5, v: null}]");
}

#[test]
fn ranges_of_time() {
    gives(
        "[{t: ISODate('2024-01-31T00:00:00Z')}, {t: ISODate('2024-02-29T00:00:00Z')}, {t: ISODate('2024-03-31T00:00:00Z')}]",
        "[{$setWindowFields: {sortBy: {t: 1}, output: {n: {$count: {}, window: {range: [-1, 0], unit: 'month'}}}}},
          {$project: {n: 1}}]",
        "[{n: 1}, {n: 2}, {n: 2}]",
    );
}

#[test]
fn refuses_invalid_specifications() {
    let output = |text: &str| format!("[{{$setWindowFields: {{output: {{r: {text}}}}}}}]");
    fails("[{$setWindowFields: 1}]", 9, "must be an object, found int");
    fails("[{$setWindowFields: {}}]", 40414, "'$setWindowFields.output' is missing");
    fails("[{$setWindowFields: {x: 1}}]", 40415, "'$setWindowFields.x' is an unknown field");
    fails(&output("1"), 9, "must be an object");
    fails(&output("{$nope: 1}"), 9, "Unrecognized window function, $nope");
    fails(&output("{$rank: {}}"), 5371602, "$rank must be specified with a top level sortBy");
    fails(
        &output("{$sum: 1, window: {documents: [0, 1]}}"),
        5339901,
        "Document-based bounds require a sortBy",
    );
    fails(&output("{$sum: 1, window: {range: [0, 1]}}"), 5339902, "require sortBy a single field");
    fails(&output("{$sum: 1, window: {documents: [1]}}"), 9, "2-element array");
    fails(&output("{$sum: 1, x: 1}"), 9, "unknown argument: x");
    running_fails(
        "[{x: 'a'}]",
        "[{$setWindowFields: {sortBy: {x: 1}, output: {r: {$sum: 1, window: {range: [0, 1]}}}}}]",
        5429414,
        "Expected the sortBy field to be a number",
    );
    running_fails(
        "[{x: ISODate('2024-01-01T00:00:00Z')}]",
        "[{$setWindowFields: {sortBy: {x: 1}, output: {r: {$sum: 1, window: {range: [0, 1]}}}}}]",
        5429413,
        "a unit must be provided",
    );
}

#[test]
fn results_are_counted_as_they_are_made() {
    let documents: String = (0..300).map(|i| format!("{{_id: {i}}},")).collect();
    for window in ["['unbounded', 'unbounded']", "['unbounded', 'current']", "[-150, 150]"] {
        let pipeline = format!(
            "[{{$setWindowFields: {{sortBy: {{_id: 1}}, output: {{all: {{$push: '$_id', window: {{documents: {window}}}}}}}}}}}]"
        );
        let run = Run::new(&format!("[{documents}]"), &pipeline);
        run.clone()
            .memory(60_000)
            .fails(5414201, "Exceeded memory limit in DocumentSourceSetWindowFields, used 6");
        assert!(run.result().is_ok());
    }
}

#[test]
fn a_partition_beyond_the_memory_is_read_from_disk() {
    let pad = "x".repeat(200);
    let documents: String =
        (0..90).map(|i| format!("{{_id: {i}, p: {}, v: {}, pad: '{pad}'}},", i % 2, i * 7919 % 90)).collect();
    let pipeline = "[{$setWindowFields: {partitionBy: '$p', sortBy: {v: 1}, output: {
        sum: {$sum: '$_id', window: {documents: [-20, 0]}}, rank: {$rank: {}}}}},
        {$project: {pad: 0}}]";
    let run = Run::new(&format!("[{documents}]"), pipeline);
    assert_eq!(run.clone().memory(7000).result().unwrap(), run.clone().result().unwrap());
    run.clone().memory(7000).no_disk().fails(292, "Sort exceeded memory limit");
    run.memory(1000).fails(5414201, "Exceeded memory limit in DocumentSourceSetWindowFields, used");
}
