-- Version 2: the log of changes, which change streams read. SCHEMA, FENCE and QUEUE are put in place by schema.rs.
--
-- A commit that is logged first writes what it has to tell under a number of its own. Then it takes its place
-- in the queue, an advisory lock that it keeps until it has ended, is given its time, and notes which number
-- has it. So no time is given before the commit of every earlier one can be seen: whoever reads the log sees
-- all entries up to a time, and none is ever added before.
--
-- Times are those of the oplog, less 2^63: seconds since 1970 in the high half.

create table SCHEMA.log (
    body int8, part int4, value bytea not null, primary key (body, part)
) with (autovacuum_vacuum_scale_factor = 0.1);

create table SCHEMA.log_order (
    time int8 primary key, body int8 not null, bytes int8 not null
) with (autovacuum_vacuum_scale_factor = 0.1);

-- Stretches of the log, each up to a time, by which it is trimmed.
create table SCHEMA.log_stretches (upto int8 primary key, bytes int8 not null);

create sequence SCHEMA.log_bodies;
create sequence SCHEMA.clock minvalue -9223372036854775808 start -9223372036854775808;

-- How many bytes of the log are kept; zero where there is none.
create table SCHEMA.log_limit (one int4 primary key, bytes int8 not null);
insert into SCHEMA.log_limit values (1, 1073741824);

-- What the limit is, for a front that wants another unless that is negative; raises VE002 where others rely on
-- there being a log, or none.
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
                message = 'others use the schema: whether it has a log is said when the first starts';
        end if;
        truncate SCHEMA.log, SCHEMA.log_order, SCHEMA.log_stretches;
    end if;
    update SCHEMA.log_limit set bytes = wanted where one = 1;
    return wanted;
end $$;

-- Writes an entry of so many bytes, and gives the last of so many times that it takes. Nothing may come behind
-- it in a transaction but the commit.
create function SCHEMA.record(earliest int8, ticks int8, parts int8[], vals bytea[], size int8) returns int8
language plpgsql as $$
declare
    own int8 := nextval('SCHEMA.log_bodies');
    at int8;
begin
    insert into SCHEMA.log select own, x.p, x.v from unnest(parts, vals) x(p, v);
    perform pg_advisory_xact_lock(QUEUE);
    at := nextval('SCHEMA.clock');
    if at < earliest or ticks > 1 then
        at := setval('SCHEMA.clock', greatest(at, earliest) + ticks - 1);
    end if;
    insert into SCHEMA.log_order values (at, own, size);
    return at;
end $$;

-- Lets the clock go on to a time, if it isn't there yet, and gives what it shows: later commits get later times.
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

-- Brings the stretches up to date, and removes the oldest while there is more than the limit says; gives the
-- bytes that are left. One front at a time does so, the others are only told.
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
            with gone as (delete from SCHEMA.log_order where time <= oldest.upto returning body)
            delete from SCHEMA.log l using gone where l.body = gone.body;
            delete from SCHEMA.log_stretches where upto = oldest.upto;
            held := held - oldest.bytes;
        end loop;
    else
        select coalesce(sum(bytes), 0) into held from SCHEMA.log_stretches;
    end if;
    return held;
end $$;

update SCHEMA.version set version = 2 where one = 1;
