#!/bin/bash
# Evaluates the expressions in the first column of a file by a PostgreSQL that psql finds (PGHOST, PGPORT, PGUSER),
# whose cluster was made by
#     initdb -E UTF8 --lc-collate=C --lc-ctype=C.UTF-8
# and writes the file anew to standard output:
#     tests/postgresql/expect.sh tests/postgresql/numbers.txt > new && mv new tests/postgresql/numbers.txt
set -euo pipefail
file=$1
expressions=$(mktemp)
trap 'rm -f "$expressions"' EXIT
grep -v -e '^#' -e '^$' "$file" | cut -f 1 > "$expressions"
psql -q -At -v ON_ERROR_STOP=1 <<SQL
set timezone = 'Europe/Berlin';
create function pg_temp.evaluate(expression text, out kind text, out result text) language plpgsql as \$\$
declare
    is_null boolean;
    state text;
    message text;
begin
    -- format() writes values as clients see them.
    execute 'select format(''%s'', x), x is null, pg_typeof(x)::text from (select (' || expression || ')) as t(x)'
        into result, is_null, kind;
    if is_null then
        result := null;
    end if;
exception when others then
    get stacked diagnostics state = returned_sqlstate, message = message_text;
    kind := '!' || state;
    result := message;
end \$\$;
create temporary table expressions (number serial, expression text);
\copy expressions (expression) from '$expressions'
select format('# PostgreSQL %s, TimeZone %s, LC_COLLATE %s, LC_CTYPE %s: expression, type or SQLSTATE, result or message.',
    split_part(current_setting('server_version'), ' ', 1), current_setting('timezone'), datcollate, datctype)
    from pg_database where datname = current_database();
copy (select expression, evaluated.* from expressions, pg_temp.evaluate(expression) evaluated order by number) to stdout;
SQL
