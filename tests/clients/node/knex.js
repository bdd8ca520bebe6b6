// knex: migrations and queries on a primary, reads on its standby.
'use strict';
const assert = require('node:assert/strict');
const makeKnex = require('knex');

const options = (port) => ({
    client: 'pg',
    connection: { host: '127.0.0.1', user: 'freshet', database: 'freshet', port: Number(port) },
    pool: { min: 0, max: 4 },
    searchPath: ['knex_app', 'public'],
});

// Migrations in memory: a name and what it does.
const steps = {
    '1_accounts': {
        up: async (knex) => {
            await knex.schema.createTable('accounts', (table) => {
                table.increments('id');
                table.string('email').notNullable().unique();
                table.decimal('balance', 12, 2).notNullable().defaultTo(0);
                table.jsonb('settings');
                table.boolean('active').defaultTo(true).index();
                table.timestamps(true, true);
            });
            await knex.schema.createTable('entries', (table) => {
                table.bigIncrements('id');
                table.integer('account_id').unsigned().references('id').inTable('accounts').onDelete('CASCADE');
                table.uuid('key').defaultTo(knex.raw('gen_random_uuid()'));
                table.integer('amount').notNullable();
                table.specificType('tags', 'text[]');
                table.date('day');
                table.index(['account_id', 'day'], 'entries_by_day');
            });
        },
        down: async (knex) => {
            await knex.schema.dropTable('entries');
            await knex.schema.dropTable('accounts');
        },
    },
    '2_changes': {
        up: async (knex) => {
            await knex.schema.alterTable('accounts', (table) => {
                table.text('note').comment('what we know');
                table.renameColumn('active', 'enabled');
                table.string('email', 100).notNullable().alter();
            });
            await knex.schema.alterTable('entries', (table) => {
                table.dropIndex(['account_id', 'day'], 'entries_by_day');
                table.check('amount <> 0', [], 'amount_is_something');
                table.unique(['key']);
            });
        },
        down: async (knex) => {
            await knex.schema.alterTable('accounts', (table) => {
                table.dropColumn('note');
                table.renameColumn('enabled', 'active');
            });
            await knex.schema.alterTable('entries', (table) => {
                table.dropUnique(['key']);
                table.dropChecks('amount_is_something');
                table.index(['account_id', 'day'], 'entries_by_day');
            });
        },
    },
};
const migrationSource = {
    getMigrations: async () => Object.keys(steps),
    getMigrationName: (name) => name,
    getMigration: async (name) => steps[name],
};

async function migrated(knex) {
    await knex.raw('CREATE SCHEMA knex_app');
    const migrate = { migrationSource, schemaName: 'knex_app' };
    const [, names] = await knex.migrate.latest(migrate);
    assert.deepEqual(names, ['1_accounts', '2_changes']);
    assert.equal((await knex.migrate.rollback(migrate))[1].length, 2);
    await knex.migrate.latest(migrate);
    assert.deepEqual((await knex.migrate.list(migrate))[0].map((it) => it.name), ['1_accounts', '2_changes']);
    assert.equal(await knex.schema.hasTable('accounts'), true);
    assert.equal(await knex.schema.hasColumn('accounts', 'enabled'), true);
    const columns = await knex('accounts').columnInfo();
    assert.deepEqual(columns.email, { type: 'character varying', maxLength: 100, nullable: false, defaultValue: null });
    assert.equal(columns.id.defaultValue, "nextval('knex_app.accounts_id_seq'::regclass)".replace('knex_app.', ''));
}

