//! Statistics of data and queries, for operators:
//!
//! - `collStats`, `dbStats`, `dataSize`: counts and sizes;
//! - `vellumWorkingSet`: the hit ratio of the cache, and the estimated hit ratio of other cache sizes;
//! - `vellumSlowQueries`: slow operations by query shape, with their plans and suggested indexes;
//! - `strictReport`: the findings of `--strict` since the start.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use base::bson::{Builder, Document, FieldName, Value};
use base::{Namespace, Result, bail};
use database::{MeasuredRange, Reads, Span, time};
use std::path::Path;
use std::sync::Arc;

/// The row of `collStats`.
pub(crate) const COLL_STATS: Row =
    Row::read("collStats", coll_stats, Requirements::Collection(Action::CollStats))
        .help("Returns the sizes of a collection.");

fn coll_stats(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let scale = fields.bounded("scale", 1..=i64::MAX)?.unwrap_or(1);
    fields.finish()?;
    let database = &call.server.database;
    if let Some(collection) = database.collection(&namespace) {
        collection.data()?;
    }
    let statistics = database.collection_statistics(&call.operation(), &namespace)?;
    call.reply.append(c"ns", namespace.as_str());
    statistics.append_to(call.reply, scale);
    Ok(HandlerStatus::Done)
}

/// The largest scale of `dbStats`: a pebibyte.
const SCALE_MAX: i64 = 1 << 50;

/// The row of `dbStats`.
pub(crate) const DB_STATS: Row = Row::read("dbStats", db_stats, Requirements::Database(Action::DbStats))
    .help("Returns the sizes of a database.");

fn db_stats(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let scale = fields.bounded("scale", 1..=SCALE_MAX)?.unwrap_or(1);
    let free_storage = fields.flag("freeStorage")?.unwrap_or(false);
    fields.finish()?;
    let database = &call.server.database;
    let (catalog, operation) = (database.catalog(), call.operation());
    let (mut collections, mut views, mut objects, mut indexes) = (0i64, 0i64, 0i64, 0i64);
    let (mut size_of_data, mut storage_size, mut index_size) = (0i64, 0i64, 0i64);
    for collection in catalog.collections(call.request.database) {
        if collection.is_view() {
            views += 1;
            continue;
        }
        let statistics = database.statistics_of(&operation, collection)?;
        collections += 1;
        objects += statistics.count;
        // The index of a clustered collection is the collection itself.
        indexes += statistics.index_sizes.len() as i64 - i64::from(collection.options.clustered.is_some());
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
pub(crate) const DATA_SIZE: Row =
    Row::read("dataSize", data_size, Requirements::By(requirements::find_in_named))
        .without_collection()
        .help("Returns the size of a collection's documents.");

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
    if let Some(collection) = call.server.database.collection(&namespace) {
        collection.data()?;
    }
    let (size, count) = match bounds {
        // The counts are exact, so they also serve as the estimate.
        [None, None] => {
            let statistics = call.server.database.collection_statistics(&call.operation(), &namespace)?;
            (statistics.size, statistics.count)
        }
        [Some(min), Some(max)] => {
            let operation = call.operation();
            let context = Arc::new(call.context(&operation));
            let range = MeasuredRange { key, min, max };
            call.server.database.measure_range(&operation, &namespace, &range, &context)?
        }
        _ => bail!(BadValue, "only one of min or max specified"),
    };
    call.reply.append(c"estimate", estimate).append(c"size", size).append(c"numObjects", count);
    call.reply.append(c"millis", i32::try_from(time::since(began).as_millis()).unwrap_or(i32::MAX));
    Ok(HandlerStatus::Done)
}

/// Points of a curve closer together than this share of reads are omitted.
const CLOSE: f64 = 0.002;

/// The row of `vellumWorkingSet`.
pub(crate) const WORKING_SET: Row =
    Row::admin("vellumWorkingSet", working_set, Requirements::Cluster(Action::ServerStatus))
        .help("Estimates the cache hit ratio of other cache sizes, by collection and index.")
        .admin_only();

fn working_set(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let database = &call.server.database;
    let engine = call.server.settings.engine;
    let reply = &mut *call.reply;
    reply.append(c"engine", engine);
    let Some(sets) = database.working_sets() else {
        let why = match engine {
            "memory" => "all data is in memory: the cache size has no effect",
            _ => "the store has no cache in this server",
        };
        reply.append(c"bounded", false).append(c"reason", why);
        return Ok(HandlerStatus::Done);
    };
    let totals = &sets.totals;
    reply.append(c"bounded", true).append(c"cacheBytes", totals.cache_bytes as i64);
    reply.append(c"sampledOneIn", totals.sampled as i64);
    reply.append(c"hourSeconds", totals.hour_seconds as i64).append(c"seconds", totals.seconds as i64);
    append(reply, &totals.all);
    reply.begin_array(c"collections");
    for (namespace, index, reads) in &sets.named {
        reply.push_document().append(c"ns", namespace.as_str());
        reply.append_optional(c"index", index.as_deref());
        append(reply, reads);
        reply.end();
    }
    reply.end();
    reply.begin_document(c"others");
    append(reply, &totals.others);
    reply.end();
    Ok(HandlerStatus::Done)
}

fn append(out: &mut Builder, reads: &Reads) {
    for (name, span) in [("hour", &reads.hour), ("start", &reads.start)] {
        out.begin_document(FieldName::literal(name));
        append_span(out, span);
        out.end();
    }
}

fn append_span(out: &mut Builder, span: &Span) {
    out.append(c"reads", span.reads as i64).append(c"misses", span.misses as i64);
    out.append_optional(c"hitRate", span.hit_rate());
    out.append_optional(c"enoughBytes", span.curve.enough().map(|bytes| bytes as i64));
    out.begin_array(c"curve");
    let points = span.curve.points();
    let mut shown = 0.0;
    for (at, (bytes, rate)) in points.iter().enumerate() {
        // The point before a rise is as important as the point after it.
        let rises = points.get(at + 1).is_none_or(|(_, next)| next - rate >= CLOSE);
        if rises || rate - shown >= CLOSE {
            shown = *rate;
            out.push_document().append(c"bytes", *bytes as i64).append(c"hitRate", *rate).end();
        }
    }
    out.end();
}

/// The row of `vellumSlowQueries`.
pub(crate) const SLOW_QUERIES: Row =
    Row::admin("vellumSlowQueries", slow_queries, Requirements::Cluster(Action::Inprog))
        .help("Shows slow operations by query shape, with suggested indexes.")
        .admin_only();

fn slow_queries(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let profiler = &call.server.profiler;
    call.reply.append(c"slowms", profiler.slow.threshold());
    profiler.shapes.append_to(call.reply, &call.server.database);
    Ok(HandlerStatus::Done)
}

/// The row of `strictReport`.
pub(crate) const STRICT_REPORT: Row =
    Row::admin("strictReport", report, Requirements::Cluster(Action::VellumStrictReport))
        .help("Shows collection scans, in-memory sorts, unused and duplicate indexes.")
        .admin_only();

fn report(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let reset = fields.flag("reset")?.unwrap_or(false);
    fields.finish()?;
    if !call.server.settings.strict {
        bail!(CommandNotSupported, "strictReport needs a server started with --strict");
    }
    let database = &call.server.database;
    database.strict_report().append_to(call.reply);
    if reset {
        database.clear_reads();
    }
    Ok(HandlerStatus::Done)
}
