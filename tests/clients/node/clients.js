// node-postgres against a primary and its standby.
'use strict';
const { Client, Pool, types } = require('pg');
const Cursor = require('pg-cursor');
const assert = require('node:assert/strict');

const base = { host: '127.0.0.1', user: 'freshet', database: 'freshet' };
const primary = { ...base, port: Number(process.env.PRIMARY) };
const standby = { ...base, port: Number(process.env.STANDBY) };

async function connected(options, work) {
    const client = new Client(options);
    await client.connect();
    try {
        return await work(client);
    } finally {
        await client.end();
    }
}

async function refused(code, promise, what) {
    await assert.rejects(promise, (error) => {
        assert.equal(error.code, code, `${what}: ${error}`);
        return true;
    });
}

const kinds = [
    ['boolean', [true, false]],
    ['smallint', [0, -32768]],
    ['integer', [2147483647, -2147483648]],
    ['bigint', ['9223372036854775807', '-1']],
    ['real', [1.5, -0.25, Infinity]],
    ['double precision', [0.1, -1e300]],
    ['numeric', ['12.340', '-99999999999999999999.5']],
    ['text', ['', 'äöü €', 'quote\' " \\ \n']],
    ['varchar(10)', ['ten chars!']],
    ['char(3)', ['a  ']],
    ['bytea', [Buffer.from([]), Buffer.from([0, 1, 255])]],
    ['timestamptz', [new Date('2024-02-29T12:00:00.001Z')]],
    ['interval', ['1 day 02:03:04.5']],
    ['uuid', ['12345678-1234-5678-1234-567812345678']],
    ['json', [{ a: [1, null, 'x'] }]],
    ['jsonb', [{ a: [1, null, 'x'] }]],
];

async function roundTrips() {
    // As they are sent, so that nothing is lost on the way.
    types.setTypeParser(types.builtins.INTERVAL, (text) => text);
    await connected(primary, async (client) => {
        for (const [kind, values] of kinds) {
            await client.query(`CREATE TABLE kept (n serial PRIMARY KEY, v ${kind})`);
            for (const value of [...values, null]) {
                const given = value !== null && kind.startsWith('json') ? JSON.stringify(value) : value;
                const { rows } = await client.query('INSERT INTO kept (v) VALUES ($1) RETURNING v', [given]);
                assert.deepEqual(rows, [{ v: value }], kind);
            }
            const { rows, fields } = await client.query('SELECT v FROM kept ORDER BY n');
            assert.deepEqual(rows.map((row) => row.v), [...values, null], `all of ${kind}`);
            assert.equal(fields[0].name, 'v');
            await client.query('DROP TABLE kept');
        }
        const arrays = await client.query('SELECT $1::integer[] AS a, $2::text[] AS b, $3::integer[] AS c', [
            [1, null, 3], ['x', 'a "b", c', null], [[1, 2], [3, 4]],
        ]);
        assert.deepEqual(arrays.rows, [{ a: [1, null, 3], b: ['x', 'a "b", c', null], c: [[1, 2], [3, 4]] }]);
        const binary = await client.query({ text: 'SELECT 7::integer AS a, true AS b, $1::text AS c', values: ['x'], binary: true });
        assert.deepEqual(binary.rows, [{ a: 7, b: true, c: 'x' }]);
        const array = await client.query({ text: 'SELECT a, b FROM plain ORDER BY a', rowMode: 'array' });
        assert.deepEqual(array.rows, [[1, 'one'], [2, null], [3, 'tab\there']]);
        assert.equal(array.rowCount, 3);
        assert.equal(array.command, 'SELECT');
    });
}

