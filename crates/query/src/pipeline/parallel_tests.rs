//! Tests of stages that several threads run.

use super::super::testing::{Memory, collect, documents, with_array};
use super::super::{Environment, Pipeline, Stage, Stream};
use super::Split;
use crate::context::Uninterrupted;
use crate::{Context, Helpers, Limits, Row};
use base::bson::DocumentBuf;
use base::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Threads of which some are always idle, or which are busy at each third question.
struct Threads {
    started: AtomicUsize,
    questions: AtomicUsize,
    are_busy: bool,
}

impl Helpers for Threads {
    fn has_idle(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        self.are_busy && self.questions.fetch_add(1, Relaxed) % 3 == 2
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        self.started.fetch_add(1, Relaxed);
        std::thread::spawn(work);
        true
    }
}

/// Documents in sections of ten.
struct Sections {
    documents: Arc<Vec<DocumentBuf>>,
    next: usize,
    end: usize,
    left: usize,
}

impl Stage for Sections {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.next == self.end || self.left == 0 {
            return Ok(None);
        }
        (self.next, self.left) = (self.next + 1, self.left - 1);
        let document = self.documents[self.next - 1].clone();
        if document.view().get("fails").is_some() {
            bail!(BadValue, "{}", self.next);
        }
        Ok(Some(document.into()))
    }

    fn begin_section(&mut self) -> bool {
        self.left = 10;
        self.next < self.end
    }

    fn split(&mut self) -> Option<Split> {
        let middle = self.next + (self.end - self.next) / 2;
        if middle - self.next < 10 {
            return None;
        }
        let later = Sections { documents: self.documents.clone(), next: middle, end: self.end, left: 0 };
        self.end = middle;
        let interrupt = Arc::new(Uninterrupted);
        Some(Split { rows: Box::new(later), interrupt, finish: Box::new(|| ()) })
    }
}

/// Runs a pipeline with or without threads. Returns the documents and the number of threads started.
fn run(
    pipeline: &str,
    input: &Arc<Vec<DocumentBuf>>,
    memory: usize,
    threads: Option<bool>,
) -> (Result<Vec<DocumentBuf>>, usize) {
    let threads = threads.map(|are_busy| {
        Arc::new(Threads { started: AtomicUsize::new(0), questions: AtomicUsize::new(0), are_busy })
    });
    let mut context = Context::for_tests();
    context.limits = Limits::all(memory);
    context.helpers = threads.clone().map(|threads| threads as Arc<dyn Helpers>);
    let pipeline = with_array(pipeline, |array| Pipeline::parse(array, &context)).unwrap();
    let source: Stream =
        Box::new(Sections { documents: input.clone(), next: 0, end: input.len(), left: usize::MAX });
    let environment = Environment::new(Arc::new(Memory::default()), Arc::new(context));
    let result = pipeline.run(source, &environment).and_then(collect);
    (result, threads.map_or(0, |threads| threads.started.load(Relaxed)))
}

fn input(count: usize) -> Arc<Vec<DocumentBuf>> {
    let document = |i: usize| {
        let (group, half) = (i * 7919 % 23, i as f64 / 3.0);
        format!(
            "{{_id: {i}, a: {group}, half: {half}, tags: [{i}, {}], d: NumberDecimal('{half:.4}')}}",
            i % 5
        )
    };
    Arc::new(documents(&format!("[{}]", (0..count).map(document).collect::<Vec<_>>().join(","))))
}

/// Accumulators whose states join exactly.
const EXACT: &str = "n: {$sum: 1}, half: {$sum: '$half'}, mean: {$avg: '$half'}, least: {$min: '$half'}, greatest:
    {$maxN: {n: 3, input: '$_id'}}, first: {$first: '$_id'}, last: {$last: '$_id'}, ends: {$lastN: {n: 2, input:
    '$_id'}}, top: {$top: {sortBy: {half: -1}, output: '$_id'}}, count: {$count: {}}, d: {$sum: '$d'}";

#[test]
fn parts_equal_one_thread() {
    let input = input(3000);
    for stages in
        ["", "{$match: {tags: {$ne: 3}}},", "{$unwind: '$tags'}, {$set: {half: {$add: ['$half', '$tags']}}},"]
    {
        let pipeline = format!("[{stages} {{$group: {{_id: '$a', {EXACT}}}}}]");
        let (alone, started) = run(&pipeline, &input, 1 << 20, None);
        assert_eq!((alone.as_ref().unwrap().len(), started), (23, 0));
        for are_busy in [false, true] {
            let (together, started) = run(&pipeline, &input, 1 << 20, Some(are_busy));
            assert_eq!(together.unwrap(), *alone.as_ref().unwrap(), "{pipeline}");
            assert!(started > 0);
        }
    }
}

