//! `collStats`, `dbStats` and `dataSize`.

use crate::access::command::Kind;
use crate::access::{Action, Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::{Document, Value};
use base::{Namespace, Result, bail};
use database::MeasuredRange;
use database::time;
use std::path::Path;

/// The row of `collStats`.
pub(crate) const COLL_STATS: Row = Row::new(
    "collStats",
    Kind::Read,
    "Returns the sizes of a collection.",
    coll_stats,
    Requirements::Collection(Action::CollStats),
);

fn coll_stats(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let scale = scale(&mut fields)?;
    fields.finish()?;
    let database = &call.server.database;
    if let Some(collection) = database.collection(&namespace) {
        collection.data()?;
    }
    let statistics = database.collection_statistics(&namespace)?;
    call.reply.append(c"ns", namespace.as_str());
    statistics.append_to(call.reply, scale);
    Ok(HandlerStatus::Done)
}

fn scale(fields: &mut Fields<'_>) -> Result<i64> {
    let scale = fields.integer("scale")?.unwrap_or(1);
    if scale < 1 {
        bail!(BadValue, "BSON field 'scale' value must be >= 1, actual value '{scale}'");
    }
    Ok(scale)
}

/// The row of `dbStats`.
pub(crate) const DB_STATS: Row = Row::new(
    "dbStats",
    Kind::Read,
    "Returns the sizes of a database.",
    db_stats,
    Requirements::Database(Action::DbStats),
);

fn db_stats(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let scale = scale(&mut fields)?;
    let free_storage = fields.flag("freeStorage")?.unwrap_or(false);
    fields.finish()?;
    let database = &call.server.database;
    let catalog = database.catalog();
    let (mut collections, mut views, mut objects, mut indexes) = (0i64, 0i64, 0i64, 0i64);
    let (mut size_of_data, mut storage_size, mut index_size) = (0i64, 0i64, 0i64);
    for collection in catalog.collections(call.request.database) {
        if collection.is_view() {
            views += 1;
            continue;
        }
        let statistics = database.statistics_of(collection)?;
        collections += 1;
        objects += statistics.count;
        indexes += statistics.index_sizes.len() as i64;
        size_of_data += statistics.size;
        storage_size += statistics.storage_size;
        index_size += statistics.total_index_size();
    }
    let sized = |size: i64| size as f64 / scale as f64;
    call.reply.append(c"db", call.request.database);
    call.reply.append(c"collections", collections).append(c"views", views).append(c"objects", objects);
    call.reply.append(c"avgObjSize", if objects == 0 { 0.0 } else { size_of_data as f64 / objects as f64 });
    call.reply.append(c"dataSize", sized(size_of_data)).append(c"storageSize", sized(storage_size));
    if free_storage {
        // Trees release unused pages when they shrink.
        call.reply.append(c"freeStorageSize", 0.0);
    }
    call.reply.append(c"indexes", indexes).append(c"indexSize", sized(index_size));
    if free_storage {
        call.reply.append(c"indexFreeStorageSize", 0.0);
    }
    call.reply.append(c"totalSize", sized(storage_size + index_size)).append(c"scaleFactor", scale);
    if free_storage {
        call.reply.append(c"totalFreeStorageSize", 0.0);
    }
    // The disks of a shared store are unknown.
    let disk = if call.server.settings.shared { None } else { disk_bytes(&database.directory()) };
    call.reply.append_optional(c"fsUsedSize", disk.map(|(used, _)| sized(used)));
    call.reply.append_optional(c"fsTotalSize", disk.map(|(_, all)| sized(all)));
    Ok(HandlerStatus::Done)
}

/// Returns used and total bytes of the file system with this directory.
#[cfg(unix)]
fn disk_bytes(directory: &Path) -> Option<(i64, i64)> {
    // The directory exists only after the first write. Its parent is on the same disk.
    let found = directory.ancestors().find_map(|directory| nix::sys::statvfs::statvfs(directory).ok())?;
    let block = i64::try_from(found.fragment_size()).unwrap_or(i64::MAX);
    // The width of these numbers differs between systems.
    let bytes = |blocks| i64::try_from(blocks).unwrap_or(i64::MAX).saturating_mul(block);
    let (all, free) = (bytes(found.blocks()), bytes(found.blocks_free()));
    Some((all - free, all))
}

#[cfg(not(unix))]
fn disk_bytes(_: &Path) -> Option<(i64, i64)> {
    None
}

/// The row of `dataSize`.
pub(crate) const DATA_SIZE: Row = Row::new(
    "dataSize",
    Kind::Read,
    "Returns the size of a collection's documents.",
    data_size,
    Requirements::By(requirements::find_in_named),
);

fn data_size(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = match fields.command_value() {
        Value::String(name) => Namespace::parse(name)?,
        other => {
            return Err(fields.wrong_type("dataSize", other.kind(), "string"));
        }
    };
    let estimate = fields.flag("estimate")?.unwrap_or(false);
    let key = fields.document("keyPattern")?.unwrap_or(Document::EMPTY);
    let bounds = [fields.document("min")?, fields.document("max")?];
    for part in ["maxSize", "maxObjects"] {
        fields.refuse_unless_default(part)?;
    }
    fields.finish()?;
    let began = time::now();
    let (size, count) = match bounds {
        // The counts are exact, so they also serve as the estimate.
        [None, None] => {
            let statistics = call.server.database.collection_statistics(&namespace)?;
            (statistics.size, statistics.count)
        }
        [Some(min), Some(max)] => {
            let (operation, context) = call.surroundings();
            let range = MeasuredRange { key, min, max };
            call.server.database.measure_range(&operation, &namespace, &range, &context)?
        }
        _ => bail!(BadValue, "only one of min or max specified"),
    };
    call.reply.append(c"estimate", estimate).append(c"size", size).append(c"numObjects", count);
    call.reply.append(c"millis", i32::try_from(time::since(began).as_millis()).unwrap_or(i32::MAX));
    Ok(HandlerStatus::Done)
}
