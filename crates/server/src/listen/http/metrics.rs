//! `/metrics`: the counters of `serverStatus` and more, in Prometheus' format. Times are in
//! seconds, sizes in bytes. A new metric is a line in the function of its subject.

use super::Response;
use super::exposition::Kind::*;
use super::exposition::{CONTENT_TYPE, Exposition};
use super::users::HttpClient;
use crate::access::{Action, Resource};
use crate::auth;
use crate::commands::table;
use crate::observe::counters::{Collections, Connections, Counters, LOGINS, PROTOCOLS, Process};
use crate::observe::operations::{BUCKETS, DatabaseOperations};
use crate::process::logging::now_millis;
use crate::process::memory::process_bytes;
use crate::server::Server;
use crate::session::Sessions;
use crate::state::http::{Http, PATHS};
use crate::state::settings::Settings;
use base::Result;
use database::{CollectionStatistics, Cursors, Database, Operation};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of collections with sizes. The largest are listed.
const COLLECTIONS_MAX: usize = 100;

/// Label of operations on databases that have no counter of their own. No database name contains a
/// blank.
const OTHERS: &str = "all others";

/// Returns all metrics to a user with the serverStatus privilege.
pub(super) fn answer(server: &Server, client: &HttpClient<'_>) -> Response {
    if !auth::is_authorized(&server.auth, &client.state, Resource::Cluster, Action::ServerStatus) {
        return Response::text(403, "this requires the privilege serverStatus (role clusterMonitor)");
    }
    let mut out = Exposition::default();
    about(server, &mut out);
    operations(&server.counters, &server.database.counters, &mut out);
    connections(server, &mut out);
    cursors(&server.database.cursors, &mut out);
    sessions(&server.sessions, &mut out);
    memory(&mut out);
    storage(&server.settings, &server.database, &mut out);
    http(&server.http, &mut out);
    let measured = oplog(&server.database, &mut out).and_then(|()| collections(server, client, &mut out));
    if let Err(error) = measured {
        log::warn!("measuring for /metrics: {error}");
        return Response::text(503, format!("the store cannot be measured: {}", error.code().name()));
    }
    Response::new(200, CONTENT_TYPE, out.finish())
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

fn about(server: &Server, out: &mut Exposition) {
    out.family("vellum_info", Gauge, "Version, storage engine and durability level.").sample(
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            ("engine", server.settings.engine),
            ("durability", server.durability()),
        ],
        1,
    );
    let uptime = server.started.elapsed().as_secs_f64();
    let started = now_millis() as f64 / 1000.0 - uptime;
    out.single("vellum_start_time_seconds", "Start time in seconds since 1970.", started);
    let mut primary = out.family("vellum_writable", Gauge, "1 if the server accepts writes.");
    primary.sample(&[], i32::from(server.is_primary() && server.database.write_locks() == 0));
}

