//! Conversion of an existing index to a unique index, which collMod does in two steps.
//!
//! First, `prepareUnique` refuses writes that add duplicates but keeps existing duplicates. Then
//! `unique` converts the index if no duplicates remain, or lists them. Unique indexes have another
//! entry format, so the conversion rebuilds the index.

use super::build::{BuildState, IndexBuild, shared_keys};
use crate::catalog::collection::Collection;
use crate::database::Database;
use crate::index::{Index, IndexSpec};
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Document};
use base::{Error, Namespace, Result, bail, err};
use query::Context;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;

/// Most bytes of ids in an error: half the maximum size of a document.
const VIOLATIONS_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Database {
    /// Converts an index to a unique index, or only checks that it is possible. An index that is
    /// already unique needs no commit.
    ///
    /// Errors: CannotConvertIndexToUnique with the ids of documents that share a key;
    /// InvalidOptions without `prepareUnique`; IndexNotFound; interruption of the operation.
    pub fn convert_to_unique(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        name: &str,
        dry_run: bool,
        context: &Context,
    ) -> Result<Option<Committed>> {
        let mut old = None;
        let registered = self.change_catalog(operation, |change| {
            let mut changed = Collection::clone(change.catalog().require(namespace)?);
            let Some(data) = &mut changed.data else {
                bail!(InvalidOptions, "option not supported on a view: index");
            };
            let prepared = data.index(name).cloned();
            let prepared =
                prepared.ok_or_else(|| err!(IndexNotFound, "cannot find index {name} for ns {namespace}"))?;
            if prepared.unique() {
                return Ok(None);
            }
            if !prepared.spec.prepare_unique {
                bail!(
                    InvalidOptions,
                    "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first."
                );
            }
            let mut spec = IndexSpec::clone(&prepared.spec);
            spec.set_unique();
            let bits = prepared.multikey_bits();
            let index = Index::new(spec, change.create_ident(), &bits, prepared.since_millis);
            index.uses.store(prepared.uses.load(Relaxed), Relaxed);
            let uuid = changed.uuid;
            let builds = vec![change.register_build(data, index)];
            old = Some(prepared);
            change.put_collection(changed)?;
            Ok(Some((builds, uuid)))
        })?;
        let (Some(((builds, uuid), _)), Some(old)) = (registered, old) else { return Ok(None) };
        // The check of the documents and the build would begin again.
        operation.hold_thread();
        let state = BuildState::new(namespace.clone(), uuid, builds);
        let mut build = IndexBuild { database: self, operation, context, state };
        if let Err(error) = operation.run_long(|| self.check_violations(namespace, &build)) {
            build.abort();
            return Err(error);
        }
        if dry_run {
            build.abort();
            return Ok(None);
        }
        let committed = build.run(&mut |change, collection, builds| {
            let slot = collection.data.iter_mut().flat_map(|data| &mut data.indexes);
            let slot = slot.into_iter().find(|index| index.ident == old.ident);
            let (Some(slot), Some(built)) = (slot, builds.first()) else {
                bail!(IndexNotFound, "cannot find index {name} for ns {namespace}");
            };
            *slot = built.index.clone();
            change.drop_ident(old.ident);
            Ok(())
        })?;
        Ok(Some(committed))
    }

    /// Errors: CannotConvertIndexToUnique if documents share a key.
    fn check_violations(&self, namespace: &Namespace, build: &IndexBuild<'_>) -> Result<()> {
        let mut violations = Builder::new();
        violations.begin_array(c"violations");
        let (mut any, mut bytes) = (false, 0);
        let view = self.confirmed_view();
        let Some(data) = view.catalog.get(namespace).and_then(|now| now.data.as_ref()) else {
            return Ok(());
        };
        let Some(mut sorted) = build.sort()?.pop() else { return Ok(()) };
        shared_keys(&mut sorted, &mut |records| {
            any = true;
            violations.push_document().begin_array(c"ids");
            for record in records {
                let stored = view.snapshot.get(data.ident, &record.key()).map_err(storage_error)?;
                let Some(stored) = stored else { continue };
                let Some(id) = Document::from_valid(&stored).get("_id") else { continue };
                bytes += id.to_owned().view().to_string().len();
                violations.push(id);
                if bytes > VIOLATIONS_BYTES_MAX {
                    break;
                }
            }
            violations.end().end();
            Ok(bytes <= VIOLATIONS_BYTES_MAX)
        })?;
        violations.end();
        if any { Err(cannot_convert(violations)) } else { Ok(()) }
    }
}

fn cannot_convert(violations: Builder) -> Error {
    err!(
        CannotConvertIndexToUnique,
        "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again."
    )
    .with_info(violations.finish())
}
