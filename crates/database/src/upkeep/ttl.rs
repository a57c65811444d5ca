//! TTL: removes expired documents of TTL indexes and of clustered collections with an expiry.

use crate::catalog::collection::Collection;
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
            let indexes = collection.data.iter().flat_map(|data| data.indexes.iter());
            for index in indexes.filter(|index| expires_after(collection, &index.spec).is_some()) {
                // Each deletion ends at a change of the collection. The next one uses the new specification.
                let ended = loop {
                    match self.delete_expired(&collection.namespace, &index.spec.name) {
                        Ok((count, is_complete)) => {
                            deleted += count;
                            if is_complete {
                                break Ok(());
                            }
                        }
                        Err(error) => break Err(error),
                    }
                };
                if let Err(error) = ended {
                    log::warn!("TTL pass over {} failed: {error}", collection.namespace);
                }
            }
        }
        self.counters.ttl_deleted.fetch_add(deleted, Relaxed);
        deleted
    }

    /// Deletes the expired documents of an index. Returns their number, and false if the collection has changed
    /// meanwhile.
    fn delete_expired(self: &Arc<Self>, namespace: &Namespace, index: &str) -> Result<(u64, bool)> {
        let operation = Arc::new(self.operation(0));
        let context = Arc::new(Context::new(self.now_millis(), 1, operation.clone()));
        let scope = Scope::new(&operation, namespace, &context);
        self.by_latest_catalog(|| {
            let view = self.view();
            let Some(collection) = view.catalog.get(namespace) else { return Ok((0, true)) };
            let index = collection.data.as_ref().and_then(|data| data.index(index));
            match index.map(|index| self.expired(collection, &index.spec, &context)).transpose()?.flatten() {
                Some(request) => self.delete_until_changed(&scope, &request, &view, collection),
                None => Ok((0, true)),
            }
        })
    }

    /// Returns the request that deletes the expired documents of an index; `None` if its documents do not expire.
    fn expired(
        &self,
        collection: &Collection,
        index: &IndexSpec,
        context: &Context,
    ) -> Result<Option<DeleteRequest>> {
        // A text index has two parts and never expires documents.
        let (Some(seconds), [part]) = (expires_after(collection, index), &*index.parts) else {
            return Ok(None);
        };
        let seconds = if mutant!("documents expire early") { seconds / 2.0 } else { seconds };
        let before = self.now_millis().saturating_sub((seconds * 1000.0) as i64);
        let mut filter = Builder::new();
        // A comparison with a date matches only dates, so other values never expire.
        let path = FieldName::new(part.path.as_str())?;
        filter.begin_document(path).append(c"$lte", Value::DateTime(before)).end();
        // An update may take a document out of a partial index between its entry and its deletion.
        if let Some(partial) = &index.partial {
            filter.begin_array(c"$and").push(partial.filter.view()).end();
        }
        let context = context.with_collation(index.collation.clone());
        Ok(Some(DeleteRequest {
            matcher: Arc::new(Matcher::parse(filter.finish().view(), &context)?),
            single: false,
            hint: Some(Hint::Internal(index.name.to_string())),
        }))
    }
}

/// Returns the age in seconds at which the documents of an index expire.
fn expires_after(collection: &Collection, index: &IndexSpec) -> Option<f64> {
    let clustered_after = collection.options.expire_after_seconds.filter(|_| index.clustered);
    index.expire_after_seconds.or(clustered_after.map(|seconds| seconds as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;
    use crate::{CollectionChange, IndexChange, Operation};
    use base::bson::extended_json::parse;
    use query::Update;

    impl Fixture {
        /// Adds an index of which all documents have expired.
        fn expire(&self, documents: u32) {
            self.index("{key: {t: 1}, name: 't', expireAfterSeconds: 5}");
            (1..=documents).for_each(|id| self.insert(&format!("{{_id: {id}, t: {{$date: 0}}}}")));
        }

        fn raise_age(&self) {
            let index = IndexChange {
                index: Value::String("t"),
                expire_after_seconds: Some(2e9),
                hidden: None,
                prepare_unique: None,
                unique: false,
                force_non_unique: false,
                dry_run: false,
            };
            let change = CollectionChange { index: Some(index), ..CollectionChange::default() };
            self.database.modify_collection(&self.scope, &change, &mut Default::default()).unwrap();
        }
    }

    #[test]
    fn a_hidden_index_expires_documents() {
        let fixture = Fixture::new();
        fixture.index("{key: {t: 1}, name: 't', expireAfterSeconds: 5, hidden: true}");
        fixture.insert("{_id: 1, t: {$date: 1600000000000}}");
        fixture.insert("{_id: 2, t: {$date: 1800000000000}}");
        assert_eq!((fixture.database.sweep_ttl(), fixture.database.sweep_ttl()), (1, 0));
    }

    #[test]
    fn a_deletion_ends_at_a_change_of_its_collection() {
        for documents in [1, 2] {
            let fixture = Fixture::new();
            let Fixture { database, scope } = &fixture;
            fixture.expire(documents);
            let view = database.view();
            let collection = view.catalog.get(&scope.namespace).unwrap();
            let index = collection.data().unwrap().index("t").unwrap();
            let request = database.expired(collection, &index.spec, &scope.context).unwrap().unwrap();
            fixture.raise_age();
            let deleted = database.delete_until_changed(scope, &request, &view, collection).unwrap();
            assert_eq!((deleted, database.sweep_ttl()), ((0, false), 0));
            assert_eq!(fixture.records(), Some(i64::from(documents)));
        }
    }

    #[test]
    fn a_pass_follows_changes_of_indexes_that_it_has_not_reached() {
        let first = Fixture::new();
        let [locked, raised, dropped] = ["d.d", "d.e", "d.f"].map(|name| first.named(name));
        [&first, &locked, &raised, &dropped].iter().for_each(|fixture| fixture.expire(2));
        let database = &first.database;
        let operation = Arc::new(Operation::new(2));
        let transaction = database.begin_transaction(None, None).unwrap();
        operation.set_transaction(transaction.clone());
        let Scope { namespace, context, .. } = &locked.scope;
        let update = parse("{$set: {n: 1}}").unwrap();
        let request = crate::UpdateRequest {
            matcher: Arc::new(Matcher::every(context)),
            update: Update::parse(Value::Document(update.view()), &[], context).unwrap().into(),
            multi: false,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        database.update(&Scope::new(&operation, namespace, context), &request).unwrap();
        let deleted = std::thread::scope(|scope| {
            let pass = scope.spawn(|| database.sweep_ttl());
            // The pass has begun, and waits for the transaction.
            while first.records() > Some(0) {
                std::thread::yield_now();
            }
            raised.raise_age();
            database.drop_indexes(&Operation::new(0), &dropped.scope.namespace, None).unwrap();
            dropped.index("{key: {t: 1}, name: 't'}");
            database.abort_transaction(&transaction);
            pass.join().unwrap()
        });
        assert_eq!(deleted, 4);
        assert_eq!([&first, &locked, &raised, &dropped].map(Fixture::records), [0, 0, 2, 2].map(Some));
    }
}
