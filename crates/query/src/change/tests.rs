//! Tests of oplog documents and change events, from recorded changes to the bytes of replies.

use super::*;
use base::bson::{Builder, DocumentBuf, DocumentCow, Value, extended_json};
use base::{Namespace, Result};
use std::cell::RefCell;
use std::collections::VecDeque;

pub(super) const UUID: [u8; 16] = [7; 16];

pub(super) fn document(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the parts as the store would hold them.
pub(super) fn parts((header, values): (Vec<u8>, Vec<Vec<u8>>)) -> Vec<(u32, Vec<u8>)> {
    std::iter::once(header).chain(values).enumerate().map(|(number, value)| (number as u32, value)).collect()
}

const SESSION: Session = Session { id: [1; 16], user: [2; 32], number: 7, previous: 0 };

/// A change in a short notation: `i d.c {_id: 1}`, `u d.c {_id: 1} {diff}`, `d d.c {_id: 1}`, `c d {…}`.
type ShortEvent<'s> = (&'s str, &'s str, &'s str, &'s str);

fn record(session: Option<&Session>, transaction: bool, changes: &[ShortEvent<'_>]) -> Vec<(u32, Vec<u8>)> {
    let mut recorder = Recorder::new(EntryTime { wall: 1000, term: 1 }, session, transaction);
    let statement = |number: usize| (session.is_some() && !transaction).then_some(number as i32);
    for (number, (kind, namespace, first, second)) in changes.iter().enumerate() {
        let (first, second) = (document(first), document(if second.is_empty() { "{}" } else { second }));
        let given = (!second.view().is_empty()).then(|| second.view());
        let id = first.view().find("_id");
        let image = given.map(|image| image.bytes().to_vec());
        let (change, pre_image) = match *kind {
            "i" => (Change::Insert(first.bytes().to_vec()), None),
            "r" => (Change::Replace(first.bytes().to_vec()), image),
            "u" => {
                // The key document also contains the pre-image, if any.
                let key = id.unwrap();
                let image = (first.view().iter().count() > 1).then(|| first.bytes().to_vec());
                (Change::Update { id: key, diff: second.view() }, image)
            }
            "d" => (Change::Delete(id.unwrap()), image),
            "c" => (Change::Command(first.view(), given), None),
            _ => (Change::Noop(first.view()), None),
        };
        let is_view = first.view().get("viewOn").is_some()
            || first.view().get("drop").and_then(|name| name.as_str()) == Some("v");
        let has_uuid = !namespace.is_empty() && !is_view && first.view().get("dropDatabase").is_none();
        let uuid = has_uuid.then_some(UUID);
        recorder.push(Source { namespace, uuid }, statement(number), change, pre_image);
    }
    parts(recorder.finish())
}

fn oplog(time: u64, parts: &[(u32, Vec<u8>)]) -> Vec<String> {
    let documents = oplog_documents(&Entry::read(time, parts).unwrap());
    documents.iter().map(|document| document.view().to_string()).collect()
}

fn oplog_is(found: &[String], expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|text| document(text).view().to_string()).collect();
    assert_eq!(found, expected);
}

const UI: &str = "ui: UUID('07070707-0707-0707-0707-070707070707')";
const WALL: &str = "wall: ISODate('1970-01-01T00:00:01Z')";

#[test]
fn single_operations_are_documents_of_their_own() {
    let tail = format!("t: NumberLong(1), v: NumberLong(2), {WALL}");
    let one = |change: ShortEvent<'_>| oplog(5, &record(None, false, &[change]));
    oplog_is(
        &one(("i", "d.c", "{_id: 1, a: 2}", "")),
        &[&format!(
            "{{op: 'i', ns: 'd.c', {UI}, o: {{_id: 1, a: 2}}, o2: {{_id: 1}}, ts: Timestamp(0, 5), {tail}}}"
        )],
    );
    oplog_is(
        &one(("u", "d.c", "{_id: 1}", "{u: {a: 3}}")),
        &[&format!(
            "{{op: 'u', ns: 'd.c', {UI}, o: {{$v: 2, diff: {{u: {{a: 3}}}}}}, o2: {{_id: 1}}, ts: Timestamp(0, 5), {tail}}}"
        )],
    );
    oplog_is(
        &one(("r", "d.c", "{_id: 1, b: 1}", "")),
        &[&format!(
            "{{op: 'u', ns: 'd.c', {UI}, o: {{_id: 1, b: 1}}, o2: {{_id: 1}}, ts: Timestamp(0, 5), {tail}}}"
        )],
    );
    oplog_is(
        &one(("d", "d.c", "{_id: 1}", "")),
        &[&format!("{{op: 'd', ns: 'd.c', {UI}, o: {{_id: 1}}, ts: Timestamp(0, 5), {tail}}}")],
    );
    oplog_is(
        &one(("n", "", "{msg: 'initiating set'}", "")),
        &[&format!("{{op: 'n', ns: '', o: {{msg: 'initiating set'}}, ts: Timestamp(0, 5), {tail}}}")],
    );
}

#[test]
fn commands_take_ticks_of_their_own() {
    let recorded = record(
        None,
        false,
        &[("c", "d.$cmd", "{drop: 'a'}", "{numRecords: 3}"), ("c", "d.$cmd", "{dropDatabase: 1}", "")],
    );
    let tail = format!("t: NumberLong(1), v: NumberLong(2), {WALL}");
    oplog_is(
        &oplog(5, &recorded),
        &[
            &format!(
                "{{op: 'c', ns: 'd.$cmd', {UI}, o: {{drop: 'a'}}, o2: {{numRecords: 3}}, ts: Timestamp(0, 4), {tail}}}"
            ),
            &format!("{{op: 'c', ns: 'd.$cmd', o: {{dropDatabase: 1}}, ts: Timestamp(0, 5), {tail}}}"),
        ],
    );
}

#[test]
fn one_commit_is_one_document() {
    let two = [("i", "d.c", "{_id: 1}", ""), ("d", "d.c", "{_id: 2}", "")];
    let lsid = "lsid: {id: UUID('01010101-0101-0101-0101-010101010101'), \
        uid: BinData(0, 'AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=')}, txnNumber: NumberLong(7)";
    let none = "prevOpTime: {ts: Timestamp(0, 0), t: NumberLong(-1)}";
    let tail = format!("ts: Timestamp(0, 5), t: NumberLong(1), v: NumberLong(2), {WALL}");
    let operations = |statements: [&str; 2]| {
        format!(
            "[{{op: 'i', ns: 'd.c', {UI}, o: {{_id: 1}}, o2: {{_id: 1}}{}}}, {{op: 'd', ns: 'd.c', {UI}, o: {{_id: 2}}{}}}]",
            statements[0], statements[1],
        )
    };
    oplog_is(
        &oplog(5, &record(None, false, &two)),
        &[&format!(
            "{{op: 'c', ns: 'admin.$cmd', o: {{applyOps: {}}}, {tail}, multiOpType: 1}}",
            operations(["", ""])
        )],
    );
    oplog_is(
        &oplog(5, &record(Some(&SESSION), false, &two)),
        &[&format!(
            "{{{lsid}, op: 'c', ns: 'admin.$cmd', o: {{applyOps: {}}}, {tail}, {none}, multiOpType: 1}}",
            operations([", stmtId: 0", ", stmtId: 1"])
        )],
    );
    oplog_is(
        &oplog(5, &record(Some(&SESSION), true, &two)),
        &[&format!(
            "{{{lsid}, op: 'c', ns: 'admin.$cmd', o: {{applyOps: {}}}, {tail}, {none}}}",
            operations(["", ""])
        )],
    );
    let again = Session { previous: 3, ..SESSION };
    oplog_is(
        &oplog(5, &record(Some(&again), false, &two[..1])),
        &[&format!(
            "{{{lsid}, op: 'i', ns: 'd.c', {UI}, o: {{_id: 1}}, o2: {{_id: 1}}, stmtId: 0, {tail}, \
          prevOpTime: {{ts: Timestamp(0, 3), t: NumberLong(1)}}}}"
        )],
    );
}

#[test]
fn a_large_transaction_is_a_chain_of_documents() {
    let large = format!("{{_id: 1, a: '{}'}}", "x".repeat(9 << 20));
    let recorded = record(
        Some(&SESSION),
        true,
        &[("i", "d.c", &large, ""), ("i", "d.c", &large, ""), ("i", "d.c", "{_id: 2}", "")],
    );
    let documents = oplog_documents(&Entry::read(5, &recorded).unwrap());
    let shown: Vec<_> = documents
        .iter()
        .map(|document| {
            assert!(document.bytes().len() <= base::bson::MAX_DOCUMENT_SIZE);
            let object = document.view().get("o").unwrap().as_document().unwrap();
            let rest: Vec<_> = object.iter().skip(1).map(|element| element.to_string()).collect();
            let get = |name| document.view().get(name).unwrap().to_string();
            format!("{} {} {rest:?}", get("ts"), get("prevOpTime"))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Timestamp(0, 4) { ts: Timestamp(0, 0), t: -1 } [\"partialTxn: true\"]",
            "Timestamp(0, 5) { ts: Timestamp(0, 4), t: 1 } [\"count: 3\"]",
        ]
    );
}

/// A stream over entries, and its events.
struct Watch {
    stream: ChangeStream,
    pre_images_since: i64,
    now: Option<&'static str>,
    looked_up: RefCell<Vec<String>>,
}

fn spec(text: &str) -> Result<Spec> {
    let wrapped = document(&format!("{{$changeStream: {text}}}"));
    Spec::parse(&wrapped.view().first().unwrap())
}

fn watch(scope: &str, text: &str) -> Watch {
    let scope = match scope.split_once('.') {
        _ if scope.is_empty() => Scope::Deployment,
        None => Scope::Database(scope.to_string()),
        Some(_) => Scope::Collection(Namespace::parse(scope).unwrap()),
    };
    let stream = ChangeStream::new(spec(text).unwrap(), scope, 0, true).unwrap();
    Watch { stream, pre_images_since: 0, now: None, looked_up: RefCell::default() }
}

impl Watch {
    fn take(&mut self, time: u64, parts: &[(u32, Vec<u8>)]) -> Result<Vec<Event>> {
        let lookup = |namespace: &str, _: &[u8; 16], key: base::bson::Document<'_>| {
            self.looked_up.borrow_mut().push(format!("{namespace} {key}"));
            Ok(self.now.map(|text| DocumentCow::Owned(document(text))))
        };
        let around = EventContext { lookup: &lookup, pre_images_since: self.pre_images_since };
        let mut events = VecDeque::new();
        self.stream.take(&Entry::read(time, parts)?, (0, usize::MAX), &around, &mut events)?;
        Ok(events.into())
    }

    /// As [`take`](Self::take), by pieces of two values and events of about this number of bytes.
    fn take_pieces(&mut self, time: u64, parts: &[(u32, Vec<u8>)], bytes_max: usize) -> Vec<Event> {
        let lookup = |_: &str, _: &[u8; 16], _: base::bson::Document<'_>| Ok(None);
        let around = EventContext { lookup: &lookup, pre_images_since: self.pre_images_since };
        let (mut events, mut position) = (VecDeque::new(), EntryPosition::BEGIN);
        loop {
            let values = parts.iter().filter(|(number, _)| *number >= position.value).take(2);
            let piece: Vec<_> = parts[..1].iter().chain(values).cloned().collect();
            let entry = Entry::read_piece(time, &piece, position.value).unwrap();
            let limits = (position.operation, bytes_max);
            match self.stream.take(&entry, limits, &around, &mut events).unwrap() {
                Some(next) => assert_ne!(std::mem::replace(&mut position, next), next),
                None => return events.into(),
            }
        }
    }

    fn one(&mut self, change: ShortEvent<'_>) -> Vec<Event> {
        self.take(5, &record(None, false, &[change])).unwrap()
    }

    /// Returns the kinds and namespaces of the events of one change.
    fn kinds(&mut self, change: ShortEvent<'_>) -> String {
        let shown = |event: &Event| {
            let get = |name: &str| event.document.view().get(name).map(|value| value.to_string());
            format!("{}{}", get("operationType").unwrap(), get("ns").unwrap_or_default())
        };
        self.one(change).iter().map(shown).collect::<Vec<_>>().join(" ").replace('"', "")
    }

    /// Returns the single event of one change, without its token.
    fn event(&mut self, change: ShortEvent<'_>) -> String {
        let events = self.one(change);
        assert_eq!(events.len(), 1);
        shown(&events[0])
    }
}

fn shown(event: &Event) -> String {
    assert_eq!(
        event.document.view().get("_id").unwrap().as_document(),
        Some(event.token.to_document().view())
    );
    let mut out = Builder::new();
    for element in event.document.view() {
        match element.name() {
            "_id" => out.append(c"_id", Value::Null),
            _ => out.append_element(&element),
        };
    }
    out.finish().view().to_string()
}

fn event_is(found: &str, expected: &str) {
    let (uuid, wall) = (&UI[4..], &WALL[6..]);
    let times = format!("clusterTime: Timestamp(0, 5), collectionUUID: {uuid}, wallTime: {wall}");
    let expected = format!("{{_id: null, {}}}", expected.replace("TIMES", &times));
    assert_eq!(found, document(&expected).view().to_string());
}

#[test]
fn events_have_mongodbs_fields_in_its_order() {
    let mut watch = watch("d.c", "{}");
    event_is(
        &watch.event(("i", "d.c", "{_id: 1, a: 2}", "")),
        "operationType: 'insert', TIMES, fullDocument: {_id: 1, a: 2}, ns: {db: 'd', coll: 'c'}, documentKey: {_id: 1}",
    );
    event_is(
        &watch.event(("u", "d.c", "{_id: 1}", "{d: {b: false}, u: {a: 3}}")),
        "operationType: 'update', TIMES, ns: {db: 'd', coll: 'c'}, documentKey: {_id: 1},
         updateDescription: {updatedFields: {a: 3}, removedFields: ['b'], truncatedArrays: [],
         disambiguatedPaths: {}}",
    );
    event_is(
        &watch.event(("r", "d.c", "{_id: 1, b: 1}", "")),
        "operationType: 'replace', TIMES, fullDocument: {_id: 1, b: 1}, ns: {db: 'd', coll: 'c'}, documentKey: {_id: 1}",
    );
    event_is(
        &watch.event(("d", "d.c", "{_id: 1}", "")),
        "operationType: 'delete', TIMES, ns: {db: 'd', coll: 'c'}, documentKey: {_id: 1}",
    );
}

#[test]
fn expanded_streams_have_more_events() {
    let mut watch = watch("d", "{showExpandedEvents: true}");
    let is = |found: String, expected: &str| {
        event_is(&found, &expected.replace("TIMES", "TIMES, ns: {db: 'd', coll: 'c'}"));
    };
    is(
        watch.event(("u", "d.c", "{_id: 1}", "{u: {'a.b': 3}}")),
        "operationType: 'update', TIMES, documentKey: {_id: 1}, updateDescription: {updatedFields: {'a.b': 3},
         removedFields: [], truncatedArrays: [], disambiguatedPaths: {'a.b': ['a.b']}}",
    );
    is(
        watch.event(("c", "d.$cmd", "{create: 'c', capped: true, idIndex: {v: 2}}", "")),
        "operationType: 'create', TIMES, operationDescription: {capped: true, idIndex: {v: 2}}, nsType: 'collection'",
    );
    let index = "{v: 2, key: {a: 1}, name: 'a_1'}";
    is(
        watch.event(("c", "d.$cmd", "{createIndexes: 'c', v: 2, key: {a: 1}, name: 'a_1'}", "")),
        &format!("operationType: 'createIndexes', TIMES, operationDescription: {{indexes: [{index}]}}"),
    );
    is(
        watch.event((
            "c",
            "d.$cmd",
            &format!("{{commitIndexBuild: 'c', indexBuildUUID: 1, indexes: [{index}]}}"),
            "",
        )),
        &format!("operationType: 'createIndexes', TIMES, operationDescription: {{indexes: [{index}]}}"),
    );
    is(
        watch.event(("c", "d.$cmd", "{dropIndexes: 'c', index: 'a_1'}", index)),
        &format!("operationType: 'dropIndexes', TIMES, operationDescription: {{indexes: [{index}]}}"),
    );
    is(
        watch.event((
            "c",
            "d.$cmd",
            "{collMod: 'c', validationLevel: 'off'}",
            "{collectionOptions_old: {x: 1}}",
        )),
        "operationType: 'modify', TIMES, operationDescription: {validationLevel: 'off'},
         stateBeforeChange: {collectionOptions: {x: 1}}",
    );
    is(watch.event(("c", "d.$cmd", "{drop: 'c'}", "{numRecords: 1}")), "operationType: 'drop', TIMES");
}

