//! Values nested ever deeper, and ever longer pipelines, end in an error. The server continues within its memory.

use crate::client::Client;
use crate::requests::code as code_of;
use crate::server::Server;
use base::bson::Builder;
use base::bson::extended_json::parse;

/// Address space of the server in kilobytes.
const MEMORY: u64 = 3 << 20;

/// Sends a command and returns the code of the reply; zero for success.
fn code(client: &mut Client, command: &str) -> i64 {
    let mut sent = Builder::new();
    sent.append_all(parse(command).unwrap().view()).append(c"$db", "test");
    let reply = client.command(&sent.finish()).unwrap_or_else(|error| panic!("{command:.300}: {error}"));
    code_of(&reply)
}

fn wrapped(levels: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels))
}

fn aggregate(stages: &str) -> String {
    format!("{{aggregate: 'deep', cursor: {{}}, maxTimeMS: 60000, pipeline: [{stages}]}}")
}

#[test]
fn deep_values_end_in_an_error() {
    let Some(server) = Server::start_within(MEMORY) else { return };
    let mut client = server.connect().unwrap();
    assert_eq!(code(&mut client, "{insert: 'deep', documents: [{_id: 1, a: 1}]}"), 0);
    let wrap = format!("{{$set: {{a: {}}}}}, ", wrapped(80, "'$a'"));
    for follower in
        ["{$match: {$expr: {$eq: ['$a', [1]]}}}", "{$sort: {a: 1}}", "{$group: {_id: '$a'}}", "{$out: 'x'}"]
    {
        assert_eq!(code(&mut client, &aggregate(&(wrap.repeat(990) + follower))), 15, "{follower}");
    }
    let set = wrap.repeat(90);
    let update =
        format!("{{update: 'deep', updates: [{{q: {{}}, u: [{set} {{$set: {{b: {{$eq: ['$a', 1]}}}}}}]}}]}}");
    assert_eq!(code(&mut client, &update), 15);
    let modify = format!("{{findAndModify: 'deep', query: {{}}, update: [{set} {{$set: {{b: 1}}}}]}}");
    assert_eq!(code(&mut client, &modify), 15);
    let upsert = format!(
        "{{update: 'deep', updates: [{{q: {{_id: 2}}, u: [{set} {{$set: {{b: 1}}}}], upsert: true}}]}}"
    );
    assert_eq!(code(&mut client, &upsert), 15);
    let insert = |levels| format!("{{insert: 'deep', documents: [{{a: {}}}]}}", wrapped(levels, "1"));
    assert_eq!([179, 180, 190].map(|levels| code(&mut client, &insert(levels))), [0, 15, 15]);
    assert_eq!(
        code(&mut client, "{update: 'deep', updates: [{q: {}, u: {$rename: {a: 'b.c.d'}}, multi: true}]}"),
        15
    );
    // A stored value can be read and wrapped a little.
    assert_eq!(code(&mut client, "{find: 'deep', projection: {x: ['$$ROOT']}}"), 0);
    assert_eq!(code(&mut client, "{ping: 1}"), 0);
}

#[test]
fn many_stages_at_once_end_in_an_error() {
    let Some(server) = Server::start_within(MEMORY) else { return };
    let mut client = server.connect().unwrap();
    assert_eq!(code(&mut client, "{insert: 'deep', documents: [{_id: 1, a: 1}]}"), 0);
    let set = "{$set: {b: {$add: ['$_id', 1]}}}, ".repeat(900);
    let mut nested = set.clone();
    for _ in 0..18 {
        nested = format!("{{$unionWith: {{coll: 'deep', pipeline: [{nested}]}}}}, {set}");
    }
    assert_eq!(code(&mut client, &aggregate(&nested)), 7749501);
    // The same through views.
    let group = "{$group: {_id: '$_id', a: {$first: '$a'}}}, ".repeat(900);
    for view in 0..5 {
        let from = if view == 0 { "deep".to_string() } else { format!("v{}", view - 1) };
        for (name, lookup) in
            [("v", "localField: '_id', foreignField: '_id', as: 'x'"), ("w", "pipeline: [], as: 'x'")]
        {
            let from = from.replace('v', name);
            let create = format!(
                "{{create: '{name}{view}', viewOn: 'deep', pipeline: [{{$lookup: {{from: '{from}', {lookup}}}}}, {group}]}}"
            );
            assert_eq!(code(&mut client, &create), 0, "{name}{view}");
        }
    }
    for view in ["v4", "w4"] {
        assert_eq!(code(&mut client, &format!("{{find: '{view}'}}")), 7749501, "{view}");
    }
    assert_eq!(code(&mut client, &aggregate(&group)), 0);
    assert_eq!(code(&mut client, "{ping: 1}"), 0);
}

#[test]
fn values_that_double_end_in_an_error() {
    let Some(server) = Server::start_within(MEMORY) else { return };
    let mut client = server.connect().unwrap();
    assert_eq!(code(&mut client, "{insert: 'deep', documents: [{_id: 1, a: 1}]}"), 0);
    for (stage, expected) in [
        ("{$set: {a: ['$a', '$a']}}", 146),
        ("{$set: {a: {x: '$a', y: '$a'}}}", 10334),
        ("{$replaceWith: {a: '$$ROOT', b: '$$ROOT'}}", 146),
        ("{$group: {_id: 1, a: {$first: '$$ROOT'}, b: {$last: '$$ROOT'}}}", 10334),
        (
            "{$lookup: {from: 'deep', let: {r: '$$ROOT'}, pipeline: [{$set: {x: '$$r', y: '$$r'}}], as: 'q'}}",
            10334,
        ),
    ] {
        assert_eq!(code(&mut client, &aggregate(&vec![stage; 300].join(", "))), expected, "{stage}");
    }
    assert_eq!(code(&mut client, "{ping: 1}"), 0);
}
