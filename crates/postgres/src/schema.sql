-- Tables and functions of the store, in a separate schema. schema.rs replaces SCHEMA, FENCE and QUEUE.
--
-- Keys are compared by memcmp. A key longer than 2,000 bytes is stored in `long`. Its `key` column has the first
-- 2,000 bytes and the SHA-256. A null value is a key claimed by a transaction. No other transaction ever sees
-- it.

create schema if not exists SCHEMA;

create table SCHEMA.version (one int4 primary key, version int4 not null);

create table SCHEMA.kv (
    ident int8 not null, key bytea not null, long bytea, value bytea,
    primary key (ident, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1);
alter table SCHEMA.kv alter column key set storage plain;

create table SCHEMA.trees (ident int8 primary key);

-- Number of catalog changes, in a separate row: every view reads it.
create table SCHEMA.catalog (one int4 primary key, generation int8 not null) with (fillfactor = 10);
insert into SCHEMA.catalog values (1, 0);

-- Generation of the latest catalog change of the collection with this tree.
create table SCHEMA.generations (ident int8 primary key, generation int8 not null) with (fillfactor = 50);

-- Number of documents and bytes of a collection: the sum over slots, so that writers seldom conflict.
create table SCHEMA.counts (
    ident int8 not null, slot int8 not null, records int8 not null, bytes int8 not null,
    primary key (ident, slot)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02);

create sequence SCHEMA.idents increment 64 start 64;

-- The processes that use the schema, each with a lease.
create table SCHEMA.fronts (front int8 primary key, until timestamptz not null);

-- Index builds, and the records that have changed since their start.
create table SCHEMA.builds (ident int8 primary key, front int8 not null, key_string bytea, type_bits bytea);
create table SCHEMA.marks (ident int8, record int8, primary key (ident, record));

-- Checks the expectations of a change and applies it. Raises VE001 if an expectation does not hold, and 23505
-- for a unique key that is taken. A process that changes the catalog holds the fence.
--   g: collections' generations             i: keys that must be free, with new values
--   p: keys with new values, free or not    q: keys that must be free or have the new value
--   u: values to replace, by SHA-256        d: values to remove, by SHA-256
--   x: keys to remove, if the value has the SHA-256 or the SHA-256 is null
--   e: values that must exist, by SHA-256; a null SHA-256 means that no value may exist
--   o: keys that must be free or have a value, by SHA-256
--   n: prefixes that no key may have with exactly eight more bytes
--   m: changed records of a collection with an index build
--   c: changes of counts
create function SCHEMA.apply(
    gi int8[], gv int8[],
    ii int8[], ik bytea[], il bytea[], iv bytea[],
    pi int8[], pk bytea[], pl bytea[], pv bytea[],
    qi int8[], qk bytea[], ql bytea[], qv bytea[],
    ui int8[], uk bytea[], uv bytea[], uh bytea[],
    di int8[], dk bytea[], dh bytea[],
    xi int8[], xk bytea[], xh bytea[],
    ei int8[], ek bytea[], eh bytea[],
    oi int8[], ok bytea[], oh bytea[],
    ni int8[], nk bytea[], nl bytea[],
    mi int8[], mr int8[],
    ci int8[], cs int8, cn int8[], cb int8[]
) returns void language plpgsql as $$
declare
    found_rows int8;
    prefix bytea;
begin
    perform pg_advisory_xact_lock_shared(FENCE);
    if cardinality(ni) > 0 then
        for nth in 1 .. cardinality(ni) loop
            perform pg_advisory_xact_lock(hashtextextended(encode(nk[nth], 'hex'), ni[nth] # FENCE));
        end loop;
        for nth in 1 .. cardinality(ni) loop
            -- Keys of a long prefix share only its first 2,000 bytes in the index.
            prefix := coalesce(nl[nth], nk[nth]);
            perform 1 from SCHEMA.kv t where (t.ident, t.key) >= (ni[nth], substr(prefix, 1, 2000))
                and (t.ident, t.key) <= (ni[nth], substr(prefix, 1, 2000) || decode(repeat('ff', 32), 'hex'))
                and octet_length(coalesce(t.long, t.key)) = octet_length(prefix) + 8
                and substr(coalesce(t.long, t.key), 1, octet_length(prefix)) = prefix limit 1;
            if found then raise exception using errcode = 'VE001', message = 'prefix'; end if;
        end loop;
    end if;
    if cardinality(gi) > 0 then
        select count(*) into found_rows from unnest(gi, gv) x(i, v)
            join SCHEMA.generations t on t.ident = x.i and t.generation = x.v;
        if found_rows <> cardinality(gi) then
            raise exception using errcode = 'VE001', message = 'generation';
        end if;
    end if;
    if cardinality(ui) > 0 then
        update SCHEMA.kv t set value = x.v from unnest(ui, uk, uv, uh) x(i, k, v, h)
            where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h;
        get diagnostics found_rows = row_count;
        if found_rows <> cardinality(ui) then
            raise exception using errcode = 'VE001', message = 'update';
        end if;
    end if;
    if cardinality(di) > 0 then
        delete from SCHEMA.kv t using unnest(di, dk, dh) x(i, k, h)
            where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h;
        get diagnostics found_rows = row_count;
        if found_rows <> cardinality(di) then
            raise exception using errcode = 'VE001', message = 'delete';
        end if;
    end if;
    if cardinality(ei) > 0 then
        perform 1 from SCHEMA.kv t join unnest(ei, ek, eh) x(i, k, h) on t.ident = x.i and t.key = x.k
            where sha256(t.value) = x.h for share of t;
        get diagnostics found_rows = row_count;
        if found_rows <> (select count(h) from unnest(eh) h) then
            raise exception using errcode = 'VE001', message = 'value';
        end if;
        perform 1 from SCHEMA.kv t join unnest(ei, ek, eh) x(i, k, h) on t.ident = x.i and t.key = x.k
            where x.h is null and t.value is not null;
        if found then raise exception using errcode = 'VE001', message = 'absence'; end if;
    end if;
    if cardinality(oi) > 0 then
        perform 1 from SCHEMA.kv t join unnest(oi, ok, oh) x(i, k, h) on t.ident = x.i and t.key = x.k
            where sha256(t.value) <> x.h;
        if found then raise exception using errcode = 'VE001', message = 'own key'; end if;
    end if;
    if cardinality(xi) > 0 then
        delete from SCHEMA.kv t using unnest(xi, xk, xh) x(i, k, h)
            where t.ident = x.i and t.key = x.k and (x.h is null or sha256(t.value) = x.h);
    end if;
    if cardinality(ii) > 0 then
        insert into SCHEMA.kv (ident, key, long, value) select * from unnest(ii, ik, il, iv);
    end if;
    if cardinality(pi) > 0 then
        insert into SCHEMA.kv (ident, key, long, value) select * from unnest(pi, pk, pl, pv)
            on conflict (ident, key) do update set value = excluded.value;
    end if;
    if cardinality(qi) > 0 then
        insert into SCHEMA.kv as t (ident, key, long, value) select * from unnest(qi, qk, ql, qv)
            on conflict (ident, key) do update set value = excluded.value where t.value = excluded.value;
        get diagnostics found_rows = row_count;
        if found_rows <> cardinality(qi) then
            raise exception using errcode = 'VE001', message = 'own key';
        end if;
    end if;
    if cardinality(mi) > 0 then
        insert into SCHEMA.marks select distinct * from unnest(mi, mr) on conflict do nothing;
    end if;
    if cardinality(ci) > 0 then
        insert into SCHEMA.counts as t select x.i, cs, x.n, x.b from unnest(ci, cn, cb) x(i, n, b) order by 1
            on conflict (ident, slot) do update
            set records = t.records + excluded.records, bytes = t.bytes + excluded.bytes;
    end if;
end $$;

-- Claims keys for the current transaction: existing keys, and keys that may be added. Raises 40001 if a key has
-- changed since the transaction's snapshot, and 55P03 if another transaction has claimed it.
create function SCHEMA.claim(ii int8[], ik bytea[], il bytea[]) returns void language plpgsql as $$
begin
    perform 1 from SCHEMA.kv t join unnest(ii, ik) x(i, k) on t.ident = x.i and t.key = x.k
        for update of t nowait;
    insert into SCHEMA.kv (ident, key, long) select * from unnest(ii, ik, il) on conflict do nothing;
end $$;

-- Locks collections against changes until the current transaction has ended. Raises 40001 if a collection has
-- changed since the transaction's snapshot, and VE001 if its generation was already another one.
create function SCHEMA.hold(gi int8[], gv int8[]) returns void language plpgsql as $$
declare
    found_rows int8;
begin
    perform 1 from SCHEMA.generations t join unnest(gi, gv) x(i, v) on t.ident = x.i and t.generation = x.v
        for share of t;
    get diagnostics found_rows = row_count;
    if found_rows <> cardinality(gi) then
        raise exception using errcode = 'VE001', message = 'generation';
    end if;
end $$;

-- The log of changes, read by change streams.
--
-- A logged commit enters the queue, an advisory lock that it holds until its end. In the queue it receives its time
-- and records the number of its entry. A commit therefore receives its time only when every earlier commit is
-- visible. A reader of the log sees all entries up to a time, and no earlier entry is added afterwards.
--
-- A short entry is in the row of its time. A longer entry is written before the commit enters the queue, in pages
-- of packed parts under the number of the entry.
--
-- Times are times of the oplog minus 2^63: seconds since 1970 in the high half.

create table SCHEMA.log (
    body int8, part int4, last int4 not null, value bytea not null, primary key (body, part)
) with (autovacuum_vacuum_scale_factor = 0.1);

create table SCHEMA.log_order (
    time int8 primary key, body int8 not null, bytes int8 not null, value bytea
) with (autovacuum_vacuum_scale_factor = 0.1);

-- Segments of the log, each up to a time, for trimming.
create table SCHEMA.log_stretches (upto int8 primary key, bytes int8 not null);

create sequence SCHEMA.log_bodies;
create sequence SCHEMA.clock minvalue -9223372036854775808 start -9223372036854775808;

-- Size limit of the log in bytes; zero without a log.
create table SCHEMA.log_limit (one int4 primary key, bytes int8 not null);
insert into SCHEMA.log_limit values (1, 1073741824);

-- Returns the size limit of the log, and changes it if `wanted` is not negative. Raises VE002 if the change would
-- add or remove the log while other processes use the schema.
create function SCHEMA.keep_log(own int8, wanted int8) returns int8 language plpgsql set lock_timeout = 0 as $$
declare
    present int8;
begin
    perform pg_advisory_xact_lock(FENCE);
    select bytes into present from SCHEMA.log_limit where one = 1;
    if wanted < 0 or wanted = present then
        return present;
    end if;
    if (wanted = 0) <> (present = 0) then
        perform 1 from SCHEMA.fronts where until > now() and front <> own;
        if found then
            raise exception using errcode = 'VE002',
                message = 'other servers use the schema: only the first one can turn the change log on or off';
        end if;
        truncate SCHEMA.log, SCHEMA.log_order, SCHEMA.log_stretches;
    end if;
    update SCHEMA.log_limit set bytes = wanted where one = 1;
    return wanted;
end $$;

-- Advances the clock to a time, unless it is already later. Returns the clock; later commits get later times.
create function SCHEMA.tick(earliest int8) returns int8 language plpgsql as $$
declare
    at int8;
begin
    perform pg_advisory_xact_lock(QUEUE);
    select last_value into at from SCHEMA.clock;
    if at < earliest then
        at := setval('SCHEMA.clock', earliest);
    end if;
    return at;
end $$;

-- Updates the segments, and removes the oldest while the log exceeds its limit. Returns the remaining bytes. One
-- process at a time does this; other processes only receive the result.
create function SCHEMA.trim() returns int8 language plpgsql as $$
declare
    most int8;
    held int8;
    oldest record;
begin
    select bytes into most from SCHEMA.log_limit where one = 1;
    if pg_try_advisory_xact_lock(QUEUE + 1) then
        insert into SCHEMA.log_stretches
            select max(s.time), sum(s.bytes) from (
                select o.time, o.bytes, div(sum(o.bytes) over (order by o.time), greatest(most / 16, 1)) as nth
                from SCHEMA.log_order o
                where o.time > coalesce((select max(upto) from SCHEMA.log_stretches), (-9223372036854775808)::int8)
            ) s group by s.nth;
        select coalesce(sum(bytes), 0) into held from SCHEMA.log_stretches;
        for oldest in
            select * from SCHEMA.log_stretches
            where upto < (select max(upto) from SCHEMA.log_stretches) order by upto
        loop
            exit when held <= most;
            with gone as (delete from SCHEMA.log_order where time <= oldest.upto returning body, value)
            delete from SCHEMA.log l using gone where l.body = gone.body and gone.value is null;
            delete from SCHEMA.log_stretches where upto = oldest.upto;
            held := held - oldest.bytes;
        end loop;
    else
        select coalesce(sum(bytes), 0) into held from SCHEMA.log_stretches;
    end if;
    return held;
end $$;

-- Id of the incarnation: PostgreSQL empties this table when it recovers from a crash or is promoted.
create unlogged table SCHEMA.life (one int4 primary key, id int8 not null);

-- Returns the id of this incarnation. The first call in an incarnation creates it and makes all processes read the
-- catalog again: catalog changes may be lost, and other changes may get the same generations.
create function SCHEMA.life() returns int8 language plpgsql as $$
declare
    present int8;
begin
    loop
        select id into present from SCHEMA.life where one = 1;
        if found then return present; end if;
        insert into SCHEMA.life values (1, hashtextextended(gen_random_uuid()::text, 0)) on conflict do nothing;
        if found then
            update SCHEMA.catalog set generation = generation + 1048576 where one = 1 and generation > 0;
        end if;
    end loop;
end $$;

-- Writes a log entry of `size` bytes in pages. Returns the last of the `ticks` times that it takes. In a
-- transaction, only the commit may follow.
-- The entry has the number `own`, assigned by the process.
create function SCHEMA.record(
    earliest int8, ticks int8, parts int8[], lasts int8[], vals bytea[], size int8, own int8
)
returns int8 language plpgsql as $$
declare
    at int8;
begin
    insert into SCHEMA.log select own, x.* from unnest(parts, lasts, vals) x;
    perform pg_advisory_xact_lock(QUEUE);
    at := nextval('SCHEMA.clock');
    if at < earliest or ticks > 1 then
        at := setval('SCHEMA.clock', greatest(at, earliest) + ticks - 1);
    end if;
    insert into SCHEMA.log_order values (at, own, size, null);
    return at;
end $$;

-- Returns the time of the entry with this number, which was given after `since`. Returns null if its commit does
-- not exist: the row inserted here prevents it permanently. Waits for a running commit, which holds the lock of its
-- entry or has inserted its pages.
create function SCHEMA.find_out(own int8, first int8, since int8) returns int8 language plpgsql as $$
declare
    at int8;
begin
    perform pg_advisory_xact_lock(own # FENCE);
    select time into at from SCHEMA.log_order where time >= since and body = own;
    if found then return at; end if;
    begin
        insert into SCHEMA.log values (own, first::int4, first::int4, '');
        return null;
    exception when unique_violation then
        null;
    end;
    select time into at from SCHEMA.log_order where time >= since and body = own;
    return at;
end $$;

-- Functions for commits of one statement, which direct.rs builds.

-- Returns the last of `ticks` times for a log entry. The transaction keeps its place in the queue until its end.
create function SCHEMA.next_time(earliest int8, ticks int8) returns int8 language plpgsql as $$
declare
    nothing text;
    at int8;
begin
    -- An expression costs less than a statement.
    nothing := pg_advisory_xact_lock(QUEUE)::text;
    at := nextval('SCHEMA.clock');
    if at < earliest or ticks > 1 then
        at := setval('SCHEMA.clock', greatest(at, earliest) + ticks - 1);
    end if;
    return at;
end $$;

-- Raises the error of a failed expectation.
create function SCHEMA.changed() returns bool language plpgsql as $$
begin
    raise exception using errcode = 'VE001', message = 'changed';
end $$;

-- Dropped trees whose rows still exist, each with the key from which rows may remain. The key avoids scanning
-- removed rows again that an old snapshot still needs.
create table SCHEMA.dropped (ident int8 primary key, since bytea not null) with (fillfactor = 50);

-- Removes at most `most` rows of dropped trees. Returns their number. Negative without any work, or while another
-- process does it.
create function SCHEMA.sweep(most int8) returns int8 language plpgsql as $$
declare
    tree record;
    last_key bytea;
    here int8;
    gone int8 := 0;
    is_idle bool := true;
begin
    if not pg_try_advisory_xact_lock(QUEUE + 2) then return -1; end if;
    for tree in select ident, since from SCHEMA.dropped order by ident loop
        is_idle := false;
        exit when gone >= most;
        select key into last_key from SCHEMA.kv where ident = tree.ident and key >= tree.since
            order by key offset most - gone - 1 limit 1;
        if found then
            delete from SCHEMA.kv where ident = tree.ident and key >= tree.since and key <= last_key;
            get diagnostics here = row_count;
            update SCHEMA.dropped set since = last_key where ident = tree.ident;
        else
            delete from SCHEMA.kv where ident = tree.ident and key >= tree.since;
            get diagnostics here = row_count;
            delete from SCHEMA.dropped where ident = tree.ident;
        end if;
        gone := gone + here;
    end loop;
    return case when is_idle then -1 else gone end;
end $$;

insert into SCHEMA.version values (1, 8);
