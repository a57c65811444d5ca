//! The schema: its tables, functions and version, and the statements that use it.
//!
//! Opening a store creates a missing schema under an advisory lock. A schema of another version is refused. A new
//! statement is a line in `statements!`. A change of schema.sql needs another `VERSION`.

use crate::connection::{Connection, Statement};
use crate::direct::{Direct, fence, in_schema, quoted};
use crate::failure::{Failure, PgResult};
use crate::pages::{PAGE_BYTES, Pages};
use std::sync::Arc;

/// Version of the schema that this code creates and uses.
const VERSION: i64 = 8;

/// Number of tree numbers that a front reserves at a time: the increment of their sequence.
pub(crate) const IDENTS: u64 = 64;

/// Declares the fields of `Statements` and their SQL in one table.
macro_rules! statements {
    ($($(#[$meta:meta])* $name:ident => $sql:expr,)*) => {
        /// The prepared statements of one schema.
        pub(crate) struct Statements {
            $($(#[$meta])* pub(crate) $name: Arc<Statement>,)*
            pub(crate) pages: Pages,
            pub(crate) direct: Direct,
            /// Pages of the log, forwards and backwards.
            pub(crate) log_scan: [Arc<Statement>; 2],
        }

        impl Statements {
            /// The statements on the schema of this name.
            pub(crate) fn new(schema: &str) -> Statements {
                let quoted = quoted(schema);
                let of = |name: &str, sql: &str| Statement::new(name, in_schema(sql, &quoted));
                Statements {
                    $($name: of(stringify!($name), $sql),)*
                    pages: Pages::new(&of),
                    direct: Direct::new(&quoted),
                    log_scan: [
                        of("log_scan", &log_scan("asc")),
                        of("log_scan_back", &log_scan("desc")),
                    ],
                }
            }
        }
    };
}

/// A page of the log in one direction. A row has the time, big-endian as in the keys of the log's trees, and the packed
/// parts of an entry or of a page of it. The first and last row may have parts outside of the range.
fn log_scan(direction: &str) -> String {
    format!(
        "select int8send(time # (-9223372036854775808)::int8), value from \
         (select time, part, value, sum(octet_length(value)) over \
         (order by time {direction}, part {direction} rows unbounded preceding) - octet_length(value) as before from \
         (select o.time, l.part, coalesce(o.value, l.value) as value from SCHEMA.log_order o \
         left join SCHEMA.log l on l.body = case when o.value is null then o.body end \
         where o.time >= $1::int8 and o.time <= $3::int8 \
         and (o.time > $1::int8 or o.value is not null or l.last >= $2::int8) \
         and (o.time < $3::int8 or o.value is not null and $4::int8 > 0 or l.part < $4::int8) \
         order by o.time {direction}, l.part {direction} limit $5::int8) page) sized \
         where before < {PAGE_BYTES} order by time {direction}, part {direction}"
    )
}

statements! {
    begin_read => "begin isolation level repeatable read read only",
    begin_write => "begin isolation level read committed",
    /// Begins a transaction that may lock rows, for write intents.
    begin_claims => "begin isolation level repeatable read",
    /// Makes the open transaction wait longer for locks than the connection does.
    wait_longer => "set local lock_timeout = '10s'",
    commit => "commit",
    rollback => "rollback",
    generation => "select generation from SCHEMA.catalog where one = 1",
    /// Raises the generation of the catalog, which also locks out other changes.
    next_generation =>
        "update SCHEMA.catalog set generation = generation + 1 where one = 1 returning generation",
    get => "select value from SCHEMA.kv where ident = $1::int8 and key = $2::bytea and value is not null",
    /// As `get`, with the generation of the catalog, in the snapshot of this one statement.
    get_alone =>
        "select t.value, null::bytea, c.generation from SCHEMA.catalog c left join SCHEMA.kv t \
        on t.ident = $1::int8 and t.key = $2::bytea and t.value is not null where c.one = 1",
    get_many =>
        "select k.nth, t.value from unnest($2::bytea[]) with ordinality k(key, nth) \
        join SCHEMA.kv t on t.ident = $1::int8 and t.key = k.key where t.value is not null",
    /// As `get`, except for values beyond a length.
    get_ahead =>
        "select k.nth, t.value from unnest($2::bytea[]) with ordinality k(key, nth) \
        join SCHEMA.kv t on t.ident = $1::int8 and t.key = k.key where octet_length(t.value) <= $3::int8",
    /// Reads an index entry and the record that its value names.
    lookup =>
        "select e.value, r.value from SCHEMA.kv e left join SCHEMA.kv r \
        on r.ident = $3::int8 and r.key = substr(e.value, 1, 8) \
        where e.ident = $1::int8 and e.key = $2::bytea and e.value is not null",
    /// As `lookup`, with the generation of the catalog, in the snapshot of this one statement.
    lookup_alone =>
        "select e.value, r.value, c.generation from SCHEMA.catalog c left join SCHEMA.kv e \
        on e.ident = $1::int8 and e.key = $2::bytea and e.value is not null \
        left join SCHEMA.kv r on r.ident = $3::int8 and r.key = substr(e.value, 1, 8) where c.one = 1",
    contains => "select 1::int8 from SCHEMA.trees where ident = $1::int8",
    size =>
        "select count(*), coalesce(sum(octet_length(coalesce(long, key)) + octet_length(value)), 0)::int8 \
        from SCHEMA.kv where ident = $1::int8 and value is not null",
    /// Reads all keys that share a truncated prefix.
    run =>
        "select key, value, long from SCHEMA.kv where ident = $1::int8 and key >= $2::bytea \
        and key < $3::bytea and value is not null",
    /// Reads the times of the commits that wrote the entries of a tree. A row of `log_order` is written by the
    /// transaction that writes the entry. A group of commits is one transaction: the entry of a session is in the log
    /// entry with the session's UUID, which begins its key.
    commit_times =>
        "select t.key, coalesce(max(o.time) filter (where position(substr(t.key, 1, 16) in o.value) > 0), max(o.time)) \
        from SCHEMA.kv t join SCHEMA.log_order o on o.xmin = t.xmin \
        where t.ident = $1::int8 and t.value is not null and t.long is null group by t.key order by t.key",
    apply => APPLY,
    /// Takes the fence shared, before a statement of `direct`.
    share_fence => "select pg_advisory_xact_lock_shared(FENCE)",
    /// The same with the lock of a log entry, for which `find_out` waits.
    share_fence_and_entry =>
        "select pg_advisory_xact_lock_shared(FENCE), pg_advisory_xact_lock_shared($1::int8 # FENCE)",
    /// The same with the locks of several log entries.
    share_fence_and_entries =>
        "select pg_advisory_xact_lock_shared(FENCE) \
        union all select pg_advisory_xact_lock_shared(body # FENCE) from unnest($1::int8[]) body",
    /// Locks keys for a transaction. Inserts rows without a value for absent keys.
    claim => "select SCHEMA.claim($1::int8[], $2::bytea[], $3::bytea[])",
    /// Takes the lock that `apply` takes before it looks for keys with this prefix.
    claim_prefix =>
        "select pg_advisory_xact_lock(hashtextextended(encode($2::bytea, 'hex'), $1::int8 # FENCE))::text",
    /// Locks the generations of collections against changes of the catalog.
    hold => "select SCHEMA.hold($1::int8[], $2::int8[])",
    /// Deletes the remaining rows without a value.
    unclaimed =>
        "delete from SCHEMA.kv t using unnest($1::int8[], $2::bytea[]) x(i, k) \
        where t.ident = x.i and t.key = x.k and t.value is null",
    /// Takes the fence exclusively, and limits the time without a statement to 20 s.
    lock_fence =>
        "select set_config('idle_in_transaction_session_timeout', '20s', true), \
        pg_advisory_xact_lock(FENCE)::text",
    create_tree => "insert into SCHEMA.trees values ($1::int8)",
    /// Moves a tree to the list of dropped trees.
    // `sweep` deletes the rows.
    drop_tree =>
        "with gone as (delete from SCHEMA.trees where ident = $1::int8 returning ident) \
        insert into SCHEMA.dropped select ident, '' from gone",
    clear => "delete from SCHEMA.kv where ident = $1::int8",
    /// Copies the rows of a tree.
    fork =>
        "insert into SCHEMA.kv select $2::int8, key, long, value from SCHEMA.kv \
        where ident = $1::int8 and value is not null",
    fork_counts =>
        "insert into SCHEMA.counts select $2::int8, 8, sum(records)::int8, sum(bytes)::int8 from SCHEMA.counts \
        where ident = $1::int8 having count(*) > 0",
    set_generation =>
        "insert into SCHEMA.generations values ($1::int8, $2::int8) \
        on conflict (ident) do update set generation = excluded.generation",
    drop_generation => "delete from SCHEMA.generations where ident = $1::int8",
    /// Counts transactions that protect a collection.
    is_held =>
        "select count(*) - (select count(*) from (select 1 from SCHEMA.generations where ident = $1::int8 \
        for update skip locked) free) from SCHEMA.generations where ident = $1::int8",
    is_generation =>
        "select 1::int8 from SCHEMA.generations where ident = $1::int8 and generation = $2::int8",
    /// Reserves a range of tree numbers.
    idents => "select nextval('SCHEMA.idents')",
    counts =>
        "select coalesce(sum(records), 0)::int8, coalesce(sum(bytes), 0)::int8 from SCHEMA.counts \
        where ident = $1::int8",
    /// Deletes a batch of rows of dropped trees.
    sweep => "select SCHEMA.sweep($1::int8)",
    counts_of =>
        "select ident, sum(records)::int8, sum(bytes)::int8 from SCHEMA.counts \
        where ident = any($1::int8[]) group by ident",
    drop_counts => "delete from SCHEMA.counts where ident = $1::int8",
    /// Merges the rows that transactions have inserted into one row of each count.
    // Other commits never change this row, so they do not wait for it.
    merge_counts =>
        "with gone as (delete from SCHEMA.counts where ident = any($1::int8[]) and slot > 8 \
        returning ident, records, bytes) \
        insert into SCHEMA.counts as t select ident, 8, sum(records)::int8, sum(bytes)::int8 from gone \
        group by ident order by ident on conflict (ident, slot) do update \
        set records = t.records + excluded.records, bytes = t.bytes + excluded.bytes",
    /// Takes a free front number with a lease of thirty seconds. Ends the index builds of its last holder.
    front =>
        "with taken as (insert into SCHEMA.fronts as t \
        select n, now() + interval '30 s' from generate_series(1, 1023) n \
        where not exists (select from SCHEMA.fronts f where f.front = n and f.until > now()) limit 1 \
        on conflict (front) do update set until = excluded.until where t.until <= now() returning *), \
        ended as (delete from SCHEMA.builds b using taken where b.front = taken.front) \
        select front, (extract(epoch from until) * 1000000)::int8 from taken",
    /// Extends the lease, unless another front has taken the number.
    // A front that took the number has stored another end. The commit waits for the flush, so standbys receive
    // the lease.
    renew =>
        "update SCHEMA.fronts \
        set until = greatest(now() + interval '30 s', until + interval '1 microsecond') \
        where front = $1::int8 and (extract(epoch from until) * 1000000)::int8 = $2::int8 \
        returning (extract(epoch from until) * 1000000)::int8, \
        set_config('synchronous_commit', 'local', true)",
    /// Reads from a standby: its role, the lease that it shows, the latest log time, and the generation of the catalog.
    standby_state =>
        "select pg_is_in_recovery()::int4, \
        (select (extract(epoch from until) * 1000000)::int8 from SCHEMA.fronts where front = $1::int8), \
        (select time from SCHEMA.log_order order by time desc limit 1), \
        (select generation from SCHEMA.catalog where one = 1)",
    /// Releases the front number.
    leave =>
        "delete from SCHEMA.fronts where front = $1::int8 \
        and (extract(epoch from until) * 1000000)::int8 = $2::int8",
    begin_build => "insert into SCHEMA.builds values ($1::int8, $2::int8)",
    end_build =>
        "with gone as (delete from SCHEMA.builds where ident = $1::int8) \
        delete from SCHEMA.marks where ident = $1::int8",
    /// Looks for a running build. Ends a build whose front has lost its lease: its writers would not know it.
    build =>
        "with ended as (delete from SCHEMA.builds b where ident = $1::int8 \
        and not exists (select from SCHEMA.fronts f where f.front = b.front and f.until > now())) \
        select 1::int8 from SCHEMA.builds b join SCHEMA.fronts f using (front) \
        where b.ident = $1::int8 and f.until > now()",
    fail_build =>
        "update SCHEMA.builds set key_string = $2::bytea, type_bits = $3::bytea where ident = $1::int8",
    build_report => "select key_string, type_bits from SCHEMA.builds where ident = $1::int8",
    /// Reads and removes the marks of an index build.
    take_marks => "delete from SCHEMA.marks where ident = $1::int8 returning record",
    barrier_standbys =>
        "select set_config('synchronous_commit', 'on', true), \
        pg_logical_emit_message(true, 'v', '')::text",
    members => "select 1 + count(*) from pg_stat_replication r where state = 'streaming' and STANDBY",
    /// Reads the flushed position of the write-ahead log.
    // The flushed position. Later bytes may have no pending flush (a read that prunes a page writes to the log
    // too), and standbys receive them seconds later.
    log_synced => "select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8",
    /// Counts the members that have flushed up to a position, the primary included.
    members_at =>
        "select 1 + count(*) from pg_stat_replication r where flush_lsn - '0/0'::pg_lsn >= $1::int8 and STANDBY",
    /// Sets the size limit of the log. Refuses to add or remove the log while other fronts run.
    keep_log => "select SCHEMA.keep_log($1::int8, $2::int8)",
    /// Advances the clock.
    tick => "select SCHEMA.tick($1::int8)",
    /// Advances the clock to the wall clock of the server.
    tick_to_now =>
        "select SCHEMA.tick((floor(extract(epoch from now()))::int8 << 32 | 1) # (1::int8 << 63))",
    /// Writes a log entry, takes the queue lock and assigns the time.
    record =>
        "select SCHEMA.record($1::int8, $2::int8, $3::int8[], $4::int8[], $5::bytea[], $6::int8, $7::int8)",
    log_first => "select time from SCHEMA.log_order order by time limit 1",
    log_last => "select time from SCHEMA.log_order order by time desc limit 1",
    /// Removes the oldest range of entries of the log if the size exceeds the limit.
    trim => "select SCHEMA.trim()",
    /// Reads the number of the server's incarnation, and starts a new one if the unlogged table is empty.
    incarnation => "select SCHEMA.life()",
    /// Finds out whether a commit exists, and prevents a later one under its number.
    find_out => "select SCHEMA.find_out($1::int8, $2::int8, $3::int8)",
    list_members =>
        "select coalesce(nullif(current_setting('cluster_name'), ''), 'primary'), 1::int4, 'primary', 'primary', \
        (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8, \
        (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, 0::int8 union all \
        select application_name, 0, coalesce(state, 'not shown to this role'), coalesce(sync_state, ''), \
        (flush_lsn - '0/0'::pg_lsn)::int8, (replay_lsn - '0/0'::pg_lsn)::int8, \
        (extract(epoch from flush_lag) * 1000000)::int8 from pg_stat_replication r where STANDBY",
    barrier_local =>
        "select set_config('synchronous_commit', 'local', true), \
        pg_logical_emit_message(true, 'v', '')::text",
}

const APPLY: &str = "select SCHEMA.apply(\
    $1::int8[], $2::int8[], \
    $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[], \
    $7::int8[], $8::bytea[], $9::bytea[], $10::bytea[], \
    $11::int8[], $12::bytea[], $13::bytea[], $14::bytea[], \
    $15::int8[], $16::bytea[], $17::bytea[], $18::bytea[], \
    $19::int8[], $20::bytea[], $21::bytea[], \
    $22::int8[], $23::bytea[], $24::bytea[], \
    $25::int8[], $26::bytea[], $27::bytea[], \
    $28::int8[], $29::bytea[], $30::bytea[], \
    $31::int8[], $32::bytea[], $33::bytea[], \
    $34::int8[], $35::int8[], \
    $36::int8[], $37::int8, $38::int8[], $39::int8[])";

/// Creates a missing schema, and checks the version of an existing one.
///
/// Errors: errors of the server; `Unavailable` with both versions if the schema has another version.
pub(crate) fn prepare(connection: &mut Connection, schema: &str) -> PgResult<()> {
    let name = quoted(schema);
    // The lock ends with the transaction in every case.
    connection.batch(&format!(
        "begin; set local lock_timeout = 0; select pg_advisory_xact_lock({})",
        fence(schema)
    ))?;
    let made = create_or_check(connection, &name);
    connection.batch(if made.is_ok() { "commit" } else { "rollback" })?;
    made
}

/// Creates a missing schema. Checks the version of an existing one.
fn create_or_check(connection: &mut Connection, name: &str) -> PgResult<()> {
    let exists = Statement::new(
        "is_there",
        format!("select (to_regclass('{}.version') is not null)::int4", name.replace('\'', "''")),
    );
    if connection.query(&exists, &[])?.first().is_none_or(|row| row.int(0) == 0) {
        connection.batch(&in_schema(include_str!("schema.sql"), name))?;
        return ["kv", "log"].iter().try_for_each(|table| compress_faster(connection, name, table));
    }
    let version = Statement::new("version", format!("select version from {name}.version where one = 1"));
    let found = connection.query(&version, &[])?.first().map_or(0, |row| row.int(0));
    match found {
        VERSION => Ok(()),
        _ => Err(Failure::Unavailable(format!(
            "the schema {name} has version {found}, and this version of Vellum uses only version {VERSION}"
        ))),
    }
}

/// Sets faster compression for the values of a table, if the server supports it.
fn compress_faster(connection: &mut Connection, name: &str, table: &str) -> PgResult<()> {
    connection.batch(&format!(
        "do $$ begin alter table {name}.{table} alter value set compression lz4; exception when others then null; end $$"
    ))
}

/// Refuses other products that speak PostgreSQL's protocol, and old versions.
///
/// Errors: errors of the server; `Unavailable` with its name.
pub(crate) fn check_server(connection: &mut Connection) -> PgResult<()> {
    let version = Statement::new("server", "select version(), current_setting('server_version_num')::int8");
    let rows = connection.query(&version, &[])?;
    let row = rows.first().ok_or_else(|| Failure::Unavailable("the server has no version".to_string()))?;
    let text = String::from_utf8_lossy(row.bytes(0).unwrap_or_default()).to_string();
    for product in ["CockroachDB", "YB-", "Yugabyte"] {
        if text.contains(product) {
            return Err(Failure::Unavailable(format!(
                "{text} is not supported: Vellum is not tested with it"
            )));
        }
    }
    if row.int(1) < 140_000 {
        return Err(Failure::Unavailable(format!("{text} is not supported: use PostgreSQL 14 or later")));
    }
    let citus = Statement::new("citus", "select count(*) from pg_extension where extname = 'citus'");
    match connection.query(&citus, &[])?.first().is_some_and(|row| row.int(0) > 0) {
        true => Err(Failure::Unavailable("Citus is not supported: Vellum is not tested with it".to_string())),
        false => Ok(()),
    }
}