async function worked(knex) {
    const ids = await knex('accounts').insert([
        { email: 'a@example.com', balance: 10, settings: { theme: 'dark', list: [1, 2] } },
        { email: 'b@example.com', balance: 20 },
    ]).returning('id');
    assert.deepEqual(ids, [{ id: 1 }, { id: 2 }]);
    await knex.batchInsert('entries', Array.from({ length: 100 }, (_, n) => (
        { account_id: 1 + (n % 2), amount: n + 1, tags: [`t${n % 3}`], day: `2024-01-${String(1 + (n % 28)).padStart(2, '0')}` }
    )), 30);
    const sums = await knex('accounts').leftJoin('entries', 'entries.account_id', 'accounts.id')
        .groupBy('accounts.email').orderBy('accounts.email').select('accounts.email').sum({ total: 'amount' }).count({ n: 'entries.id' });
    assert.deepEqual(sums, [{ email: 'a@example.com', total: '2500', n: '50' }, { email: 'b@example.com', total: '2550', n: '50' }]);
    const merged = await knex('accounts').insert({ email: 'a@example.com', balance: 5 }).onConflict('email').merge(['balance']).returning(['id', 'balance']);
    assert.deepEqual(merged, [{ id: 1, balance: '5.00' }]);
    assert.deepEqual(await knex('accounts').insert({ email: 'a@example.com' }).onConflict('email').ignore().returning('id'), []);
    assert.equal(await knex('entries').whereRaw("'t1' = ANY(tags)").andWhere('amount', '>', 50).del(), 16);
    assert.equal(await knex('accounts').whereRaw("settings ->> 'theme' = ?", ['dark']).update({ note: 'dark' }), 1);
    assert.equal((await knex('accounts').whereJsonSupersetOf('settings', { theme: 'dark' }).first()).note, 'dark');
    const ranked = await knex.with('ranked', knex('entries').select('account_id', 'amount').rank('place', (it) => it.partitionBy('account_id').orderBy('amount', 'desc')))
        .from('ranked').where('place', 1).orderBy('account_id').select('*');
    assert.deepEqual(ranked.map((it) => it.place), ['1', '1']);
    await assert.rejects(knex.transaction(async (trx) => {
        await trx('accounts').where({ id: 1 }).forUpdate().first();
        await trx('accounts').where({ id: 1 }).increment('balance', 100);
        await trx.transaction(async (inner) => inner('entries').insert({ account_id: 77, amount: 1 }));
    }), { code: '23503' });
    assert.equal((await knex('accounts').where({ id: 1 }).first('balance')).balance, '5.00', 'rolled back');
    await knex.transaction(async (trx) => {
        const locked = await trx('accounts').where('enabled', true).orderBy('id').forUpdate().skipLocked().limit(1);
        assert.equal(locked[0].id, 1);
    }, { isolationLevel: 'serializable' });
    await knex.schema.createView('totals', (view) => {
        view.columns(['account_id', 'total']);
        view.as(knex('entries').select('account_id').sum('amount').groupBy('account_id'));
    });
    assert.equal((await knex('totals').orderBy('account_id')).length, 2);
    return (await knex.raw('SHOW freshet.last_commit')).rows[0]['freshet.last_commit'];
}

async function readAtTheStandby(knex, lsn) {
    await knex.transaction(async (trx) => {
        assert.equal((await trx('accounts').count({ n: '*' }))[0].n, '2');
        assert.equal(await trx.schema.hasTable('entries'), true);
    }, { readOnly: true });
    assert.ok(lsn);
    await assert.rejects(knex('accounts').del(), { code: '25006' });
}

(async () => {
    const knex = makeKnex(options(process.env.PRIMARY));
    const standby = makeKnex({ ...options(process.env.STANDBY), pool: {
        min: 0,
        max: 1,
        // What was committed before is to be seen.
        afterCreate: (client, done) => client.query(`SET freshet.read_after = '${standby.lsn}'`, (error) => done(error, client)),
    } });
    try {
        await migrated(knex);
        standby.lsn = await worked(knex);
        await readAtTheStandby(standby, standby.lsn);
        await knex.raw('DROP SCHEMA knex_app CASCADE');
    } finally {
        await knex.destroy();
        await standby.destroy();
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
