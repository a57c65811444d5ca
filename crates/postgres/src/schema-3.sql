-- Version 3: which life of the server this is, and whether a commit whose answer was lost has come to be. Fronts of
-- version 2 go on beside it.

-- The number of a life: PostgreSQL empties this table when it recovers from a crash, or is promoted.
create unlogged table SCHEMA.life (one int4 primary key, id int8 not null);

-- The number of this life. Whoever asks first in a life makes it, and has all read the catalog again: changes of
-- it may be lost, and others be made under the same generations.
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

-- The same as `record` of version 2, with a number that the front gives the entry.
create function SCHEMA.record(earliest int8, ticks int8, parts int8[], vals bytea[], size int8, own int8)
returns int8 language plpgsql as $$
declare
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

-- The time of the entry of this number, which was given after `since`; null where its commit has not come to be,
-- and never will: the row that is left here stands in its way. Waits for a commit under way.
create function SCHEMA.find_out(own int8, first int8, since int8) returns int8 language plpgsql as $$
declare
    at int8;
begin
    begin
        insert into SCHEMA.log values (own, first::int4, '');
        return null;
    exception when unique_violation then
        null;
    end;
    select time into at from SCHEMA.log_order where time >= since and body = own;
    return at;
end $$;

update SCHEMA.version set version = 3 where one = 1;
