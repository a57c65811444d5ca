//! Counters of a target's storage and cache, as reported by Vellum, MongoDB's WiredTiger and PostgreSQL.

use super::{Protocol, Target, number};
use crate::Result;
use crate::result::Row;
use mongodb::bson::{Document, doc};
use std::collections::BTreeMap;

/// Names of figures in a row.
const STORAGE: &str = "storage MB";
const MISSES: &str = "cache misses per 100 gets";

/// Counters since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Kilobytes written.
    written: Option<f64>,
    syncs: Option<f64>,
    /// Files created and removed.
    created: Option<f64>,
    removed: Option<f64>,
    /// Pages found in the cache, and pages read from the disk.
    pages: Option<(f64, f64)>,
    /// Bytes in the cache now.
    cached: Option<f64>,
}

impl Counters {
    /// Reads the counters; for PostgreSQL, the counters of this table. The query has its own connection.
    pub(crate) async fn of(target: &Target, table: Option<&str>) -> Counters {
        let counters = match target.protocol {
            _ if target.is_null_server => return Counters::default(),
            Protocol::Mongo => target.ask(doc! { "serverStatus": 1 }).await.map(|status| of_status(&status)),
            Protocol::Postgres => of_postgres(target, table.unwrap_or_default()).await,
        };
        let files = target.started.as_ref().and_then(|started| started.file_counts());
        // No counters if the server does not answer. Its next operation then fails.
        Counters {
            written: target.usage().and_then(|usage| Some(usage.written_bytes? as f64 / 1e3)),
            created: files.map(|files| files.created as f64),
            removed: files.map(|files| files.removed as f64),
            ..counters.unwrap_or_default()
        }
    }

    /// Adds one round's storage work to its row, which already has the round's operations.
    pub(crate) fn add_storage(self, before: Counters, row: &mut Row) {
        let operations = row.rounds.last().map_or(0, |round| round.operations);
        if operations == 0 {
            return;
        }
        let figures = [
            ("written to disk per operation, kB", before.written, self.written),
            ("syncs per operation", before.syncs, self.syncs),
            ("files created per operation", before.created, self.created),
            ("files removed per operation", before.removed, self.removed),
        ];
        let earlier = (row.operations - operations) as f64;
        for (name, before, after) in figures {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let known = row.extra.get(name).copied().unwrap_or(0.0);
            let all = known * earlier + (after - before).max(0.0);
            row.extra.insert(name.to_string(), all / row.operations as f64);
        }
    }

    /// Returns figures of the cache for this number of gets.
    pub(crate) fn of_cache(&self, before: &Counters, gets: u64) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let (Some(now), Some(before)) = (self.pages, before.pages) else { return figures };
        let (hits, misses) = (now.0 - before.0, now.1 - before.1);
        if gets > 0 {
            // Hits and misses may both be zero: the engine answered before its cache.
            figures.insert(MISSES.to_string(), 100.0 * misses / gets as f64);
        }
        if hits + misses > 0.0 {
            figures.insert("cache hits %".to_string(), 100.0 * hits / (hits + misses));
        }
        figures.extend(self.cached.map(|bytes| ("cache MB".to_string(), bytes / 1e6)));
        figures
    }
}

/// Vellum counts pages found and not found. WiredTiger counts pages requested, and pages read.
fn of_status(status: &Document) -> Counters {
    let at = |path| number(status, path);
    let own = at("vellum.cache.hits").zip(at("vellum.cache.misses"));
    let wired_tiger = || {
        let read = at("wiredTiger.cache.pages read into cache")?;
        Some(((at("wiredTiger.cache.pages requested from the cache")? - read).max(0.0), read))
    };
    Counters {
        syncs: at("vellum.journal.syncs").or(at("wiredTiger.log.log sync operations")),
        pages: own.or_else(wired_tiger),
        cached: at("vellum.cache.bytes").or(at("wiredTiger.cache.bytes currently in the cache")),
        ..Counters::default()
    }
}

