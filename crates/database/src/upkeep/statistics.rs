//! Sizes and counts of collections and databases, for collStats, dbStats and their stages.
//!
//! The module also reports cache statistics by collection and index, with estimates for other cache sizes.

use crate::catalog::Catalog;
use crate::catalog::cached_plans::{CachedPlan, fingerprint};
use crate::catalog::collection::{Capped, Collection};
use crate::database::Database;
use crate::index::Index;
use crate::operation::Operation;
use crate::{catalog, storage_error};
use base::bson::{Builder, DocumentBuf, FieldName, Value};
use base::{Namespace, Result, bail, err};
use query::change::Entry;
use query::context::Interrupt;
use query::pipeline::CollStats;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::LogCursor;
use storage::{Direction, Ident, Reads, WorkingSet};

/// Sizes of one collection in bytes.
#[derive(Default, Debug, Clone)]
pub struct CollectionStatistics {
    /// Number of documents.
    pub count: i64,
    /// Total size of the documents.
    pub size: i64,
    /// Storage size of the documents in the engine.
    pub storage_size: i64,
    /// Each index with its storage size.
    pub index_sizes: Vec<(String, i64)>,
    /// Names of indexes being built.
    pub index_builds: Vec<String>,
    /// Limits of a capped collection.
    pub capped: Option<Capped>,
}

impl CollectionStatistics {
    /// Returns the total size of all indexes.
    pub fn total_index_size(&self) -> i64 {
        self.index_sizes.iter().map(|(_, size)| size).sum()
    }
}

