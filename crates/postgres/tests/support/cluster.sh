#!/usr/bin/env bash
# Runs a PostgreSQL server for tests. Its cluster is in a temporary directory, which the script removes.
#
#   cluster.sh BIN PORT FILES [-c NAME=VALUE…]
#
# BIN is the folder of PostgreSQL's programs. FILES is empty, or a folder whose files are copied beside the data directory,
# and pg_hba.conf into it. The script prints "ready". It restarts the server for each line "restart", and stops it when
# standard input ends. Root runs the programs as the user postgres, because initdb refuses to run as root. If
# VELLUM_TEST_PRIMARY is a port, the server is a standby of the server on that port.
set -e
bin=$1 port=$2 files=$3
shift 3
directory=$(mktemp -d /tmp/vellum-postgres.XXXXXX)
trap 'rm -rf "$directory"' EXIT
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
    chown postgres "$directory"
    as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"; }
fi
cd /
primary=${VELLUM_TEST_PRIMARY:-}
if [ -n "$primary" ]; then
    as "$bin/pg_basebackup" -D "$directory/data" -h 127.0.0.1 -p "$primary" -U postgres -c fast -X stream --no-sync
    as touch "$directory/data/standby.signal"
    set -- "$@" -c "primary_conninfo=host=127.0.0.1 port=$primary user=postgres application_name=standby"
else
    as "$bin/initdb" -D "$directory/data" -U postgres -A trust -E UTF8 --no-locale --no-sync >/dev/null
fi
if [ -n "$files" ]; then
    cp "$files"/* "$directory"
    [ ! -e "$files/pg_hba.conf" ] || cp "$files/pg_hba.conf" "$directory/data"
    chmod 600 "$directory"/*.*
    [ "$(id -u)" != 0 ] || chown -R postgres "$directory"
fi
start() {
    as "$bin/postgres" -D "$directory/data" -p "$port" -k "" -h 127.0.0.1 -c fsync=off -c max_connections=300 \
        -c shared_buffers=64MB -c logging_collector=off -c log_min_messages=error "$@" \
        2>"$directory/log" &
    server=$!
    for _ in $(seq 300); do
        if "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; then break; fi
        if ! kill -0 $server 2>/dev/null; then cat "$directory/log" >&2; exit 1; fi
        sleep 0.1
    done
    echo ready
}
stop() {
    kill -INT "$(head -1 "$directory/data/postmaster.pid")"
    wait $server || true
}
start "$@"
while read -r line; do
    [ "$line" = restart ] || continue
    stop
    # Clients find a closed port for a moment.
    sleep 1
    start "$@"
done
stop