#[test]
fn only_expanded_streams_of_several_collections_show_views() {
    let definition = "viewOn: 'c', pipeline: []";
    let create = format!("{{create: 'v', {definition}}}");
    let modify = format!("{{collMod: 'v', {definition}}}");
    let inserted = format!("{{_id: 'd.v', {definition}}}");
    let entries = [
        ("create", ("c", "d.$cmd", &*create, "")),
        ("modify", ("c", "d.$cmd", &*modify, "")),
        ("drop", ("c", "d.$cmd", "{drop: 'v'}", "")),
        ("create", ("i", "d.system.views", &*inserted, "")),
    ];
    for (kind, entry) in entries {
        for (scope, text) in [("d.v", "{showExpandedEvents: true}"), ("d", "{}"), ("", "{}")] {
            assert_eq!(watch(scope, text).kinds(entry), "", "{scope} {text}");
        }
        let mut expected =
            format!("operationType: '{kind}', clusterTime: Timestamp(0, 5), wallTime: {}", &WALL[6..]);
        expected.push_str(", ns: {db: 'd', coll: 'v'}");
        match kind {
            "create" => {
                expected.push_str(&format!(", operationDescription: {{{definition}}}, nsType: 'view'"))
            }
            "modify" => expected.push_str(&format!(", operationDescription: {{{definition}}}")),
            _ => {}
        }
        event_is(&watch("d", "{showExpandedEvents: true}").event(entry), &expected);
    }
}

