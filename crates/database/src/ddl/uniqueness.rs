//! The check of a collection before an index becomes unique.

use super::build::{IndexBuild, shared_keys};
use crate::database::Database;
use crate::storage_error;
use base::bson::{Builder, Document};
use base::{Error, Namespace, Result, err};

/// Most bytes of ids in an error: half the maximum size of a document.
const VIOLATIONS_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Database {
    /// Checks that the documents have no common keys in an index that becomes unique.
    ///
    /// Errors: CannotConvertIndexToUnique with the ids of documents that share a key.
    pub(super) fn check_violations(&self, namespace: &Namespace, build: &IndexBuild<'_>) -> Result<()> {
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
