// Kysely: its migrator, what it finds in the catalogs, and queries on a primary, reads on its standby.
'use strict';
const assert = require('node:assert/strict');
const { Pool } = require('pg');
const { Kysely, Migrator, PostgresDialect, sql } = require('kysely');
const { jsonArrayFrom, jsonObjectFrom } = require('kysely/helpers/postgres');

const open = (port) => new Kysely({
    dialect: new PostgresDialect({ pool: new Pool({ host: '127.0.0.1', port: Number(port), user: process.env.PGUSER, database: process.env.PGDATABASE, max: 1 }) }),
});

const migrations = {
    '2024_first': {
        async up(db) {
            await db.schema.createTable('person').addColumn('id', 'integer', (it) => it.primaryKey().generatedAlwaysAsIdentity())
                .addColumn('name', 'varchar(40)', (it) => it.notNull().unique()).addColumn('meta', 'jsonb', (it) => it.defaultTo(sql`'{}'`).notNull())
                .addColumn('made', 'timestamptz', (it) => it.defaultTo(sql`now()`).notNull()).addCheckConstraint('named', sql`name <> ''`).execute();
            await db.schema.createTable('pet').addColumn('id', 'uuid', (it) => it.primaryKey().defaultTo(sql`gen_random_uuid()`))
                .addColumn('owner', 'integer', (it) => it.references('kysely_app.person.id').onDelete('cascade').notNull())
                .addColumn('name', 'text').addColumn('weight', sql`numeric(6, 2)`).addUniqueConstraint('one_name', ['owner', 'name']).execute();
            await db.schema.createIndex('heavy').on('pet').column('weight desc').where('weight', '>', 10).execute();
        },
        async down(db) {
            await db.schema.dropTable('pet').execute();
            await db.schema.dropTable('person').execute();
        },
    },
    '2024_second': {
        async up(db) {
            await db.schema.alterTable('pet').addColumn('kind', 'text', (it) => it.defaultTo('cat').notNull()).execute();
            await db.schema.alterTable('person').alterColumn('name', (it) => it.setDataType('text')).execute();
            await db.schema.alterTable('pet').renameColumn('name', 'called').execute();
        },
        async down(db) {
            await db.schema.alterTable('pet').dropColumn('kind').renameColumn('called', 'name').execute();
        },
    },
};

async function worked(all) {
    await all.schema.createSchema('kysely_app').execute();
    const db = all.withSchema('kysely_app');
    const migrator = new Migrator({ db: all, provider: { getMigrations: async () => migrations }, migrationTableSchema: 'kysely_app' });
    await sql`SET search_path = kysely_app`.execute(all);
    const done = ({ error, results }) => {
        assert.equal(error, undefined);
        return results.map((it) => it.status);
    };
    assert.deepEqual(done(await migrator.migrateToLatest()), ['Success', 'Success']);
    assert.deepEqual(done(await migrator.migrateDown()), ['Success']);
    assert.deepEqual(done(await migrator.migrateToLatest()), ['Success']);
    const pet = (await all.introspection.getTables()).find((it) => it.schema === 'kysely_app' && it.name === 'pet');
    assert.deepEqual(pet.columns.map((it) => [it.name, it.dataType, it.isNullable, it.hasDefaultValue]),
        [['id', 'uuid', false, true], ['owner', 'int4', false, false], ['called', 'text', true, false], ['weight', 'numeric', true, false], ['kind', 'text', false, true]]);
    const [ada, bob] = await db.insertInto('person').values([{ name: 'Ada', meta: { a: [1] } }, { name: 'Bob' }]).returningAll().execute();
    await db.insertInto('pet').values(Array.from({ length: 6 }, (_, n) => ({ owner: n < 4 ? ada.id : bob.id, called: `p${n}`, weight: n * 4 }))).execute();
    const nested = await db.selectFrom('person').select((it) => ['name',
        jsonArrayFrom(it.selectFrom('pet').select(['called', 'weight']).whereRef('pet.owner', '=', 'person.id').orderBy('called')).as('pets'),
        jsonObjectFrom(it.selectFrom('pet').select('kind').whereRef('pet.owner', '=', 'person.id').orderBy('weight', 'desc').limit(1)).as('heaviest'),
    ]).orderBy('name').execute();
    assert.deepEqual([nested[1].pets, nested[0].heaviest], [[{ called: 'p4', weight: 16 }, { called: 'p5', weight: 20 }], { kind: 'cat' }]);
    const upserted = await db.insertInto('person').values({ name: 'Ada', meta: { b: 2 } })
        .onConflict((it) => it.column('name').doUpdateSet((up) => ({ meta: sql`${up.ref('person.meta')} || ${up.ref('excluded.meta')}` }))).returning('meta').executeTakeFirst();
    assert.deepEqual(upserted.meta, { a: [1], b: 2 });
    const ranked = await db.with('r', (it) => it.selectFrom('pet').select(['called', 'owner', (f) => f.fn.agg('rank').over((o) => o.partitionBy('owner').orderBy('weight', 'desc')).as('place')]))
        .selectFrom('r').innerJoin('person', 'person.id', 'r.owner').where('place', '=', 1).select(['called', 'name']).orderBy('called').execute();
    assert.deepEqual(ranked, [{ called: 'p3', name: 'Ada' }, { called: 'p5', name: 'Bob' }]);
    const moved = await db.updateTable('pet').from('person').set({ weight: sql`weight + 1` }).whereRef('person.id', '=', 'pet.owner').where('person.name', '=', 'Bob').returning('pet.called').execute();
    assert.equal(moved.length, 2);
    await assert.rejects(db.transaction().setIsolationLevel('serializable').execute(async (trx) => {
        await trx.deleteFrom('pet').using('person').whereRef('person.id', '=', 'pet.owner').execute();
        await trx.insertInto('person').values({ name: 'Bob' }).execute();
    }), (error) => error.code === '23505');
    assert.equal((await db.selectFrom('pet').select(all.fn.countAll().as('n')).executeTakeFirst()).n, '6');
    return (await sql`SHOW freshet.last_commit`.execute(all)).rows[0]['freshet.last_commit'];
}

(async () => {
    const primary = open(process.env.PRIMARY);
    const standby = open(process.env.STANDBY);
    try {
        const lsn = await worked(primary);
        await standby.connection().execute(async (db) => {
            await sql`SET freshet.read_after = ${sql.lit(lsn)}`.execute(db);
            assert.equal((await db.withSchema('kysely_app').selectFrom('pet').select('called').where('weight', '>', '12').execute()).length, 2);
            await assert.rejects(db.withSchema('kysely_app').deleteFrom('pet').execute(), (error) => error.code === '25006');
        });
        await primary.schema.dropSchema('kysely_app').cascade().execute();
    } finally {
        await primary.destroy();
        await standby.destroy();
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