impl Database {
    /// Returns the sizes of a collection; zero for a missing collection and for a view.
    ///
    /// Errors: interruptions; errors of the engine.
    pub fn collection_statistics(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Result<CollectionStatistics> {
        if self.is_oplog(namespace) {
            return self.log_statistics(operation);
        }
        match self.collection(namespace) {
            Some(collection) => self.statistics_of(operation, &collection),
            None => Ok(CollectionStatistics::default()),
        }
    }

    /// Returns the sizes of the log as a collection.
    ///
    /// Errors: interruptions; errors of the engine.
    fn log_statistics(&self, operation: &Operation) -> Result<CollectionStatistics> {
        // The whole log of the snapshot: over PostgreSQL this process may not know the latest time.
        let bounds = (Bound::Unbounded, Bound::Unbounded);
        let cursor = LogCursor::new(self.engine().snapshot(), bounds, Direction::Forward);
        let mut cursor = cursor.map_err(storage_error)?;
        let mut count = 0;
        while let Some(found) = cursor.next_entry().map_err(storage_error)? {
            operation.check()?;
            count += i64::from(Entry::read(found.time, &found.parts)?.ticks);
        }
        let size = self.log_bytes().unwrap_or(0) as i64;
        let capped = self.log_limit().map(|limit| Capped { size: limit as i64, max: 0 });
        Ok(CollectionStatistics {
            count,
            size,
            storage_size: size,
            index_sizes: Vec::new(),
            index_builds: Vec::new(),
            capped,
        })
    }

    /// Reads the running counts of collections again, if other processes may have changed them.
    ///
    /// Errors: errors of the engine.
    pub fn refresh_all_counts(&self, collections: &[&Arc<Collection>]) -> Result<()> {
        let snapshot = self.engine().snapshot();
        let Some(remote) = snapshot.remote() else { return Ok(()) };
        let data: Vec<_> = collections.iter().filter_map(|collection| collection.data.as_ref()).collect();
        let idents: Vec<Ident> = data.iter().map(|data| data.ident).collect();
        let counts = remote.counts(&idents).map_err(storage_error)?;
        for (data, (_, records, bytes)) in data.iter().zip(counts) {
            data.counts.records.store(records, Relaxed);
            data.counts.bytes.store(bytes, Relaxed);
        }
        Ok(())
    }

    /// Returns the sizes of a given collection. A shared store reads each of its trees for them.
    ///
    /// Errors: interruptions; errors of the engine.
    pub fn statistics_of(
        &self,
        operation: &Operation,
        collection: &Collection,
    ) -> Result<CollectionStatistics> {
        operation.check()?;
        let Some(data) = &collection.data else { return Ok(CollectionStatistics::default()) };
        let snapshot = self.engine().snapshot();
        // The collection was dropped meanwhile.
        if !snapshot.contains(data.ident).map_err(storage_error)? {
            return Ok(CollectionStatistics::default());
        }
        self.refresh_counts(collection)?;
        let bytes = |ident| {
            operation.check()?;
            snapshot.bytes(ident).map(|bytes| bytes as i64).map_err(storage_error)
        };
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
            index_builds: data.building.iter().map(|build| build.index.spec.name.clone()).collect(),
            capped: collection.options.capped,
        })
    }

    /// Returns the size of a collection's catalog entry, which an empty collection has too.
    pub fn entry_bytes(&self, collection: &Collection) -> i64 {
        catalog::entry(collection).view().bytes().len() as i64
    }

    /// Returns the document of `$collStats`.
    ///
    /// Errors: NamespaceNotFound; CommandNotSupportedOnView for a view, which has only latencies;
    /// errors of the latencies, which come from the server; interruptions.
    pub(crate) fn coll_stats_stage(
        &self,
        operation: &Operation,
        requested: &CollStats,
        namespace: &Namespace,
        latencies: &dyn Fn(bool) -> Result<Vec<DocumentBuf>>,
    ) -> Result<DocumentBuf> {
        let collection = self.collection(namespace);
        let statistics = self.collection_statistics(operation, namespace)?;
        let must_be_there = |what: &str| match &collection {
            Some(collection) => collection.data().map(drop),
            None if self.is_oplog(namespace) => Ok(()),
            None => Err(err!(
                NamespaceNotFound,
                "Unable to retrieve {what} in $collStats stage :: caused by :: Collection [{namespace}] not found."
            )),
        };
        let mut out = Builder::new();
        out.append(c"ns", namespace.as_str()).append(c"localTime", Value::DateTime(self.now_millis()));
        if let Some(histograms) = requested.latencies {
            out.begin_document(c"latencyStats");
            for document in latencies(histograms)? {
                out.append_all(document.view());
            }
            out.end();
        }
        if let Some(scale) = requested.scale {
            must_be_there("storageStats")?;
            out.begin_document(c"storageStats");
            statistics.append_to(&mut out, scale);
            out.end();
        }
        if requested.count {
            must_be_there("count")?;
            out.append_number(c"count", statistics.count);
        }
        if requested.scans {
            must_be_there("queryExecStats")?;
            let scans =
                collection.as_ref().and_then(|collection| collection.data.as_ref()).map(|data| &data.scans);
            let (total, tailable) =
                scans.map_or((0, 0), |scans| (scans.total.load(Relaxed), scans.tailable.load(Relaxed)));
            out.begin_document(c"queryExecStats").begin_document(c"collectionScans");
            out.append(c"total", total as i64).append(c"nonTailable", (total - tailable) as i64);
            out.end().end();
        }
        Ok(out.finish())
    }

    /// Returns the entries of the plan cache.
    pub(crate) fn cached_plans_stage(&self, namespace: &Namespace) -> Vec<DocumentBuf> {
        let Some(collection) = self.collection(namespace) else { return Vec::new() };
        let Some(data) = &collection.data else { return Vec::new() };
        let is_of_these = |cached: &CachedPlan| {
            let filter = data.index_filters.find(|| cached.trial.shape.clone());
            let allows = |index: &&Arc<Index>| filter.as_ref().is_none_or(|filter| filter.allows(index));
            let allowed: Vec<Arc<Index>> = data.indexes.iter().filter(allows).cloned().collect();
            cached.trial.indexes == fingerprint(&allowed)
        };
        let plans = data.cached_plans.all();
        plans
            .iter()
            .filter(|cached| is_of_these(cached))
            .map(|cached| cached.to_document(self.host()))
            .collect()
    }

    /// Returns the documents of `$indexStats`.
    pub(crate) fn index_stats_stage(&self, namespace: &Namespace) -> Result<Vec<DocumentBuf>> {
        let catalog = self.catalog();
        let Some(mut collection) = catalog.get(namespace) else { return Ok(Vec::new()) };
        while let Some(view) = &collection.options.view {
            if view.pipeline.view().as_array().is_some_and(|stages| !stages.is_empty()) {
                bail!(40602, "$indexStats is only valid as the first stage in a pipeline.");
            }
            let on = Namespace::new(namespace.database(), &view.on)?;
            let Some(next) = catalog.get(&on) else { return Ok(Vec::new()) };
            collection = next;
        }
        let describe = |index: &Arc<Index>| {
            let mut out = Builder::new();
            out.append(c"name", index.spec.name.as_str())
                .append(c"key", &index.spec.key)
                .append(c"host", self.host());
            out.begin_document(c"accesses").append(c"ops", index.uses.load(Relaxed) as i64);
            out.append(c"since", Value::DateTime(index.since_millis)).end();
            out.append(c"spec", &index.spec.to_document());
            out.finish()
        };
        Ok(collection.data.iter().flat_map(|data| data.indexes.iter()).map(describe).collect())
    }
}

