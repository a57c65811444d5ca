//! What a target has done to its storage so far: bytes written, syncs, files made and removed; each where it can be told.

use super::{Files, Protocol, Target};
use crate::result::Row;
use mongodb::bson::{Bson, Document, doc};

/// Counters since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Storage {
    written: Option<u64>,
    syncs: Option<u64>,
    files: Option<Files>,
}

impl Storage {
    /// The counters now. Asked of a server over a connection of its own.
    pub(crate) async fn of(target: &Target) -> Storage {
        if target.is_floor {
            return Storage::default();
        }
        let syncs = match target.protocol {
            Protocol::Mongo => mongo_syncs(target).await,
            Protocol::Postgres => postgres_syncs(target).await,
        };
        Storage {
            written: target.usage().and_then(|usage| usage.written_bytes),
            syncs,
            files: target.files(),
        }
    }

    /// Adds what one round did to the figures of its row, which has that round's operations already.
    pub(crate) fn add_since(self, before: Storage, row: &mut Row) {
        let operations = row.rounds.last().map_or(0, |round| round.operations);
        if operations == 0 {
            return;
        }
        let since = |of: fn(Storage) -> Option<u64>| Some(of(self)?.saturating_sub(of(before)?) as f64);
        let figures = [
            ("written to disk per operation, kB", since(|storage| storage.written).map(|bytes| bytes / 1e3)),
            ("syncs per operation", since(|storage| storage.syncs)),
            ("files made per operation", since(|storage| storage.files.map(|files| files.created))),
            ("files removed per operation", since(|storage| storage.files.map(|files| files.removed))),
        ];
        let earlier = (row.operations - operations) as f64;
        for (name, all) in figures.into_iter().filter_map(|(name, all)| Some((name, all?))) {
            let known = row.extra.get(name).copied().unwrap_or(0.0);
            row.extra.insert(name.to_string(), (known * earlier + all) / row.operations as f64);
        }
    }
}

async fn mongo_syncs(target: &Target) -> Option<u64> {
    let client = target.mongo().await.ok()?;
    let status = client.database("admin").run_command(doc! { "serverStatus": 1 }).await.ok()?;
    of_status(&status)
}

/// Vellum's count, or WiredTiger's.
fn of_status(status: &Document) -> Option<u64> {
    let at = |path: [&str; 2], name: &str| {
        let inner = status.get_document(path[0]).ok()?.get_document(path[1]).ok()?;
        match inner.get(name)? {
            Bson::Int32(number) => u64::try_from(*number).ok(),
            Bson::Int64(number) => u64::try_from(*number).ok(),
            Bson::Double(number) => Some(*number as u64),
            _ => None,
        }
    };
    at(["vellum", "journal"], "syncs").or_else(|| at(["wiredTiger", "log"], "log sync operations"))
}

/// Of the log, from version 14 on. Its backends report a second later at most.
async fn postgres_syncs(target: &Target) -> Option<u64> {
    let client = target.postgres().await.ok()?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let row = client.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).await.ok()?;
    row.try_get::<_, i64>(0).ok().and_then(|syncs| u64::try_from(syncs).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Summary;
    use crate::result::Round;

    #[test]
    fn rounds_are_weighed_by_their_operations() {
        let mut row = Row::new("a", "x", 1);
        let at = |syncs| Storage { syncs: Some(syncs), ..Storage::default() };
        for (operations, syncs) in [(10, 10), (30, 0)] {
            let latency = Summary::default();
            row.operations += operations;
            row.rounds.push(Round {
                operations,
                seconds: 1.0,
                latency,
                cpu_microseconds: None,
                shortened: false,
            });
            at(100 + syncs).add_since(at(100), &mut row);
        }
        assert_eq!(row.extra.get("syncs per operation"), Some(&0.25));
        assert_eq!(row.extra.len(), 1, "what isn't known isn't there: {:?}", row.extra);
    }

    #[test]
    fn both_kinds_of_servers_tell_their_syncs() {
        assert_eq!(of_status(&doc! { "vellum": { "journal": { "syncs": 7_i64 } } }), Some(7));
        assert_eq!(of_status(&doc! { "wiredTiger": { "log": { "log sync operations": 7 } } }), Some(7));
        assert_eq!(of_status(&doc! { "vellum": { "engine": "memory" } }), None);
    }
}
