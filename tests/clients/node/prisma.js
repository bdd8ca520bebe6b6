// Prisma: its migrations and its client on a primary, reads at its standby.
'use strict';
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { Client } = require('pg');
const { PrismaPg } = require('@prisma/adapter-pg');

const modules = process.env.NODE_PATH;
const settings = (port, database) => ({ host: '127.0.0.1', port: Number(port), user: process.env.PGUSER, database });

// The schema that its first version, or its second, has.
const schema = (version) => fs.readFileSync(path.join(__dirname, 'prisma/schema.prisma'), 'utf8').split('\n')
    .filter((line) => !line.startsWith('//') || line.startsWith(`//${version}`)).map((line) => line.replace(/^\/\/\d/, '')).join('\n');

// What the program says; it fails if that does.
function prisma(work, database, ...words) {
    const env = { ...process.env, PORT: process.env.PRIMARY, DATABASE: database, CHECKPOINT_DISABLE: '1', PRISMA_HIDE_UPDATE_MESSAGE: '1', NO_COLOR: '1' };
    try {
        return execFileSync(process.execPath, ['-r', path.join(__dirname, 'prisma/timers.js'), path.join(modules, 'prisma/build/index.js'), ...words], { cwd: work, env, encoding: 'utf8', stdio: 'pipe' });
    } catch (error) {
        throw new Error(`prisma ${words.join(' ')}: ${error.stdout}${error.stderr}`);
    }
}

function migrated(work) {
    const made = (name) => fs.readdirSync(path.join(work, 'migrations')).filter((it) => it.endsWith(name)).length;
    fs.writeFileSync(path.join(work, 'schema.prisma'), schema(1));
    prisma(work, 'prisma_app', 'migrate', 'dev', '--name', 'first', '--skip-generate');
    assert.equal(made('_first'), 1);
    fs.writeFileSync(path.join(work, 'schema.prisma'), schema(2));
    prisma(work, 'prisma_app', 'migrate', 'dev', '--name', 'second', '--skip-generate');
    assert.equal(made('_second'), 1);
    assert.match(prisma(work, 'prisma_app', 'migrate', 'status'), /Database schema is up to date/);
    // Nothing is left to do; what is found in the database is the schema.
    assert.match(prisma(work, 'prisma_app', 'migrate', 'dev'), /Already in sync/);
    const words = (text) => text.split('\n').filter((line) => /^(model|  \w)/.test(line) && !/Post|\[\]$/.test(line)).map((line) => line.trim().replace(/ +/g, ' '));
    const pulled = words(prisma(work, 'prisma_app', 'db', 'pull', '--print'));
    for (const line of words(schema(2))) assert.ok(pulled.includes(line), `${line} is not in ${pulled.join('\n')}`);
    prisma(work, 'prisma_other', 'migrate', 'deploy');
    assert.match(prisma(work, 'prisma_other', 'db', 'push', '--skip-generate'), /already in sync/);
    prisma(work, 'prisma_other', 'migrate', 'reset', '--force', '--skip-generate');
}