#[test]
fn renaming_and_dropping() {
    let rename = ("c", "d.$cmd", "{renameCollection: 'd.a', to: 'd.b', stayTemp: false, dropTarget: 5}", "");
    let events = watch("d", "{showExpandedEvents: true}").one(rename);
    let found = events[0].document.view();
    let expected = document(&format!(
        "{{to: {{db: 'd', coll: 'b'}}, _id: null, operationType: 'rename', clusterTime: Timestamp(0, 5),
          collectionUUID: {}, wallTime: {}, ns: {{db: 'd', coll: 'a'}},
          operationDescription: {{to: {{db: 'd', coll: 'b'}}, dropTarget: 5}}}}",
        &UI[4..],
        &WALL[6..]
    ));
    assert_eq!(shown(&events[0]), expected.view().to_string(), "{found}");
    for (scope, kinds) in [
        ("d.a", "rename{ db: d, coll: a } invalidate"),
        ("d.b", "rename{ db: d, coll: a } invalidate"),
        ("d.e", ""),
        ("d", "rename{ db: d, coll: a }"),
        ("", "rename{ db: d, coll: a }"),
        ("e", ""),
    ] {
        assert_eq!(watch(scope, "{}").kinds(rename), kinds, "{scope}");
    }
    let away = ("c", "d.$cmd", "{renameCollection: 'd.a', to: 'e.b', stayTemp: false}", "");
    for (scope, kinds) in [
        ("e.b", "rename{ db: d, coll: a } invalidate"),
        ("e", "rename{ db: d, coll: a }"),
        ("e.a", ""),
        ("f", ""),
    ] {
        assert_eq!(watch(scope, "{}").kinds(away), kinds, "{scope}");
    }
    for (scope, drop, database) in [
        ("d.a", "drop{ db: d, coll: a } invalidate", ""),
        ("d", "drop{ db: d, coll: a }", "dropDatabase{ db: d } invalidate"),
        ("", "drop{ db: d, coll: a }", "dropDatabase{ db: d }"),
    ] {
        assert_eq!(watch(scope, "{}").kinds(("c", "d.$cmd", "{drop: 'a'}", "")), drop);
        assert_eq!(watch(scope, "{}").kinds(("c", "d.$cmd", "{dropDatabase: 1}", "")), database);
    }
}