/// Backends report their counters within a second. The count of log syncs exists since version 14.
async fn of_postgres(target: &Target, table: &str) -> Result<Counters> {
    let client = target.postgres().await?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let syncs = client.query_one("SELECT wal_sync::float8 FROM pg_stat_wal", &[]).await;
    let query = "SELECT (heap_blks_hit + idx_blks_hit)::float8, (heap_blks_read + idx_blks_read)::float8 \
                 FROM pg_statio_user_tables WHERE relname = $1 AND schemaname = current_schema()";
    let pages = client.query_one(query, &[&table]).await;
    Ok(Counters {
        syncs: syncs.and_then(|row| row.try_get(0)).ok(),
        pages: pages.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?))).ok(),
        ..Counters::default()
    })
}

/// Returns the size of a collection in megabytes.
pub(crate) async fn sizes(target: &Target, table: &str) -> Result<BTreeMap<String, f64>> {
    let figures = match target.protocol {
        Protocol::Mongo => {
            let database = target.mongo().await?.database(target.database()?);
            let requested = database.run_command(doc! { "collStats": table }).await;
            let statistics = requested.map_err(|error| target.error(error))?;
            let names = [("storageSize", STORAGE), ("size", "data MB"), ("totalIndexSize", "index MB")];
            names.map(|(field, figure)| (figure, number(&statistics, field).unwrap_or(0.0))).to_vec()
        }
        Protocol::Postgres => {
            let query = "SELECT pg_table_size($1::text::regclass)::float8, pg_indexes_size($1::text::regclass)::float8";
            let row = target.postgres().await?.query_one(query, &[&table]).await;
            let sizes =
                row.and_then(|row| Ok(vec![(STORAGE, row.try_get(0)?), ("index MB", row.try_get(1)?)]));
            sizes.map_err(|error| target.error(super::ErrorChain(&error)))?
        }
    };
    // Servers without a size report zero.
    let known = figures.into_iter().filter(|(_, bytes)| *bytes > 0.0);
    Ok(known.map(|(name, bytes)| (name.to_string(), bytes / 1e6)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Summary;
    use crate::result::Round;

    #[test]
    fn rounds_are_weighed_by_their_operations() {
        let mut row = Row::new("a", "x", 1);
        let at = |syncs| Counters { syncs: Some(syncs), ..Counters::default() };
        for (operations, syncs) in [(10, 10.0), (30, 0.0)] {
            let latency = Summary::default();
            row.operations += operations;
            row.rounds.push(Round {
                operations,
                seconds: 1.0,
                latency,
                cpu_microseconds: None,
                shortened: false,
            });
            at(100.0 + syncs).add_storage(at(100.0), &mut row);
        }
        assert_eq!(row.extra.get("syncs per operation"), Some(&0.25));
        assert_eq!(row.extra.len(), 1, "what isn't known isn't there: {:?}", row.extra);
    }

    #[test]
    fn both_kinds_of_servers_are_understood() {
        let vellum = doc! {
            "vellum": { "cache": { "bytes": 5_i64, "hits": 90_i64, "misses": 10_i64 }, "journal": { "syncs": 7_i64 } }
        };
        let known = of_status(&vellum);
        assert_eq!((known.pages, known.cached, known.syncs), (Some((90.0, 10.0)), Some(5.0), Some(7.0)));
        let cache = doc! {
            "pages requested from the cache": 100, "pages read into cache": 10, "bytes currently in the cache": 5.0
        };
        let wired_tiger = doc! { "wiredTiger": { "cache": cache, "log": { "log sync operations": 7 } } };
        assert_eq!(of_status(&wired_tiger), known);
        assert_eq!(of_status(&doc! { "vellum": { "engine": "memory" } }), Counters::default());
    }

    #[test]
    fn differences_are_divided_by_operations() {
        let before = Counters { pages: Some((10.0, 10.0)), ..Counters::default() };
        let after = Counters { pages: Some((100.0, 20.0)), cached: Some(2e6), ..Counters::default() };
        let figures = after.of_cache(&before, 50);
        assert_eq!(figures[MISSES], 20.0);
        assert_eq!((figures["cache hits %"], figures["cache MB"]), (90.0, 2.0));
        let idle = before.of_cache(&before, 50);
        assert_eq!((idle[MISSES], idle.get("cache hits %")), (0.0, None));
        assert!(before.of_cache(&before, 0).is_empty());
    }
}
