//! killOp and maxTimeMS end every command soon, and other clients are not delayed.
//!
//! Each case is work that would take far too long. The test measures and prints the time from the interruption to the
//! answer, and the time of a ping meanwhile. The limits are for debug builds on busy machines: the goal is 10 ms.

use crate::client::Client;
use crate::print_line;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Builder, Document, DocumentBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum delay of an answer.
const LATE: Duration = Duration::from_millis(500);
/// Maximum time of a ping meanwhile.
const PING_LATE: Duration = Duration::from_secs(2);
/// Number of attempts, since the machine may be busy with other work.
const ATTEMPTS: usize = 4;
/// Time limit in the second half of the cases.
const MAX_TIME: Duration = Duration::from_millis(150);
/// Number of documents in the collection.
const DOCUMENTS: i32 = 20_000;

/// Commands to interrupt: a name, and a command without `$db`.
const CASES: &[(&str, &str)] = &[
    (
        "nested $reduce",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$reduce: {input: {$range: [0, 1000000]}, initialValue: 0, in: {$add: ['$$value', {$size: {$map: {input: {$range: [0, 10000]}, in: '$$this'}}}]}}}}}]}",
    ),
    (
        "$range by $filter",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$map: {input: {$range: [0, 100000]}, as: 'a', in: {$filter: {input: {$range: [0, 100000]}, cond: {$lt: ['$$this', 0]}}}}}}}]}",
    ),
    (
        "$reduce to a long array",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$reduce: {input: {$range: [0, 300000]}, initialValue: [], in: {$concatArrays: ['$$value', ['$$this']]}}}}}]}",
    ),
    (
        "$sortArray in a loop",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$map: {input: {$range: [0, 1000000]}, in: {$size: {$sortArray: {input: {$range: [0, 2000]}, sortBy: -1}}}}}}}]}",
    ),
    (
        "$setUnion in a loop",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$map: {input: {$range: [0, 100000]}, in: {$size: {$setUnion: [{$range: [0, 10000]}, ['$$this']]}}}}}}]}",
    ),
    (
        "one long $sortArray",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$size: {$sortArray: {input: {$map: {input: {$range: [0, 3000000]}, in: {$mod: [{$multiply: ['$$this', 7919]}, 1000003]}}}, sortBy: 1}}}}}]}",
    ),
    (
        "one long $arrayToObject",
        "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$project: {n: {$arrayToObject: {$map: {input: {$range: [0, 2000000]}, in: [{$toString: '$$this'}, 1]}}}}}]}",
    ),
    (
        "cross $lookup",
        "{aggregate: 'big', cursor: {}, pipeline: [{$lookup: {from: 'big', let: {a: '$a'}, pipeline: [{$match: {$expr: {$eq: ['$none', '$$a']}}}], as: 'all'}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$lookup without an index",
        "{aggregate: 'big', cursor: {}, pipeline: [{$lookup: {from: 'big', localField: 'a', foreignField: 'none', as: 'all'}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "big $unwind",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 1000]}}}, {$unwind: '$l'}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$unwind of $unwind, grouped",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 1000]}}}, {$unwind: '$l'}, {$group: {_id: {$mod: ['$l', 10]}, n: {$sum: 1}}}]}",
    ),
    (
        "$graphLookup",
        "{aggregate: 'big', cursor: {}, pipeline: [{$graphLookup: {from: 'big', startWith: '$_id', connectFromField: 'next', connectToField: '_id', as: 'all', maxDepth: 3000}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$graphLookup without an index",
        "{aggregate: 'big', cursor: {}, pipeline: [{$graphLookup: {from: 'big', startWith: '$a', connectFromField: 'a', connectToField: 'b', as: 'all'}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "big $sort",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 100]}}}, {$unwind: '$l'}, {$project: {l: 1, s: 1}}, {$sort: {s: -1, l: -1}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$setWindowFields",
        "{aggregate: 'big', cursor: {}, pipeline: [{$setWindowFields: {sortBy: {_id: 1}, output: {m: {$push: '$a', window: {documents: [-200, 200]}}}}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$setWindowFields with a median",
        "{aggregate: 'big', cursor: {}, pipeline: [{$project: {a: 1, l: {$range: [0, 60]}}}, {$unwind: '$l'}, {$setWindowFields: {sortBy: {_id: 1}, output: {m: {$median: {input: '$a', method: 'approximate'}, window: {documents: [-10000, 10000]}}}}}, {$group: {_id: null, n: {$sum: {$size: {$ifNull: ['$all', []]}}}}}]}",
    ),
    (
        "$facet",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 1000]}}}, {$facet: {a: [{$unwind: '$l'}, {$match: {'l.x': 1}}], b: [{$unwind: '$l'}, {$count: 'n'}]}}]}",
    ),
    (
        "$densify",
        "{aggregate: 'big', cursor: {}, pipeline: [{$match: {_id: {$lt: 2}}}, {$set: {k: {$range: [0, 100]}}}, {$unwind: '$k'}, {$densify: {field: '_id', partitionByFields: ['k'], range: {step: 0.001, bounds: [0.5, 4.5]}}}, {$match: {none: 1}}, {$unionWith: {coll: 'big', pipeline: [{$set: {l: {$range: [0, 1000]}}}, {$unwind: '$l'}, {$match: {none: 1}}]}}]}",
    ),
    (
        "slow filter",
        "{find: 'big', filter: {$expr: {$eq: [{$size: {$filter: {input: {$range: [0, 3000]}, cond: {$lt: ['$$this', 0]}}}}, 1]}}}",
    ),
    ("slow regular expression", "{find: 'big', filter: {s: {$regex: '(?:a?){14}[cd]'}}}"),
    (
        "hostile pattern over a long text",
        "{aggregate: 'big', cursor: {}, pipeline: [{$match: {_id: 1}}, {$set: {t: {$reduce: {input: {$range: [0, 12]}, initialValue: '$s', in: {$concat: ['$$value', '$$value']}}}}}, {$match: {t: {$regex: 'a*[cd]'}}}]}",
    ),
    (
        "hostile pattern, all matches",
        "{aggregate: 'big', cursor: {}, pipeline: [{$match: {_id: 1}}, {$set: {t: {$reduce: {input: {$range: [0, 14]}, initialValue: '$s', in: {$concat: ['$$value', '$$value']}}}}}, {$set: {t: {$regexFindAll: {input: '$t', regex: 'a+[cd]'}}}}]}",
    ),
    ("count with a slow filter", "{count: 'big', query: {s: {$regex: '(?:a?){14}[cd]'}}}"),
    ("distinct", "{distinct: 'big', key: 'a', query: {s: {$regex: '(?:a?){14}[cd]'}}}"),
    (
        "update of many",
        "{update: 'big', updates: [{q: {}, multi: true, u: [{$set: {u: {$size: {$filter: {input: {$range: [0, 3000]}, cond: {$gt: ['$$this', 7]}}}}}}]}]}",
    ),
    ("delete of many", "{delete: 'big', deletes: [{q: {s: {$regex: '(?:a?){14}[cd]'}}, limit: 0}]}"),
    (
        "$merge",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 200]}}}, {$unwind: '$l'}, {$set: {_id: {$concat: [{$toString: '$_id'}, '-', {$toString: '$l'}]}}}, {$merge: {into: 'merged'}}]}",
    ),
    (
        "$out",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {l: {$range: [0, 200]}}}, {$unwind: '$l'}, {$unset: '_id'}, {$out: 'out'}]}",
    ),
    (
        "keys of long arrays",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {x: {$range: [0, 500000]}}}, {$group: {_id: '$x'}}]}",
    ),
    (
        "$setUnion of long arrays",
        "{aggregate: 'big', cursor: {}, pipeline: [{$set: {x: {$range: [0, 500000]}}}, {$group: {_id: null, x: {$setUnion: '$x'}}}]}",
    ),
    ("distinct of long arrays", "{distinct: 'long', key: 'l.n'}"),
    (
        "$elemMatch over long arrays",
        "{find: 'long', filter: {$nor: [{l: {$elemMatch: {n: {$in: ['a', 'b']}}}}, {l: {$elemMatch: {n: 'c', m: 1}}}, {l: {$elemMatch: {n: 'd', m: 1}}}]}}",
    ),
    ("createIndexes", "{createIndexes: 'big', indexes: [{key: {'deep.$**': 1}, name: 'slow'}]}"),
];

