//! Making an existing index unique, as collMod does in two steps.
//!
//! First `prepareUnique` keeps writes from adding duplicates, while those there are may stand; then
//! `unique` converts the index if none are left, or lists them. Entries of unique indexes are stored
//! in another form, so that converting builds the index anew.

use crate::collection::{Collection, Data};
use crate::commit::{Committed, Transaction};
use crate::database::Database;
use crate::index::{Index, IndexSpec, KeyOf};
use crate::keys::RecordId;
use base::bson::{Builder, Document};
use base::{Error, Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How many bytes of ids an error lists at most: half of the greatest document.
const VIOLATIONS_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Database {
    /// Converts an index into a unique one, or only says whether that can be. Nothing is committed
    /// where the index is unique already.
    ///
    /// Errors: CannotConvertIndexToUnique, with the ids of the documents that share a key;
    /// InvalidOptions unless the index has been prepared; IndexNotFound; what interrupts it.
    pub fn convert_to_unique(
        &self,
        namespace: &Namespace,
        name: &str,
        dry_run: bool,
        context: &Context,
    ) -> Result<Option<Committed>> {
        let mut transaction = self.begin();
        let mut changed = Collection::clone(transaction.catalog().require(namespace)?);
        let Some(data) = &mut changed.data else {
            return Err(err!(InvalidOptions, "option not supported on a view: index"));
        };
        let index = data.indexes.iter().position(|index| index.spec.name == name);
        let place =
            index.ok_or_else(|| err!(IndexNotFound, "cannot find index {name} for ns {namespace}"))?;
        let Some(old) = data.indexes.get(place).filter(|index| !index.unique()).cloned() else {
            return Ok(None);
        };
        if !old.spec.prepare_unique {
            return Err(err!(
                InvalidOptions,
                "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first."
            ));
        }
        let entries = transaction.index_entries(data, &old, context)?;
        transaction.check_violations(data, &entries)?;
        if dry_run {
            return Ok(None);
        }
        let mut spec = IndexSpec::clone(&old.spec);
        spec.set_unique();
        let index = Index::new(spec, transaction.create_ident(), &old.multikey_bits(), old.since_millis);
        index.uses.store(old.uses.load(Relaxed), Relaxed);
        transaction.fill_index(&index, &entries);
        transaction.drop_ident(old.ident);
        if let Some(place) = data.indexes.get_mut(place) {
            *place = Arc::new(index);
        }
        transaction.put_collection(Arc::new(changed))?;
        transaction.commit().map(Some)
    }
}

impl Transaction<'_> {
    /// Errors: CannotConvertIndexToUnique where documents share a key; the entries are sorted.
    fn check_violations(&self, data: &Data, entries: &[(KeyOf, RecordId)]) -> Result<()> {
        let mut violations = Builder::new();
        violations.begin_array("violations");
        let (mut found, mut bytes) = (false, 0);
        for group in entries.chunk_by(|a, b| a.0.key_string == b.0.key_string) {
            let mut records: Vec<RecordId> = group.iter().map(|(_, record)| *record).collect();
            records.sort_unstable();
            records.dedup();
            if records.len() < 2 {
                continue;
            }
            found = true;
            violations.push_document().begin_array("ids");
            for record in records {
                let Some(stored) = self.record(data, record)? else { continue };
                let Some(id) = Document::from_valid(&stored).get("_id") else { continue };
                bytes += id.to_owned().view().to_string().len();
                violations.push(id);
                if bytes > VIOLATIONS_BYTES_MAX {
                    break;
                }
            }
            violations.end().end();
            if bytes > VIOLATIONS_BYTES_MAX {
                break;
            }
        }
        violations.end();
        if found { Err(cannot_convert(violations)) } else { Ok(()) }
    }
}

fn cannot_convert(violations: Builder) -> Error {
    err!(
        CannotConvertIndexToUnique,
        "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again."
    )
    .with_info(violations.finish())
}