impl CollectionStatistics {
    /// Appends the fields common to collStats and `$collStats`. Sizes are divided by `scale`.
    pub fn append_to(&self, out: &mut Builder, scale: i64) {
        out.append_number(c"size", self.size / scale);
        out.append_number(c"count", self.count);
        if self.count > 0 {
            out.append_number(c"avgObjSize", self.size / self.count);
        }
        out.append_number(c"numOrphanDocs", 0);
        out.append_number(c"storageSize", self.storage_size / scale);
        out.append_number(c"freeStorageSize", 0);
        out.append_number(c"nindexes", self.index_sizes.len() as i64);
        out.append_number(c"totalIndexSize", self.total_index_size() / scale);
        out.append_number(c"totalSize", (self.storage_size + self.total_index_size()) / scale);
        out.begin_document(c"indexSizes");
        for (name, size) in &self.index_sizes {
            out.append_number(FieldName::trusted(name), size / scale);
        }
        out.end();
        // The engine reports only the size of an index.
        out.begin_document(c"indexDetails");
        for (name, _) in &self.index_sizes {
            out.begin_document(FieldName::trusted(name)).end();
        }
        out.end();
        out.begin_array(c"indexBuilds");
        for name in &self.index_builds {
            out.push(name.as_str());
        }
        out.end();
        out.append(c"capped", self.capped.is_some());
        if let Some(capped) = self.capped {
            // 0 is no limit (collection_impl.cpp). Earlier versions of MongoDB return -1.
            out.append_number(c"max", capped.max);
            out.append_number(c"maxSize", capped.size / scale);
        }
        out.append_number(c"scaleFactor", scale);
    }
}

/// Cache statistics of an engine with a bounded cache, by collection and index.
#[derive(Debug)]
pub struct WorkingSets {
    /// Totals; `named` has the trees.
    pub totals: WorkingSet,
    /// Reads by namespace and index (`None`: the collection's documents), ordered by number of reads, most first.
    pub named: Vec<(String, Option<String>, Reads)>,
}

impl Database {
    /// Returns how often the cache had a page, and estimates for other cache sizes; `None` without a bounded cache.
    /// Trees without a collection, such as the log and dropped trees, count only in the totals. Collections that share
    /// pages with forks appear under one name.
    pub fn working_sets(&self) -> Option<WorkingSets> {
        let mut totals = self.engine().working_set()?;
        let names = names(&self.catalog());
        let mut named = Vec::new();
        for (trees, reads) in std::mem::take(&mut totals.trees) {
            let mut owners: Vec<_> = trees.iter().filter_map(|ident| names.get(ident)).collect();
            owners.sort();
            if let Some((namespace, index)) = owners.first() {
                named.push((namespace.clone(), index.clone(), reads));
            }
        }
        named.sort_by(|a, b| {
            b.2.start.reads.cmp(&a.2.start.reads).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1)))
        });
        Some(WorkingSets { totals, named })
    }
}

/// Returns the collection and index of each tree.
fn names(catalog: &Catalog) -> HashMap<Ident, (String, Option<String>)> {
    let mut names = HashMap::new();
    for collection in catalog.all() {
        let Some(data) = &collection.data else { continue };
        let namespace = collection.namespace.as_str().to_string();
        for index in &data.indexes {
            names.insert(index.ident, (namespace.clone(), Some(index.spec.name.clone())));
        }
        names.insert(data.ident, (namespace, None));
    }
    names
}
