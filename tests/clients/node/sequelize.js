// Sequelize: models made, altered and used on a primary, read on its standby.
'use strict';
const assert = require('node:assert/strict');
const { Sequelize, DataTypes, Deferrable, Op, Transaction, UniqueConstraintError, ForeignKeyConstraintError, col, fn, literal } = require('sequelize');

const open = (port, more = {}) => new Sequelize('freshet', 'freshet', '', {
    dialect: 'postgres', host: '127.0.0.1', port: Number(port), logging: process.env.SHOW ? console.log : false, pool: { max: 4 }, ...more,
});

function models(sequelize) {
    const User = sequelize.define('User', {
        name: { type: DataTypes.STRING(80), allowNull: false, unique: true },
        born: DataTypes.DATEONLY,
        height: DataTypes.DOUBLE,
        worth: { type: DataTypes.DECIMAL(12, 2), defaultValue: 0 },
        settings: DataTypes.JSONB,
        tags: DataTypes.ARRAY(DataTypes.STRING),
        key: { type: DataTypes.UUID, defaultValue: DataTypes.UUIDV4 },
        photo: DataTypes.BLOB,
        active: { type: DataTypes.BOOLEAN, defaultValue: true },
    }, { paranoid: true, indexes: [{ fields: ['born'] }, { fields: ['name'], where: { active: true }, name: 'active_names' }] });
    const Task = sequelize.define('Task', {
        id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true },
        title: DataTypes.TEXT,
        priority: { type: DataTypes.SMALLINT, comment: '1 is the first' },
    });
    const Label = sequelize.define('Label', { text: { type: DataTypes.STRING, primaryKey: true } }, { timestamps: false });
    User.hasMany(Task, { foreignKey: { name: 'ownerId', allowNull: false }, onDelete: 'CASCADE' });
    Task.belongsTo(User, { foreignKey: 'ownerId' });
    Task.belongsToMany(Label, { through: 'TaskLabel' });
    Label.belongsToMany(Task, { through: 'TaskLabel' });
    return { User, Task, Label };
}

