//! Sizes and counts of collections and databases, as collStats, dbStats and their stages show them.

use crate::collection::{Capped, Collection};
use crate::database::Database;
use crate::storage_error;
use base::bson::{Builder, DocumentBuf, Value};
use base::{Namespace, Result, err};
use query::change::Entry;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

/// Sizes of one collection, in bytes.
#[derive(Default, Debug, Clone)]
pub struct CollectionStatistics {
    /// Documents.
    pub count: i64,
    /// Their sizes together.
    pub size: i64,
    /// What the engine needs for them.
    pub storage_size: i64,
    /// Each index with what the engine needs for it.
    pub index_sizes: Vec<(String, i64)>,
    /// The limits of a capped collection.
    pub capped: Option<Capped>,
}

impl CollectionStatistics {
    /// All indexes together.
    pub fn total_index_size(&self) -> i64 {
        self.index_sizes.iter().map(|(_, size)| size).sum()
    }
}

impl Database {
    /// Sizes of a collection; all zero where there is none, and for views.
    pub fn collection_statistics(&self, namespace: &Namespace) -> Result<CollectionStatistics> {
        if self.is_oplog(namespace) {
            return self.log_statistics();
        }
        match self.collection(namespace) {
            Some(collection) => self.statistics_of(&collection),
            None => Ok(CollectionStatistics::default()),
        }
    }

    /// Sizes of the log as a collection.
    ///
    /// Errors: the engine's.
    fn log_statistics(&self) -> Result<CollectionStatistics> {
        let (mut cursor, _) = self.log_cursor(Bound::Unbounded)?;
        let mut count = 0;
        while let Some(found) = cursor.next_entry().map_err(storage_error)? {
            count += i64::from(Entry::read(found.time, &found.parts)?.ticks);
        }
        let size = self.log_bytes().unwrap_or(0) as i64;
        let capped = self.log_limit().map(|limit| Capped { size: limit as i64, max: 0 });
        Ok(CollectionStatistics { count, size, storage_size: size, index_sizes: Vec::new(), capped })
    }

    /// Sizes of a collection that is at hand.
    pub fn statistics_of(&self, collection: &Collection) -> Result<CollectionStatistics> {
        let Some(data) = &collection.data else { return Ok(CollectionStatistics::default()) };
        let snapshot = self.engine().snapshot();
        // Dropped since the caller looked: nothing left to measure.
        if !snapshot.contains(data.ident).map_err(storage_error)? {
            return Ok(CollectionStatistics::default());
        }
        let bytes = |ident| snapshot.bytes(ident).map(|bytes| bytes as i64).map_err(storage_error);
        let mut index_sizes = Vec::new();
        for index in &data.indexes {
            if snapshot.contains(index.ident).map_err(storage_error)? {
                index_sizes.push((index.spec.name.clone(), bytes(index.ident)?));
            }
        }
        Ok(CollectionStatistics {
            count: collection.records(),
            size: collection.bytes(),
            storage_size: bytes(data.ident)?,
            index_sizes,
            capped: collection.options.capped,
        })
    }

    /// The documents of `$collStats` and `$indexStats`; `None` for another stage.
    pub(crate) fn statistics_stage(
        &self,
        stage: &str,
        spec: Value<'_>,
        namespace: &Namespace,
    ) -> Result<Option<Vec<DocumentBuf>>> {
        match stage {
            "$collStats" => self.coll_stats_stage(spec, namespace).map(|document| Some(vec![document])),
            "$indexStats" => self.index_stats_stage(namespace).map(Some),
            // Plans are made anew for each read, so none is kept.
            "$planCacheStats" => Ok(Some(Vec::new())),
            _ => Ok(None),
        }
    }

    fn coll_stats_stage(&self, spec: Value<'_>, namespace: &Namespace) -> Result<DocumentBuf> {
        let spec = spec
            .as_document()
            .ok_or_else(|| err!(FailedToParse, "$collStats must take a nested object but found: {spec}"))?;
        let statistics = self.collection_statistics(namespace)?;
        let mut out = Builder::new();
        out.append("ns", namespace.as_str()).append("localTime", Value::DateTime(self.now_millis()));
        for element in spec {
            match element.name() {
                "count" => {
                    out.append("count", statistics.count);
                }
                "storageStats" => {
                    let scale =
                        element.value().as_document().and_then(|d| d.get("scale")).and_then(|v| v.as_i64());
                    out.begin_document("storageStats");
                    statistics.append_to(&mut out, scale.unwrap_or(1).max(1));
                    out.end();
                }
                "latencyStats" | "queryExecStats" => {
                    return Err(err!(NotImplemented, "$collStats: '{}' is not supported", element.name()));
                }
                name => return Err(err!(40415, "BSON field '$collStats.{name}' is an unknown field.")),
            }
        }
        Ok(out.finish())
    }

    fn index_stats_stage(&self, namespace: &Namespace) -> Result<Vec<DocumentBuf>> {
        let Some(collection) = self.collection(namespace) else { return Ok(Vec::new()) };
        let describe = |index: &std::sync::Arc<crate::index::Index>| {
            let mut out = Builder::new();
            out.append("name", index.spec.name.as_str())
                .append("key", &index.spec.key)
                .append("host", "vellum");
            out.begin_document("accesses").append("ops", index.uses.load(Relaxed) as i64);
            out.append("since", Value::DateTime(index.since_millis)).end();
            out.append("spec", &index.spec.to_document());
            out.finish()
        };
        Ok(collection.data.iter().flat_map(|data| data.indexes.iter()).map(describe).collect())
    }
}

impl CollectionStatistics {
    /// Appends the fields that collStats and `$collStats` share, sizes divided by `scale`.
    pub fn append_to(&self, out: &mut Builder, scale: i64) {
        let mut sized = |name: &str, size: i64| append_number(out, name, size / scale);
        sized("size", self.size);
        append_number(out, "count", self.count);
        if self.count > 0 {
            append_number(out, "avgObjSize", self.size / self.count);
        }
        append_number(out, "numOrphanDocs", 0);
        append_number(out, "storageSize", self.storage_size / scale);
        append_number(out, "freeStorageSize", 0);
        append_number(out, "nindexes", self.index_sizes.len() as i64);
        append_number(out, "totalIndexSize", self.total_index_size() / scale);
        append_number(out, "totalSize", (self.storage_size + self.total_index_size()) / scale);
        out.begin_document("indexSizes");
        for (name, size) in &self.index_sizes {
            append_number(out, name, size / scale);
        }
        out.end();
        out.append("capped", self.capped.is_some());
        if let Some(capped) = self.capped {
            // MongoDB writes "no limit" as -1 here.
            append_number(out, "max", if capped.max == 0 { -1 } else { capped.max });
            append_number(out, "maxSize", capped.size / scale);
        }
        append_number(out, "scaleFactor", scale);
    }
}

/// A number as an int32 where it fits, as MongoDB shows sizes.
fn append_number(out: &mut Builder, name: &str, number: i64) {
    match i32::try_from(number) {
        Ok(small) => out.append(name, small),
        Err(_) => out.append(name, number),
    };
}