async function statements() {
    await connected(primary, async (client) => {
        const notices = [];
        client.on('notice', (notice) => notices.push(notice.message));
        await client.query('DROP TABLE IF EXISTS nowhere');
        assert.deepEqual(notices, ['table "nowhere" does not exist, skipping']);
        for (let n = 1; n <= 3; n++) {
            const { rows } = await client.query({ name: 'find', text: 'SELECT name FROM app.customer WHERE id = $1', values: [1] });
            assert.deepEqual(rows, [{ name: 'Ada' }], 'a prepared statement');
        }
        const several = await client.query('SELECT 1 AS one; SELECT 2 AS two');
        assert.deepEqual(several.map((result) => result.rows), [[{ one: 1 }], [{ two: 2 }]]);
        // Queries are queued and answered in their order.
        const queued = await Promise.all(Array.from({ length: 100 }, (_, n) => client.query('SELECT $1::integer AS n', [n])));
        assert.deepEqual(queued.map((result) => result.rows[0].n), Array.from({ length: 100 }, (_, n) => n));
        const mixed = await Promise.allSettled([
            client.query('SELECT 1 AS a'), client.query('SELECT 1 / 0'), client.query('SELECT 2 AS a'),
        ]);
        assert.deepEqual(mixed.map((it) => it.status), ['fulfilled', 'rejected', 'fulfilled']);
        const cursor = client.query(new Cursor('SELECT n FROM generate_series(1, $1) AS n', [250]));
        let count = 0;
        for (let rows = await cursor.read(100); rows.length > 0; rows = await cursor.read(100)) count += rows.length;
        assert.equal(count, 250, 'rows of a portal');
        await cursor.close();
        await refused('42601', client.query('SELEC 1'), 'a syntax error');
        await refused('42P01', client.query('SELECT * FROM nowhere'), 'no such table');
        await refused('22P02', client.query('SELECT $1::integer', ['x']), 'no number');
        const heard = new Promise((resolve) => client.once('notification', resolve));
        await client.query('LISTEN news');
        await client.query("NOTIFY news, 'it rains'");
        const { channel, payload } = await heard;
        assert.deepEqual([channel, payload], ['news', 'it rains'], 'a notification');
        await assert.rejects(client.query('INSERT INTO app.orders (customer) VALUES (999)'), (error) => {
            assert.equal(error.code, '23503');
            assert.equal(error.constraint, 'orders_customer_fkey');
            assert.equal(error.detail, 'Key (customer)=(999) is not present in table "customer".');
            return true;
        });
        assert.deepEqual((await client.query('SELECT 1 AS a')).rows, [{ a: 1 }], 'after errors');
    });
    await connected({ ...primary, query_timeout: 0, statement_timeout: 100 }, (client) =>
        refused('57014', client.query('SELECT pg_sleep(60)'), 'a statement that takes too long'));
}

async function pipelined() {
    await connected({ ...primary, pipelineMode: true }, async (client) => {
        client.pipelining = true;
        const all = await Promise.all([1, 2, 3].map((n) => client.query('SELECT $1::integer + 1 AS n', [n])));
        assert.deepEqual(all.map((result) => result.rows[0].n), [2, 3, 4]);
    });
}

async function pools() {
    const pool = new Pool({ ...primary, max: 8 });
    try {
        await pool.query('CREATE TABLE counter (id integer PRIMARY KEY, n integer NOT NULL)');
        await pool.query('INSERT INTO counter VALUES (1, 0)');
        await Promise.all(Array.from({ length: 100 }, async () => {
            const client = await pool.connect();
            try {
                await client.query('BEGIN');
                await client.query('UPDATE counter SET n = n + 1 WHERE id = 1');
                await client.query('COMMIT');
            } finally {
                client.release();
            }
        }));
        assert.deepEqual((await pool.query('SELECT n FROM counter')).rows, [{ n: 100 }], 'counted by many at once');
        await pool.query('DROP TABLE counter');
    } finally {
        await pool.end();
    }
}

async function atTheStandby() {
    await connected(standby, async (client) => {
        assert.deepEqual((await client.query('SELECT pg_is_in_recovery() AS standby')).rows, [{ standby: true }]);
        assert.equal((await client.query('SELECT * FROM plain')).rowCount, 3);
        await refused('25006', client.query('DELETE FROM plain'), 'a change at a standby');
    });
}

(async () => {
    for (const test of [roundTrips, statements, pipelined, pools, atTheStandby]) {
        console.log(`   ${test.name}`);
        await test();
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
