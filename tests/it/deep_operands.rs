//! Values of the maximum depth, as operands of every operator and on every path of documents through a server. Every
//! command is answered. No answer nests deeper than clients can read, and no stored document exceeds the depth limit.

use crate::bombs::generate::{Core, Maker, cores};
use crate::client::Client;
use crate::print_line;
use crate::requests::code as code_of;
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;
use base::bson::{Builder, Document, DocumentBuf, MAX_STORED_DEPTH, Value, nests_deeper};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Address space of the server in kilobytes.
const MEMORY: u64 = 8 << 20;
/// Memory limit of the process, so that exponential growth ends soon.
const LIMIT: &[&str] = &["--memory-limit", "512M"];
/// Time limit of a command in milliseconds.
const MAX_TIME: i32 = 500;

/// Operands of the maximum stored depth, slightly deeper ones, and the deepest that fit into a message.
static DEEP: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let plain = ["'$deep'", "'$l'", "'$x'", "'$o'", "'$$ROOT'", "['$deep']", "{a: '$l', b: ['$x']}"];
    let around = [wrapped(19, "'$l'"), nested(10, "'$o'"), wrapped(60, "'$x'")];
    plain.into_iter().chain(around.map(|text| &*text.leak())).collect()
});

fn around(levels: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

fn wrapped(levels: usize, inner: &str) -> String {
    around(levels, "[", inner, "]")
}

fn nested(levels: usize, inner: &str) -> String {
    around(levels, "{a: ", inner, "}")
}

fn dotted(levels: usize) -> String {
    vec!["p"; levels].join(".")
}

/// Sends a command to a database and returns the reply.
fn send(client: &mut Client, database: &str, command: &str) -> Result<DocumentBuf, String> {
    let parsed = parse(command).map_err(|error| format!("{error:?} in {command:.300}"))?;
    let mut sent = Builder::new();
    sent.append_all(parsed.view()).append(c"$db", database);
    client.command(&sent.finish()).map_err(|error| format!("{error}: {command:.300}"))
}

fn code(client: &mut Client, command: &str) -> i64 {
    code_of(&send(client, "test", command).unwrap())
}

/// Inserts documents whose every field has the maximum depth.
fn fill(client: &mut Client) {
    assert_eq!(code(client, "{drop: 'c'}"), 0);
    let (arrays, documents) = (wrapped(178, "1"), nested(178, "1"));
    let mixed = around(89, "[{a: ", "1", "}]");
    for id in 0..4 {
        let insert = format!(
            "{{insert: 'c', documents: [{{_id: {id}, k: {id}, next: {}, s: 'abcdefgh a', g: [{id}, {id}], \
             deep: {documents}, o: {documents}, l: {arrays}, m: {arrays}, x: {mixed}}}]}}",
            id + 1
        );
        assert_eq!(code(client, &insert), 0);
    }
}

/// Checks that no stored document exceeds the depth limit.
fn check_stored(client: &mut Client) {
    for collection in ["c", "merged", "out", "f"] {
        let reply = send(client, "test", &format!("{{find: '{collection}', batchSize: 1000}}")).unwrap();
        let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array()).unwrap();
        for document in batch.iter().filter_map(|document| document.as_document()) {
            assert!(!nests_deeper(document, MAX_STORED_DEPTH), "{collection}: {document:.300}");
        }
    }
}

#[test]
fn every_operator_takes_the_deepest_values() {
    let Some(server) = Server::start_bounded(MEMORY, LIMIT) else { return };
    let mut client = server.connect().unwrap();
    let mut codes = BTreeMap::<i64, usize>::new();
    let mut took_deep = 0;
    let cores = cores();
    for (number, core) in cores.iter().enumerate() {
        if number % 40 == 0 {
            fill(&mut client);
        }
        let command = Maker::of(number as u64, &DEEP).command(*core);
        took_deep += usize::from(DEEP.iter().any(|deep| command.contains(deep)));
        let limited = format!("{{{}, maxTimeMS: {MAX_TIME}}}", &command[1..command.len() - 1]);
        let reply = send(&mut client, "test", &limited).unwrap_or_else(|why| panic!("{core:?}: {why}"));
        assert!(!matches!(code_of(&reply), 1 | 8), "{core:?}: {reply:.300}");
        *codes.entry(code_of(&reply)).or_default() += 1;
        if matches!(core, Core::Update(_)) {
            check_stored(&mut client);
        }
    }
    check_stored(&mut client);
    print_line(&format!("deep values: {} operators, {took_deep} with such, codes {codes:?}", cores.len()));
    // Other operators take no expression.
    assert!(took_deep > cores.len() / 2, "{took_deep}");
}

