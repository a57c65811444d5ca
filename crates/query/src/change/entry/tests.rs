//! Tests that entries decode to the recorded changes, and that damaged entries are refused.

use super::*;
use crate::change::tests::{UUID, document, parts};
use std::fmt::Write;

const SESSION: Session = Session { id: [1; 16], user: [2; 32], number: 7, previous: 9 };

fn source(namespace: &str) -> Source<'_> {
    let uuid = (!namespace.ends_with("$cmd")).then_some(UUID);
    Source { namespace, uuid }
}

fn shown(entry: &Entry<'_>) -> String {
    let mut text = format!("{} {} {:?} ", entry.wall, entry.ticks, entry.session.map(|s| s.number));
    for operation in &entry.operations {
        let begins = if operation.begins { "+" } else { "" };
        let (kind, details) = match operation.action {
            Action::Insert(document) => ("i", document.to_string()),
            Action::Replace(document) => ("r", document.to_string()),
            Action::Update { key, diff } => ("u", format!("{key} {diff}")),
            Action::Delete(key) => ("d", key.to_string()),
            Action::Command { object, before } => ("c", format!("{object} {before:?}")),
            Action::Noop(object) => ("n", object.to_string()),
        };
        let uuid = operation.uuid.map_or("", |_| "*");
        write!(
            text,
            "| {begins}{kind} {}{uuid} {:?} {details} {:?}",
            operation.namespace, operation.statement, operation.pre_image
        )
        .unwrap();
    }
    text
}

fn record(transaction: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut recorder = Recorder::new(EntryTime { wall: -5, term: 3 }, Some(&SESSION), transaction);
    let key = document("{_id: 1}");
    let id = key.view().first().unwrap();
    let diff = document("{u: {a: 1}}");
    let value = |text: &str| document(text).into_bytes();
    recorder.push(source("d.c"), Some(0), Change::Insert(value("{_id: 1}")), None);
    recorder.push(source("d.e"), Some(1), Change::Replace(value("{_id: 2}")), Some(value("{_id: 2, a: 1}")));
    recorder.push(
        source("d.c"),
        None,
        Change::Update { id, diff: diff.view() },
        Some(value("{_id: 1, a: 0}")),
    );
    recorder.push(source("d.c"), Some(-2), Change::Delete(id), None);
    recorder.push(source("d.$cmd"), None, Change::Command(document("{drop: 'c'}").view(), None), None);
    let before = document("{b: 1}");
    recorder.push(
        source("d.$cmd"),
        None,
        Change::Command(document("{collMod: 'c'}").view(), Some(before.view())),
        None,
    );
    recorder.push(source("d.c"), None, Change::Noop(document("{msg: 'x'}").view()), None);
    recorder.push(source("d.c"), None, Change::Insert(value("{_id: 3}")), None);
    assert_eq!((recorder.len(), recorder.is_empty()), (8, false));
    let ticks = recorder.ticks();
    assert_eq!(ticks, if transaction { 1 } else { 5 });
    recorder.finish()
}

#[test]
fn operations_are_read_in_order() {
    let recorded = parts(record(false));
    let entry = Entry::read(100, &recorded).unwrap();
    assert!(!entry.transaction && entry.session == Some(SESSION) && entry.term == 3);
    let expected = "-5 5 Some(7) | +i d.c* Some(0) { _id: 1 } None\
        | r d.e* Some(1) { _id: 2 } Some({\"_id\": Int32(2), \"a\": Int32(1)})\
        | u d.c* None { _id: 1 } { u: { a: 1 } } Some({\"_id\": Int32(1), \"a\": Int32(0)})\
        | d d.c* Some(-2) { _id: 1 } None\
        | +c d.$cmd None { drop: \"c\" } None None\
        | +c d.$cmd None { collMod: \"c\" } Some({\"b\": Int32(1)}) None\
        | +n d.c* None { msg: \"x\" } None\
        | +i d.c* None { _id: 3 } None";
    assert_eq!(shown(&entry), expected);
    assert_eq!([0, 3, 4].map(|number| entry.tick(number)), [96, 99, 100]);
    let transaction = parts(record(true));
    let transaction = Entry::read(100, &transaction).unwrap();
    assert!(transaction.transaction && transaction.operations.iter().filter(|o| o.begins).count() == 1);
}

#[test]
fn a_transaction_fills_several_documents_of_the_oplog() {
    let mut recorder = Recorder::new(EntryTime { wall: 0, term: 1 }, Some(&SESSION), true);
    let large = document(&format!("{{_id: 1, a: '{}'}}", "x".repeat(6 << 20))).into_bytes();
    for _ in 0..5 {
        recorder.push(source("d.c"), None, Change::Insert(large.clone()), None);
    }
    assert_eq!(recorder.ticks(), 3);
    let recorded = parts(recorder.finish());
    let entry = Entry::read(50, &recorded).unwrap();
    let begins: Vec<_> = entry.operations.iter().map(|operation| operation.begins).collect();
    assert_eq!(begins, [true, false, true, false, true]);
}

#[test]
fn broken_entries_are_errors() {
    let valid = parts(record(false));
    assert!(Entry::read(4, &valid).is_err(), "more ticks than time");
    assert!(Entry::read::<Vec<u8>>(100, &[]).is_err());
    for missing in 0..valid.len() {
        let mut some = valid.clone();
        some.remove(missing);
        assert!(Entry::read(100, &some).is_err(), "without part {missing}");
    }
    let mut broken = valid.clone();
    for cut in 0..valid[0].1.len() {
        broken[0].1.truncate(valid[0].1.len() - 1 - cut);
        assert!(Entry::read(100, &broken).is_err(), "cut by {cut}");
    }
    for at in 0..valid[0].1.len() {
        for bit in 0..8 {
            let mut broken = valid.clone();
            broken[0].1[at] ^= 1 << bit;
            if let Ok(entry) = Entry::read(100, &broken) {
                let _ = shown(&entry);
            }
        }
    }
}
