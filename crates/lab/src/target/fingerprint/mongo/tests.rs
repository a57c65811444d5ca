//! Fingerprints from answers of servers.

use super::*;

fn wired_tiger(storage: Document) -> CommandReplies {
    CommandReplies {
        build: doc! { "version": "4.2.24" },
        status: doc! { "storageEngine": { "name": "wiredTiger" } },
        options: doc! { "argv": ["mongod"], "parsed": { "storage": storage } },
        ..CommandReplies::default()
    }
}

fn vellum_on_disk(arguments: &[&str]) -> CommandReplies {
    CommandReplies {
        build: doc! { "version": "8.0.0", "vellum": "0.1.0" },
        status: doc! { "storageEngine": { "name": "disk" } },
        options: doc! { "argv": arguments },
        ..CommandReplies::default()
    }
}

fn detail(properties: &ReportedProperties, name: &str) -> String {
    let found = properties.fingerprint.details.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name} in {properties:?}")).1.clone()
}

#[test]
fn mongod_may_lose_the_last_interval_with_the_process() {
    let properties = read(&wired_tiger(doc! { "dbPath": "/x", "journal": { "commitIntervalMs": 30 } }));
    assert_eq!(properties.fingerprint.server, "MongoDB 4.2.24");
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Delayed);
    assert_eq!(detail(&properties, "journal"), "flushed every 30 ms");
    assert_eq!(properties.directory.unwrap().to_str(), Some("/x"));
    let none = read(&wired_tiger(doc! { "journal": { "enabled": false } }));
    assert_eq!(detail(&none, "journal"), "none");
}

#[test]
fn a_write_concern_may_ask_for_the_journal() {
    let mut answers = wired_tiger(doc! {});
    answers.given_concern = Some(WriteConcern::builder().journal(true).build());
    let properties = read(&answers);
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Journaled);
    assert_eq!(detail(&properties, "write concern"), "w default, j true (from the connection string)");
}

#[test]
fn majority_is_journaled_on_members_of_a_set_only() {
    let mut answers = wired_tiger(doc! {});
    answers.default_concern = doc! { "defaultWriteConcern": { "w": "majority", "wtimeout": 0 } };
    let properties = read(&answers);
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Delayed);
    assert_eq!(detail(&properties, "write concern"), "w majority (the server's default)");
    answers.hello = doc! { "setName": "rs0" };
    assert_eq!(read(&answers).fingerprint.promise, DurabilityGuarantee::Journaled);
    answers.given_concern = Some(WriteConcern::nodes(1));
    assert_eq!(read(&answers).fingerprint.promise, DurabilityGuarantee::Delayed);
}

#[test]
fn vellum_is_recognized_at_each_durability_level() {
    for (arguments, promise, journal) in [
        (
            &["vellum", "--data", "/d", "--durability", "none"][..],
            DurabilityGuarantee::Process,
            "synced only where a write asks",
        ),
        (&["vellum", "--data=/d"], DurabilityGuarantee::Interval, "synced every 100 ms"),
        (
            &["vellum", "--data=/d", "--journal-commit-interval=20"],
            DurabilityGuarantee::Interval,
            "synced every 20 ms",
        ),
        (
            &["vellum", "--durability=journaled", "--data", "/d"],
            DurabilityGuarantee::Journaled,
            "synced before a write is acknowledged",
        ),
    ] {
        let properties = read(&vellum_on_disk(arguments));
        assert_eq!(properties.fingerprint.server, "Vellum 0.1.0");
        assert_eq!(properties.fingerprint.promise, promise, "{arguments:?}");
        assert_eq!(detail(&properties, "journal"), journal);
        assert_eq!(properties.directory.unwrap().to_str(), Some("/d"));
    }
    let memory = CommandReplies {
        build: doc! { "version": "8.0.0", "vellum": "0.1.0" },
        status: doc! { "storageEngine": { "name": "memory" } },
        ..CommandReplies::default()
    };
    assert_eq!(read(&memory).fingerprint.promise, DurabilityGuarantee::Memory);
}

#[test]
fn others_of_the_protocol_are_recognised() {
    let java = CommandReplies {
        build: doc! { "version": "5.0.0" },
        status: doc! { "process": "java", "version": "5.0.0" },
        ..CommandReplies::default()
    };
    let properties = read(&java);
    assert_eq!(properties.fingerprint.server, "mongo-java-server");
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Memory);
    let ferret = CommandReplies {
        build: doc! { "version": "7.0.42", "ferretdbVersion": "v1.24.2" },
        ..CommandReplies::default()
    };
    let properties = read(&ferret);
    assert_eq!(properties.fingerprint.server, "FerretDB 1.24.2");
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Unknown);
    let build = doc! { "version": "7.0.77", "ferretdb": { "version": "v2.7.0" } };
    let properties = read(&CommandReplies { build, ..CommandReplies::default() });
    assert_eq!(properties.fingerprint.server, "FerretDB 2.7.0");
    assert_eq!(properties.fingerprint.engine, "PostgreSQL with DocumentDB");
    assert_eq!(detail(&properties, "journal"), "PostgreSQL's log, whose settings are not reported");
}

#[test]
fn options_are_shown_without_secrets() {
    let words = [
        "mongod",
        "--dbpath",
        "/x",
        "--tlsCertificateKeyFilePassword",
        "open",
        "--keyPassword=sesame",
        "--postgres",
        "postgres://me:secret@db/x",
        "host=db password=hidden",
        "--port",
    ];
    let parsed = options(&words.map(Bson::from));
    let expected =
        "--dbpath /x --tlsCertificateKeyFilePassword *** *** --postgres postgres://db/x *** --port";
    assert_eq!(parsed, expected);
}

#[test]
fn a_server_without_settings_has_unknown_durability() {
    let properties = read(&CommandReplies::default());
    assert_eq!(properties.fingerprint.promise, DurabilityGuarantee::Unknown);
    assert!(detail(&properties, "write concern").starts_with("w 1"));
}