#[test]
fn streams_return_events_of_their_namespace() {
    let insert = |namespace: &'static str| ("i", namespace, "{_id: 1}", "");
    for (scope, text, shown) in [
        ("d.c", "{}", vec!["d.c"]),
        ("d", "{}", vec!["d.c", "d.e.f"]),
        ("", "{}", vec!["d.c", "d.e.f", "o.c", "administration.c"]),
        ("d", "{showSystemEvents: true}", vec!["d.c", "d.e.f", "d.system.js", "d.system.views"]),
    ] {
        let all = [
            "d.c",
            "d.e.f",
            "o.c",
            "d.system.js",
            "d.system.profile",
            "d.system.views",
            "admin.c",
            "config.c",
            "local.c",
            "administration.c",
        ];
        let found: Vec<_> = all
            .into_iter()
            .filter(|namespace| !watch(scope, text).one(insert(namespace)).is_empty())
            .collect();
        assert_eq!(found, shown, "{scope} {text}");
    }
    let commands = ["{create: 'c'}", "{createIndexes: 'c'}", "{collMod: 'c'}", "{dropIndexes: 'c'}"];
    for command in commands {
        assert_eq!(
            watch("d.c", "{}").kinds(("c", "d.$cmd", command, "")),
            "",
            "only expanded streams show it"
        );
        assert_ne!(watch("d.c", "{showExpandedEvents: true}").kinds(("c", "d.$cmd", command, "")), "");
    }
    assert_eq!(watch("", "{}").kinds(("n", "", "{msg: 'x'}", "")), "");
}

