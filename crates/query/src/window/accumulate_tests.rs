//! Tests that sliding frames give the results of folding each frame by itself.

use super::*;
use crate::window::PartitionBuffer;
use base::bson::extended_json;
use proptest::prelude::*;
use std::cell::Cell;

/// Computes a function over `v` of documents sorted by `x`, by sliding and by the naive method.
fn both(function: &str, window: &str, documents: &[String]) -> (Vec<ValueBuf>, Vec<ValueBuf>) {
    let context = Context::for_tests();
    let sort = extended_json::parse("{x: 1}").unwrap();
    let sort_by = crate::window::SortBy { pattern: crate::SortPattern::parse(sort.view()).unwrap() };
    let mut buffer = PartitionBuffer::default();
    for document in documents {
        buffer.add(extended_json::parse(document).unwrap().into(), usize::MAX, true).unwrap();
    }
    buffer.finish().unwrap();
    let partition = Partition {
        documents: &buffer,
        sort_by: Some(&sort_by),
        context: &context,
        memory_used: Cell::new(0),
    };
    let spec = extended_json::parse(function).unwrap();
    let accumulation = Accumulation::parse_in_window(&spec.view().first().unwrap(), &context).unwrap();
    let window = extended_json::parse(window).unwrap();
    let bounds = Bounds::parse(Value::Document(window.view()), Some(&sort_by), &context).unwrap();
    let mut naive = Vec::new();
    let function = Accumulate { accumulation, bounds };
    let arguments = Arguments::new(&function, &partition).unwrap();
    for frame in function.bounds.frames(&partition).unwrap() {
        let mut running = arguments.start().unwrap();
        for at in frame {
            running.add(arguments.get(at)).unwrap();
        }
        naive.push(running.finish().unwrap());
    }
    (function.compute(&partition, &mut InterruptCheck::new(&context)).unwrap(), naive)
}

/// Documents with non-descending sort values.
fn documents(values: &[(u8, String)]) -> Vec<String> {
    let mut x = 0u32;
    let document = |(step, value): &(u8, String)| {
        x += u32::from(*step);
        format!("{{x: {x}, v: {value}}}")
    };
    values.iter().map(document).collect()
}

/// Values that add without rounding, or are not numbers.
fn exact() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (-50i32..50).prop_map(|number| number.to_string()),
        1 => any::<i32>().prop_map(|number| format!("NumberLong('{}')", i64::from(number) << 32)),
        2 => (-500i32..500).prop_map(|number| format!("NumberDecimal('{}.{:02}')", number, number.unsigned_abs() % 100)),
        1 => prop::sample::select(vec!["null", "'x'", "'y'", "[1]"]).prop_map(String::from),
    ]
}

fn double() -> impl Strategy<Value = String> {
    prop_oneof![(-1e6..1e6f64), (-1.0..1.0f64)].prop_map(|number| format!("{number:?}"))
}

fn window() -> impl Strategy<Value = String> {
    let bound = |low: i32, high: i32| (low..high, 0..60i32);
    prop_oneof![
        bound(-40, 20).prop_map(|(from, length)| format!("{{documents: [{from}, {}]}}", from + length)),
        bound(-80, 40).prop_map(|(from, length)| format!("{{range: [{from}, {}]}}", from + length)),
        Just("{documents: ['unbounded', 'current']}".to_string()),
        Just("{documents: ['current', 'unbounded']}".to_string()),
        Just("{range: ['current', 30]}".to_string()),
    ]
}

const EXACT: &[&str] = &[
    "{$sum: '$v'}",
    "{$avg: '$v'}",
    "{$count: {}}",
    "{$min: '$v'}",
    "{$max: '$v'}",
    "{$first: '$v'}",
    "{$last: '$v'}",
    "{$push: '$v'}",
    "{$addToSet: '$v'}",
    "{$minN: {n: 3, input: '$v'}}",
    "{$maxN: {n: 30, input: '$v'}}",
    "{$firstN: {n: 4, input: '$v'}}",
    "{$lastN: {n: 4, input: '$v'}}",
    "{$top: {sortBy: {v: 1}, output: '$x'}}",
    "{$bottomN: {n: 2, sortBy: {v: 1}, output: '$x'}}",
    "{$median: {input: '$v', method: 'approximate'}}",
    "{$percentile: {input: '$v', p: [0.1, 0.9], method: 'approximate'}}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integers_and_decimals_are_exact(values in prop::collection::vec((0..3u8, exact()), 1..150), window in window()) {
        let documents = documents(&values);
        for function in EXACT {
            let (slid, naive) = both(function, &window, &documents);
            prop_assert_eq!(slid, naive, "{} over {}", function, window);
        }
    }

    #[test]
    fn doubles_differ_by_rounding_alone(values in prop::collection::vec((0..3u8, double()), 1..150), window in window()) {
        let documents = documents(&values);
        for function in ["{$sum: '$v'}", "{$avg: '$v'}", "{$stdDevPop: '$v'}", "{$stdDevSamp: '$v'}"] {
            let (slid, naive) = both(function, &window, &documents);
            for (slid, naive) in slid.iter().zip(&naive) {
                let number = |value: &ValueBuf| value.view().as_number().map(|number| number.to_f64());
                let (slid, naive) = (number(slid), number(naive));
                prop_assert_eq!(slid.is_some(), naive.is_some());
                let difference = (slid.unwrap_or(0.0) - naive.unwrap_or(0.0)).abs();
                // The tolerance is relative to the greatest number, not to a sum near zero.
                prop_assert!(difference <= 1e-7, "{} over {}: {:?} {:?}", function, window, slid, naive);
            }
        }
    }
}

#[test]
fn infinite_values_leave_with_their_document() {
    let values: Vec<_> =
        (0..60).map(|i| (1, if i == 20 { "Infinity".into() } else { format!("{i}.5") })).collect();
    let (slid, naive) = both("{$sum: '$v'}", "{documents: [-9, 0]}", &documents(&values));
    assert_eq!(slid, naive);
}
