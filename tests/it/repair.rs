//! Data directories with disk damage: refused, repaired by `--repair`, and served again.

use crate::server::{Scratch, Server};
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use storage::{Batch, Direction, DiskEngine, DiskOptions, Engine, Ident, Range};

fn run(server: &Server, command: &str) -> DocumentBuf {
    server.connect().unwrap().command(&parse(command).unwrap()).unwrap()
}

fn number(reply: &DocumentBuf, name: &str) -> i64 {
    reply.view().get(name).and_then(|value| value.as_i64()).unwrap_or(-1)
}

fn vellum(data: &Path, options: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let output = command.args(["serve", "--data"]).arg(data).args(options).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

/// Creates forty documents in the base and ten in the journal after it, and kills the server.
fn directory(name: &str) -> Scratch {
    let data = Scratch::new(name);
    let mut server = Server::start_on(&data, &["--compression", "none"]).unwrap();
    let index = "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n_1', unique: true}, {key: {a: 1}, name: 'a_1'}, \
                 {key: {words: 'text'}, name: 'words'}, {key: {at: '2dsphere', n: 1}, name: 'at'}, \
                 {key: {pair: '2d'}, name: 'pair'}]";
    assert_eq!(number(&run(&server, &format!("{index}, $db: 'test'}}")), "ok"), 1);
    for at in 0..50 {
        if at == 40 {
            server.end();
            server = Server::start_on(&data, &["--compression", "none"]).unwrap();
        }
        let pad = "x".repeat(1000 + at);
        let insert = format!(
            "{{insert: 'c', documents: [{{_id: {at}, n: {at}, a: [1, {at}], words: 'each word{at}', \
             at: [{at}, 1], pair: [{at}, {at}], pad: '{pad}'}}], $db: 'test'}}"
        );
        assert_eq!(number(&run(&server, &insert), "n"), 1);
    }
    drop(server);
    data
}

fn segment(data: &Path) -> PathBuf {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "journal"));
    names.sort();
    names.pop().unwrap()
}