/// Returns the cases with long texts.
fn long_cases() -> Vec<(&'static str, String)> {
    let patterns: Vec<String> = (0..20_000).map(|number| format!("/a{number}.*[xyz]/")).collect();
    let fields: Vec<String> =
        (0..2000).map(|number| format!("f{number}: {{$concat: ['$s', '$s']}}")).collect();
    let aggregate = |stages: &str| format!("{{aggregate: 'big', cursor: {{}}, pipeline: [{stages}]}}");
    let stages = "{$set: {l: {$range: [0, 300]}}}, ".repeat(300);
    vec![
        (
            "$in of many patterns",
            format!("{{find: 'big', filter: {{s: {{$in: [{}]}}}}}}", patterns.join(", ")),
        ),
        (
            "many fields",
            aggregate(&format!("{{$project: {{{}}}}}, {{$match: {{none: 1}}}}", fields.join(", "))),
        ),
        (
            "many stages",
            aggregate(&format!("{stages}{{$group: {{_id: null, n: {{$sum: {{$size: '$l'}}}}}}}}")),
        ),
    ]
}

fn command(text: &str, more: impl FnOnce(&mut Builder)) -> DocumentBuf {
    let mut out = Builder::new();
    out.append_all(parse(text).unwrap().view());
    more(&mut out);
    out.append(c"$db", "test");
    out.finish()
}