#[test]
fn every_update_operator_stores_no_deeper() {
    let Some(server) = Server::start_bounded(MEMORY, LIMIT) else { return };
    let mut client = server.connect().unwrap();
    let (deep, path) = (nested(150, "1"), dotted(31));
    for name in query::update::operators::names() {
        fill(&mut client);
        let forms = match name {
            "$rename" => vec![format!("{{deep: '{path}'}}"), format!("{{deep: '{path}.{path}.{path}'}}")],
            _ => vec![
                format!("{{deep: {deep}}}"),
                format!("{{'{path}': {deep}}}"),
                format!("{{'{path}.{path}.{path}': {deep}}}"),
                format!("{{'{path}': {{$each: [{deep}]}}}}"),
                format!("{{'{path}': [{deep}]}}"),
                format!("{{'{path}': 1}}"),
            ],
        };
        for form in forms {
            for upsert in ["", ", upsert: true"] {
                let update =
                    format!("{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{{name}: {form}}}{upsert}}}]}}");
                let found = code(&mut client, &update);
                assert!(!matches!(found, 1 | 8), "{found}: {update:.200}");
                let new = update.replace("_id: 1}", "_id: 99}");
                assert!(!matches!(code(&mut client, &new), 1 | 8), "{new:.200}");
            }
        }
        check_stored(&mut client);
    }
}

