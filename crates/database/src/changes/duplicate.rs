//! The error of a duplicate key, whose text and details clients read.

use crate::index::{Index, KeyOf};
use base::bson::{Builder, DocumentBuf, Value, ValueBuf};
use base::key_string::{Decoder, KeyBuilder};
use base::{Error, Namespace, Result, err};
use query::Collation;

/// E11000 with keyPattern and keyValue.
pub(crate) fn duplicate_key(namespace: &Namespace, index: &Index, key: &KeyOf) -> Error {
    let value = key_value(index, key);
    // MongoDB 8.2 fails with these codes while it describes the key of a clustered collection.
    let number = value.view().first().and_then(|field| field.value().as_number());
    match number.map(|number| number.to_f64()).filter(|_| index.spec.clustered) {
        Some(number) if number.is_nan() => return err!(50819, "_id is not a number in {namespace}"),
        Some(number) if number.is_infinite() => return err!(50826, "_id is infinite in {namespace}"),
        _ => {}
    }
    let mut info = Builder::new();
    info.append(c"keyPattern", &index.spec.key).append(c"keyValue", &value);
    info.append_optional(c"collation", index.spec.collation.document());
    let collation = match index.spec.collation.document() {
        Some(collation) => format!(" collation: {collation}"),
        None => String::new(),
    };
    err!(
        DuplicateKey,
        "E11000 duplicate key error collection: {namespace} index: {}{collation} dup key: {}",
        index.spec.name,
        value
    )
    .with_info(info.finish())
}

/// A value as the key of an index with this collation shows it.
pub(crate) fn shown(value: Value<'_>, collation: &Collation) -> Result<ValueBuf> {
    let mut builder = KeyBuilder::new();
    collation.push_key(&mut builder, value, true);
    let decoder = Decoder::new(builder.key(), builder.type_bits());
    let mut decoder = if collation.is_simple() { decoder } else { decoder.collated() };
    decoder.next(true)
}

/// The indexed values under the names of the key pattern; of strings under a collation only the
/// bytes they are ordered by are known.
fn key_value(index: &Index, key: &KeyOf) -> DocumentBuf {
    let mut out = Builder::new();
    let values = index.spec.decode(&key.key_string, &key.type_bits).unwrap_or_default();
    for (part, value) in index.spec.parts.iter().zip(&values) {
        out.append(&part.path, value);
    }
    out.finish()
}