fn code(reply: &DocumentBuf) -> Option<i64> {
    let of = |document: Document<'_>| document.get("code").and_then(|code| code.as_i64());
    let first = reply.view().get("writeErrors").and_then(|errors| errors.as_array()?.get(0)?.as_document());
    of(reply.view()).or_else(|| first.and_then(of))
}

/// Fills the collection: short documents, each linked to the next, with text that some patterns take long to match, and
/// deep values to index.
fn fill(client: &mut Client) {
    for from in (0..DOCUMENTS).step_by(1000) {
        let insert = command("{insert: 'big'}", |out| {
            out.begin_array(c"documents");
            for id in from..from + 1000 {
                out.push_document().append(c"_id", id).append(c"next", id + 1);
                out.append(c"a", id.wrapping_mul(7919) % 1009).append(c"b", id % 1009);
                out.append(c"s", "a".repeat(90).as_str());
                out.begin_array(c"deep");
                (0..60).for_each(|k| _ = out.push(k));
                out.end().end();
            }
            out.end();
        });
        let reply = client.command(&insert).unwrap();
        assert_eq!(reply.view().get("n").and_then(|n| n.as_i64()), Some(1000), "{reply}");
    }
}

/// Fills the collection `long`: documents with long arrays.
fn fill_long(client: &mut Client) {
    let documents = ["{}"; 60].join(", ");
    let array = "{$map: {input: {$range: [0, 40000]}, in: {n: '$$this'}}}";
    let text = format!(
        "{{aggregate: 1, cursor: {{}}, pipeline: [{{$documents: [{documents}]}}, {{$set: {{l: {array}}}}}, {{$out: 'long'}}]}}"
    );
    let reply = client.command(&command(&text, |_| {})).unwrap();
    assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{reply}");
}

