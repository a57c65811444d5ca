//! The error of a duplicate key, whose text and details clients read.

use crate::index::{Index, KeyOf};
use base::bson::{Builder, DocumentBuf};
use base::{Error, Namespace, err};

/// E11000 with keyPattern and keyValue.
pub(crate) fn duplicate_key(namespace: &Namespace, index: &Index, key: &KeyOf) -> Error {
    let value = key_value(index, key);
    let mut info = Builder::new();
    info.append("keyPattern", &index.spec.key).append("keyValue", &value);
    err!(
        DuplicateKey,
        "E11000 duplicate key error collection: {namespace} index: {} dup key: {}",
        index.spec.name,
        value
    )
    .with_info(info.finish())
}

/// The indexed values under the names of the key pattern.
fn key_value(index: &Index, key: &KeyOf) -> DocumentBuf {
    let mut out = Builder::new();
    let values = index.spec.decode(&key.key_string, &key.type_bits).unwrap_or_default();
    for (part, value) in index.spec.parts.iter().zip(&values) {
        out.append(part.path.as_str(), value);
    }
    out.finish()
}