async function worked(db, Prisma) {
    const jane = await db.user.create({
        data: {
            email: 'jane@example.org', name: 'Jane', born: new Date('1775-12-16'), meta: { a: [1, { b: null }] }, tags: ['x', 'y z'],
            profile: { create: { address: '10.0.0.1', opens: new Date('1970-01-01T08:30:00Z') } },
            posts: {
                create: Array.from({ length: 6 }, (_, n) => ({
                    title: `Post ${n}`, listed: n % 2 === 0, price: new Prisma.Decimal(`${n}.25`), seen: BigInt(n) * 2n ** 40n, picture: Buffer.from([0, n, 255]),
                    categories: { connectOrCreate: { where: { name: `c${n % 2}` }, create: { name: `c${n % 2}` } } },
                })),
            },
        },
        include: { posts: { include: { categories: true }, orderBy: { title: 'asc' } }, profile: true },
    });
    assert.deepEqual([jane.posts.length, jane.posts[3].categories[0].name, jane.posts[3].price.toString(), jane.posts[3].seen, [...jane.posts[3].picture]],
        [6, 'c1', '3.25', 3n * 2n ** 40n, [0, 3, 255]]);
    assert.deepEqual([jane.meta, jane.tags, jane.born.toISOString(), jane.profile.address, jane.profile.opens.toISOString()],
        [{ a: [1, { b: null }] }, ['x', 'y z'], '1775-12-16T00:00:00.000Z', '10.0.0.1', '1970-01-01T08:30:00.000Z']);
    assert.equal((await db.user.createMany({ data: ['emily', 'jane', 'mary'].map((it) => ({ email: `${it}@example.org` })), skipDuplicates: true })).count, 2);
    const [answer] = await db.post.createManyAndReturn({ data: [{ title: 'Answer', authorId: jane.id, parentId: jane.posts[0].id }] });
    assert.equal((await db.post.findUnique({ where: { id: answer.id }, include: { parent: { include: { author: true } } } })).parent.author.name, 'Jane');
    assert.equal((await db.post.findUnique({ where: { authorId_title: { authorId: jane.id, title: 'Post 2' } } })).id, jane.posts[2].id);
    const writing = await db.user.findMany({ where: { posts: { some: { price: { gt: 4 } }, none: { title: 'x' } } } });
    assert.deepEqual(writing.map((it) => it.id), [jane.id]);
    assert.equal(await db.user.count({ where: { OR: [{ email: { contains: 'JAN', mode: 'insensitive' } }, { tags: { has: 'x' } }], NOT: { name: null } } }), 1);
    assert.equal(await db.user.count({ where: { meta: { path: ['a', '0'], equals: 1 } } }), 1);
    assert.equal(await db.user.count({ where: { tags: { hasEvery: ['y z', 'x'] } } }), 1);
    const sums = await db.post.groupBy({ by: ['listed'], _sum: { price: true }, _count: { _all: true }, _max: { seen: true }, having: { price: { _avg: { gt: 0 } } }, orderBy: { listed: 'asc' } });
    assert.deepEqual(sums.map((it) => [it.listed, it._sum.price.toString(), it._count._all]), [[false, '9.75', 4], [true, '6.75', 3]]);
    const page = await db.post.findMany({ cursor: { authorId_title: { authorId: jane.id, title: 'Post 1' } }, skip: 1, take: 2, orderBy: [{ author: { name: 'asc' } }, { title: 'asc' }], distinct: ['title'] });
    assert.deepEqual(page.map((it) => it.title), ['Post 2', 'Post 3']);
    const users = await db.user.findMany({ select: { email: true, _count: { select: { posts: { where: { listed: true } } } } }, orderBy: [{ posts: { _count: 'desc' } }, { id: 'asc' }] });
    assert.deepEqual(users.map((it) => it._count.posts), [3, 0, 0]);
    const upserted = async () => db.user.upsert({ where: { email: 'ann@example.org' }, create: { email: 'ann@example.org' }, update: { name: 'Ann', tags: { push: 'z' } } });
    await upserted();
    assert.deepEqual((await upserted()).tags, ['z']);
    await assert.rejects(db.user.create({ data: { email: 'jane@example.org' } }), (error) => error.code === 'P2002');
    await assert.rejects(db.post.create({ data: { title: 'x', authorId: 77 } }), (error) => error.code === 'P2003');
    await assert.rejects(db.user.update({ where: { id: 77 }, data: {} }), (error) => error.code === 'P2025');
    await assert.rejects(db.$transaction(async (tx) => {
        await tx.post.deleteMany();
        throw new Error('changed my mind');
    }, { isolationLevel: 'Serializable' }), /changed my mind/);
    const counted = await db.$transaction([db.post.updateMany({ data: { seen: { increment: 1 }, price: { multiply: 2 } } }), db.post.count(), db.$queryRaw`SELECT sum(price) AS n FROM posts WHERE author_id = ${jane.id}`]);
    assert.deepEqual([counted[0].count, counted[1], counted[2][0].n.toString()], [7, 7, '33']);
    await Promise.all(Array.from({ length: 20 }, () => db.user.update({ where: { id: jane.id }, data: { posts: { updateMany: { where: { title: 'Post 0' }, data: { seen: { increment: 1 } } } } } })));
    assert.equal((await db.post.findFirst({ where: { title: 'Post 0' } })).seen, 21n);
    assert.equal(await db.$executeRaw`UPDATE "User" SET meta = jsonb_set(meta, '{n}', ${'7'}::jsonb) WHERE id = ${jane.id}`, 1);
    assert.equal((await db.post.delete({ where: { id: answer.id } })).title, 'Answer');
    return (await db.$queryRawUnsafe('SHOW freshet.last_commit'))[0]['freshet.last_commit'];
}

(async () => {
    const work = fs.mkdtempSync(path.join(os.tmpdir(), 'prisma-'));
    const admin = new Client(settings(process.env.PRIMARY, 'postgres'));
    await admin.connect();
    const databases = ['prisma_app', 'prisma_other'];
    try {
        for (const it of databases) await admin.query(`CREATE DATABASE ${it}`);
        fs.symlinkSync(modules, path.join(work, 'node_modules'));
        fs.copyFileSync(path.join(__dirname, 'prisma/prisma.config.ts'), path.join(work, 'prisma.config.ts'));
        migrated(work);
        prisma(work, 'prisma_app', 'generate');
        const { Prisma, PrismaClient } = require(path.join(work, 'generated'));
        const opened = (port, more) => new PrismaClient({ adapter: new PrismaPg({ ...settings(port, 'prisma_app'), ...more }) });
        const db = opened(process.env.PRIMARY, { max: 4 });
        const lsn = await worked(db, Prisma);
        const standby = opened(process.env.STANDBY, { max: 1 });
        await standby.$executeRawUnsafe(`SET freshet.read_after = '${lsn}'`);
        assert.equal((await standby.user.findUnique({ where: { email: 'jane@example.org' }, include: { posts: true } })).posts.length, 6);
        await assert.rejects(standby.category.create({ data: { name: 'x' } }), /read-only transaction/);
        await standby.$disconnect();
        await db.$disconnect();
        for (const it of databases) await admin.query(`DROP DATABASE ${it}`);
    } finally {
        await admin.end();
        fs.rmSync(work, { recursive: true });
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