fn operations(counters: &Counters, counted: &database::Counters, out: &mut Exposition) {
    let all = counters.operations.all();
    let name = |of: &Arc<DatabaseOperations>| match of.name.as_str() {
        "" => OTHERS.to_string(),
        name => name.to_string(),
    };
    let command = table::name_at;
    let mut family = out.family(
        "vellum_operation_duration_seconds",
        Histogram,
        "Latency of commands, including failed commands.",
    );
    for database in &all {
        for (at, counter) in database.commands() {
            let times = counter.times.snapshot();
            let labels = [("database", &*name(database)), ("command", command(at))];
            family.histogram(&labels, &times.counts, times.nanos as f64 / 1e9);
        }
    }
    let mut family = out.family("vellum_operations_failed_total", Counter, "Commands that failed.");
    for database in &all {
        for (at, counter) in database.commands() {
            family.sample(&[("database", &*name(database)), ("command", command(at))], counter.failed.get());
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
    let mut family =
        out.family("vellum_documents_total", Counter, "Documents inserted, updated, deleted and returned.");
    for (kind, number) in [
        ("inserted", count(&counted.documents_inserted)),
        ("updated", count(&counted.documents_updated)),
        ("deleted", count(&counted.documents_deleted)),
        ("returned", counters.returned.get()),
    ] {
        family.sample(&[("operation", kind)], number);
    }
    out.single(
        "vellum_ttl_deleted_documents_total",
        "Documents deleted by TTL indexes.",
        count(&counted.ttl_deleted),
    );
    out.single("vellum_ttl_passes_total", "Passes of the TTL deletion.", count(&counted.ttl_passes));
    out.single("vellum_errors_total", "Errors caused by clients.", counters.user_asserts.get());
    out.single("vellum_panics_total", "Internal errors and panics of commands.", counters.panics.get());
}

fn connections(server: &Server, out: &mut Exposition) {
    let (counts, counters) =
        (Connections::of(&server.activities, server.settings.connections_max), &server.counters);
    out.single("vellum_connections", "Open connections.", counts.open);
    out.single("vellum_connections_available", "Connections left before the limit.", counts.available);
    out.single("vellum_connections_active", "Connections with a running command.", counts.active);
    out.single("vellum_connections_created_total", "Connections accepted since the start.", counts.created);
    let rejected = counters.connections_rejected.get();
    out.single("vellum_connections_rejected_total", "Connections refused because of the limit.", rejected);
    let mut family = out.family("vellum_connections_encrypted_total", Counter, "Connections by TLS version.");
    let names = PROTOCOLS.iter().map(|(name, _)| *name).chain(["unknown"]);
    for (name, counter) in names.zip(&counters.protocols) {
        family.sample(&[("version", name)], counter.get());
    }
    let mut family = out.family("vellum_logins_total", Counter, "Login attempts and successful logins.");
    for (name, counter) in LOGINS.iter().zip(&server.auth.logins.attempts) {
        family.sample(&[("mechanism", name), ("result", "tried")], counter.all.received.get());
        family.sample(&[("mechanism", name), ("result", "succeeded")], counter.all.successful.get());
    }
    out.single("vellum_requests_total", "Requests received from clients.", counters.requests.get());
    out.single("vellum_received_bytes_total", "Bytes received from clients.", counters.bytes_in.get());
    out.single("vellum_sent_bytes_total", "Bytes sent to clients.", counters.bytes_out.get());
}

fn cursors(cursors: &Cursors, out: &mut Exposition) {
    let (open, without_timeout) = cursors.count();
    out.single("vellum_cursors", "Open cursors.", open);
    out.single("vellum_cursors_pinned", "Cursors in use by an operation.", cursors.pinned());
    out.single("vellum_cursors_without_timeout", "Open cursors without an idle timeout.", without_timeout);
    out.single("vellum_cursors_timed_out_total", "Cursors closed by the idle timeout.", cursors.timed_out());
    out.single("vellum_change_streams", "Open change streams.", cursors.change_streams());
}

fn sessions(sessions: &Sessions, out: &mut Exposition) {
    out.single("vellum_sessions", "Logical sessions in the cache.", sessions.len());
    let stats = sessions.transactions.stats();
    out.single("vellum_transactions", "Open transactions.", stats.open);
    out.single("vellum_transactions_active", "Open transactions with a running statement.", stats.active);
    out.single("vellum_transactions_started_total", "Transactions begun.", stats.started);
    out.single("vellum_transactions_committed_total", "Transactions committed.", stats.committed);
    out.single("vellum_transactions_aborted_total", "Transactions aborted.", stats.aborted);
}

fn memory(out: &mut Exposition) {
    if let Some((virtual_bytes, resident_bytes)) = process_bytes() {
        out.single("vellum_memory_resident_bytes", "Resident set size (RSS).", resident_bytes);
        out.single("vellum_memory_virtual_bytes", "Virtual memory size.", virtual_bytes);
    }
    let process = Process::now();
    if let (Some(user), Some(system)) = (process.user_micros, process.system_micros) {
        let mut family = out.family("vellum_cpu_seconds_total", Counter, "CPU time used.");
        family.sample(&[("mode", "user")], seconds(user));
        family.sample(&[("mode", "system")], seconds(system));
    }
}

fn storage(settings: &Settings, database: &Database, out: &mut Exposition) {
    if settings.shared {
        return;
    }
    let counted = database.engine().statistics();
    out.single("vellum_data_bytes", "Size of documents and indexes.", counted.bytes);
    if settings.ephemeral {
        return;
    }
    out.single("vellum_file_bytes", "Size of the data files without the journal.", counted.file_bytes);
    out.single("vellum_cache_bytes", "Size of the page cache.", counted.cache_bytes);
    out.single("vellum_cache_hits_total", "Page cache hits, including inner pages.", counted.cache_hits);
    out.single(
        "vellum_cache_misses_total",
        "Page cache misses: pages read from the file system.",
        counted.cache_misses,
    );
    out.single(
        "vellum_entry_reads_total",
        "Leaf pages visited by successful lookups and by cursors.",
        counted.entry_reads,
    );
    out.single(
        "vellum_entry_misses_total",
        "Leaf page visits that waited for the file system.",
        counted.entry_misses,
    );
    out.single("vellum_cache_evictions_total", "Pages evicted from the cache.", counted.cache_evictions);
    out.single(
        "vellum_changed_bytes",
        "Size of changes in memory since the last checkpoint.",
        counted.changed_bytes,
    );
    out.single("vellum_commits_total", "Batches committed.", counted.commits);
    out.single(
        "vellum_journal_bytes",
        "Size of the journal since the last checkpoint.",
        counted.journal_bytes,
    );
    if let Some(archive) = counted.archive {
        let help = "1 if the last write to the journal archive failed.";
        out.single("vellum_journal_archive_failing", help, u64::from(archive.failing));
    }
    out.single("vellum_checkpoints_total", "Checkpoints completed.", counted.checkpoints);
    let mut spans = [0; BUCKETS];
    for (span, count) in spans.iter_mut().zip(counted.sync_counts) {
        *span = count;
    }
    out.family("vellum_journal_sync_duration_seconds", Histogram, "Latency of journal syncs.").histogram(
        &[],
        &spans,
        seconds(counted.sync_micros as i64),
    );
}

/// Appends size and window of the oplog.
///
/// Errors: the store's errors.
fn oplog(database: &Database, out: &mut Exposition) -> Result<()> {
    let (Some(bytes), Some(limit)) = (database.log_bytes(), database.log_limit()) else { return Ok(()) };
    out.single("vellum_oplog_bytes", "Size of the oplog.", bytes);
    out.single("vellum_oplog_limit_bytes", "Maximum size of the oplog.", limit);
    if let Some((earliest, latest)) = database.log_window()? {
        let window = (latest >> 32).saturating_sub(earliest >> 32);
        out.single("vellum_oplog_window_seconds", "Oplog window.", window);
    }
    Ok(())
}

/// Appends the sizes of the largest collections that the user may see.
///
/// Errors: the store's errors.
fn collections(server: &Server, client: &HttpClient<'_>, out: &mut Exposition) -> Result<()> {
    let (auth, is_shared) = (&server.auth, server.settings.shared);
    let catalog = auth.database.catalog();
    let counts = Collections::of(&auth.database);
    out.single("vellum_databases", "Databases.", catalog.databases().count());
    let mut family = out.family("vellum_collections", Gauge, "Collections by kind.");
    for (kind, count) in
        [("ordinary", counts.ordinary), ("view", counts.views), ("internal", counts.internal)]
    {
        family.sample(&[("kind", kind)], count);
    }
    let sees = |database: &str, name: &str| {
        auth::is_authorized(auth, &client.state, Resource::Collection(database, name), Action::CollStats)
    };
    let mut shown: Vec<_> = catalog
        .all()
        .filter(|one| !one.is_view() && one.namespace.database() != "local")
        .filter(|one| sees(one.namespace.database(), one.namespace.collection()))
        .collect();
    auth.database.refresh_all_counts(&shown)?;
    let left_out = shown.len().saturating_sub(COLLECTIONS_MAX);
    shown.sort_by_cached_key(|one| Reverse(one.bytes()));
    shown.truncate(COLLECTIONS_MAX);
    shown.sort_by(|one, other| one.namespace.as_str().cmp(other.namespace.as_str()));
    let mut measured = Vec::with_capacity(shown.len());
    for collection in shown {
        let mut sizes = CollectionStatistics::default();
        match is_shared {
            true => (sizes.count, sizes.size) = (collection.records(), collection.bytes()),
            false => sizes = auth.database.statistics_of(&Operation::new(0), collection)?,
        }
        measured.push((collection, sizes));
    }
    type Size = fn(&CollectionStatistics) -> i64;
    let sizes: [(&str, &str, Size); 4] = [
        ("vellum_collection_documents", "Documents of a collection.", |sizes| sizes.count),
        ("vellum_collection_data_bytes", "Size of a collection's documents.", |sizes| sizes.size),
        ("vellum_collection_storage_bytes", "Storage size of a collection's documents.", |sizes| {
            sizes.storage_size
        }),
        ("vellum_collection_index_bytes", "Storage size of a collection's indexes.", |sizes| {
            sizes.total_index_size()
        }),
    ];
    // A shared store would read whole trees for the storage sizes.
    for (name, help, size) in sizes.into_iter().take(if is_shared { 2 } else { 4 }) {
        let mut family = out.family(name, Gauge, help);
        for (collection, statistics) in &measured {
            let namespace = &collection.namespace;
            family.sample(
                &[("database", namespace.database()), ("collection", namespace.collection())],
                size(statistics),
            );
        }
    }
    let help = "Collections left out of the size metrics because larger collections fill them.";
    out.single("vellum_collections_left_out", help, left_out);
    Ok(())
}

fn http(http: &Http, out: &mut Exposition) {
    out.single("vellum_http_connections", "Open HTTP connections.", http.connection_limit.count());
    out.single(
        "vellum_http_rejected_total",
        "HTTP connections refused because of the limit.",
        http.rejected.get(),
    );
    let named = || PATHS.iter().copied().chain(["other"]).zip(&http.requests);
    let mut family = out.family("vellum_http_requests_total", Counter, "HTTP requests by status class.");
    for (path, counters) in named() {
        for (class, count) in ["2xx", "3xx", "4xx", "5xx"].iter().zip(&counters.by_class) {
            family.sample(&[("path", path), ("code", class)], count.get());
        }
    }
    let mut family =
        out.family("vellum_http_request_duration_seconds", Histogram, "Latency of HTTP requests.");
    for (path, counters) in named() {
        let times = counters.times.snapshot();
        family.histogram(&[("path", path)], &times.counts, times.nanos as f64 / 1e9);
    }
}