#[test]
fn documents_before_and_after() {
    let change = ("u", "d.c", "{_id: 1, a: 2}", "{u: {a: 3}}");
    let plain = ("u", "d.c", "{_id: 1}", "{u: {a: 3}}");
    let description = "updateDescription: {updatedFields: {a: 3}, removedFields: [], truncatedArrays: [],
         disambiguatedPaths: {}}";
    let ns = "ns: {db: 'd', coll: 'c'}, documentKey: {_id: 1}";
    let mut lookup = watch("d.c", "{fullDocument: 'updateLookup'}");
    lookup.now = Some("{_id: 1, a: 9}");
    event_is(
        &lookup.event(plain),
        &format!("operationType: 'update', TIMES, fullDocument: {{_id: 1, a: 9}}, {ns}, {description}"),
    );
    assert_eq!(lookup.looked_up.take(), ["d.c { _id: 1 }"]);
    lookup.now = None;
    assert!(lookup.event(plain).contains("fullDocument: null"));

    let both = "{fullDocument: 'required', fullDocumentBeforeChange: 'required'}";
    let mut images = watch("d.c", both);
    event_is(
        &images.event(change),
        &format!(
            "operationType: 'update', TIMES, fullDocument: {{_id: 1, a: 3}}, {ns}, {description},
             fullDocumentBeforeChange: {{_id: 1, a: 2}}"
        ),
    );
    event_is(
        &images.event(("d", "d.c", "{_id: 1}", "{_id: 1, a: 2}")),
        &format!("operationType: 'delete', TIMES, {ns}, fullDocumentBeforeChange: {{_id: 1, a: 2}}"),
    );
    let error = images.take(5, &record(None, false, &[plain])).unwrap_err();
    assert_eq!(error.code().number(), 47);
    assert_eq!(
        error.message(),
        "Change stream was configured to require a post-image for all update events, but the post-image was not found \
         for event: {operationType: \"update\", ns: {db: \"d\", coll: \"c\"}, clusterTime: Timestamp(0, 5)}"
    );
    images.pre_images_since = 1001;
    assert!(images.take(5, &record(None, false, &[change])).is_err(), "the image has expired");
    let mut available = watch("d.c", &both.replace("required", "whenAvailable"));
    let found = available.event(plain);
    assert!(
        found.contains("fullDocument: null") && found.contains("fullDocumentBeforeChange: null"),
        "{found}"
    );
    assert!(!available.event(("i", "d.c", "{_id: 1}", "")).contains("BeforeChange"));
    let raw = watch("d.c", "{showRawUpdateDescription: true}").event(plain);
    assert!(raw.contains("rawUpdateDescription: { $v: 2, diff: { u: { a: 3 } } }"), "{raw}");
}

