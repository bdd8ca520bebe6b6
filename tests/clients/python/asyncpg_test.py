"""asyncpg, with its pool, against a primary and its standby."""

import asyncio
import os
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import asyncpg

PRIMARY, STANDBY = os.environ["PRIMARY"], os.environ["STANDBY"]


def same(found, wanted, what):
    # Its UUIDs are a kind of Python's.
    if found != wanted or not isinstance(found, type(wanted)):
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}")


def options(port):
    return {"host": "127.0.0.1", "port": port, "user": "freshet", "database": "freshet", "ssl": False}


TYPES = [
    ("boolean", [True, False]),
    ("smallint", [0, -32768]),
    ("integer", [2**31 - 1]),
    ("bigint", [-(2**63)]),
    ("real", [1.5, float("inf")]),
    ("double precision", [0.1, -1e300]),
    ("numeric", [Decimal("-12.340"), Decimal("99999999999999999999.123456789")]),
    ("text", ["", "äöü €"]),
    ("varchar(10)", ["ten chars!"]),
    ("bytea", [b"", b"\0\1\xff"]),
    ("date", [date(2024, 2, 29), date(1, 1, 1)]),
    ("time", [time(23, 59, 59, 999999)]),
    ("timestamp", [datetime(2024, 2, 29, 12, 0, 0, 1)]),
    ("timestamptz", [datetime(2024, 2, 29, 12, 0, 0, 1, timezone.utc)]),
    ("interval", [timedelta(days=-3, hours=5, microseconds=7)]),
    ("uuid", [uuid.UUID(int=5)]),
    ("jsonb", ['{"a": [1, 2.5, null]}']),
]


async def types():
    connection = await asyncpg.connect(**options(PRIMARY))
    for number, (name, values) in enumerate(TYPES):
        # Statements are kept prepared, each by its text.
        await connection.execute(f"CREATE TABLE kept_{number} (n serial PRIMARY KEY, v {name}, a {name}[])")
        for value in [*values, None]:
            row = await connection.fetchrow(
                f"INSERT INTO kept_{number} (v, a) VALUES ($1, $2) RETURNING v, a", value, None if value is None else [value, None]
            )
            same(row["v"], value, name)
            same(row["a"], None if value is None else [value, None], f"{name} in an array")
        await connection.execute(f"DROP TABLE kept_{number}")
    same(await connection.fetchval("SELECT 'pg_class'::regclass::text"), "pg_class", "regclass")
    status = await connection.execute("CREATE TABLE none (a integer)")
    same(status, "CREATE TABLE", "tag")
    await connection.execute("DROP TABLE none")
    await connection.close()


async def rows():
    connection = await asyncpg.connect(**options(PRIMARY))
    await connection.execute("CREATE TABLE piece (id serial PRIMARY KEY, name text UNIQUE, price numeric(8, 2), tags text[])")
    await connection.executemany(
        "INSERT INTO piece (name, price, tags) VALUES ($1, $2, $3)",
        [(f"item {n}", Decimal(n), [str(n)]) for n in range(100)],
    )
    same(await connection.fetchval("SELECT count(*) FROM piece"), 100, "executemany")
    copied = await connection.copy_records_to_table(
        "piece", records=[(f"more {n}", Decimal(n), []) for n in range(1000)], columns=["name", "price", "tags"]
    )
    same(copied, "COPY 1000", "COPY")
    result = await connection.copy_from_query("SELECT id, name FROM piece WHERE id <= $1 ORDER BY id", 2, output=os.devnull)
    same(result, "COPY 2", "COPY from a query")
    async with connection.transaction():
        seen = []
        async for record in connection.cursor("SELECT id FROM piece WHERE id <= 20 ORDER BY id", prefetch=7):
            seen.append(record["id"])
        same(seen, list(range(1, 21)), "a cursor")
    try:
        async with connection.transaction():
            await connection.execute("DELETE FROM piece")
            async with connection.transaction():
                await connection.execute("INSERT INTO piece (name) VALUES ('x'), ('x')")
        raise SystemExit("a duplicate was taken")
    except asyncpg.UniqueViolationError as error:
        same(error.constraint_name, "piece_name_key", "constraint")
    same(await connection.fetchval("SELECT count(*) FROM piece"), 1100, "rolled back")
    for level in ("serializable", "repeatable_read", "read_committed"):
        async with connection.transaction(isolation=level, readonly=True, deferrable=level == "serializable"):
            same(await connection.fetchval("SHOW transaction_isolation"), level.replace("_", " "), "isolation")
    prepared = await connection.prepare("SELECT name FROM piece WHERE id = $1")
    same([it.name for it in prepared.get_attributes()], ["name"], "attributes")
    same([it.name for it in prepared.get_parameters()], ["int4"], "parameters")
    same([it["name"] for it in await prepared.fetch(1)], ["item 0"], "prepared")
    same(prepared.get_statusmsg(), "SELECT 1", "status")
    await connection.execute("DROP TABLE piece")
    await connection.close()


async def pools():
    async with asyncpg.create_pool(**options(PRIMARY), min_size=2, max_size=5) as pool:
        await pool.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer)")
        await pool.execute("INSERT INTO counter VALUES (1, 0)")

        async def count():
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("SET application_name = 'counting'")
                await connection.execute("UPDATE counter SET n = n + 1 WHERE id = 1")

        await asyncio.gather(*(count() for _ in range(50)))
        same(await pool.fetchval("SELECT n FROM counter"), 50, "counted by many at once")
        async with pool.acquire() as connection:
            same(await connection.fetchval("SHOW application_name"), "", "reset")
        await pool.execute("DROP TABLE counter")


async def standby():
    async with asyncpg.create_pool(**options(STANDBY), min_size=1, max_size=2) as pool:
        same(len(await pool.fetch("SELECT * FROM plain")), 3, "read")
        try:
            await pool.execute("DELETE FROM plain")
            raise SystemExit("changed a standby")
        except asyncpg.ReadOnlySQLTransactionError:
            pass
    connection = await asyncpg.connect(**options(STANDBY), target_session_attrs="prefer-standby")
    await connection.close()


async def main():
    for test in (types, rows, pools, standby):
        print(f"   {test.__name__}", flush=True)
        await test()


asyncio.run(main())
