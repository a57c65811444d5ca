//! `serverStatus` and `top`: counters of this server.

use crate::access::{Action, Kind, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::diagnostics::server_info::host_name;
use crate::commands::sets::hello;
use crate::commands::table;
use crate::observe::activity::Activities;
use crate::observe::counters::{Collections, Connections, Counters, LOGINS, PROTOCOLS, Process, TryCounter};
use crate::observe::operations::Operations;
use crate::observe::usage::{Class, KINDS, Sum, class};
use crate::process::logging::now_millis;
use crate::process::memory::process_bytes;
use crate::server::Server;
use crate::session::Sessions;
use crate::state::auth::Auth;
use crate::state::settings::Settings;
use crate::state::tls::Tls;
use base::bson::{Builder, FieldName, Value};
use base::{Namespace, Result};
use database::{Database, time, within_report};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::time::Instant;

/// The row of `serverStatus`.
pub(crate) const SERVER_STATUS: Row =
    Row::admin("serverStatus", server_status, Requirements::Cluster(Action::ServerStatus))
        .help("Returns counters and the state of the server.");

/// A section of the reply: its name and the function that appends it.
type Section = (&'static str, fn(&Server, &mut Builder));

/// Sections that a client may include or exclude by name.
const SECTIONS: &[Section] = &[
    ("asserts", |server, out| asserts(&server.counters, out)),
    ("catalogStats", |server, out| catalog_stats(&server.database, out)),
    ("connections", connections),
    ("extra_info", |_, out| extra_info(out)),
    ("globalLock", |server, out| global_lock(server.started, &server.activities, out)),
    ("logicalSessionRecordCache", |server, out| session_cache(&server.sessions, out)),
    ("network", |server, out| network(&server.counters, out)),
    ("opLatencies", |server, out| op_latencies(&server.counters.operations, out)),
    ("opcounters", |server, out| op_counters(&server.counters, out)),
    ("opcountersRepl", |_, out| applied_counters(out)),
    ("queues", |server, out| server.execution.iter().for_each(|execution| execution.append_to(out))),
    ("security", |server, out| security(&server.auth, server.settings.tls.as_deref(), out)),
    ("storageEngine", |server, out| storage_engine(&server.settings, out)),
    ("transactions", |server, out| server.sessions.transactions.append_to(out)),
    ("transportSecurity", |server, out| transport_security(&server.counters, out)),
    ("vellum", vellum),
    ("mem", |_, out| memory(out)),
    ("metrics", |server, out| metrics(&server.counters, &server.database, out)),
];

/// Monitors read it at intervals, also while the store is down.
fn server_status(call: &mut Call<'_>) -> Result<HandlerStatus> {
    within_report(|| append_status(call))
}

fn append_status(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let mut sections = Vec::new();
    for section in SECTIONS {
        let is_shown = fields.any(section.0)?.is_none_or(|value| value.is_truthy());
        if is_shown && (section.0 != "queues" || call.server.execution.is_some()) {
            sections.push(section);
        }
    }
    let shows_set = fields.any("repl")?.is_none_or(|value| value.is_truthy());
    let shows_mirrored = fields.any("mirroredReads")?.is_some();
    let shows_log = fields.any("oplog")?.is_some_and(|value| value.is_truthy());
    // Other names are sections of MongoDB that this server lacks, or unknown names. MongoDB ignores
    // unknown names too.
    drop(fields.rest());
    let (server, reply) = (call.server, &mut *call.reply);
    let uptime = time::since(server.started);
    reply.append(c"host", &format!("{}:{}", host_name(), call.connection.local.port()));
    reply
        .append(c"version", server.settings.compatible_with.version())
        .append(c"process", "vellum")
        .append(c"pid", i64::from(std::process::id()));
    reply.append(c"uptime", uptime.as_secs_f64().floor()).append(c"uptimeMillis", uptime.as_millis() as i64);
    reply
        .append(c"uptimeEstimate", uptime.as_secs() as i64)
        .append(c"localTime", Value::DateTime(now_millis()));
    for (name, append) in sections {
        reply.begin_document(FieldName::literal(name));
        append(server, reply);
        reply.end();
    }
    if shows_set && call.server.set().is_some() {
        call.reply.begin_document(c"repl");
        hello::append_set_status(call);
        call.reply.end();
    }
    let (server, reply) = (call.server, &mut *call.reply);
    if shows_mirrored {
        // A set of one has no member to warm up.
        reply.begin_document(c"mirroredReads").append(c"seen", 0i64).append(c"sent", 0i64).end();
    }
    if shows_log {
        oplog(&server.database, reply);
    }
    Ok(HandlerStatus::Done)
}

/// Appends the window of the oplog, or the reason that it is not known.
fn oplog(database: &Database, reply: &mut Builder) {
    match database.log_window() {
        Ok(None) => {}
        Ok(Some((earliest, latest))) => {
            reply.begin_document(c"oplog").begin_document(c"latestOptime");
            reply.append(c"ts", Value::Timestamp(latest)).append(c"t", 1i64).end();
            reply.append(c"earliestOptime", Value::Timestamp(earliest)).end();
        }
        Err(error) => _ = reply.begin_document(c"oplog").append(c"error", error.message()).end(),
    }
}

/// Counts the collections by kind.
fn catalog_stats(database: &Database, reply: &mut Builder) {
    let counts = Collections::of(database);
    reply.append(c"collections", counts.ordinary).append(c"capped", counts.capped);
    reply.append(c"clustered", counts.clustered).append(c"timeseries", 0).append(c"views", counts.views);
    reply.append(c"internalCollections", counts.internal).append(c"internalViews", 0);
}

/// Appends the kernel's counters of this process, where they exist.
fn extra_info(reply: &mut Builder) {
    reply.append(c"note", "fields vary by platform");
    let process = Process::now();
    reply.append_optional(c"user_time_us", process.user_micros);
    reply.append_optional(c"system_time_us", process.system_micros);
    reply.append_optional(c"page_reclaims", process.reclaims);
    reply.append_optional(c"page_faults", process.faults);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|text| text.strip_prefix("VmHWM:"));
    let kilobytes = resident.and_then(|text| text.split_whitespace().next()?.parse::<i64>().ok());
    reply.append_optional(c"maximum_resident_set_kb", kilobytes);
    reply.append_optional(c"voluntary_context_switches", process.voluntary_switches);
    reply.append_optional(c"involuntary_context_switches", process.involuntary_switches);
}

/// Appends the time of commands by kind: reads, writes, others.
fn op_latencies(operations: &Operations, reply: &mut Builder) {
    let mut sums = [(0i64, 0i64); 3];
    for (command, sum) in table::commands().zip(operations.sums()) {
        let kind = match command.kind {
            _ if matches!(command.name, "aggregate" | "count" | "distinct" | "find" | "getMore") => 0,
            Kind::Write if command.retryable_write => 1,
            _ => 2,
        };
        if let Some((micros, count)) = sums.get_mut(kind) {
            *micros += sum.micros;
            *count += sum.total;
        }
    }
    for (name, (micros, count)) in ["reads", "writes", "commands"].iter().zip(sums) {
        reply.begin_document(FieldName::literal(name)).append(c"latency", micros).append(c"ops", count).end();
    }
}

fn asserts(counters: &Counters, reply: &mut Builder) {
    reply.append(c"regular", counters.panics.get()).append(c"warning", 0).append(c"msg", 0);
    reply.append(c"user", counters.user_asserts.get()).append(c"rollovers", 0);
}

/// Appends the connection counts. `threaded` counts connections with a thread, which is each
/// connection that runs a command.
fn connections(server: &Server, reply: &mut Builder) {
    let counts = Connections::of(&server.activities, server.settings.connections_max);
    reply.append(c"current", counts.open as i32).append(c"available", counts.available as i32);
    reply.append(c"totalCreated", counts.created as i64);
    reply.append(c"rejected", server.counters.connections_rejected.get()).append(c"active", counts.active);
    reply.append(c"threaded", counts.active - counts.awaiting).append(c"exhaustIsMaster", counts.old_streams);
    reply.append(c"exhaustHello", counts.streams).append(c"awaitingTopologyChanges", counts.awaiting);
    reply.append(c"loadBalanced", 0);
}

fn global_lock(started: Instant, activities: &Activities, reply: &mut Builder) {
    let (mut readers, mut writers) = (0, 0);
    for current in activities.all().iter().filter_map(|activity| activity.current()) {
        match class(current.command) {
            Class::Reads => readers += i32::from(!current.is_waiting()),
            Class::Writes => writers += 1,
            Class::Commands => {}
        }
    }
    reply.append(c"totalTime", time::since(started).as_micros() as i64);
    reply
        .begin_document(c"currentQueue")
        .append(c"total", 0)
        .append(c"readers", 0)
        .append(c"writers", 0)
        .end();
    reply
        .begin_document(c"activeClients")
        .append(c"total", readers + writers)
        .append(c"readers", readers)
        .append(c"writers", writers)
        .end();
}

fn session_cache(sessions: &Sessions, reply: &mut Builder) {
    reply.append(c"activeSessionsCount", sessions.len() as i32);
}

fn network(counters: &Counters, reply: &mut Builder) {
    reply.append(c"bytesIn", counters.bytes_in.get()).append(c"bytesOut", counters.bytes_out.get());
    reply.append(c"numRequests", counters.requests.get());
}

fn op_counters(counters: &Counters, reply: &mut Builder) {
    let sums = counters.operations.sums();
    let ran = |name: &str| table::position(name).and_then(|at| sums.get(at)).map_or(0, |sum| sum.total);
    let counted = ["find", "aggregate", "insert", "update", "delete", "getMore"];
    let others = table::commands().map(|command| command.name).filter(|name| !counted.contains(name));
    reply.append(c"insert", counters.inserted.get()).append(c"query", ran("find") + ran("aggregate"));
    reply.append(c"update", counters.updated.get()).append(c"delete", counters.deleted.get());
    reply.append(c"getmore", ran("getMore")).append(c"command", others.map(ran).sum::<i64>());
}

/// Appends zeros: a set of one applies no entries of other members.
fn applied_counters(reply: &mut Builder) {
    for name in ["insert", "query", "update", "delete", "getmore", "command"] {
        reply.append(FieldName::literal(name), 0i64);
    }
}

fn storage_engine(settings: &Settings, reply: &mut Builder) {
    reply.append(c"name", settings.engine).append(c"persistent", !settings.ephemeral);
    reply.append(c"supportsCommittedReads", true).append(c"supportsSnapshotReadConcern", true);
    reply.append(c"readOnly", false);
}

/// Appends the logins by mechanism and the server's certificate. No cluster members log in here.
fn security(auth: &Auth, tls: Option<&Tls>, reply: &mut Builder) {
    reply
        .begin_document(c"authentication")
        .append(c"saslSupportedMechsReceived", auth.logins.mechanisms_asked.get());
    reply.begin_document(c"mechanisms");
    for (name, counter) in LOGINS.iter().zip(&auth.logins.attempts).filter(|(name, _)| auth.takes(name)) {
        reply.begin_document(FieldName::literal(name));
        append_tries(reply, "speculativeAuthenticate", &counter.early);
        append_tries(reply, "clusterAuthenticate", &TryCounter::default());
        append_tries(reply, "authenticate", &counter.all);
        reply.end();
    }
    reply.end().end();
    let Some(tls) = tls else { return };
    let loaded = tls.loaded();
    reply.append(c"SSLServerSubjectName", &loaded.certificate_info.subject);
    reply.append(c"SSLServerHasCertificateAuthority", tls.has_authority());
    reply.append(c"SSLServerCertificateExpirationDate", Value::DateTime(loaded.ends()));
}

fn append_tries(reply: &mut Builder, name: &str, tries: &TryCounter) {
    reply.begin_document(FieldName::trusted(name)).append(c"received", tries.received.get());
    reply.append(c"successful", tries.successful.get()).end();
}

/// Appends the number of connections by TLS version.
fn transport_security(counters: &Counters, reply: &mut Builder) {
    let names = PROTOCOLS.iter().map(|(name, _)| *name).chain(["unknown"]);
    for (name, counter) in names.zip(&counters.protocols) {
        reply.append(FieldName::literal(name), counter.get());
    }
}

/// Appends the memory limit and the operations that it ended.
fn memory_limit(server: &Server, reply: &mut Builder) {
    let ended = &server.memory_limit_stats;
    reply.begin_document(c"memory");
    if let Some(limit) = &server.settings.memory_limit {
        reply.append(c"limitBytes", limit.bytes as i64).append(c"limitFrom", &limit.from);
    }
    reply.append(c"residentBytes", ended.resident.load(Relaxed) as i64);
    reply.append(c"operationLimitBytes", server.parameters.operation_memory() as i64);
    reply.append(c"operationsEnded", ended.operations.get()).append(c"cursorsEnded", ended.cursors.get());
    reply.append(c"connectionsEnded", ended.connections.get());
    reply.append(c"refusesGrowth", server.database.refuses_growth()).end();
}

/// Appends the memory of the process, and the counters of journal and cache since the start.
///
/// The memory engine has neither journal nor cache, and a shared store only syncs. The section has its own name,
/// so that tools do not expect WiredTiger's counters.
fn vellum(server: &Server, reply: &mut Builder) {
    let (counted, settings) = (server.database.engine().statistics(), &server.settings);
    reply.append(c"engine", settings.engine);
    reply.append_optional(c"dataBytes", (!settings.shared).then_some(counted.bytes as i64));
    memory_limit(server, reply);
    if settings.ephemeral {
        return;
    }
    reply.append(c"durability", server.durability());
    if settings.shared {
        members(&server.database, reply);
        reply.begin_document(c"journal").append(c"syncs", counted.syncs as i64).end();
        return;
    }
    reply.begin_document(c"journal");
    reply.append(c"commits", counted.commits as i64).append(c"syncs", counted.syncs as i64);
    reply.append(c"commitsPerSync", counted.commits as f64 / counted.syncs.max(1) as f64);
    reply.begin_document(c"syncMicros").append(c"p50", counted.sync_micros_p50 as i64);
    reply.append(c"p95", counted.sync_micros_p95 as i64).append(c"p99", counted.sync_micros_p99 as i64).end();
    reply.append(c"bytesSinceCheckpoint", counted.journal_bytes as i64);
    reply.append(c"checkpoints", counted.checkpoints as i64);
    if let Some(archive) = counted.archive {
        reply.begin_document(c"archive").append(c"position", archive.position as i64);
        reply.append(c"failures", archive.failures as i64).append(c"failing", archive.failing).end();
    }
    reply.end();
    reply.begin_document(c"cache");
    reply.append(c"bytes", counted.cache_bytes as i64).append(c"hits", counted.cache_hits as i64);
    reply.append(c"misses", counted.cache_misses as i64).append(c"evictions", counted.cache_evictions as i64);
    reply
        .append(c"entryReads", counted.entry_reads as i64)
        .append(c"entryMisses", counted.entry_misses as i64);
    reply.append(c"changedBytes", counted.changed_bytes as i64).end();
    reply.append(c"fileBytes", counted.file_bytes as i64);
}

/// Appends the PostgreSQL servers behind a front, in the form of replSetGetStatus.
fn members(database: &Database, reply: &mut Builder) {
    let members = match database.list_members() {
        Ok(members) => members,
        Err(error) => {
            reply.append(c"membersError", error.message());
            return;
        }
    };
    reply.begin_array(c"members");
    for (number, member) in members.iter().enumerate() {
        let state = if member.is_primary { (1, "PRIMARY") } else { (2, "SECONDARY") };
        reply.push_document().append(c"_id", number as i32).append(c"name", member.name.as_str());
        reply.append(c"health", 1.0).append(c"state", state.0).append(c"stateStr", state.1);
        reply.append(c"replication", member.state.as_str()).append(c"countsAs", member.counts_as.as_str());
        reply.append(c"durableBytes", member.on_disk as i64).append(c"appliedBytes", member.applied as i64);
        if let Some(lag) = member.lag_micros {
            reply.append(c"lagMicros", lag);
        }
        reply.end();
    }
    reply.end();
}

fn memory(reply: &mut Builder) {
    let (virtual_bytes, resident_bytes) = process_bytes().unwrap_or_default();
    let megabytes = |bytes: u64| i32::try_from(bytes >> 20).unwrap_or(i32::MAX);
    reply
        .append(c"bits", 64)
        .append(c"resident", megabytes(resident_bytes))
        .append(c"virtual", megabytes(virtual_bytes))
        .append(c"supported", true);
}

fn metrics(counters: &Counters, database: &Database, reply: &mut Builder) {
    let counted = &database.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
    reply.begin_document(c"changeStreams").append(c"largeEventsFailed", count(&counted.events_too_large));
    reply.append(c"largeEventsSplit", count(&counted.events_split));
    reply.append(c"showExpandedEvents", count(&counted.expanded_streams)).end();
    reply.begin_document(c"commands").append(c"<UNKNOWN>", counters.unknown_commands.get());
    for (command, sum) in table::commands().zip(counters.operations.sums()) {
        let updates = counters.updates_of(command.name);
        reply.begin_document(FieldName::literal(command.name));
        reply.append_optional(c"arrayFilters", updates.map(|updates| updates.array_filters.get()));
        reply.append(c"failed", sum.failed);
        reply.append_optional(c"pipeline", updates.map(|updates| updates.pipeline.get()));
        reply.append(c"total", sum.total).end();
    }
    reply.end();
    let cursors = &database.cursors;
    let (open, without_timeout) = cursors.count();
    reply.begin_document(c"cursor").append(c"timedOut", cursors.timed_out() as i64);
    reply.begin_document(c"open").append(c"noTimeout", without_timeout as i64);
    reply.append(c"pinned", cursors.pinned() as i64).append(c"total", open as i64).end().end();
    reply.begin_document(c"document").append(c"deleted", count(&counted.documents_deleted));
    reply.append(c"inserted", count(&counted.documents_inserted));
    reply
        .append(c"returned", counters.returned.get())
        .append(c"updated", count(&counted.documents_updated))
        .end();
    let (keys, documents, sorts) = database.examined();
    reply.begin_document(c"operation").append(c"scanAndOrder", sorts as i64);
    reply.append(c"writeConflicts", database.write_conflicts() as i64).end();
    reply.begin_document(c"queryExecutor").append(c"scanned", keys as i64);
    reply.append(c"scannedObjects", documents as i64).end();
    reply.begin_document(c"ttl").append(c"deletedDocuments", count(&counted.ttl_deleted));
    reply.append(c"passes", count(&counted.ttl_passes)).end();
}

/// The row of `top`.
pub(crate) const TOP: Row = Row::admin("top", top, Requirements::Cluster(Action::Top))
    .help("Returns the time spent in each collection.")
    .admin_only();

fn top(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    fields.ignore_rest();
    let usage = call.server.activities.usage();
    let catalog = call.server.database.catalog();
    call.reply.begin_document(c"totals").append(c"note", "all times in microseconds");
    for (name, spent) in usage.sorted() {
        // Dropped collections and commands without a collection are omitted.
        if !Namespace::parse(name).is_ok_and(|namespace| catalog.get(&namespace).is_some()) {
            continue;
        }
        call.reply.begin_document(FieldName::trusted(name));
        append_sum(call.reply, "total", spent.total());
        append_sum(call.reply, "readLock", spent.reads);
        append_sum(call.reply, "writeLock", spent.writes);
        for (kind, sum) in KINDS.iter().zip(spent.kinds) {
            append_sum(call.reply, kind, sum);
        }
        call.reply.end();
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

fn append_sum(reply: &mut Builder, name: &str, sum: Sum) {
    reply
        .begin_document(FieldName::trusted(name))
        .append(c"time", sum.micros)
        .append(c"count", sum.count)
        .end();
}
