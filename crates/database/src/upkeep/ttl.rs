//! TTL: removes expired documents of TTL indexes and of clustered collections with an expiry.

use crate::database::Database;
use crate::index::IndexSpec;
use crate::plan::Hint;
use crate::scope::Scope;
use crate::write::DeleteRequest;
use base::bson::{Builder, FieldName, Value};
use base::{Namespace, Result};
use query::Context;
use query::matcher::Matcher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::mutant;

impl Database {
    /// Removes every expired document and returns their number. A failed index is logged, and others continue.
    pub fn sweep_ttl(self: &Arc<Self>) -> u64 {
        self.counters.ttl_passes.fetch_add(1, Relaxed);
        let catalog = self.catalog();
        let mut deleted = 0;
        for collection in catalog.all() {
            let clustered_after = collection.options.expire_after_seconds;
            for index in collection.data.iter().flat_map(|data| data.indexes.iter()) {
                let clustered_after = clustered_after.filter(|_| index.spec.clustered);
                let after = index.spec.expire_after_seconds.or(clustered_after.map(|seconds| seconds as f64));
                // A text index has two parts and never expires documents.
                let (Some(seconds), [part]) = (after, &*index.spec.parts) else { continue };
                let seconds = if mutant!("documents expire early") { seconds / 2.0 } else { seconds };
                let before = self.now_millis().saturating_sub((seconds * 1000.0) as i64);
                match self.delete_expired(&collection.namespace, &index.spec, part.path.as_str(), before) {
                    Ok(count) => deleted += count,
                    Err(error) => log::warn!("TTL pass over {} failed: {error}", collection.namespace),
                }
            }
        }
        self.counters.ttl_deleted.fetch_add(deleted, Relaxed);
        deleted
    }

    /// Deletes the documents of one index whose date is at or before a moment, in milliseconds since 1970.
    fn delete_expired(
        self: &Arc<Self>,
        namespace: &Namespace,
        index: &IndexSpec,
        path: &str,
        before: i64,
    ) -> Result<u64> {
        let mut filter = Builder::new();
        // A comparison with a date matches only dates, so other values never expire.
        filter.begin_document(FieldName::new(path)?).append(c"$lte", Value::DateTime(before)).end();
        // An update may take a document out of a partial index between its entry and its deletion.
        if let Some(partial) = &index.partial {
            filter.begin_array(c"$and").push(partial.filter.view()).end();
        }
        let operation = Arc::new(self.operation(0));
        let context = Arc::new(Context::new(self.now_millis(), 1, operation.clone()));
        let request = DeleteRequest {
            matcher: Arc::new(Matcher::parse(
                filter.finish().view(),
                &context.with_collation(index.collation.clone()),
            )?),
            single: false,
            hint: Some(Hint::Internal(index.name.to_string())),
        };
        let scope = Scope::new(&operation, namespace, &context);
        let deleted = self.by_latest_catalog(|| self.delete(&scope, &request));
        deleted.map(|(deleted, _)| deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InsertRequest, ManualClock, Operation};
    use base::bson::extended_json::parse;
    use storage::MemoryEngine;

    #[test]
    fn a_hidden_index_expires_documents() {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let database = Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap();
        let operation = Arc::new(Operation::new(1));
        let context = Arc::new(Context::new(0, 1, operation.clone()));
        let namespace = Namespace::parse("d.c").unwrap();
        let spec = parse("{key: {t: 1}, name: 't', expireAfterSeconds: 5, hidden: true}").unwrap();
        let spec = IndexSpec::parse(spec.view(), &namespace, &context).unwrap();
        database.create_indexes(&Operation::new(0), &namespace, [spec], &context).unwrap();
        let scope = Scope::new(&operation, &namespace, &context);
        for document in ["{_id: 1, t: {$date: 1600000000000}}", "{_id: 2, t: {$date: 1800000000000}}"] {
            let document = parse(document).unwrap();
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            database.insert(&scope, insert).unwrap();
        }
        assert_eq!((database.sweep_ttl(), database.sweep_ttl()), (1, 0));
    }
}
