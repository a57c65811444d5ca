//! The document of the feature compatibility version. Clients may write it, but it stays valid.

use crate::catalog::collection::Collection;
use base::bson::{Document, Value};
use base::{Error, Namespace, Result, err};
use query::Context;

/// `_id` of the document.
const ID: &str = "featureCompatibilityVersion";

/// Whether the collection may contain the document.
pub(super) fn is_stored_in(namespace: &Namespace) -> bool {
    namespace.as_str() == "admin.system.version"
}

/// Checks the document before a delete. Errors: 40670 for the version.
pub(super) fn check_delete(collection: &Collection, document: Document<'_>) -> Result<()> {
    match is_version(collection, document) {
        true => Err(err!(40670, "removing FeatureCompatibilityVersion document is not allowed")),
        false => Ok(()),
    }
}

/// Checks the document after an insert or an update.
///
/// Errors, for the version: 40414, 40415 and TypeMismatch for its fields; 4926900 for an unknown version.
pub(super) fn check_write(collection: &Collection, document: Document<'_>, context: &Context) -> Result<()> {
    if !is_version(collection, document) {
        return Ok(());
    }
    check(document, context).map_err(|error| {
        let namespace = &collection.namespace;
        error.context(&format!("Invalid {ID} document in {namespace}: {document}"))
    })
}

fn is_version(collection: &Collection, document: Document<'_>) -> bool {
    is_stored_in(&collection.namespace) && document.get("_id").is_some_and(|id| id.as_str() == Some(ID))
}

fn check(document: Document<'_>, context: &Context) -> Result<()> {
    let path = |name: &str| format!("FeatureCompatibilityVersionParser.{name}");
    let mut version = None;
    for field in document {
        match (field.name(), field.value()) {
            ("_id", _) => {}
            ("version", Value::String(given)) => version = Some(given),
            ("version", other) => return Err(Error::wrong_type(path("version"), other.kind(), "string")),
            (other, _) => return Err(Error::unknown_field(path(other))),
        }
    }
    let version = version.ok_or_else(|| Error::missing_field(path("version")))?;
    context.compatible_with.check_feature_version(version)
}