#[test]
fn transactions_name_their_session() {
    let changes = [("i", "d.c", "{_id: 1}", ""), ("i", "d.e", "{_id: 1}", ""), ("i", "d.c", "{_id: 2}", "")];
    let events = watch("d.c", "{}").take(5, &record(Some(&SESSION), true, &changes)).unwrap();
    assert_eq!(events.len(), 2);
    assert!(events[0].token < events[1].token);
    let names: Vec<_> = events[1].document.view().iter().map(|element| element.name().to_owned()).collect();
    assert_eq!(names[..4], ["txnNumber", "lsid", "_id", "operationType"]);
    let create = [("c", "d.$cmd", "{create: 'c'}", "")];
    let expanded = "{showExpandedEvents: true}";
    let created = watch("d", expanded).take(5, &record(Some(&SESSION), true, &create)).unwrap();
    assert!(created[0].document.view().get("lsid").is_none(), "a collection precedes its transaction");
    let separate = watch("d.c", "{}").take(5, &record(Some(&SESSION), false, &changes)).unwrap();
    assert!(separate.len() == 2 && separate[1].document.view().get("lsid").is_none());
    assert_eq!(separate[1].token, events[1].token, "both are the third operation of their entry");
}

fn resuming(scope: &str, option: &str, token: &ResumeToken) -> Watch {
    let text = format!("{{{option}: {{_data: '{}'}}}}", token.hex());
    watch(scope, &text)
}

