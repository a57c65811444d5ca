//! `2d`: a key has the hash of a pair, and for each other field its value. Several values of a field form an array. A
//! document has a key for each of its pairs.

use super::{elements, hash, number};
use crate::index::keys::push_key;
use crate::index::{DocumentKeys, IndexSpec, KeyKind, KeyPart};
use base::bson::{Builder, Document, Value, ValueBuf, compare};
use base::key_string::KeyBuilder;
use base::{Result, bail, err};
use query::Context;
use query::geo::Position;
use query::geo::hash::Grid;

/// Parses the grid of a key pattern.
///
/// Errors: 16800 and 16801 for key patterns, InvalidOptions for a grid.
pub(super) fn parse(parts: &[KeyPart], options: Document<'_>) -> Result<Grid> {
    if parts.iter().filter(|part| part.kind == KeyKind::Flat).count() > 1 {
        bail!(16800, "can't have 2 geo fields");
    }
    if parts.first().is_none_or(|part| part.kind != KeyKind::Flat) {
        bail!(16801, "2d has to be first in index");
    }
    Grid::new(number(options, "bits"), number(options, "min"), number(options, "max"))
}

/// Adds the keys of a document.
///
/// Errors: 16804 for a value that is no pair, and errors of pairs.
pub(super) fn keys(
    grid: &Grid,
    spec: &IndexSpec,
    document: Document<'_>,
    document_keys: &mut DocumentKeys,
    context: &Context,
) -> Result<()> {
    let Some((geo, others)) = spec.parts.split_first() else { return Ok(()) };
    let mut values: Vec<Value<'_>> = Vec::new();
    let components = geo.path.components();
    let mut bits = elements(document, components, false, &mut |value| values.push(value));
    let mut pairs: Vec<Document<'_>> = Vec::new();
    for value in values {
        let Some(fields) = fields_of(&value).filter(|fields| !fields.is_empty()) else { continue };
        let single = fields.first().is_some_and(|first| first.value().as_number().is_some());
        if single {
            pairs.push(fields);
            continue;
        }
        bits |= 1 << components.len().saturating_sub(1).min(31);
        for element in fields {
            let pair = fields_of(&element.value()).ok_or_else(|| {
                err!(16804, "location object expected, location array not in correct format")
            })?;
            if !pair.is_empty() {
                pairs.push(pair);
            }
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let others: Vec<ValueBuf> = others.iter().map(|part| all_values(document, part)).collect();
    document_keys.multikey = vec![0; spec.parts.len()];
    if let Some(first) = document_keys.multikey.first_mut() {
        *first = bits;
    }
    for pair in pairs {
        let key = grid.key(position(pair, document)?, document)?.to_be_bytes();
        let mut builder = KeyBuilder::new();
        builder.push(hash(&key), true);
        for (part, value) in spec.parts.iter().skip(1).zip(&others) {
            builder.push(value.view(), part.kind != KeyKind::Descending);
        }
        push_key(&mut document_keys.keys, builder.into(), context)?;
    }
    Ok(())
}

/// Returns the elements of a pair, which may be a document or an array.
fn fields_of<'d>(value: &Value<'d>) -> Option<Document<'d>> {
    match value {
        Value::Document(document) => Some(*document),
        Value::Array(array) => Some(array.as_document()),
        _ => None,
    }
}

/// Returns the position of a pair.
///
/// Errors: 13068 for a single number, 13026 for values that are no numbers.
fn position(pair: Document<'_>, document: Document<'_>) -> Result<Position> {
    let mut fields = pair.iter().map(|field| field.value());
    let (Some(x), y) = (fields.next(), fields.next()) else {
        bail!(13067, "geo field is empty :: caused by :: {document}");
    };
    let Some(y) = y else {
        bail!(13068, "geo field only has 1 element :: caused by :: {document}");
    };
    match (x.as_number(), y.as_number()) {
        (Some(x), Some(y)) => Ok(Position { x: x.to_f64(), y: y.to_f64() }),
        _ => Err(err!(
            13026,
            "geo values must be 'legacy coordinate pairs' for 2d indexes :: caused by :: {document}"
        )),
    }
}

/// Returns the value of a field, an array of several values, or null for a missing field.
fn all_values(document: Document<'_>, part: &KeyPart) -> ValueBuf {
    let mut values: Vec<Value<'_>> = Vec::new();
    elements(document, part.path.components(), true, &mut |value| values.push(value));
    values.sort_by(|a, b| compare(*a, *b));
    values.dedup_by(|a, b| compare(*a, *b).is_eq());
    match values.as_slice() {
        [] => ValueBuf::null(),
        [only] => only.to_owned(),
        several => {
            let mut out = Builder::new();
            out.begin_array(c"");
            several.iter().for_each(|value| _ = out.push(*value));
            out.end();
            let holder = out.finish();
            holder.view().first().map_or_else(ValueBuf::null, |array| array.value().to_owned())
        }
    }
}
