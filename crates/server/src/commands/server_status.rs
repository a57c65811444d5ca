//! `serverStatus` and `top`: true counters of this server.

use crate::access::{Action, Needs};
use crate::call::{Answer, Call};
use crate::command::{COMMANDS, Command, Kind};
use crate::commands::diagnostics::{VERSION, host_name};
use crate::commands::hello;
use crate::counters::{LOGINS, PROTOCOLS, TryCounter};
use crate::figures::{Collections, Connections, Process};
use crate::heap::process_bytes;
use crate::logging::now_millis;
use crate::server::Server;
use crate::usage::{KINDS, Sum};
use base::bson::{Builder, Value};
use base::{Namespace, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// The row of `serverStatus`.
pub(crate) const SERVER_STATUS: Command = Command::new(
    "serverStatus",
    Kind::Admin,
    "Tells counters and the state of the server.",
    server_status,
    Needs::Cluster(Action::ServerStatus),
);

/// A section of the reply: its name and what appends it.
type Section = (&'static str, fn(&Server, &mut Builder));

/// The sections that a client may switch off, or on, by name.
const SECTIONS: &[Section] = &[
    ("asserts", asserts),
    ("catalogStats", catalog_stats),
    ("connections", connections),
    ("extra_info", extra_info),
    ("globalLock", global_lock),
    ("logicalSessionRecordCache", session_cache),
    ("network", network),
    ("opLatencies", op_latencies),
    ("opcounters", op_counters),
    ("opcountersRepl", applied_counters),
    ("security", security),
    ("storageEngine", storage_engine),
    ("transactions", transactions),
    ("transportSecurity", transport_security),
    ("vellum", vellum),
    ("mem", memory),
    ("metrics", metrics),
];

fn transactions(server: &Server, section: &mut Builder) {
    server.transactions.append_to(section);
}

fn server_status(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    let mut wanted = Vec::new();
    for section in SECTIONS {
        if fields.any(section.0)?.is_none_or(|value| value.is_truthy()) {
            wanted.push(section);
        }
    }
    let shows_set = fields.any("repl")?.is_none_or(|value| value.is_truthy());
    let shows_log = fields.any("oplog")?.is_some_and(|value| value.is_truthy());
    // Whatever else is named is a section of MongoDB's that isn't here, which is left out as
    // MongoDB leaves out those it doesn't know.
    drop(fields.rest());
    let (server, reply) = (call.server, &mut *call.reply);
    let uptime = server.started.elapsed();
    reply.append("host", &format!("{}:{}", host_name(), call.connection.local.port()));
    reply.append("version", VERSION).append("process", "vellum").append("pid", i64::from(std::process::id()));
    reply.append("uptime", uptime.as_secs_f64().floor()).append("uptimeMillis", uptime.as_millis() as i64);
    reply
        .append("uptimeEstimate", uptime.as_secs() as i64)
        .append("localTime", Value::DateTime(now_millis()));
    for (name, append) in wanted {
        reply.begin_document(name);
        append(server, reply);
        reply.end();
    }
    if shows_set && call.server.set().is_some() {
        call.reply.begin_document("repl");
        hello::append_set_status(call);
        call.reply.end();
    }
    let (server, reply) = (call.server, &mut *call.reply);
    if shows_log && let Some((earliest, latest)) = server.database.log_window()? {
        reply.begin_document("oplog").begin_document("latestOptime");
        reply.append("ts", Value::Timestamp(latest)).append("t", 1i64).end();
        reply.append("earliestOptime", Value::Timestamp(earliest)).end();
    }
    Ok(Answer::Done)
}

/// How many collections there are of which kind.
fn catalog_stats(server: &Server, reply: &mut Builder) {
    let found = Collections::of(server);
    reply.append("collections", found.ordinary).append("capped", found.capped);
    reply.append("clustered", found.clustered).append("timeseries", 0).append("views", found.views);
    reply.append("internalCollections", found.internal).append("internalViews", 0);
}

/// What the kernel has counted for this process, where it tells.
fn extra_info(_: &Server, reply: &mut Builder) {
    reply.append("note", "fields vary by platform");
    let process = Process::now();
    reply.append_optional("user_time_us", process.user_micros);
    reply.append_optional("system_time_us", process.system_micros);
    reply.append_optional("page_reclaims", process.reclaims);
    reply.append_optional("page_faults", process.faults);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (name, line) in [
        ("maximum_resident_set_kb", "VmHWM:"),
        ("voluntary_context_switches", "voluntary_ctxt_switches:"),
        ("involuntary_context_switches", "nonvoluntary_ctxt_switches:"),
    ] {
        let found = status.lines().find_map(|text| text.strip_prefix(line));
        let count = found.and_then(|text| text.split_whitespace().next()?.parse::<i64>().ok());
        reply.append_optional(name, count);
    }
}

/// The time that commands took, by what they do.
fn op_latencies(server: &Server, reply: &mut Builder) {
    let mut sums = [(0i64, 0i64); 3];
    for (command, sum) in COMMANDS.iter().zip(server.counters.operations.sums()) {
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
        reply.begin_document(name).append("latency", micros).append("ops", count).end();
    }
}

fn asserts(server: &Server, reply: &mut Builder) {
    reply.append("regular", server.counters.panics.get()).append("warning", 0).append("msg", 0);
    reply.append("user", server.counters.user_asserts.get()).append("rollovers", 0);
}

/// Connections, and what they wait for: `threaded` are those that have a thread, which is while they run something.
fn connections(server: &Server, reply: &mut Builder) {
    let found = Connections::of(server);
    reply.append("current", found.open as i32).append("available", found.available as i32);
    reply.append("totalCreated", found.created as i64);
    reply.append("rejected", server.counters.connections_rejected.get()).append("active", found.active);
    reply.append("threaded", found.active - found.awaiting).append("exhaustIsMaster", found.old_streams);
    reply.append("exhaustHello", found.streams).append("awaitingTopologyChanges", found.awaiting);
    reply.append("loadBalanced", 0);
}

fn global_lock(server: &Server, reply: &mut Builder) {
    let active =
        server.activities.all().iter().filter(|activity| activity.current().is_some()).count() as i32;
    reply.append("totalTime", server.started.elapsed().as_micros() as i64);
    reply.begin_document("currentQueue").append("total", 0).append("readers", 0).append("writers", 0).end();
    reply
        .begin_document("activeClients")
        .append("total", active)
        .append("readers", active)
        .append("writers", 0)
        .end();
}

fn session_cache(server: &Server, reply: &mut Builder) {
    reply.append("activeSessionsCount", server.sessions.len() as i32);
}

fn network(server: &Server, reply: &mut Builder) {
    let counters = &server.counters;
    reply.append("bytesIn", counters.bytes_in.get()).append("bytesOut", counters.bytes_out.get());
    reply.append("numRequests", counters.requests.get());
}

fn op_counters(server: &Server, reply: &mut Builder) {
    let counters = &server.counters;
    let sums = counters.operations.sums();
    let ran =
        |name: &str| crate::command::position(name).and_then(|at| sums.get(at)).map_or(0, |sum| sum.total);
    let counted = ["find", "insert", "update", "delete", "getMore"];
    let others = COMMANDS.iter().map(|command| command.name).filter(|name| !counted.contains(name));
    reply.append("insert", counters.inserted.get()).append("query", ran("find"));
    reply.append("update", counters.updated.get()).append("delete", counters.deleted.get());
    reply.append("getmore", ran("getMore")).append("command", others.map(ran).sum::<i64>());
}

/// What was applied for another member of a set, of which there is none.
fn applied_counters(_: &Server, reply: &mut Builder) {
    for name in ["insert", "query", "update", "delete", "getmore", "command"] {
        reply.append(name, 0i64);
    }
}

fn storage_engine(server: &Server, reply: &mut Builder) {
    reply.append("name", server.settings.engine).append("persistent", !server.settings.ephemeral);
    reply.append("supportsCommittedReads", true).append("supportsSnapshotReadConcern", true);
    reply.append("readOnly", false);
}

/// How clients logged in, and the certificate that they are shown. Members of clusters don't log in here.
fn security(server: &Server, reply: &mut Builder) {
    let counters = &server.counters;
    reply
        .begin_document("authentication")
        .append("saslSupportedMechsReceived", counters.mechanisms_asked.get());
    reply.begin_document("mechanisms");
    for (name, counter) in LOGINS.iter().zip(&counters.logins).filter(|(name, _)| server.auth.takes(name)) {
        reply.begin_document(name);
        append_tries(reply, "speculativeAuthenticate", &counter.early);
        append_tries(reply, "clusterAuthenticate", &TryCounter::default());
        append_tries(reply, "authenticate", &counter.all);
        reply.end();
    }
    reply.end().end();
    let Some(tls) = &server.settings.tls else { return };
    let loaded = tls.loaded();
    reply.append("SSLServerSubjectName", &loaded.facts.subject);
    reply.append("SSLServerHasCertificateAuthority", tls.has_authority());
    reply.append("SSLServerCertificateExpirationDate", Value::DateTime(loaded.ends()));
}

fn append_tries(reply: &mut Builder, name: &str, tries: &TryCounter) {
    reply.begin_document(name).append("received", tries.received.get());
    reply.append("successful", tries.successful.get()).end();
}

/// How many connections there have been of each version of TLS.
fn transport_security(server: &Server, reply: &mut Builder) {
    let names = PROTOCOLS.iter().map(|(name, _)| *name).chain(["unknown"]);
    for (name, counter) in names.zip(&server.counters.protocols) {
        reply.append(name, counter.get());
    }
}

/// The process's memory, and what the journal and the cache of an engine on disk have done since the start; in
/// memory there is neither. The section has a name of its own, so that tools don't look for WiredTiger's numbers in it.
fn vellum(server: &Server, reply: &mut Builder) {
    let counted = server.database.engine().statistics();
    reply.append("engine", server.settings.engine).append("dataBytes", counted.bytes as i64);
    crate::memory::append_status(server, reply);
    if server.settings.ephemeral {
        return;
    }
    reply.append("durability", server.database.engine().durability().name());
    if server.settings.shared {
        members(server, reply);
    }
    reply.begin_document("journal");
    reply.append("commits", counted.commits as i64).append("syncs", counted.syncs as i64);
    reply.append("commitsPerSync", counted.commits as f64 / counted.syncs.max(1) as f64);
    reply.begin_document("syncMicros").append("p50", counted.sync_micros_p50 as i64);
    reply.append("p95", counted.sync_micros_p95 as i64).append("p99", counted.sync_micros_p99 as i64).end();
    reply.append("bytesSinceCheckpoint", counted.journal_bytes as i64);
    reply.append("checkpoints", counted.checkpoints as i64);
    if let Some(archive) = counted.archive {
        reply.begin_document("archive").append("position", archive.position as i64);
        reply.append("failures", archive.failures as i64).append("failing", archive.failing).end();
    }
    reply.end();
    reply.begin_document("cache");
    reply.append("bytes", counted.cache_bytes as i64).append("hits", counted.cache_hits as i64);
    reply.append("misses", counted.cache_misses as i64).append("evictions", counted.cache_evictions as i64);
    reply.append("entryReads", counted.entry_reads as i64).append("entryMisses", counted.entry_misses as i64);
    reply.append("changedBytes", counted.changed_bytes as i64).end();
    reply.append("fileBytes", counted.file_bytes as i64);
}

/// The servers that hold the data of a front, as replSetGetStatus would show them.
fn members(server: &Server, reply: &mut Builder) {
    let members = match server.database.list_members() {
        Ok(members) => members,
        Err(error) => {
            reply.append("membersError", error.message());
            return;
        }
    };
    reply.begin_array("members");
    for (number, member) in members.iter().enumerate() {
        let state = if member.is_primary { (1, "PRIMARY") } else { (2, "SECONDARY") };
        reply.push_document().append("_id", number as i32).append("name", member.name.as_str());
        reply.append("health", 1.0).append("state", state.0).append("stateStr", state.1);
        reply.append("replication", member.state.as_str()).append("countsAs", member.counts_as.as_str());
        reply.append("durableBytes", member.on_disk as i64).append("appliedBytes", member.applied as i64);
        if let Some(lag) = member.lag_micros {
            reply.append("lagMicros", lag);
        }
        reply.end();
    }
    reply.end();
}

fn memory(_: &Server, reply: &mut Builder) {
    let (virtual_bytes, resident_bytes) = process_bytes().unwrap_or_default();
    let megabytes = |bytes: u64| i32::try_from(bytes >> 20).unwrap_or(i32::MAX);
    reply
        .append("bits", 64)
        .append("resident", megabytes(resident_bytes))
        .append("virtual", megabytes(virtual_bytes))
        .append("supported", true);
}

fn metrics(server: &Server, reply: &mut Builder) {
    reply.begin_document("commands");
    for (command, sum) in COMMANDS.iter().zip(server.counters.operations.sums()) {
        reply.begin_document(command.name);
        reply.append("failed", sum.failed).append("total", sum.total).end();
    }
    reply.end();
    let cursors = &server.database.cursors;
    let (open, without_timeout) = cursors.count();
    reply.begin_document("cursor").append("timedOut", cursors.timed_out() as i64);
    reply.begin_document("open").append("noTimeout", without_timeout as i64);
    reply.append("pinned", cursors.pinned() as i64).append("total", open as i64).end().end();
    let counted = &server.database.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
    reply.begin_document("document").append("deleted", count(&counted.documents_deleted));
    reply.append("inserted", count(&counted.documents_inserted));
    reply
        .append("returned", server.counters.returned.get())
        .append("updated", count(&counted.documents_updated))
        .end();
    let (keys, documents, sorts) = server.database.examined();
    reply.begin_document("operation").append("scanAndOrder", sorts as i64).end();
    reply.begin_document("queryExecutor").append("scanned", keys as i64);
    reply.append("scannedObjects", documents as i64).end();
    reply.begin_document("ttl").append("deletedDocuments", count(&counted.ttl_deleted));
    reply.append("passes", count(&counted.ttl_passes)).end();
}

/// The row of `top`.
pub(crate) const TOP: Command = Command::new(
    "top",
    Kind::Admin,
    "Tells the time spent in each collection.",
    top,
    Needs::Cluster(Action::Top),
)
.admin_only();

fn top(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    fields.finish()?;
    let usage = call.server.activities.usage();
    let catalog = call.server.database.catalog();
    call.reply.begin_document("totals").append("note", "all times in microseconds");
    for (name, spent) in usage.sorted() {
        // Dropped collections aren't told of, nor commands without one.
        if !Namespace::parse(name).is_ok_and(|namespace| catalog.get(&namespace).is_some()) {
            continue;
        }
        call.reply.begin_document(name);
        append_sum(call.reply, "total", spent.total());
        append_sum(call.reply, "readLock", spent.reads);
        append_sum(call.reply, "writeLock", spent.writes);
        for (kind, sum) in KINDS.iter().zip(spent.kinds) {
            append_sum(call.reply, kind, sum);
        }
        call.reply.end();
    }
    call.reply.end();
    Ok(Answer::Done)
}

fn append_sum(reply: &mut Builder, name: &str, sum: Sum) {
    reply.begin_document(name).append("time", sum.micros).append("count", sum.count).end();
}
