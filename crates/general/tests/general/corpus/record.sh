#!/usr/bin/env bash
# Records what PostgreSQL answers to the queries in this folder, for the test that asks them here.
# Usage: PGHOST=... PGPORT=... PGUSER=... ./record.sh     (a database that may be filled is needed; 15 was recorded)
set -euo pipefail
cd "$(dirname "$0")"
export PGDATABASE=freshet_corpus PGTZ=UTC PGCLIENTENCODING=UTF8 PGOPTIONS='-c lc_messages=C'
psql -Xq -d postgres -c 'DROP DATABASE IF EXISTS freshet_corpus' \
    -c "CREATE DATABASE freshet_corpus TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
psql -Xq -v ON_ERROR_STOP=1 -f ../fixture.sql

ask() { psql -XqAt -v VERBOSITY=verbose -P null=∅ 2>&1 || true; }
for file in *.sql; do
    query=
    while IFS= read -r line || [ -n "$line" ]; do
        query+=${query:+ }$line
        case $line in *\;) ;; *) continue ;; esac
        printf '> %s\n' "$query"
        described=$(ask <<<"${query%;} \\gdesc")
        case $described in
            ERROR:*) head -n 1 <<<"$described" | sed -E 's/^ERROR:  ([0-9A-Z]{5}): /! \1 /' ;;
            *)
                [ -z "$described" ] || sed 's/^/: /' <<<"$described"
                answer=$(ask <<<"$query" && echo .)
                answer=${answer%.}
                answer=${answer%$'\n'}
                case $answer in
                    ERROR:*) head -n 1 <<<"$answer" | sed -E 's/^ERROR:  ([0-9A-Z]{5}): /! \1 /' ;;
                    "") [ -z "$(ask <<<"$query" | head -c 1 | od -An -c)" ] || echo '= ' ;;
                    *) sed 's/^/= /' <<<"$answer" ;;
                esac ;;
        esac
        query=
    done <"$file" >"${file%.sql}.out"
done