#[test]
fn streams_resume_behind_any_event() {
    let entries = [
        (2, record(None, false, &[("i", "d.c", "{_id: 1}", ""), ("i", "d.c", "{_id: 2}", "")])),
        (3, record(None, false, &[("d", "d.o", "{_id: 1}", "")])),
        (5, record(Some(&SESSION), true, &[("d", "d.c", "{_id: 1}", ""), ("d", "d.c", "{_id: 2}", "")])),
        (7, record(None, false, &[("c", "d.$cmd", "{drop: 'c'}", "")])),
    ];
    let read = |mut watch: Watch| -> Result<(Vec<Event>, Watch)> {
        let (mut events, start) = (Vec::new(), watch.stream.start());
        for (time, parts) in entries.iter().filter(|(time, _)| *time >= start) {
            events.extend(watch.take(*time, parts)?);
        }
        Ok((events, watch))
    };
    let (all, done) = read(watch("d.c", "{}")).unwrap();
    assert_eq!(all.len(), 6);
    assert!(done.stream.is_invalidated() && *done.stream.reached() == all[5].token);
    assert!(all.is_sorted_by(|a, b| a.token < b.token));
    for (number, event) in all.iter().enumerate() {
        let option = if number == 5 { "startAfter" } else { "resumeAfter" };
        let (rest, resumed) = read(resuming("d.c", option, &event.token)).unwrap();
        let tokens = |events: &[Event]| events.iter().map(|event| event.token.clone()).collect::<Vec<_>>();
        assert_eq!(tokens(&rest), tokens(&all[number + 1..]));
        assert_eq!(resumed.stream.is_invalidated(), number < 5);
    }
    // A fragment's token resumes at its event, for the stage that splits it.
    let (rest, _) = read(resuming("d.c", "resumeAfter", &all[1].token.fragment(0))).unwrap();
    assert_eq!(rest.len(), 5);
    let (rest, _) = read(resuming("d.c", "resumeAfter", &ResumeToken::before(3))).unwrap();
    assert_eq!(rest.len(), 4);
    let (rest, _) = read(watch("d.c", "{startAtOperationTime: Timestamp(0, 6)}")).unwrap();
    assert_eq!(rest.len(), 2);
    // An event that this stream does not have.
    let error = read(resuming("d.o", "resumeAfter", &all[1].token)).err().unwrap();
    assert_eq!(error.code().number(), 280);
    assert!(
        error.message().starts_with("cannot resume stream; the resume token was not found. {_data: \"82")
    );
}

#[test]
fn a_stream_returns_its_resume_token() {
    let mut watch = watch("d.c", "{startAtOperationTime: Timestamp(0, 2)}");
    assert_eq!(*watch.stream.reached(), ResumeToken::before(2));
    watch.take(4, &record(None, false, &[("i", "d.o", "{_id: 1}", "")])).unwrap();
    assert_eq!(*watch.stream.reached(), ResumeToken::before(4));
    let events = watch.take(6, &record(None, false, &[("i", "d.c", "{_id: 1}", "")])).unwrap();
    assert_eq!(*watch.stream.reached(), events[0].token);
    watch.stream.pass(6);
    assert_eq!(*watch.stream.reached(), events[0].token);
    watch.stream.pass(9);
    assert_eq!(*watch.stream.reached(), ResumeToken::before(9));
}