#[test]
fn parts_that_spill_are_joined() {
    let input = input(3000);
    let pipeline =
        "[{$group: {_id: {$mod: ['$_id', 300]}, n: {$sum: 1}, all: {$first: '$tags'}}}, {$sort: {_id: 1}}]";
    let (alone, _) = run(pipeline, &input, 1 << 20, None);
    for memory in [4_000, 20_000, 60_000] {
        let (together, _) = run(pipeline, &input, memory, Some(false));
        assert_eq!(together.unwrap(), *alone.as_ref().unwrap(), "{memory} bytes");
    }
}

#[test]
fn sorted_parts_equal_one_thread() {
    let input = input(3000);
    let limits =
        ["", ", {$limit: 1}", ", {$limit: 7}", ", {$limit: 2999}", ", {$skip: 50}, {$limit: 100001}"];
    for (stages, keys) in [
        ("", "a: 1"),
        ("{$match: {tags: {$ne: 3}}},", "a: -1, d: 1"),
        ("{$unwind: '$tags'},", "tags: 1"),
        ("{$set: {a: {$mod: ['$a', 2]}, key: {$meta: 'recordId'}}},", "a: 1"),
        ("{$set: {a: 1}},", "a: 1"),
    ] {
        for limit in limits {
            let pipeline = format!("[{stages} {{$sort: {{{keys}}}}}{limit}]");
            let (alone, started) = run(&pipeline, &input, 1 << 22, None);
            assert_eq!(started, 0);
            for (memory, are_busy) in [(1 << 22, false), (1 << 22, true), (200_000, false), (4_000, true)] {
                let (together, started) = run(&pipeline, &input, memory, Some(are_busy));
                assert_eq!(together.unwrap(), *alone.as_ref().unwrap(), "{pipeline} in {memory} bytes");
                assert!(started > 0, "{pipeline} in {memory} bytes");
            }
        }
    }
}

#[test]
fn stages_without_spilling_have_an_exact_limit() {
    let input = input(1000);
    let run = |text: &str, memory| {
        let pipeline = with_array(text, |array| Pipeline::parse(array, &Context::for_tests()));
        let mut context = Context::for_tests();
        context.limits = Limits { allow_disk_use: false, ..Limits::all(memory) };
        let threads = Arc::new(Threads { started: 0.into(), questions: 0.into(), are_busy: false });
        context.helpers = Some(threads.clone());
        let source = Box::new(Sections { documents: input.clone(), next: 0, end: 1000, left: usize::MAX });
        let environment = Environment::new(Arc::new(Memory::default()), Arc::new(context));
        let count = pipeline.unwrap().run(source, &environment).and_then(collect).map(|rows| rows.len());
        (count.map_err(|error| error.code().number()), threads.started.load(Relaxed))
    };
    assert_eq!(run("[{$sort: {a: 1}}]", 20_000), (Err(292), 0));
    // Most groups are at the end, which another thread would read.
    let groups = "[{$group: {_id: {$max: [800, '$_id']}}}]";
    assert_eq!(run(groups, 100_000), (Ok(200), 0));
    assert_eq!(run(groups, 10_000), (Err(292), 0));
}

#[test]
fn inexact_accumulators_run_on_one_thread() {
    let input = input(500);
    for accumulator in
        ["$stdDevPop: '$half'", "$push: '$_id'", "$median: {input: '$half', method: 'approximate'}"]
    {
        let pipeline = format!("[{{$group: {{_id: '$a', v: {{{accumulator}}}}}}}]");
        assert_eq!(run(&pipeline, &input, 1 << 20, Some(false)).1, 0, "{accumulator}");
    }
    let (_, started) = run("[{$group: {_id: '$_id'}}]", &input, 1 << 20, Some(false));
    assert_eq!(started, 0, "as many groups as documents");
}

#[test]
fn the_first_error_in_the_order_of_rows_is_returned() {
    let mut failing = input(1000).to_vec();
    for at in [500, 700, 950] {
        failing[at] = documents("[{fails: true}]").remove(0);
    }
    let failing = Arc::new(failing);
    for stage in ["{$group: {_id: '$a', n: {$sum: 1}}}", "{$sort: {a: 1}}", "{$sort: {a: 1}}, {$limit: 3}"] {
        let (result, _) = run(&format!("[{stage}]"), &failing, 1 << 20, Some(false));
        assert_eq!(result.unwrap_err().message(), "501", "{stage}");
    }
}
