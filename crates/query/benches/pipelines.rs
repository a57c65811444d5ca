//! Benchmark of pipeline stages alone, per document.
//!
//! `cargo bench -p query --bench pipelines` prints nanoseconds per document, the minimum of several rounds. Under
//! callgrind an argument selects a case: `valgrind --tool=callgrind BINARY set`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "printing a table is its purpose")]

use base::bson::{Builder, DocumentBuf, DocumentCow, FieldNameBuf, Value, extended_json};
use base::{Result, err};
use query::pipeline::{Collections, Environment, Namespace, Stream, from_iter};
use query::{Context, Matcher, Pipeline};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 9;
const DOCUMENTS: usize = 20_000;

/// A source without other collections.
struct None;

impl Collections for None {
    fn namespace(&self) -> (&str, &str) {
        ("d", "c")
    }

    fn list(&self, _database: Option<&str>) -> Vec<(String, DocumentBuf)> {
        Vec::new()
    }

    fn aggregate(&self, _: &Namespace, _: &Pipeline, _: &Environment) -> Result<Stream> {
        Err(err!(InternalError, "there are no others"))
    }

    fn find(&self, _: &Namespace, _: Arc<Matcher>, _: &Environment) -> Result<Stream> {
        Err(err!(InternalError, "there are no others"))
    }
}

const PIPELINES: &[(&str, &str)] = &[
    ("group", "[{$match: {n: {$gte: 0}}}, {$group: {_id: '$g', s: {$sum: '$n'}, a: {$avg: '$n'}}}]"),
    ("set", "[{$set: {t: {$add: ['$n', 1]}, u: {$concat: ['$s', '-', '$s']}}}]"),
    ("set list", "[{$set: {l: {$map: {input: '$l', in: {$multiply: ['$$this', 2]}}}}}]"),
    (
        "set deep",
        "[{$set: {x: {y: ['$n', {z: '$l'}]}}}, {$project: {x: 1, d: {e: {f: '$s'}}}}, {$match: {'x.y': 1}}]",
    ),
    (
        "reduce",
        "[{$project: {r: {$reduce: {input: '$l', initialValue: [], in: {$concatArrays: ['$$value', ['$$this']]}}}}}]",
    ),
    ("replace", "[{$replaceWith: {a: '$n', b: '$s', c: '$l'}}]"),
    (
        "window",
        "[{$setWindowFields: {partitionBy: '$g', sortBy: {n: 1}, output: {c: {$sum: '$n', window: {documents: ['unbounded', 'current']}}}}}]",
    ),
];

fn document(number: usize) -> Arc<[u8]> {
    let mut out = Builder::new();
    out.append(c"_id", number as i64)
        .append(c"g", (number % 100) as i32)
        .append(c"n", (number * 7 % 1000) as i32);
    out.append(c"s", "some text of a few words").begin_array(c"l");
    (0..20).for_each(|at| _ = out.push(at));
    out.end();
    for field in 0..10 {
        out.append(&FieldNameBuf::new(format!("field{field}")).unwrap(), "x".repeat(40).as_str());
    }
    out.finish().into_bytes().into()
}

fn run(pipeline: &DocumentBuf, documents: &[Arc<[u8]>]) -> usize {
    let context = Arc::new(Context::for_tests());
    let Some(Value::Array(stages)) = pipeline.view().get("p") else { return 0 };
    let mut parsed = Pipeline::parse(stages, &context).unwrap();
    parsed.optimize(&context).unwrap();
    let all: Vec<_> = documents.iter().map(|bytes| Ok(DocumentCow::Shared(bytes.clone()))).collect();
    let mut stream =
        parsed.run(from_iter(all.into_iter()), &Environment::new(Arc::new(None), context)).unwrap();
    let mut bytes = 0;
    while let Some(row) = stream.next().unwrap() {
        bytes += row.document.view().bytes().len();
    }
    bytes
}

fn main() {
    let name_filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let (rounds, count) = if name_filter.is_some() { (1, DOCUMENTS / 4) } else { (ROUNDS, DOCUMENTS) };
    let documents: Vec<_> = (0..count).map(document).collect();
    for (name, pipeline) in PIPELINES
        .iter()
        .filter(|(name, _)| name_filter.as_ref().is_none_or(|name_filter| name == name_filter))
    {
        let pipeline = extended_json::parse(&format!("{{p: {pipeline}}}")).unwrap();
        let mut best = f64::MAX;
        let mut bytes = 0;
        for _ in 0..rounds {
            let begun = Instant::now();
            bytes = run(&pipeline, &documents);
            best = best.min(begun.elapsed().as_nanos() as f64 / count as f64);
        }
        println!("{name:<12} {best:8.0} ns  {bytes} bytes");
    }
}
