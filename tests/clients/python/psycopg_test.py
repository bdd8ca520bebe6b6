"""psycopg 3 against a primary and its standby."""

import io
import os
import threading
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Json, Jsonb
from psycopg.types.numeric import Int2, Int4, Int8

PRIMARY, STANDBY = os.environ["PRIMARY"], os.environ["STANDBY"]


def connect(port=PRIMARY, **more):
    return psycopg.connect(port=port, **more)


def same(found, wanted, what):
    if found != wanted or type(found) is not type(wanted):
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}")


def refused(state, what):
    """Expects an error with this SQLSTATE."""

    class Refused:
        def __enter__(self):
            return self

        def __exit__(self, _, error, __):
            if not isinstance(error, psycopg.Error):
                raise SystemExit(f"{what}: expected SQLSTATE {state}, found {error!r}")
            self.error = error
            same(error.sqlstate, state, what)
            return True

    return Refused()


UTC = timezone.utc
# Type, values, and whether an array of them is to be tried, too.
TYPES = [
    ("boolean", [True, False]),
    ("smallint", [0, -32768, 32767]),
    ("integer", [0, -(2**31), 2**31 - 1]),
    ("bigint", [0, -(2**63), 2**63 - 1]),
    ("real", [0.0, -1.5, float("inf"), 0.0009765625]),
    ("double precision", [0.1, -1e300, float("-inf"), 5e-324]),
    ("numeric", [Decimal("0"), Decimal("-12.340"), Decimal("99999999999999999999.123456789")]),
    ("numeric(8, 2)", [Decimal("123456.78"), Decimal("-0.01")]),
    ("text", ["", "a", "äöü €", "quote' \" \\ \n\t", "x" * 100_000]),
    ("varchar(10)", ["", "ten chars!"]),
    ("char(3)", ["abc", "a  "]),
    ("name", ["name"]),
    ("bytea", [b"", b"\0\1\xff", bytes(range(256)) * 100]),
    ("date", [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
    ("time", [time(0), time(23, 59, 59, 999999)]),
    ("timestamp", [datetime(2024, 2, 29, 12, 0, 0, 1), datetime(1, 1, 1)]),
    ("timestamptz", [datetime(2024, 2, 29, 12, 0, 0, 1, UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
    ("interval", [timedelta(0), timedelta(days=-3, hours=5, microseconds=7), timedelta(days=400)]),
    ("uuid", [uuid.UUID(int=0), uuid.UUID("12345678-1234-5678-1234-567812345678")]),
    ("json", [None, {"a": [1, 2.5, "x", None, True]}, [], "text"]),
    ("jsonb", [{"a": [1, 2.5, "x", None, True]}, {}, "text", 7]),
    ("oid", [0, 4294967295]),
]


def wrap(name, value):
    """What psycopg needs to be told of a value."""
    return {"json": Json, "jsonb": Jsonb}.get(name, lambda it: it)(value)


def types():
    with connect(autocommit=True) as connection:
        for name, values in TYPES:
            table = sql.Identifier("kept")
            connection.execute(
                sql.SQL("CREATE TABLE {} (n integer PRIMARY KEY, v {}, a {}[])").format(table, sql.SQL(name), sql.SQL(name))
            )
            values = [value for value in values if not (name == "json" and value is None)]
            for binary in (False, True):
                cursor = connection.cursor(binary=binary)
                mark = "%b" if binary else "%t"
                if name in ("json", "jsonb", "interval", "numeric", "numeric(8, 2)"):
                    mark = "%s"
                for number, value in enumerate([*values, None]):
                    what = f"{name} {value!r:.60} {'binary' if binary else 'text'}"
                    given = None if value is None else wrap(name, value)
                    array = None if value is None else [given, None]
                    cast = f"{mark}::{name}"
                    cursor.execute(
                        f"INSERT INTO kept VALUES ({number}, {cast}, {mark}::{name}[]) RETURNING v, a, v IS NULL",
                        [given, array],
                        prepare=False,
                    )
                    v, a, null = cursor.fetchone()
                    same(null, value is None, f"{what} is null")
                    same(v, value, what)
                    same(a, None if value is None else [value, None], f"{what} in an array")
                # A prepared statement may not return other types than before, so it is not prepared.
                cursor.execute("SELECT v, a FROM kept ORDER BY n", prepare=False)
                found = [row[0] for row in cursor.fetchall()]
                same(found, [*values, None], f"all of {name}")
                cursor.execute("DELETE FROM kept")
            connection.execute("DROP TABLE kept")
        same(connection.execute("SELECT %s::numeric", [Decimal("NaN")]).fetchone()[0].is_nan(), True, "NaN")
        same(connection.execute("SELECT ARRAY[[1, 2], [3, NULL]]").fetchone()[0], [[1, 2], [3, None]], "nested array")
        same(connection.execute("SELECT %s", [[1, 2**40]]).fetchone()[0], [1, 2**40], "array of bigint")
        same(connection.execute("SELECT %s::text[]", [[]]).fetchone()[0], [], "empty array")
        cursor = connection.execute("SELECT 1 AS one, 'x' AS two, 1.5::numeric(6, 2) AS three, now() AS four")
        described = [(column.name, column.type_code) for column in cursor.description]
        same(described, [("one", 23), ("two", 25), ("three", 1700), ("four", 1184)], "description")
        same((cursor.description[2].precision, cursor.description[2].scale), (6, 2), "precision")
        same(connection.execute("SELECT %s + %s", [Int2(1), Int8(2)]).fetchone()[0], 3, "integers of several widths")
        same(connection.execute("SELECT %s::int4", [Int4(5)]).fetchone()[0], 5, "int4")


def rows():
    with connect() as connection:
        connection.execute("CREATE TABLE item (id serial PRIMARY KEY, name text NOT NULL UNIQUE, price numeric(8, 2), tags text[])")
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO item (name, price, tags) VALUES (%s, %s, %s) RETURNING id",
                [(f"item {n}", Decimal(n) / 4, [str(n)]) for n in range(10)],
                returning=True,
            )
            ids = []
            while True:
                ids.append(cursor.fetchone()[0])
                if not cursor.nextset():
                    break
            same(ids, list(range(1, 11)), "ids of executemany")
            same(cursor.execute("UPDATE item SET price = price * 2 WHERE id <= %s", [4]).rowcount, 4, "rowcount")
            same(cursor.statusmessage, "UPDATE 4", "status")
        connection.commit()
        with connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute("SELECT * FROM item WHERE id = ANY(%s) ORDER BY id", [[1, 2]])
            same(
                cursor.fetchall(),
                [
                    {"id": 1, "name": "item 0", "price": Decimal("0.00"), "tags": ["0"]},
                    {"id": 2, "name": "item 1", "price": Decimal("0.50"), "tags": ["1"]},
                ],
                "rows as dictionaries",
            )
        # Statements that were run often are prepared.
        for n in range(10):
            same(connection.execute("SELECT name FROM item WHERE id = %s", [n + 1]).fetchone()[0], f"item {n}", "prepared")
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]
        same(prepared >= 1, True, "there are prepared statements")
        connection.execute("ALTER TABLE item ADD COLUMN note text DEFAULT 'new'")
        same(connection.execute("SELECT name FROM item WHERE id = %s", [1]).fetchone()[0], "item 0", "prepared before ALTER")
        connection.commit()


def copies():
    with connect() as connection:
        connection.execute("CREATE TABLE copied (a integer, b text, c bytea, d timestamptz, e numeric, f integer[])")
        data = [
            (1, "one", b"\1", datetime(2024, 1, 2, tzinfo=UTC), Decimal("1.50"), [1, None]),
            (2, None, None, None, None, None),
            (3, "tab\t\"quote\" \\ \n€", b"", datetime(1970, 1, 1, tzinfo=UTC), Decimal("-3"), []),
        ]
        with connection.cursor() as cursor:
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for row in data:
                    copy.write_row(row)
            same(cursor.rowcount, 3, "rows copied in")
            with cursor.copy("COPY copied (a, b, c, d, e, f) FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["int4", "text", "bytea", "timestamptz", "numeric", "int4[]"])
                for row in data:
                    copy.write_row(row)
            with cursor.copy("COPY copied (a, b) FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write('a,b\n7,"seven, ""7"""\n8,\n')
            cursor.execute("SELECT * FROM copied ORDER BY a")
            found = cursor.fetchall()
            same(found[0:6:2], data, "copied as text or binary")
            same(found[1:6:2], data, "copied as binary or text")
            same(found[6:], [(7, 'seven, "7"', *[None] * 4), (8, None, *[None] * 4)], "copied as CSV")
            with cursor.copy("COPY (SELECT * FROM copied WHERE a < 4 ORDER BY a) TO STDOUT (FORMAT binary)") as copy:
                copy.set_types(["int4", "text", "bytea", "timestamptz", "numeric", "int4[]"])
                same([row for row in copy.rows()][::2], data, "copied out as binary")
            with cursor.copy("COPY (SELECT a, b FROM copied WHERE a IN (1, 2, 3) ORDER BY a) TO STDOUT") as copy:
                same([row for row in copy.rows()][4], ("3", data[2][1]), "copied out as text")
            out = io.BytesIO()
            with cursor.copy("COPY (SELECT a, b FROM copied WHERE a > 6 ORDER BY a) TO STDOUT (FORMAT csv)") as copy:
                for block in copy:
                    out.write(block)
            same(out.getvalue(), b'7,"seven, ""7"""\n8,\n', "copied out as CSV")
            # Many rows in one go.
            with cursor.copy("COPY copied (a, b) FROM STDIN") as copy:
                for n in range(20_000):
                    copy.write_row((n, "x" * 50))
            same(cursor.execute("SELECT count(*), sum(length(b)) FROM copied WHERE b LIKE 'xx%'").fetchone(), (20_000, 1_000_000), "many")
        connection.rollback()
        with refused("22P02", "a wrong value in COPY"):
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE copied (a integer)")
                with cursor.copy("COPY copied FROM STDIN") as copy:
                    copy.write("1\nx\n")
        connection.rollback()
        with refused("57014", "a COPY that the client gives up"):
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE copied (a integer)")
                with cursor.copy("COPY copied FROM STDIN") as copy:
                    copy.write("1\n")
                    raise psycopg.errors.QueryCanceled("given up")
        connection.rollback()


def pipelines():
    with connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE piped (a integer PRIMARY KEY)")
        with connection.pipeline() as pipeline:
            cursors = [connection.execute("INSERT INTO piped VALUES (%s) RETURNING a", [n]) for n in range(50)]
            pipeline.sync()
            counted = connection.execute("SELECT count(*) FROM piped")
            same([cursor.fetchone()[0] for cursor in cursors], list(range(50)), "a pipeline's rows")
            same(counted.fetchone()[0], 50, "counted in a pipeline")
        with refused("23505", "a pipeline that fails"):
            with connection.pipeline():
                connection.execute("INSERT INTO piped VALUES (100)")
                connection.execute("INSERT INTO piped VALUES (1)")
                connection.execute("INSERT INTO piped VALUES (101)")
        same(connection.execute("SELECT count(*) FROM piped").fetchone()[0], 50, "a failed pipeline leaves nothing")
        with connection.transaction(), connection.pipeline():
            connection.execute("INSERT INTO piped VALUES (200)")
            connection.execute("INSERT INTO piped VALUES (201)")
        same(connection.execute("SELECT count(*) FROM piped").fetchone()[0], 52, "a transaction in a pipeline")
        connection.execute("DROP TABLE piped")


def cursors():
    for port in (PRIMARY, STANDBY):
        with connect(port) as connection:
            with connection.cursor("rows") as cursor:
                cursor.itersize = 100
                cursor.execute("SELECT n, n * 2 FROM generate_series(1, %s) AS n", [1000])
                same(sum(row[1] for row in cursor), 1_001_000, "a cursor of the server")
            with connection.cursor("some") as cursor:
                cursor.execute("SELECT n FROM generate_series(1, 10) AS n")
                same(cursor.fetchmany(3), [(1,), (2,), (3,)], "FETCH")
                same(cursor.fetchone(), (4,), "FETCH one")
                same(len(cursor.fetchall()), 6, "FETCH ALL")
            explained = connection.execute("EXPLAIN SELECT * FROM plain WHERE a = %s", [1]).fetchall()
            same(len(explained) > 0, True, "EXPLAIN with a parameter")
            with refused("34000", "a cursor that is not there"):
                connection.execute("FETCH 1 FROM nothing")


def notices_and_errors():
    with connect(autocommit=True) as connection:
        heard = []
        connection.add_notice_handler(lambda notice: heard.append((notice.severity, notice.sqlstate, notice.message_primary)))
        connection.execute("DROP TABLE IF EXISTS nowhere")
        same(heard, [("NOTICE", "00000", 'table "nowhere" does not exist, skipping')], "a notice")
        for state, statement in [
            ("42601", "SELEC 1"),
            ("42P01", "SELECT * FROM nowhere"),
            ("42703", "SELECT nothing FROM plain"),
            ("42883", "SELECT nothing(1)"),
            ("42804", "SELECT 1 WHERE 1"),
            ("42702", "SELECT a FROM plain x, plain y"),
            ("42803", "SELECT a, count(*) FROM plain"),
            ("42P07", "CREATE TABLE plain (a integer)"),
            ("42710", "CREATE ROLE reader"),
            ("42P06", "CREATE SCHEMA app"),
            ("22012", "SELECT 1 / 0"),
            ("22003", "SELECT 2147483647::integer + 1::integer"),
            ("22P02", "SELECT 'x'::integer"),
            ("22001", "SELECT 'abc'::varchar(10)::text; INSERT INTO app.customer (name, email) VALUES ('a', repeat('x', 50))"),
            ("22008", "SELECT '2024-02-30'::date"),
            ("22007", "SELECT 'nonsense'::timestamp"),
            ("23502", "INSERT INTO app.customer (name) VALUES (NULL)"),
            ("23505", "INSERT INTO app.customer (name, email) VALUES ('x', 'ada@example.org')"),
            ("23503", "INSERT INTO app.orders (customer) VALUES (999)"),
            ("23514", "INSERT INTO app.customer (name, balance) VALUES ('x', -1)"),
            ("428C9", "INSERT INTO app.orders (id, customer) VALUES (1, 1)"),
            ("2BP01", "DROP TABLE app.customer"),
            ("25P01", "SAVEPOINT a"),
            ("26000", "EXECUTE nothing"),
            ("3D000", None),
        ]:
            if statement is not None:
                with refused(state, statement):
                    connection.execute(statement)
        with refused("23505", "a duplicate") as caught:
            connection.execute("INSERT INTO app.customer (name, email) VALUES ('x', 'ada@example.org')")
        diagnosis = caught.error.diag
        same(diagnosis.constraint_name, "customer_email_key", "the constraint that is violated")
        same(diagnosis.message_detail, "Key (email)=(ada@example.org) already exists.", "what it says")
        same(isinstance(caught.error, psycopg.errors.UniqueViolation), True, "its class")
        with refused("42601", "a syntax error") as caught:
            connection.execute("SELECT 1\nFROM plain WHERE = 1")
        same(caught.error.diag.statement_position, "27", "where a syntax error is")
        same(connection.execute("SELECT 1").fetchone()[0], 1, "after errors")


def cancelling():
    with connect(autocommit=True) as connection:
        timer = threading.Timer(0.2, connection.cancel_safe)
        timer.start()
        with refused("57014", "a cancelled statement"):
            connection.execute("SELECT pg_sleep(60)")
        timer.join()
        same(connection.execute("SELECT 1").fetchone()[0], 1, "after a cancelled statement")
        connection.execute("SET statement_timeout = 100")
        with refused("57014", "a statement that takes too long"):
            connection.execute("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 1000) b")
        connection.execute("RESET statement_timeout")
        with connect(autocommit=True) as other:
            same(other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid]).fetchone()[0], True, "terminated")
        with refused("57P01", "a session that was ended"):
            connection.execute("SELECT 1")
        same(connection.broken, True, "a session that was ended is broken")


def transactions():
    with connect() as one, connect() as two:
        one.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer NOT NULL)")
        one.execute("INSERT INTO account VALUES (1, 100), (2, 100)")
        one.commit()
        for level in psycopg.IsolationLevel:
            if level is psycopg.IsolationLevel.READ_UNCOMMITTED:
                continue
            one.isolation_level = two.isolation_level = level
            shown = one.execute("SHOW transaction_isolation").fetchone()[0]
            same(shown, level.name.lower().replace("_", " "), "isolation")
            before = one.execute("SELECT sum(amount) FROM account").fetchone()[0]
            two.execute("UPDATE account SET amount = amount + 10 WHERE id = 1")
            two.commit()
            after = one.execute("SELECT sum(amount) FROM account").fetchone()[0]
            seen = 10 if level is psycopg.IsolationLevel.READ_COMMITTED else 0
            same(after - before, seen, f"what {level.name} sees")
            if level is psycopg.IsolationLevel.READ_COMMITTED:
                one.execute("UPDATE account SET amount = amount - 10 WHERE id = 1")
                one.commit()
            else:
                with refused("40001", f"a row that was changed since, {level.name}"):
                    one.execute("UPDATE account SET amount = 0 WHERE id = 1")
                one.rollback()
        # Write skew.
        one.isolation_level = two.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        for connection, own in ((one, 1), (two, 2)):
            connection.execute("SELECT sum(amount) FROM account").fetchone()
            connection.execute("UPDATE account SET amount = 0 WHERE id = %s", [own])
        one.commit()
        with refused("40001", "write skew"):
            two.commit()
        two.rollback()
        one.isolation_level = two.isolation_level = None
        with one.transaction():
            one.execute("INSERT INTO account VALUES (3, 3)")
            try:
                with one.transaction():
                    one.execute("INSERT INTO account VALUES (4, 4)")
                    raise ValueError
            except ValueError:
                pass
            with one.transaction() as inner:
                one.execute("INSERT INTO account VALUES (5, 5)")
                raise psycopg.Rollback(inner)
        same(one.execute("SELECT count(*) FROM account").fetchone()[0], 3, "savepoints")
        one.commit()
        two.read_only = True
        with refused("25006", "a transaction that only reads"):
            two.execute("DELETE FROM account")
        two.rollback()
        one.execute("DROP TABLE account")
        one.commit()
        # Two phases are not offered.
        with refused("0A000", "PREPARE TRANSACTION"):
            one.execute("PREPARE TRANSACTION 'x'")
        one.rollback()


def notifications():
    with connect(autocommit=True) as writer, connect(autocommit=True) as here, connect(STANDBY, autocommit=True) as there:
        for listener in (here, there):
            listener.execute("LISTEN news")
        with writer.transaction():
            writer.execute("SELECT pg_notify('news', 'it rains')")
            writer.execute("NOTIFY news, 'it snows'")
        for listener, what in ((here, "at the primary"), (there, "at the standby")):
            heard = [it.payload for it in listener.notifies(timeout=60, stop_after=2)]
            same(heard, ["it rains", "it snows"], f"notifications {what}")
        with refused("25006", "NOTIFY at a standby"):
            there.execute("NOTIFY news")


def standby():
    with connect(autocommit=True) as primary, connect(STANDBY, autocommit=True) as connection:
        primary.execute("CREATE TABLE shown (a integer PRIMARY KEY)")
        primary.execute("INSERT INTO shown SELECT n FROM generate_series(1, 100) n")
        lsn = primary.execute("SHOW freshet.last_commit").fetchone()[0]
        connection.execute(sql.SQL("SET freshet.read_after = {}").format(lsn))
        same(connection.execute("SELECT count(*) FROM shown").fetchone()[0], 100, "read after a commit")
        same(connection.execute("SELECT pg_is_in_recovery()").fetchone()[0], True, "a standby")
        with refused("25006", "a change at a standby"):
            connection.execute("DELETE FROM shown")
        with connection.cursor().copy("COPY shown TO STDOUT") as copy:
            same(len(list(copy.rows())), 100, "copied from a standby")
        primary.execute("DROP TABLE shown")


def access():
    with connect(autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'a password'")
        connection.execute("GRANT SELECT ON plain TO clerk")
    with connect(user="clerk", password="a password", autocommit=True) as connection:
        same(connection.execute("SELECT current_user, count(*) FROM plain").fetchone(), ("clerk", 3), "a role that may read")
        with refused("42501", "a role that may not write"):
            connection.execute("DELETE FROM plain")
    try:
        connect(user="clerk", password="another").close()
        raise SystemExit("a wrong password was let in")
    except psycopg.OperationalError as error:
        same("password authentication failed" in str(error), True, f"a wrong password: {error}")


for test in (types, rows, copies, pipelines, cursors, notices_and_errors, cancelling, transactions, notifications, standby, access):
    print(f"   {test.__name__}", flush=True)
    test()