async function worked(sequelize) {
    const { User, Task, Label } = models(sequelize);
    await sequelize.authenticate();
    await sequelize.sync({ force: true });
    // Each finds the tables that it made before; this one adds the unique constraint once more.
    await sequelize.sync({ alter: true });
    const ada = await User.create({
        name: 'Ada', born: '1815-12-10', height: 1.65, worth: '12.50', settings: { theme: 'dark', sizes: [1, 2] }, tags: ['a', 'b,"c"'],
        photo: Buffer.from([0, 1, 255]),
    });
    assert.equal(ada.id, 1);
    await User.bulkCreate([{ name: 'Grace', tags: [] }, { name: 'Alan', born: '1912-06-23' }]);
    const found = await User.findByPk(1);
    assert.deepEqual([found.born, found.height, found.worth, found.settings, found.tags, found.photo],
        ['1815-12-10', 1.65, '12.50', { theme: 'dark', sizes: [1, 2] }, ['a', 'b,"c"'], Buffer.from([0, 1, 255])]);
    const labels = await Label.bulkCreate([{ text: 'now' }, { text: 'later' }]);
    for (let n = 0; n < 9; n++) {
        const task = await Task.create({ title: `Task ${n}`, priority: n % 3, ownerId: 1 + (n % 2) });
        await task.setLabels([labels[n % 2]]);
    }
    const eager = await User.findAll({ include: { model: Task, include: Label, where: { priority: { [Op.gte]: 1 } }, required: false }, order: [['id', 'ASC'], [Task, 'id', 'ASC']] });
    assert.deepEqual(eager.map((user) => user.Tasks.length), [3, 3, 0]);
    assert.equal(eager[0].Tasks[0].Labels[0].text, 'now');
    const page = await User.findAndCountAll({ where: { name: { [Op.iLike]: '%a%' } }, include: Task, limit: 2, offset: 1, order: ['name'], distinct: true });
    assert.deepEqual([page.count, page.rows.map((it) => it.name)], [3, ['Alan', 'Grace']]);
    const counted = await Task.findAll({ attributes: ['ownerId', [fn('COUNT', col('id')), 'n'], [fn('MAX', col('title')), 'last']], group: 'ownerId', having: literal('count(*) > 4'), raw: true });
    assert.deepEqual(counted, [{ ownerId: 1, n: '5', last: 'Task 8' }]);
    assert.equal((await User.findOne({ where: { settings: { theme: 'dark' } } })).name, 'Ada');
    assert.equal((await User.findOne({ where: { tags: { [Op.contains]: ['a'] } } })).name, 'Ada');
    assert.equal(await User.count({ where: { [Op.or]: [{ born: { [Op.lt]: '1900-01-01' } }, { name: { [Op.regexp]: '^Gr' } }] } }), 2);
    const [again, created] = await User.findOrCreate({ where: { name: 'Ada' }, defaults: { height: 2 } });
    assert.deepEqual([again.id, created], [1, false]);
    assert.equal((await User.findCreateFind({ where: { name: 'Edsger' } }))[1], true);
    const [upserted] = await User.upsert({ name: 'Ada', height: 1.7 }, { conflictFields: ['name'] });
    assert.deepEqual([upserted.id, upserted.height], [1, 1.7]);
    const [changed, rows] = await Task.update({ priority: 9 }, { where: { ownerId: 2 }, returning: true });
    assert.deepEqual([changed, rows[0].priority], [4, 9]);
    await ada.increment({ worth: 5 });
    assert.equal((await ada.reload()).worth, '17.50');
    await assert.rejects(User.create({ name: 'Ada' }), UniqueConstraintError);
    await assert.rejects(Task.create({ ownerId: 99 }), ForeignKeyConstraintError);
    await assert.rejects(sequelize.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.SERIALIZABLE }, async (transaction) => {
        await User.findAll({ lock: transaction.LOCK.UPDATE, skipLocked: true, transaction, include: { model: Task, required: true }, where: { id: 1 } }).catch((error) => { throw error; });
        await User.destroy({ where: {}, force: true, transaction });
        throw new Error('changed my mind');
    }), /changed my mind/);
    await sequelize.transaction({ deferrable: new Deferrable.SET_DEFERRED() }, async (transaction) => {
        const locked = await User.findOne({ where: { id: 1 }, lock: { level: transaction.LOCK.SHARE, of: User }, transaction });
        assert.equal(locked.id, 1);
    });
    await (await User.findOne({ where: { name: 'Alan' } })).destroy();
    assert.deepEqual([await User.count(), await User.count({ paranoid: false })], [3, 4]);
    const queries = sequelize.getQueryInterface();
    const tables = await queries.showAllTables();
    assert.deepEqual(['Labels', 'TaskLabel', 'Tasks', 'Users'].filter((it) => !tables.includes(it)), []);
    const described = await queries.describeTable('Tasks');
    assert.deepEqual([described.id.primaryKey, described.priority.type, described.priority.comment, described.title.allowNull], [true, 'SMALLINT', '1 is the first', true]);
    const indexes = await queries.showIndex('Users');
    assert.deepEqual(indexes.map((it) => it.name).sort(), ['Users_name_key', 'Users_name_key1', 'Users_pkey', 'active_names', 'users_born']);
    const references = await queries.getForeignKeyReferencesForTable('Tasks');
    assert.deepEqual([references[0].columnName, references[0].referencedTableName], ['ownerId', 'Users']);
    await queries.addColumn('Tasks', 'note', { type: DataTypes.TEXT, defaultValue: 'new' });
    await queries.changeColumn('Tasks', 'priority', { type: DataTypes.INTEGER, allowNull: false, defaultValue: 5 });
    await queries.renameColumn('Tasks', 'note', 'remark');
    await queries.addConstraint('Tasks', { fields: ['priority'], type: 'check', where: { priority: { [Op.gte]: 0 } }, name: 'priority_is_positive' });
    await queries.addIndex('Tasks', ['remark'], { concurrently: true });
    await queries.removeColumn('Tasks', 'remark');
    return (await sequelize.query('SHOW freshet.last_commit', { plain: true }))['freshet.last_commit'];
}

(async () => {
    const primary = open(process.env.PRIMARY);
    const standby = open(process.env.STANDBY, { hooks: { afterConnect: (client) => client.query(`SET freshet.read_after = '${standby.lsn}'`) } });
    try {
        standby.lsn = await worked(primary);
        const { User, Task } = models(standby);
        assert.equal((await User.findOne({ where: { name: 'Ada' }, include: Task })).Tasks.length, 5);
        await assert.rejects(User.create({ name: 'nobody' }), (error) => error.original.code === '25006');
        await primary.drop();
    } finally {
        await primary.close();
        await standby.close();
    }
})().catch((error) => {
    console.error(error.original ?? error, error.sql ?? '');
    process.exit(1);
});
