#!/usr/bin/env bash
# A throw-away PostgreSQL for the tests, on a unix socket in DIR: nothing listens on the network, nothing is synced.
#   eval "$(deploy/test-postgres.sh start DIR)"    starts it and prints SHUNTER_TEST_POSTGRES_URL
#   deploy/test-postgres.sh stop DIR               stops it and removes DIR
set -euo pipefail

usage() { sed -n '2,4s/^# *//p' "$0" >&2; exit 2; }
[ $# -eq 2 ] || usage
dir=$2
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
[ -n "$bin" ] || bin=$(dirname "$(command -v initdb || true)")
[ -x "$bin/initdb" ] || { echo "PostgreSQL is not installed (Debian: postgresql)" >&2; exit 1; }

# PostgreSQL refuses to run as root.
as_owner() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

case $1 in
start)
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if [ "$(id -u)" = 0 ]; then chown postgres "$dir"; fi
    as_owner "$bin/initdb" --pgdata "$dir/data" --username postgres --auth trust --encoding UTF8 --locale C.UTF-8 --no-sync >"$dir/initdb.log"
    # Redirected whole, or the server keeps the caller's pipe open.
    as_owner "$bin/pg_ctl" --pgdata "$dir/data" --log "$dir/data/server.log" --wait --timeout 30 --options \
        "-k '$dir' -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200" \
        start >"$dir/data/start.log" 2>&1 </dev/null
    echo "export SHUNTER_TEST_POSTGRES_URL='postgresql://postgres@/postgres?host=$dir'"
    ;;
stop)
    if [ -d "$dir/data" ]; then as_owner "$bin/pg_ctl" --pgdata "$dir/data" --mode immediate --wait stop >/dev/null; fi
    rm -rf "$dir"
    ;;
*) usage ;;
esac
