//! The catalog's entries: collections as documents in the store.

use crate::collection::{Collection, Data};
use crate::index::{Index, IndexSpec};
use crate::options;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use storage::Ident;

/// The catalog entry of a collection: what is kept in the engine to open it again.
pub(crate) fn entry(collection: &Collection) -> DocumentBuf {
    entry_with(collection, &[])
}

/// The same with what indexes are about to learn of their documents' arrays.
pub(crate) fn entry_with(collection: &Collection, learnt: &[(Arc<Index>, Vec<u32>)]) -> DocumentBuf {
    // Room for a few indexes, so that the buffer seldom moves.
    let mut out = Builder::with_buffer(Vec::with_capacity(512));
    out.append(c"ns", collection.namespace.as_str());
    out.append(c"uuid", Value::Binary { subtype: 4, bytes: &collection.uuid });
    out.append(c"options", &collection.options.to_document());
    out.append(c"generation", collection.generation as i64);
    if let Some(data) = &collection.data {
        out.append(c"ident", data.ident.0 as i64).begin_array(c"indexes");
        for index in &data.indexes {
            out.push_document().begin_document(c"spec");
            index.spec.append_to(&mut out);
            out.end().append(c"ident", index.ident.0 as i64).append(c"since", index.since_millis);
            append_multikey(index, learnt, &mut out);
            out.end();
        }
        out.end();
        // For others who share the store; dropped by whoever opens the database after a crash.
        if !data.building.is_empty() {
            out.begin_array(c"building");
            for building in &data.building {
                let index = &building.index;
                out.push_document().begin_document(c"spec");
                index.spec.append_to(&mut out);
                out.end().append(c"ident", index.ident.0 as i64).append(c"since", index.since_millis);
                append_multikey(index, learnt, &mut out);
                out.end();
            }
            out.end();
        }
    }
    out.finish()
}

/// Appends what is known of arrays on an index's paths, and what is about to be learnt.
fn append_multikey(index: &Arc<Index>, learnt: &[(Arc<Index>, Vec<u32>)], out: &mut Builder) {
    out.begin_array(c"multikey");
    let learnt = learnt.iter().find(|(known, _)| Arc::ptr_eq(known, index)).map(|(_, bits)| bits);
    for (part, bits) in index.multikey_bits().into_iter().enumerate() {
        let more = learnt.and_then(|learnt| learnt.get(part)).copied().unwrap_or(0);
        out.push((bits | more) as i32);
    }
    out.end();
}

/// Reads a catalog entry back. The counts are left at zero for the caller to fill in.
///
/// Errors: DataCorruptionDetected, and whatever the specifications in it are refused with.
pub(crate) fn from_entry(entry: Document<'_>, context: &Context) -> Result<Collection> {
    let broken = || err!(DataCorruptionDetected, "broken catalog entry: {entry}");
    let namespace = Namespace::parse(entry.get("ns").and_then(|v| v.as_str()).ok_or_else(broken)?)?;
    let Some(Value::Binary { bytes, .. }) = entry.get("uuid") else { return Err(broken()) };
    let options = entry.get("options").and_then(|v| v.as_document()).ok_or_else(broken)?;
    let options = options::parse(options, &namespace, context)?;
    let ident =
        |document: Document<'_>| document.get("ident").and_then(|v| v.as_i64()).map(|n| Ident(n as u64));
    let mut indexes = Vec::new();
    for stored in entry.get("indexes").and_then(|v| v.as_array()).into_iter().flat_map(|array| array.iter()) {
        let stored = stored.as_document().ok_or_else(broken)?;
        let spec = stored.get("spec").and_then(|v| v.as_document()).ok_or_else(broken)?;
        let spec = IndexSpec::parse(spec, &namespace, context)?;
        let bits = stored.get("multikey").and_then(|v| v.as_array()).ok_or_else(broken)?;
        let bits: Vec<u32> = bits.iter().map(|v| v.as_i64().unwrap_or(0) as u32).collect();
        let since = stored.get("since").and_then(|v| v.as_i64()).unwrap_or(0);
        indexes.push(Arc::new(Index::new(spec, ident(stored).ok_or_else(broken)?, &bits, since)));
    }
    let data = match options.view {
        Some(_) => None,
        None => Some(Data {
            ident: ident(entry).ok_or_else(broken)?,
            indexes,
            building: Vec::new(),
            counts: Arc::default(),
            index_filters: Arc::default(),
            kept_plans: Arc::default(),
        }),
    };
    let uuid = bytes.try_into().map_err(|_| broken())?;
    Ok(Collection { namespace, uuid, options, data, generation: stored_generation(entry) })
}

/// The catalog change that made a collection what its entry says.
pub(crate) fn stored_generation(entry: Document<'_>) -> u64 {
    entry.get("generation").and_then(|value| value.as_i64()).unwrap_or(0) as u64
}

/// An index that was being built when an entry was written.
pub(crate) struct StoredBuild<'a> {
    pub(crate) spec: Document<'a>,
    pub(crate) ident: Ident,
    pub(crate) since_millis: i64,
    /// What its writers have told of arrays on its paths.
    pub(crate) multikey: Vec<u32>,
}

/// The indexes that were being built when an entry was written.
pub(crate) fn stored_builds(entry: Document<'_>) -> Vec<StoredBuild<'_>> {
    let building = entry.get("building").and_then(|value| value.as_array());
    let builds = building.into_iter().flat_map(|array| array.iter()).filter_map(|build| {
        let build = build.as_document()?;
        Some(StoredBuild {
            spec: build.get("spec")?.as_document()?,
            ident: Ident(build.get("ident")?.as_i64()? as u64),
            since_millis: build.get("since")?.as_i64()?,
            multikey: multikey_of(build),
        })
    });
    builds.collect()
}

/// What an entry says of arrays on its indexes' paths, in the order of the indexes.
pub(crate) fn stored_multikey(entry: Document<'_>) -> Vec<Vec<u32>> {
    let indexes = entry.get("indexes").and_then(|value| value.as_array());
    let indexes = indexes.into_iter().flat_map(|array| array.iter());
    indexes.map(|index| index.as_document().map(multikey_of).unwrap_or_default()).collect()
}

fn multikey_of(index: Document<'_>) -> Vec<u32> {
    let bits = index.get("multikey").and_then(|bits| bits.as_array());
    let bits = bits.into_iter().flat_map(|array| array.iter());
    bits.map(|bits| bits.as_i64().unwrap_or(0) as u32).collect()
}