/// Returns commands and their allowed codes: zero is success.
fn ways() -> Vec<(String, &'static [i64])> {
    let wrap = format!("{{$set: {{x: {}}}}}", wrapped(80, "'$x'"));
    let (wraps, deep, path) = ([wrap.as_str(); 4].join(", "), nested(150, "1"), dotted(100));
    let aggregate = |stages: &str| format!("{{aggregate: 'c', cursor: {{}}, pipeline: [{stages}]}}");
    let mut ways = vec![
        // Keys of deep values.
        ("{createIndexes: 'c', indexes: [{key: {deep: 1}, name: 'a'}, {key: {x: -1, l: 1}, name: 'b'}, {key: {m: 'hashed'}, name: 'c'}, {key: {'$**': 1}, name: 'd', wildcardProjection: {o: 1, l: 1}}]}".to_string(), &[171, 16766][..]),
        ("{createIndexes: 'c', indexes: [{key: {deep: 1}, name: 'a'}]}".to_string(), &[0]),
        ("{createIndexes: 'c', indexes: [{key: {x: -1, l: 1}, name: 'b'}]}".to_string(), &[0, 171]),
        ("{createIndexes: 'c', indexes: [{key: {'o.$**': 1}, name: 'd'}]}".to_string(), &[0]),
        ("{createIndexes: 'c', indexes: [{key: {deep: 'hashed'}, name: 'e'}]}".to_string(), &[0]),
        (format!("{{createIndexes: 'c', indexes: [{{key: {{k: 1}}, name: 'f', partialFilterExpression: {{k: {{$gt: {deep}}}}}}}]}}"), &[0]),
        (format!("{{find: 'c', filter: {{deep: {}}}}}", nested(178, "1")), &[0]),
        ("{find: 'c', sort: {deep: 1, l: -1}}".to_string(), &[0]),
        ("{distinct: 'c', key: 'deep'}".to_string(), &[0]),
        (format!("{{distinct: 'c', key: '{path}.{path}'}}"), &[0, 15]),
        // Validators and collations, stored in the catalog.
        (format!("{{create: 'v1', validator: {{$expr: {{$ne: ['$x', {}]}}}}}}", wrapped(150, "'$x'")), &[0]),
        (format!("{{create: 'v2', validator: {{$jsonSchema: {}}}}}", around(70, "{properties: {a: ", "{}", "}}")), &[0]),
        (format!("{{create: 'v3', validator: {{a: {{$elemMatch: {}}}}}}}", nested(190, "1")), &[0, 15]),
        (format!("{{insert: 'v1', documents: [{{_id: 1, x: {}}}]}}", wrapped(178, "1")), &[0]),
        (format!("{{insert: 'v2', documents: [{{_id: 1, a: {}}}]}}", nested(170, "1")), &[0, 121]),
        (format!("{{create: 'v4', collation: {{locale: 'en', strength: {deep}}}}}"), &[14]),
        (format!("{{find: 'c', collation: {{locale: 'en', caseFirst: {deep}}}}}"), &[14]),
        // Variables.
        (format!("{{find: 'c', let: {{v: {}}}, filter: {{$expr: {{$eq: ['$$v', '$x']}}}}}}", wrapped(150, "1")), &[0]),
        (format!("{{aggregate: 'c', cursor: {{}}, let: {{v: {}}}, pipeline: [{{$set: {{x: {}}}}}, {wraps}]}}", wrapped(150, "1"), wrapped(40, "'$$v'")), &[15]),
        (format!("{{update: 'c', let: {{v: {}}}, updates: [{{q: {{}}, u: [{{$set: {{w: {}}}}}]}}]}}", wrapped(150, "1"), wrapped(40, "'$$v'")), &[15]),
        // Stages in stages.
        (aggregate(&format!("{{$facet: {{a: [{wraps}]}}}}")), &[15]),
        (aggregate(&vec!["{$facet: {x: [{$limit: 1}]}}"; 200].join(", ")), &[15]),
        (aggregate(&format!("{{$lookup: {{from: 'c', let: {{x: '$x'}}, pipeline: [{{$set: {{x: '$$x'}}}}, {wraps}], as: 'x'}}}}")), &[15]),
        (aggregate(&format!("{{$lookup: {{from: 'c', localField: 'x', foreignField: 'x', as: '{path}'}}}}, {{$replaceWith: {{x: '$$ROOT'}}}}")), &[0, 15]),
        (aggregate(&format!("{{$graphLookup: {{from: 'c', startWith: '$next', connectFromField: 'next', connectToField: '_id', as: '{path}'}}}}")), &[0, 15]),
        (aggregate("{$graphLookup: {from: 'c', startWith: '$x', connectFromField: 'x', connectToField: 'l', as: 'x.a'}}"), &[0, 15]),
        (aggregate(&format!("{{$unionWith: {{coll: 'c', pipeline: [{wraps}]}}}}")), &[15]),
        (aggregate(&format!("{wraps}, {{$out: 'f'}}")), &[15]),
        (aggregate("{$replaceWith: {_id: '$_id', a: ['$$ROOT']}}, {$out: 'f'}"), &[15]),
        (aggregate(&format!("{wraps}, {{$merge: {{into: 'f'}}}}")), &[15]),
        (aggregate("{$project: {a: ['$deep']}}, {$merge: {into: 'f'}}"), &[0]),
        (aggregate("{$project: {a: [['$deep']]}}, {$merge: {into: 'f'}}"), &[15]),
        (aggregate(&format!("{{$project: {{x: 1}}}}, {{$merge: {{into: 'f', whenMatched: [{wraps}]}}}}")), &[15]),
        (aggregate("{$group: {_id: 1, x: {$push: {a: ['$$ROOT', '$deep']}}}}"), &[0]),
        (aggregate("{$bucketAuto: {groupBy: '$deep', buckets: 3, output: {x: {$push: {a: ['$$ROOT']}}}}}"), &[0]),
        (format!("{{findAndModify: 'c', query: {{}}, update: [{wraps}]}}"), &[15]),
        (format!("{{findAndModify: 'c', query: {{_id: 77}}, update: {{$set: {{'{path}': {deep}}}}}, upsert: true, new: true}}"), &[15]),
        ("{findAndModify: 'c', query: {_id: 1}, update: {$set: {k: 9}}, fields: {y: ['$$ROOT']}}".to_string(), &[0]),
        (format!("{{bulkWrite: 1, ops: [{{update: 0, filter: {{}}, updateMods: [{wraps}]}}], nsInfo: [{{ns: 'test.c'}}], $db: 'admin'}}"), &[0, 15]),
        // Reports about commands.
        (format!("{{explain: {{find: 'c', filter: {{deep: {}}}}}, verbosity: 'executionStats'}}", nested(185, "1")), &[0, 15]),
        (format!("{{explain: {{aggregate: 'c', cursor: {{}}, pipeline: [{{$set: {{x: {}}}}}]}}}}", wrapped(185, "1")), &[0, 15]),
        ("{profile: 2}".to_string(), &[0]),
        (format!("{{find: 'c', filter: {{deep: {}}}, comment: {}}}", nested(190, "1"), wrapped(190, "1")), &[0]),
        (format!("{{update: 'c', updates: [{{q: {{k: {}}}, u: {{$set: {{y: 1}}}}}}]}}", nested(190, "1")), &[0]),
        (format!("{{aggregate: 'c', cursor: {{}}, pipeline: [{{$match: {{$expr: {{$eq: ['$x', {}]}}}}}}]}}", wrapped(185, "1")), &[0]),
        ("{profile: 0}".to_string(), &[0]),
        ("{find: 'system.profile'}".to_string(), &[0]),
        // Entries of an oplog.
        (format!("{{applyOps: [{{op: 'i', ns: 'test.f', o: {{_id: 8, a: {}}}}}]}}", nested(178, "1")), &[0]),
        (format!("{{applyOps: [{{op: 'i', ns: 'test.f', o: {{_id: 9, a: {}}}}}]}}", nested(185, "1")), &[8, 15]),
        (format!("{{applyOps: [{{op: 'u', ns: 'test.f', o2: {{_id: 8}}, o: {{$v: 2, diff: {{{}}}}}}}]}}", around(90, "sa: {", &format!("i: {{b: {}}}", nested(80, "1")), "}")), &[0]),
        (format!("{{applyOps: [{{op: 'u', ns: 'test.f', o2: {{_id: 8}}, o: {{$v: 2, diff: {{{}}}}}}}]}}", around(100, "sa: {", &format!("i: {{b: {}}}", nested(85, "1")), "}")), &[8, 15]),
        // Unknown options: refused by name at any depth.
        (format!("{{create: 'v5', storageEngine: {deep}}}"), &[0, 72, 2]),
        (format!("{{find: 'c', hint: {deep}}}"), &[2]),
        (format!("{{count: 'c', query: {{$nor: [{}]}}}}", around(95, "{$nor: [", "{a: 1}", "]}")), &[0, 15]),
    ];
    // Views on views: each wraps the output of the previous one.
    for number in 0..12 {
        let on = if number == 0 { "c".to_string() } else { format!("w{}", number - 1) };
        let create = format!(
            "{{create: 'w{number}', viewOn: '{on}', pipeline: [{{$set: {{x: {}}}}}]}}",
            wrapped(30, "'$x'")
        );
        ways.push((create, &[0]));
    }
    ways.push(("{find: 'w11'}".to_string(), &[15]));
    ways.push(("{count: 'w11'}".to_string(), &[0, 15]));
    ways
}

