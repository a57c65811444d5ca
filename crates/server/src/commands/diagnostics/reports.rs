//! Reports about queries and the cache, for operators:
//!
//! - `vellumWorkingSet`: the hit ratio of the cache, and the estimated hit ratio of other cache sizes;
//! - `vellumSlowQueries`: slow operations by query shape, with their plans and suggested indexes;
//! - `strictReport`: the findings of `--strict` since the start.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::bson::{Builder, FieldName};
use base::{Result, bail};
use database::{Reads, Span};

/// Points of a curve closer together than this share of reads are omitted.
const CLOSE: f64 = 0.002;

/// The row of `vellumWorkingSet`.
pub(crate) const WORKING_SET: Row = Row::new(
    "vellumWorkingSet",
    Kind::Admin,
    "Estimates the cache hit ratio of other cache sizes, by collection and index.",
    working_set,
    Requirements::Cluster(Action::ServerStatus),
)
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
pub(crate) const SLOW_QUERIES: Row = Row::new(
    "vellumSlowQueries",
    Kind::Admin,
    "Shows slow operations by query shape, with suggested indexes.",
    slow_queries,
    Requirements::Cluster(Action::Inprog),
)
.admin_only();

fn slow_queries(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let profiler = &call.server.profiler;
    call.reply.append(c"slowms", profiler.slow.threshold());
    profiler.shapes.append_to(call.reply, &call.server.database);
    Ok(HandlerStatus::Done)
}

/// The row of `strictReport`.
pub(crate) const STRICT_REPORT: Row = Row::new(
    "strictReport",
    Kind::Admin,
    "Shows collection scans, in-memory sorts, unused and duplicate indexes.",
    report,
    Requirements::Cluster(Action::VellumStrictReport),
)
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
