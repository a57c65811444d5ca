//! A server's directory shrinks automatically after drops of collections.

use crate::requests::{run_on, until};
use crate::server::{Scratch, Server};
use base::bson::DocumentBuf;
use std::path::Path;

/// Number of documents of a megabyte.
const LARGE: usize = 24;

fn number(reply: &DocumentBuf, name: &str) -> f64 {
    match reply.view().get(name) {
        Some(base::bson::Value::Double(number)) => number,
        value => value.and_then(|value| value.as_i64()).map_or(-1.0, |number| number as f64),
    }
}

/// Returns the total size of the files below a directory.
fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().filter_map(|entry| entry.ok());
    let sizes = entries.filter_map(|entry| {
        let data = entry.metadata().ok()?;
        Some(if data.is_dir() { size(&entry.path()) } else { data.len() })
    });
    sizes.sum()
}

#[test]
fn the_space_of_a_dropped_collection_is_freed() {
    let data = Scratch::new("space");
    // Without compression, since a text of one letter would compress to nothing.
    let options = ["--cache-size", "16M", "--compression", "none"];
    let mut server = Server::start_on(&data, &options).unwrap();
    run_on(&server, "{insert: 'small', documents: [{_id: 1}], $db: 'test'}");
    let pad = "x".repeat(1_000_000);
    for at in 0..LARGE {
        let insert = format!("{{insert: 'large', documents: [{{_id: {at}, pad: '{pad}'}}], $db: 'test'}}");
        assert_eq!(number(&run_on(&server, &insert), "n"), 1.0);
    }
    // An orderly stop moves everything into the base.
    server.end();
    let server = Server::start_on(&data, &options).unwrap();
    let stats = run_on(&server, "{collStats: 'large', $db: 'test'}");
    let least = LARGE as f64 * 1_000_000.0;
    assert!(number(&stats, "size") > least && number(&stats, "storageSize") > least, "{stats:?}");
    assert!(number(&run_on(&server, "{dbStats: 1, $db: 'test'}"), "totalSize") > least);
    assert!(size(&data) as f64 > least);
    assert_eq!(number(&run_on(&server, "{drop: 'large', $db: 'test'}"), "ok"), 1.0);
    let stats = run_on(&server, "{dbStats: 1, $db: 'test'}");
    assert!(number(&stats, "totalSize") < 100_000.0, "{stats:?}");
    assert!(number(&run_on(&server, "{collStats: 'large', $db: 'test'}"), "size") == 0.0);
    until("the files are half as large", || size(&data) as f64 <= least / 2.0);
    drop(server);
    let server = Server::start_on(&data, &options).unwrap();
    assert_eq!(number(&run_on(&server, "{count: 'small', $db: 'test'}"), "n"), 1.0);
}