/// Returns the operation number of the connection with this address, for killOp.
fn operation(client: &mut Client, address: &str) -> Option<i64> {
    let mut current = Builder::new();
    current.append(c"currentOp", 1).append(c"client", address).append(c"$db", "admin");
    let current = current.finish();
    for _ in 0..2000 {
        let reply = client.command(&current).unwrap();
        let list = reply.view().get("inprog").and_then(|list| list.as_array()).unwrap();
        let found = list.get(0).and_then(|entry| entry.as_document()?.get("opid")?.as_i64());
        if found.is_some() {
            return found;
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Starts the command, kills it, and returns the remaining run time, or the error.
fn killed(server: &Server, text: &str) -> Result<Duration, String> {
    let (mut client, mut killer) = (server.connect().unwrap(), server.connect().unwrap());
    let address = client.address();
    let slow = command(text, |_| {});
    let work = thread::spawn(move || (client.command(&slow), Instant::now()));
    let number = operation(&mut killer, &address);
    thread::sleep(Duration::from_millis(100));
    let signaled = Instant::now();
    if let Some(number) = number {
        let mut kill = Builder::new();
        kill.append(c"killOp", 1).append(c"op", number).append(c"$db", "admin");
        killer.command(&kill.finish()).unwrap();
    }
    let (reply, ended) = work.join().unwrap();
    expect(11601, reply)?;
    Ok(ended.saturating_duration_since(signaled))
}

/// Runs the command with a time limit, and returns its delay.
fn timed(server: &Server, text: &str) -> Result<Duration, String> {
    let mut client = server.connect().unwrap();
    let slow = command(text, |out| _ = out.append(c"maxTimeMS", MAX_TIME.as_millis() as i32));
    let started = Instant::now();
    expect(50, client.command(&slow))?;
    Ok(started.elapsed().saturating_sub(MAX_TIME))
}

fn expect(expected_code: i64, reply: std::io::Result<DocumentBuf>) -> Result<(), String> {
    let reply = reply.map_err(|error| format!("no reply: {error}"))?;
    match code(&reply) == Some(expected_code) {
        true => Ok(()),
        false => Err(format!("not {expected_code}: {:.300}", reply.to_string())),
    }
}

/// Returns the best of several attempts.
fn attempt(once: impl Fn() -> Result<Duration, String>) -> Result<Duration, String> {
    let mut best = Duration::MAX;
    for _ in 0..ATTEMPTS {
        best = best.min(once()?);
        if best < LATE {
            return Ok(best);
        }
    }
    Err(format!("it ended {best:?} after it was told to"))
}

/// Sends pings until the end, and returns the longest time of one.
fn ping(server: &Server, over: &AtomicBool) -> Duration {
    let ping = parse("{ping: 1, $db: 'admin'}").unwrap();
    let mut client = server.connect().unwrap();
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        client.command(&ping).unwrap();
        longest = longest.max(started.elapsed());
        thread::sleep(Duration::from_millis(2));
    }
    longest
}

#[test]
fn every_command_is_interrupted_soon() {
    let Some(server) = Server::start() else { return };
    fill(&mut server.connect().unwrap());
    fill_long(&mut server.connect().unwrap());
    let filter = std::env::var("VELLUM_INTERRUPT").unwrap_or_default();
    let mut failures = Vec::new();
    let cases = CASES.iter().map(|(name, text)| (*name, text.to_string())).chain(long_cases());
    for (name, text) in cases.filter(|(name, _)| name.contains(&filter)) {
        let text = text.as_str();
        let over = AtomicBool::new(false);
        let (kill, limit, pinged) = thread::scope(|scope| {
            let pings = scope.spawn(|| ping(&server, &over));
            let kill = attempt(|| killed(&server, text));
            let limit = attempt(|| timed(&server, text));
            over.store(true, Ordering::Relaxed);
            (kill, limit, pings.join().unwrap())
        });
        print_line(&format!(
            "{name:<32} killOp {kill:9.1?}  maxTimeMS {limit:9.1?}  longest ping {pinged:9.1?}"
        ));
        if kill.is_err() || limit.is_err() || pinged > PING_LATE {
            failures.push(name);
        }
    }
    assert_eq!(failures, Vec::<&str>::new(), "see above");
}