#[test]
fn specifications_are_checked() {
    let parsing = |text: &str, code: i32| assert_eq!(spec(text).unwrap_err().code().number(), code, "{text}");
    parsing("1", 6188500);
    parsing("{x: 1}", 40415);
    parsing("{resumeAfter: 1}", 14);
    parsing("{startAtOperationTime: 1}", 14);
    parsing("{fullDocument: 1}", 14);
    parsing("{fullDocument: 'x'}", 2);
    parsing("{fullDocumentBeforeChange: 'updateLookup'}", 2);
    parsing("{showExpandedEvents: 1}", 14);
    parsing("{resumeAfter: {_data: ''}}", 40649);
    let checked = |namespace: &str, text: &str| {
        let result = spec(text).unwrap().check(&Namespace::parse(namespace).unwrap());
        result.err().map_or(0, |error| error.code().number())
    };
    let event =
        "{_data: '820000000100000001 2B042C0100296E14463C6F7065726174696F6E54797065003C64726F7000 0004'}"
            .replace(' ', "");
    let invalidation = event.replace("296E14", "296F14");
    let mark = "{_data: '8200000001000000012B0429296E1404'}";
    let resume = |option: &str, token: &str| format!("{{{option}: {token}}}");
    for (namespace, text, code) in [
        ("d.c", "{}", 0),
        ("d.$cmd.aggregate", "{}", 0),
        ("admin.$cmd.aggregate", "{allChangesForCluster: true}", 0),
        ("d.$cmd.aggregate", "{allChangesForCluster: true}", 72),
        ("admin.c", "{allChangesForCluster: true}", 72),
        ("admin.$cmd.aggregate", "{}", 73),
        ("local.oplog.rs", "{}", 73),
        ("config.c", "{}", 73),
        ("config.c", "{allowToRunOnConfigDB: true}", 0),
        ("d.system.js", "{}", 73),
        ("d.system.js", "{allowToRunOnSystemNS: true}", 0),
        ("d.c", &resume("resumeAfter", mark), 0),
        ("d.c", &resume("resumeAfter", &event), 260),
        ("d.$cmd.aggregate", &resume("resumeAfter", &event), 0),
        ("d.$cmd.aggregate", &resume("resumeAfter", &invalidation), 260),
        ("d.$cmd.aggregate", &resume("startAfter", &invalidation), 0),
        ("d.c", &format!("{{resumeAfter: {mark}, startAfter: {mark}}}"), 50865),
        ("d.c", &format!("{{resumeAfter: {mark}, startAtOperationTime: Timestamp(1, 1)}}"), 40674),
    ] {
        assert_eq!(checked(namespace, text), code, "{namespace} {text}");
    }
    assert_eq!(Scope::of(&Namespace::parse("d.$cmd.aggregate").unwrap()), Scope::Database("d".to_string()));
    assert_eq!(Scope::of(&Namespace::parse("admin.$cmd.aggregate").unwrap()), Scope::Deployment);
}

#[test]
fn pieces_of_an_entry_give_the_events_of_the_whole() {
    let changes = [
        ("i", "d.c", "{_id: 1}", ""),
        ("u", "d.c", "{_id: 1, a: 1}", "{u: {a: 2}}"),
        ("d", "d.c", "{_id: 5}", ""),
        ("d", "d.c", "{_id: 1}", "{_id: 1, a: 2}"),
        ("r", "d.c", "{_id: 2, a: 1}", "{_id: 2}"),
        ("i", "d.other", "{_id: 1}", ""),
        ("d", "d.c", "{_id: 6}", ""),
        ("i", "d.c", "{_id: 3}", ""),
    ];
    for transaction in [true, false] {
        let recorded = record(transaction.then_some(&SESSION), transaction, &changes);
        let watched = || watch("d.c", "{fullDocumentBeforeChange: 'whenAvailable'}");
        let shown = |events: Vec<Event>| events.iter().map(|e| e.document.to_string()).collect::<Vec<_>>();
        let mut whole = watched();
        let events = shown(whole.take(50, &recorded).unwrap());
        assert_eq!(events.len(), 7);
        for bytes_max in [1, 300, usize::MAX] {
            let mut pieces = watched();
            assert_eq!(shown(pieces.take_pieces(50, &recorded, bytes_max)), events);
            assert_eq!(pieces.stream.reached(), whole.stream.reached());
        }
    }
}