#[test]
fn deep_values_pass_all_paths() {
    let data = Scratch::new("deep-ways");
    let start = || Server::start_on(&data, &["--replset", "rs"]);
    let Some(mut server) = start() else { return };
    let mut client = server.connect().unwrap();
    fill(&mut client);
    let open = "{aggregate: 'c', cursor: {}, pipeline: [{$changeStream: {fullDocument: 'updateLookup'}}]}";
    let stream = send(&mut client, "test", open).unwrap();
    let id =
        stream.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64()).unwrap();
    let snapshot = send(&mut client, "admin", "{snapshotDatabase: 'test', name: 's'}").unwrap();
    assert_eq!(code_of(&snapshot), 0, "{snapshot:.300}");
    for (command, codes) in ways() {
        let database = if command.contains("$db: 'admin'") { "admin" } else { "test" };
        let command = command.replace(", $db: 'admin'", "");
        let reply = send(&mut client, database, &command).unwrap();
        assert!(codes.contains(&code_of(&reply)), "{command:.200}: {:.300}", reply.to_string());
    }
    let update =
        format!("{{update: 'c', updates: [{{q: {{_id: 2}}, u: {{$set: {{o: {}}}}}}}]}}", nested(178, "2"));
    assert_eq!(code(&mut client, &update), 0);
    let events = format!("{{getMore: NumberLong({id}), collection: 'c', maxTimeMS: 1000}}");
    assert_eq!(code(&mut client, &events), 0);
    let differs = send(&mut client, "admin", "{diffDatabase: 'test', since: 's'}").unwrap();
    assert_eq!(code_of(&differs), 0, "{differs:.300}");
    for list in ["{listCollections: 1}", "{listIndexes: 'c'}", "{currentOp: 1}", "{serverStatus: 1}"] {
        let database = if list.contains("currentOp") { "admin" } else { "test" };
        let listed = send(&mut client, database, list).unwrap();
        assert_eq!(code_of(&listed), 0, "{list}: {listed:.300}");
    }
    let named = |client: &mut Client| {
        let listed = send(client, "test", "{listCollections: 1, nameOnly: true}").unwrap();
        let cursor = listed.view().get("cursor").and_then(|cursor| cursor.as_document());
        let names = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array()).unwrap();
        let name = |listed: Value<'_>| {
            listed.as_document().and_then(|each: Document<'_>| Some(each.get("name")?.as_str()?.to_string()))
        };
        names.iter().filter_map(name).collect::<Vec<_>>()
    };
    let before = named(&mut client);
    assert!(before.len() > 15, "{before:?}");
    check_stored(&mut client);
    // First in the journal only, then in the base.
    for _ in 0..2 {
        server.end();
        server = start().unwrap();
        client = server.connect().unwrap();
        assert_eq!(named(&mut client), before);
        check_stored(&mut client);
    }
}
