//! What servers tell of their storage and their caches, each in its own words: Vellum's, those of
//! MongoDB's WiredTiger, and PostgreSQL's.

use crate::error::Result;
use crate::experiment::parts::{Link, named};
use crate::target::{Protocol, Target};
use mongodb::bson::{Bson, Document, doc};
use std::collections::BTreeMap;

/// The names of figures in a row.
pub(super) const STORAGE: &str = "storage MB";
/// What the cache held after the gets.
pub(super) const HELD: &str = "cache MB";
pub(super) const MISSES: &str = "cache misses per 100 gets";

/// Counters since a server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cache {
    hits: f64,
    misses: f64,
    /// What it holds now, where it tells.
    bytes: Option<f64>,
}

impl Cache {
    /// What so many gets made of it.
    pub(super) fn since(&self, before: &Cache, gets: u64) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let (hits, misses) = (self.hits - before.hits, self.misses - before.misses);
        if gets > 0 {
            // Neither found nor missed: what was asked for lay before the cache.
            figures.insert(MISSES.to_string(), 100.0 * misses / gets as f64);
        }
        if hits + misses > 0.0 {
            figures.insert("cache hits %".to_string(), 100.0 * hits / (hits + misses));
        }
        if let Some(bytes) = self.bytes {
            figures.insert(HELD.to_string(), bytes / 1e6);
        }
        figures
    }
}

/// The counters now; `None` where the target tells none.
pub(super) async fn counters(target: &Target, table: &str) -> Option<Cache> {
    match target.protocol {
        _ if target.is_floor => None,
        Protocol::Mongo => {
            let link = Link::open(target).await.ok()?;
            of_status(&link.admin(doc! { "serverStatus": 1 }).await.ok()?)
        }
        Protocol::Postgres => {
            let client = target.postgres().await.ok()?;
            // Its backends report what they did a second later at most.
            tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
            let query = "SELECT (heap_blks_hit + idx_blks_hit)::float8, (heap_blks_read + idx_blks_read)::float8 \
                         FROM pg_statio_user_tables WHERE relname = $1 AND schemaname = current_schema()";
            let row = client.query_opt(query, &[&table]).await.ok()??;
            Some(Cache { hits: row.try_get(0).ok()?, misses: row.try_get(1).ok()?, bytes: None })
        }
    }
}

/// Vellum counts pages found and not found, in a section of its own; WiredTiger pages asked for, and those of them that it
/// read.
fn of_status(status: &Document) -> Option<Cache> {
    let own = status.get_document("vellum").and_then(|engine| engine.get_document("cache"));
    if let Ok(own) = own {
        return Some(Cache {
            hits: number(own, "hits")?,
            misses: number(own, "misses")?,
            bytes: number(own, "bytes"),
        });
    }
    let theirs = status.get_document("wiredTiger").and_then(|engine| engine.get_document("cache")).ok()?;
    let misses = number(theirs, "pages read into cache")?;
    let hits = (number(theirs, "pages requested from the cache")? - misses).max(0.0);
    Some(Cache { hits, misses, bytes: number(theirs, "bytes currently in the cache") })
}

/// Megabytes that the collection takes.
pub(super) async fn sizes(target: &Target, table: &str) -> Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    match target.protocol {
        Protocol::Mongo => {
            let link = Link::open(target).await?;
            let statistics = link.run(doc! { "collStats": table }).await?;
            let names = [("storageSize", STORAGE), ("size", "data MB"), ("totalIndexSize", "index MB")];
            for (theirs, ours) in names {
                // Zero is what servers tell that don't know.
                if let Some(bytes) = number(&statistics, theirs).filter(|bytes| *bytes > 0.0) {
                    figures.insert(ours.to_string(), bytes / 1e6);
                }
            }
        }
        Protocol::Postgres => {
            let client = target.postgres().await?;
            let query = "SELECT pg_table_size($1::text::regclass)::float8, pg_indexes_size($1::text::regclass)::float8";
            let row = named(target, client.query_one(query, &[&table]).await)?;
            for (at, name) in [(0, STORAGE), (1, "index MB")] {
                figures.insert(name.to_string(), named(target, row.try_get::<_, f64>(at))? / 1e6);
            }
        }
    }
    Ok(figures)
}

fn number(document: &Document, name: &str) -> Option<f64> {
    match document.get(name)? {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_caches_are_read() {
        let vellum = doc! { "vellum": { "cache": { "bytes": 5_i64, "hits": 90_i64, "misses": 10_i64 } } };
        assert_eq!(of_status(&vellum), Some(Cache { hits: 90.0, misses: 10.0, bytes: Some(5.0) }));
        let cache = doc! {
            "pages requested from the cache": 100, "pages read into cache": 10, "bytes currently in the cache": 5.0
        };
        assert_eq!(of_status(&doc! { "wiredTiger": { "cache": cache } }), of_status(&vellum));
        assert_eq!(of_status(&doc! { "vellum": { "engine": "memory" } }), None);
    }

    #[test]
    fn differences_are_told_per_get() {
        let before = Cache { hits: 10.0, misses: 10.0, bytes: None };
        let after = Cache { hits: 100.0, misses: 20.0, bytes: Some(2e6) };
        let figures = after.since(&before, 50);
        assert_eq!(figures[MISSES], 20.0);
        assert_eq!((figures["cache hits %"], figures["cache MB"]), (90.0, 2.0));
        let idle = before.since(&before, 50);
        assert_eq!((idle[MISSES], idle.get("cache hits %")), (0.0, None));
        assert!(before.since(&before, 0).is_empty());
    }
}
