// TypeORM: entities, synchronisation, migrations and queries on a primary, reads on its standby.
'use strict';
require('reflect-metadata');
const assert = require('node:assert/strict');
const { DataSource, EntitySchema, In, LessThan, ILike, Raw, QueryFailedError, Table, TableColumn, TableIndex } = require('typeorm');

const Writer = new EntitySchema({
    name: 'Writer',
    schema: 'typeorm_app',
    columns: {
        id: { type: 'int', primary: true, generated: 'increment' },
        name: { type: 'varchar', length: 60, unique: true },
        born: { type: 'date', nullable: true },
        worth: { type: 'numeric', precision: 12, scale: 2, default: 0 },
        extra: { type: 'jsonb', default: {} },
        tags: { type: 'text', array: true, default: '{}' },
        made: { type: 'timestamp with time zone', createDate: true },
        changed: { type: 'timestamp with time zone', updateDate: true },
        version: { type: 'int', version: true },
    },
    checks: [{ expression: '"worth" >= 0' }],
    relations: { books: { type: 'one-to-many', target: 'Book', inverseSide: 'writer', cascade: true } },
});
const Book = new EntitySchema({
    name: 'Book',
    schema: 'typeorm_app',
    columns: {
        id: { type: 'uuid', primary: true, generated: 'uuid' },
        title: { type: 'text', comment: 'as printed' },
        pages: { type: 'smallint', default: 1 },
        gone: { type: 'timestamptz', deleteDate: true, nullable: true },
    },
    indices: [{ columns: ['title', 'pages'] }, { name: 'long_books', columns: ['pages'], where: 'pages > 500' }],
    uniques: [{ columns: ['writer', 'title'] }],
    relations: {
        writer: { type: 'many-to-one', target: 'Writer', inverseSide: 'books', onDelete: 'CASCADE', nullable: false },
        subjects: { type: 'many-to-many', target: 'Subject', joinTable: { name: 'book_subject' } },
    },
});
const Subject = new EntitySchema({
    name: 'Subject',
    schema: 'typeorm_app',
    columns: {
        id: { type: 'bigint', primary: true, generated: 'identity', generatedIdentity: 'BY DEFAULT' },
        name: { type: 'varchar' },
    },
});

class Reviews1700000000000 {
    async up(runner) {
        await runner.createTable(new Table({
            name: 'typeorm_app.review',
            columns: [
                { name: 'id', type: 'serial', isPrimary: true },
                { name: 'book', type: 'uuid' },
                { name: 'stars', type: 'int', default: 3 },
            ],
            foreignKeys: [{ columnNames: ['book'], referencedSchema: 'typeorm_app', referencedTableName: 'book', referencedColumnNames: ['id'] }],
        }));
        await runner.addColumn('typeorm_app.review', new TableColumn({ name: 'said', type: 'text', isNullable: true }));
        await runner.createIndex('typeorm_app.review', new TableIndex({ name: 'by_stars', columnNames: ['stars'] }));
        await runner.renameColumn('typeorm_app.review', 'said', 'words');
        await runner.changeColumn('typeorm_app.review', 'stars', new TableColumn({ name: 'stars', type: 'bigint', default: 4 }));
    }

    async down(runner) {
        await runner.dropTable('typeorm_app.review');
    }
}

const open = (port, more = {}) => new DataSource({
    type: 'postgres', host: '127.0.0.1', port: Number(port), username: 'freshet', database: 'freshet', schema: 'typeorm_app',
    uuidExtension: 'pgcrypto', entities: [Writer, Book, Subject], migrations: [Reviews1700000000000], poolSize: 4,
    logging: Boolean(process.env.SHOW), ...more,
});

