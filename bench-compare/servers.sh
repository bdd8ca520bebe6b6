# PostgreSQL and Freshet, each a primary with a synchronous standby on this machine, for the comparisons here (sourced by them).
#
# Needs PostgreSQL's programs (initdb, pg_basebackup; found by pg_config, or in PGBIN), a build of freshet for benchmarks (found in
# target/dist, or in FRESHET), and, for root, a user "postgres" to run PostgreSQL as. Data go to $base. All that is started ends with the script.
#
# Sets dir (for files of the script) and bin; set_server and set_standby postgresql|freshet set host, port, user and database.

freshet=${FRESHET:-target/dist/freshet}
bin=${PGBIN:-$(pg_config --bindir)}
dir=$(mktemp -d "$base/freshet-compare.XXXXXX")
chmod 755 "$dir"
as_user=()
if [ "$(id -u)" = 0 ]; then
    as_user=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    install -d -o postgres "$dir/pg"
else
    mkdir "$dir/pg"
fi
pids=()
cleanup() {
    for data in "$dir"/pg/*/; do
        [ -f "$data/postmaster.pid" ] && "${as_user[@]}" "$bin/pg_ctl" -D "$data" -m immediate stop >/dev/null 2>&1 || true
    done
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# --- PostgreSQL: defaults but for what makes it fast in memory ---
one=$(free_port) two=$(free_port)
"${as_user[@]}" "$bin/initdb" -D "$dir/pg/one" -U bench --auth=trust >"$dir/initdb.log"
cat >>"$dir/pg/one/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 1GB
max_connections = 200
max_wal_size = 8GB
checkpoint_timeout = 1h
synchronous_commit = on
synchronous_standby_names = '*'
CONF
"${as_user[@]}" "$bin/pg_ctl" -D "$dir/pg/one" -o "-p $one" -l "$dir/pg/one.log" -w start >/dev/null
"${as_user[@]}" "$bin/pg_basebackup" -h 127.0.0.1 -p "$one" -U bench -D "$dir/pg/two" -R -X stream
"${as_user[@]}" "$bin/pg_ctl" -D "$dir/pg/two" -o "-p $two" -l "$dir/pg/two.log" -w start >/dev/null
"$bin/createdb" -h 127.0.0.1 -p "$one" -U bench bench

# --- Freshet: defaults, 2-safe with one standby; as with PostgreSQL above, no password by TCP ---
echo "host all all 127.0.0.1/32 trust" >"$dir/access"
ready() { for _ in $(seq 600); do grep -qs '^ready' "$1" && return; sleep 0.1; done; cat "$1" >&2; exit 1; }
field() { sed -n 's/^ready //p' "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)['$2'])"; }
"$freshet" serve --new-cluster --directory "$dir/f1" --address 127.0.0.1:0 --listen 127.0.0.1:0 --sql-listen 127.0.0.1:0 \
    --sql-access "$dir/access" --safety 2-safe --standbys 1 >"$dir/f1.log" 2>&1 &
pids+=($!)
ready "$dir/f1.log"
"$freshet" serve --directory "$dir/f2" --address 127.0.0.1:0 --listen 127.0.0.1:0 --sql-listen 127.0.0.1:0 \
    --sql-access "$dir/access" --join "$(field "$dir/f1.log" listen)" >"$dir/f2.log" 2>&1 &
pids+=($!)
ready "$dir/f2.log"
sql=$(field "$dir/f1.log" sql)
standby_sql=$(field "$dir/f2.log" sql)
"$bin/createdb" -h 127.0.0.1 -p "${sql##*:}" -U freshet bench

# Whom the next commands speak to.
set_server() {
    host=127.0.0.1 database=bench
    if [ "$1" = postgresql ]; then port=$one user=bench; else port=${sql##*:} user=freshet; fi
}

# The same on the standby.
set_standby() {
    set_server "$1"
    if [ "$1" = postgresql ]; then port=$two; else port=${standby_sql##*:}; fi
}
