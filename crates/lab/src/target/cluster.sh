# Makes a PostgreSQL cluster, or a standby of $PRIMARY, in a directory, and runs it. The first line of the output is its
# connection string, or the reason of a failure. The end of standard input stops the server, and removes the directory.
#
#   sh -c SCRIPT sh DIRECTORY PROGRAMS PORT JOURNAL [OPTION…]
#
# JOURNAL is an empty directory, or '' for the data directory. $PGPASSWORD is the password of the user postgres.
dir=$1 programs=$2 port=$3 journal=$4
shift 4
umask 077
fail() {
    echo "failed: $1: $(tail -n 3 "$dir/log" | tr '\n' ' ')"
    rm -rf "$dir"
    exit 1
}
ready() {
    [ -z "$PRIMARY" ] && { "$programs/pg_isready" -q -h 127.0.0.1 -p "$port"; return; }
    query="SELECT status FROM pg_stat_wal_receiver"
    [ "$("$programs/psql" -h 127.0.0.1 -p "$port" -U postgres -Atc "$query" 2>/dev/null)" = streaming ]
}
if [ "$PRIMARY" ]; then
    "$programs/pg_basebackup" -R -X stream -c fast --no-sync -D "$dir/data" -d "$PRIMARY" >"$dir/log" 2>&1 ||
        fail pg_basebackup
else
    # Other users of this machine can reach the port.
    echo "$PGPASSWORD" >"$dir/password"
    "$programs/initdb" -D "$dir/data" -U postgres -A scram-sha-256 --pwfile "$dir/password" -E UTF8 --no-locale \
        --no-sync ${journal:+-X "$journal/wal"} >"$dir/log" 2>&1 || fail initdb
    rm "$dir/password"
fi
exec 3<&0
"$programs/postgres" -D "$dir/data" -c listen_addresses=127.0.0.1 -c port="$port" -c max_connections=300 \
    -c unix_socket_directories="$dir" "$@" </dev/null 3<&- >"$dir/log" 2>&1 &
server=$!
# SIGINT does not wait for clients.
{ read -r _ <&3; kill -INT $server; } >/dev/null 2>&1 &
reader=$!
exec 3<&-
until ready; do
    kill -0 $server 2>/dev/null || { kill $reader; fail postgres; }
    sleep 0.05
done
echo "postgresql://postgres:$PGPASSWORD@127.0.0.1:$port/postgres"
wait $server
kill $reader 2>/dev/null
rm -rf "$dir"