async function worked(source) {
    await source.query('CREATE SCHEMA typeorm_app');
    await source.synchronize();
    // What there is is as it should be: nothing more is to be done.
    assert.deepEqual((await source.driver.createSchemaBuilder().log()).upQueries.map((it) => it.query), []);
    assert.equal((await source.runMigrations()).length, 1);
    await source.undoLastMigration();
    await source.runMigrations();
    const writers = source.getRepository('Writer');
    const books = source.getRepository('Book');
    const subjects = await source.getRepository('Subject').save([{ name: 'one' }, { name: 'two' }]);
    const jane = await writers.save({
        name: 'Jane', born: '1775-12-16', worth: '10.50', extra: { a: [1, { b: null }] }, tags: ['x', 'y z'], 
        books: Array.from({ length: 6 }, (_, n) => ({ title: `Book ${n}`, pages: n * 200, subjects: [subjects[n % 2]] })),
    });
    await writers.insert([{ name: 'Emily' }, { name: 'Nobody' }]);
    const found = await writers.findOne({ where: { name: 'Jane' }, relations: { books: { subjects: true } }, order: { books: { title: 'ASC' } } });
    assert.deepEqual([found.worth, found.extra, found.tags, found.version, found.books.length], ['10.50', { a: [1, { b: null }] }, ['x', 'y z'], 1, 6]);
    assert.equal(found.books[1].subjects[0].name, 'two');
    assert.equal(await books.count({ where: { writer: { name: In(['Jane', 'Emily']) }, pages: LessThan(500) } }), 3);
    assert.equal((await writers.findOneBy({ name: ILike('%JAN%') })).id, jane.id);
    assert.equal(await writers.countBy({ extra: Raw((it) => `${it} @> '{"a": [1]}'`) }), 1);
    const [page, total] = await writers.findAndCount({ relations: { books: true }, order: { name: 'DESC' }, skip: 1, take: 2 });
    assert.deepEqual([total, page.map((it) => it.name)], [3, ['Jane', 'Emily']]);
    const sums = await source.createQueryBuilder('Book', 'book').leftJoin('book.subjects', 'subject').select('subject.name', 'name')
        .addSelect('SUM(book.pages)', 'pages').groupBy('subject.name').having('COUNT(*) > 1').orderBy('subject.name').getRawMany();
    assert.deepEqual(sums, [{ name: 'one', pages: '1200' }, { name: 'two', pages: '1800' }]);
    const inside = await writers.createQueryBuilder('w').where((it) => `EXISTS ${it.subQuery().select('1').from('Book', 'b').where('b.writer = w.id').getQuery()}`).getMany();
    assert.equal(inside.length, 1);
    const upserted = await writers.upsert([{ name: 'Jane', worth: '11' }, { name: 'Mary', worth: '1' }], ['name']);
    assert.equal(upserted.identifiers.length, 2);
    assert.equal((await writers.findOneBy({ name: 'Jane' })).worth, '11.00');
    const changed = await books.createQueryBuilder().update().set({ pages: () => 'pages + 1' }).where('pages > :pages', { pages: 500 }).returning(['title', 'pages']).execute();
    assert.deepEqual(changed.raw.map((it) => it.pages).sort(), [1001, 601, 801]);
    await assert.rejects(writers.insert({ name: 'Jane' }), (error) => error instanceof QueryFailedError && error.driverError.code === '23505');
    await assert.rejects(writers.insert({ name: 'Poor', worth: '-1' }), (error) => error.driverError.code === '23514');
    await assert.rejects(source.transaction('SERIALIZABLE', async (manager) => {
        await manager.findOne('Writer', { where: { id: jane.id }, lock: { mode: 'pessimistic_write' } });
        await manager.delete('Writer', { id: jane.id });
        await manager.transaction(async (inner) => inner.insert('Subject', { name: 'three' }));
        throw new Error('changed my mind');
    }), /changed my mind/);
    await source.transaction(async (manager) => {
        for (const mode of ['pessimistic_read', 'for_no_key_update', 'for_key_share', 'pessimistic_write_or_fail']) {
            assert.equal((await manager.createQueryBuilder('Book', 'book').innerJoin('book.writer', 'w').setLock(mode, undefined, ['book']).getMany()).length, 6);
        }
    });
    await books.softDelete({ title: 'Book 0' });
    assert.deepEqual([await books.count(), await books.count({ withDeleted: true })], [5, 6]);
    let streamed = 0;
    const runner = source.createQueryRunner();
    const table = await runner.getTable('typeorm_app.book');
    assert.deepEqual([table.columns.length, table.foreignKeys.length, table.indices.length, table.uniques.length], [5, 1, 2, 1]);
    assert.equal(table.findColumnByName('title').comment, 'as printed');
    streamed = (await runner.query('SELECT * FROM typeorm_app.book')).length;
    assert.equal(streamed, 6);
    await runner.release();
    return (await source.query('SHOW freshet.last_commit'))[0]['freshet.last_commit'];
}

(async () => {
    const primary = await open(process.env.PRIMARY).initialize();
    try {
        const lsn = await worked(primary);
        const standby = await open(process.env.STANDBY, { poolSize: 1, installExtensions: false }).initialize();
        await standby.query(`SET freshet.read_after = '${lsn}'`);
        assert.equal((await standby.getRepository('Writer').findOne({ where: { name: 'Jane' }, relations: { books: true } })).books.length, 5);
        await assert.rejects(standby.getRepository('Writer').insert({ name: 'x' }), (error) => error.driverError.code === '25006');
        await standby.destroy();
        await primary.query('DROP SCHEMA typeorm_app CASCADE');
    } finally {
        await primary.destroy();
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
