-- What the store keeps, in a schema of its own. SCHEMA and FENCE are put in place by schema.rs, which runs
-- schema-2.sql behind this file: the steps from one version to the next are the same for a schema that is made.
--
-- Keys are compared as memcmp does. A key beyond 2,000 bytes is kept in `long`, and stands in `key` with its
-- first 2,000 bytes and its SHA-256. A null value is a key that a transaction has claimed, which nobody but the
-- transaction ever sees.

create schema if not exists SCHEMA;

create table SCHEMA.version (one int4 primary key, version int4 not null);

create table SCHEMA.kv (
    ident int8 not null, key bytea not null, long bytea, value bytea,
    primary key (ident, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1);
alter table SCHEMA.kv alter column key set storage plain;

create table SCHEMA.trees (ident int8 primary key);

-- How often the catalog has been changed, in a row of its own: every sight reads it.
create table SCHEMA.catalog (one int4 primary key, generation int8 not null) with (fillfactor = 10);
insert into SCHEMA.catalog values (1, 0);

-- What the catalog says of the collection with this tree.
create table SCHEMA.generations (ident int8 primary key, generation int8 not null) with (fillfactor = 50);

-- How many documents a collection has and how many bytes: the sum over slots, so that writers seldom meet.
create table SCHEMA.counts (
    ident int8 not null, slot int8 not null, records int8 not null, bytes int8 not null,
    primary key (ident, slot)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02);

create sequence SCHEMA.idents increment 64 start 64;

-- The processes that use the schema, each with a lease.
create table SCHEMA.fronts (front int8 primary key, until timestamptz not null);

-- Indexes being built, and the records that have changed meanwhile.
create table SCHEMA.builds (ident int8 primary key, front int8 not null, key_string bytea, type_bits bytea);
create table SCHEMA.marks (ident int8, record int8, primary key (ident, record));

-- Checks what a change expects, and applies it; raises VE001 where something isn't as expected. A unique key
-- that is taken raises 23505. The fence is held up by whoever changes the catalog.
--   g: collections' generations             i: keys that must be free, and get values
--   p: keys that get values, free or not    q: keys that must be free or have the value that they get
--   u: values to be replaced, by SHA-256    d: values to be removed, by SHA-256
--   x: keys to be removed, if the value is that of the SHA-256 or that is null
--   e: values that must be there, by SHA-256, or must not where that is null
--   o: keys that must be free or have a value, by SHA-256
--   n: bytes that no key may consist of with eight more
--   m: records changed in a collection with an index being built
--   c: how counts change
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
    ni int8[], nk bytea[],
    mi int8[], mr int8[],
    ci int8[], cs int8, cn int8[], cb int8[]
) returns void language plpgsql as $$
declare
    found_rows int8;
begin
    perform pg_advisory_xact_lock_shared(FENCE);
    if cardinality(ni) > 0 then
        for nth in 1 .. cardinality(ni) loop
            perform pg_advisory_xact_lock(hashtextextended(encode(nk[nth], 'hex'), ni[nth] # FENCE));
        end loop;
        for nth in 1 .. cardinality(ni) loop
            perform 1 from SCHEMA.kv t where (t.ident, t.key) >= (ni[nth], nk[nth])
                and (t.ident, t.key) <= (ni[nth], nk[nth] || '\xffffffffffffffff'::bytea)
                and octet_length(coalesce(t.long, t.key)) = octet_length(nk[nth]) + 8 limit 1;
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

-- Claims keys for the transaction under way: those that are there, and those that may come to be. Raises
-- 40001 where one has changed since the transaction's snapshot, 55P03 where another transaction has it.
create function SCHEMA.claim(ii int8[], ik bytea[], il bytea[]) returns void language plpgsql as $$
begin
    perform 1 from SCHEMA.kv t join unnest(ii, ik) x(i, k) on t.ident = x.i and t.key = x.k
        for update of t nowait;
    insert into SCHEMA.kv (ident, key, long) select * from unnest(ii, ik, il) on conflict do nothing;
end $$;

-- Keeps collections as they are until the transaction under way has ended. Raises 40001 where one has changed
-- since its snapshot, VE001 where it was another before.
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

insert into SCHEMA.version values (1, 1);