fn tamper(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Returns the position of the document with this padding.
fn document(bytes: &[u8], pad: usize) -> usize {
    let text = [&(pad as i32 + 1).to_le_bytes()[..], "x".repeat(pad).as_bytes(), b"\0"].concat();
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

/// Repairs, checks that the collection is valid and has this number of documents, and returns the report.
fn repaired(data: &Path, documents: i64, options: &[&str]) -> String {
    let (output, text) = vellum(data, &[&["--repair"], options].concat());
    assert!(output.status.success(), "{text}");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains("the old files are in") && report.contains("before-repair.1"), "{report}");
    let server = Server::start_on(data, options).unwrap();
    let found = run(&server, "{validate: 'c', full: true, $db: 'test'}");
    assert_eq!(found.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{found:?}");
    assert_eq!(number(&found, "nrecords"), documents, "{report}");
    // Each index works.
    let mut filters = vec!["{n: 5}", "{_id: 5}", "{a: 5}"];
    let listed = format!("{:?}", run(&server, "{listIndexes: 'c', $db: 'test'}"));
    if listed.contains("words") {
        filters.extend([
            "{$text: {$search: 'word5'}}",
            "{at: {$geoWithin: {$centerSphere: [[5, 1], 0.001]}}}",
            "{pair: {$geoWithin: {$box: [[4.5, 4.5], [5.5, 5.5]]}}}",
        ]);
        let near = "{find: 'c', filter: {pair: {$near: [5, 5]}, n: {$ne: 5}}, limit: 1, $db: 'test'}";
        assert!(format!("{:?}", run(&server, near)).contains("word"), "{near}");
    }
    for filter in filters {
        assert_eq!(number(&run(&server, &format!("{{count: 'c', query: {filter}, $db: 'test'}}")), "n"), 1);
    }
    let again = run(&server, "{insert: 'c', documents: [{_id: 5}], $db: 'test'}");
    assert!(again.view().find("writeErrors").is_some(), "{again:?}");
    report
}

#[test]
fn an_intact_directory_loses_nothing() {
    let data = directory("repair-sound");
    let report = repaired(&data, 50, &[]);
    assert!(
        report.contains("kept: test.c: 50 documents, 6 indexes") && report.contains("lost: nothing"),
        "{report}"
    );
}

#[test]
fn a_repair_reports_that_it_removes_the_oplog() {
    let data = Scratch::new("repair-oplog");
    let insert = "{insert: 'c', documents: [{}], $db: 'test'}";
    let mut server = Server::start_on(&data, &["--replset", "rs0"]).unwrap();
    assert_eq!(number(&run(&server, insert), "n"), 1);
    server.end();
    let (output, report) = vellum(&data, &["--repair"]);
    assert!(output.status.success() && report.contains("lost: the oplog"), "{report}");
    let server = Server::start_on(&data, &["--replset", "rs0"]).unwrap();
    assert_eq!(number(&run(&server, insert), "n"), 1);
    assert_eq!(number(&run(&server, "{count: 'c', $db: 'test'}"), "n"), 2);
    let logged = "{count: 'oplog.rs', query: {ns: 'test.c'}, $db: 'local'}";
    assert_eq!(number(&run(&server, logged), "n"), 1);
}

#[test]
fn a_damaged_journal_is_refused_then_repaired_up_to_the_damage() {
    let data = directory("repair-journal");
    let path = segment(&data);
    tamper(&path, |bytes| {
        let at = document(bytes, 1044);
        bytes[at + 20] ^= 1;
    });
    let (output, text) = vellum(&data, &["--port", "0", "--parent-pipe"]);
    assert!(!output.status.success() && text.contains("is damaged at offset"), "{text}");
    let report = repaired(&data, 44, &[]);
    assert!(report.contains("lost: test.c: 5 records") && report.contains("offset"), "{report}");
}

#[test]
fn a_damaged_page_is_reported_and_removed() {
    let data = directory("repair-record");
    tamper(&data.join("base.vellum"), |bytes| {
        let at = document(bytes, 1027);
        bytes[at + 20] ^= 1;
    });
    let server = Server::start_on(&data, &[]).unwrap();
    let found = run(&server, "{validate: 'c', full: true, $db: 'test'}");
    let lost = number(&found, "nInvalidDocuments");
    // As many as fill a page.
    assert!((2..10).contains(&lost), "{found:?}");
    assert_eq!(number(&found, "nrecords"), 50 - lost, "{found:?}");
    let broken = found.view().get("corruptRecords").and_then(|records| records.as_array()).unwrap();
    assert_eq!(broken.iter().count() as i64, lost);
    let (output, text) = vellum(&data, &["--repair"]);
    assert!(!output.status.success() && text.contains("another Vellum"), "{text}");
    drop(server);
    let report = repaired(&data, 50 - lost, &[]);
    assert!(report.contains(&format!("lost: test.c: {lost} records: base.vellum, table t")), "{report}");
}

/// A document with intact bytes that are no BSON: a field's name contains a zero byte.
#[test]
fn a_stored_document_that_is_not_bson_is_named() {
    let data = directory("repair-bson");
    let options = DiskOptions::new(&*data);
    let engine = DiskEngine::open(&options).unwrap();
    let snapshot = engine.snapshot();
    let mut batch = Batch::new();
    for ident in (0..100).map(Ident).filter(|ident| snapshot.contains(*ident).unwrap()) {
        let mut records = snapshot.scan(ident, Range::all(), Direction::Forward).unwrap();
        while let Some((key, value)) = records.next().unwrap() {
            let mut bytes = value.to_vec();
            if let Some(at) = bytes.windows(7).position(|window| window == b"word27\0") {
                bytes[at..at + 7].copy_from_slice(b"wo\0d27\0");
                let at = bytes.windows(7).position(|window| window == b"\x02words\0").unwrap();
                bytes[at + 2] = 0;
                batch.put(ident, key, bytes);
            }
        }
    }
    assert_eq!(batch.ops().len(), 1);
    engine.commit(batch).unwrap();
    engine.close().unwrap();
    drop((snapshot, engine));
    let output = Command::new(env!("CARGO_BIN_EXE_vellum")).arg("verify").arg(&*data).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("damaged: test.c, RecordId(28): Detected one or more invalid documents."),
        "{text}"
    );
    let report = repaired(&data, 49, &[]);
    assert!(report.contains("test.c") && report.contains("RecordId(28) is not valid BSON"), "{report}");
}

#[test]
fn without_a_base_the_journals_documents_are_found() {
    let data = directory("repair-base");
    tamper(&data.join("base.vellum"), |bytes| bytes[..16384].fill(0));
    let (output, report) = vellum(&data, &["--repair"]);
    assert!(output.status.success(), "{report}");
    assert!(report.contains("base.vellum") && report.contains("the catalog is lost"), "{report}");
    assert!(report.contains("kept: local.orphan.") && report.contains("10 documents"), "{report}");
    let server = Server::start_on(&data, &[]).unwrap();
    let listed = run(&server, "{listCollections: 1, nameOnly: true, $db: 'local'}");
    assert!(format!("{listed:?}").contains("orphan"), "{listed:?}");
}

#[test]
fn a_repair_without_readable_data_changes_nothing() {
    let data = directory("repair-nothing");
    tamper(&data.join("base.vellum"), |bytes| bytes.fill(0));
    tamper(&segment(&data), |bytes| bytes.fill(0));
    let (output, text) = vellum(&data, &["--repair"]);
    assert!(!output.status.success() && text.contains("could be recovered"), "{text}");
    assert!(data.join("base.vellum").exists() && !data.join("before-repair.1").exists());
    let empty = Scratch::new("repair-empty");
    std::fs::create_dir_all(&*empty).unwrap();
    let (output, text) = vellum(&empty, &["--repair"]);
    assert!(!output.status.success() && text.contains("no data"), "{text}");
}

#[test]
fn a_separate_journal_directory_is_repaired() {
    let (data, journal) = (Scratch::new("repair-data"), Scratch::new("repair-elsewhere"));
    let options = ["--journal-dir", journal.to_str().unwrap()];
    let server = Server::start_on(&data, &options).unwrap();
    for at in 0..20 {
        let insert = format!("{{insert: 'c', documents: [{{_id: {at}, n: {at}, a: {at}}}], $db: 'test'}}");
        assert_eq!(number(&run(&server, &insert), "n"), 1);
    }
    drop(server);
    repaired(&data, 20, &options);
    assert!(journal.join("before-repair.1").is_dir());
}

#[test]
fn a_missing_page_file_is_named() {
    let data = directory("repair-missing");
    std::fs::remove_file(data.join("base.vellum")).unwrap();
    let (output, text) = vellum(&data, &[]);
    assert!(!output.status.success() && text.contains("base.vellum is missing. --repair saves"), "{text}");
    // The journal has the ten latest documents.
    let (output, text) = vellum(&data, &["--repair"]);
    assert!(output.status.success() && text.contains("10 documents"), "{text}");
}

#[test]
fn a_repair_without_its_journal_directory_changes_nothing() {
    let (data, journal) = (Scratch::new("repair-forgot"), Scratch::new("repair-forgotten"));
    let options = ["--journal-dir", journal.to_str().unwrap()];
    for batch in 0..2 {
        let mut server = Server::start_on(&data, &options).unwrap();
        for at in batch * 20..batch * 20 + 20 {
            let insert =
                format!("{{insert: 'c', documents: [{{_id: {at}, n: {at}, a: {at}}}], $db: 'test'}}");
            assert_eq!(number(&run(&server, &insert), "n"), 1);
        }
        if batch == 0 {
            server.end();
        }
    }
    let (output, text) = vellum(&data, &["--repair"]);
    assert!(!output.status.success() && text.contains("Name it with --journal-dir"), "{text}");
    assert!(!data.join("before-repair.1").exists());
    // An interrupted exchange: the directory waits for the same repair.
    std::fs::create_dir_all(data.join("repair.tmp")).unwrap();
    std::fs::write(data.join("repair.tmp/complete"), "before-repair.1").unwrap();
    for (options, why) in [
        (&options[..], "Repeat --repair with the same options"),
        (&["--repair"], "Repeat --repair with the same --journal-dir"),
    ] {
        let (output, text) = vellum(&data, options);
        assert!(!output.status.success() && text.contains(why), "{text}");
    }
    std::fs::remove_file(data.join("repair.tmp/complete")).unwrap();
    repaired(&data, 40, &options);
}

#[test]
fn the_journal_of_another_directory_is_left_alone() {
    let [one, other, journal] =
        ["owner", "stranger", "journal"].map(|name| Scratch::new(&format!("repair-{name}")));
    let options = ["--journal-dir", journal.to_str().unwrap()];
    let mut server = Server::start_on(&one, &options).unwrap();
    assert_eq!(number(&run(&server, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}"), "n"), 1);
    // After an orderly stop, the journal has no frames.
    server.end();
    let files = || {
        let names = std::fs::read_dir(&*journal).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = names.map(|path| (std::fs::read(&path).unwrap(), path)).collect();
        files.sort();
        files
    };
    let before = files();
    let (output, text) = vellum(&other, &[&options[..], &["--allow-other-files"]].concat());
    assert!(!output.status.success() && text.contains("the journal of another data directory"), "{text}");
    drop(Server::start_on(&other, &[]).unwrap());
    let (output, text) = vellum(&other, &[&options[..], &["--repair"]].concat());
    assert!(!output.status.success() && text.contains("--journal-dir"), "{text}");
    assert_eq!(files(), before);
    let server = Server::start_on(&one, &options).unwrap();
    assert_eq!(number(&run(&server, "{count: 'c', $db: 'test'}"), "n"), 1);
}

#[test]
fn a_page_of_zeros_is_an_error_that_names_it() {
    let data = directory("repair-zeros");
    let mut unit = 0;
    tamper(&data.join("base.vellum"), |bytes| {
        unit = document(bytes, 1027) / 512 * 512;
        bytes[unit..unit + 512].fill(0);
    });
    let mut server = Server::start_on(&data, &[]).unwrap();
    let missing = run(&server, "{find: 'c', filter: {_id: 27}, $db: 'test'}");
    let message = format!("{missing:?}");
    assert!(message.contains("base.vellum") && message.contains("at offset"), "{message}");
    // Not InternalError, the code of a panic.
    assert_eq!(number(&missing, "code"), 301, "{message}");
    assert_eq!(number(&run(&server, "{count: 'c', query: {_id: 2}, $db: 'test'}"), "n"), 1);
    let log = server.end();
    assert!(!log.contains("panicked"), "{log}");
    let (output, text) = vellum(&data, &["--repair"]);
    assert!(output.status.success() && text.contains("lost: test.c: ") && text.contains("offset"), "{text}");
}

#[test]
fn unknown_files_in_the_journal_directory_are_reported_and_kept() {
    let data = directory("repair-strays");
    let unknown_files: [(&str, &[u8]); 4] = [
        ("copy of 0000000000000001.journal", b"VellumJ\n"),
        ("7.journal", b"an unpadded number"),
        ("0000000000000099.journal", b"a text where a segment may come to be"),
        ("notes.txt", b"none of ours"),
    ];
    let journal = data.join("journal");
    unknown_files.iter().for_each(|(name, bytes)| std::fs::write(journal.join(name), bytes).unwrap());
    let check =
        || unknown_files.iter().all(|(name, bytes)| std::fs::read(journal.join(name)).unwrap() == *bytes);
    let mut server = Server::start_on(&data, &[]).unwrap();
    assert_eq!(number(&run(&server, "{count: 'c', $db: 'test'}"), "n"), 50);
    let log = server.end();
    for (name, printed) in [
        ("copy of 0000000000000001.journal", "is not part of the journal"),
        ("7.journal", "is not part of the journal"),
        ("0000000000000099.journal", "is not a journal segment"),
    ] {
        assert!(log.lines().any(|line| line.contains(name) && line.contains(printed)), "{name}: {log}");
    }
    assert!(!log.contains("notes.txt") && check(), "{log}");
    let report = repaired(&data, 50, &[]);
    assert!(report.contains("lost: nothing"), "{report}");
}
