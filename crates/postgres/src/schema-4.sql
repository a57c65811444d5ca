-- Version 4: what commits of one statement call, which direct.rs puts together. Fronts of versions 2 and 3 go on beside it.

-- The last of so many times, for an entry of the log: the place in the queue is this transaction's until it ends.
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

-- Says that something isn't as expected.
create function SCHEMA.changed() returns bool language plpgsql as $$
begin
    raise exception using errcode = 'VE001', message = 'changed';
end $$;

update SCHEMA.version set version = 4 where one = 1;
