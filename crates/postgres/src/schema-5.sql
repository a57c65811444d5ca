-- Version 5: what is dropped is gone at once, and its rows go behind, some at a time. Fronts of versions 2 to 4 go on
-- beside it, and remove the rows of what they drop themselves.

-- Trees that are gone, whose rows aren't yet, and from which key on there may be some: not to walk over those again
-- that have been removed and that somebody's old snapshot still needs.
create table SCHEMA.dropped (ident int8 primary key, since bytea not null) with (fillfactor = 50);

-- Removes so many rows at most of what has been dropped; how many there were. Negative where there was nothing to do,
-- or another front was at it.
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

update SCHEMA.version set version = 5 where one = 1;
