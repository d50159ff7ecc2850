'use strict';
const { isDeepStrictEqual } = require('util');
const {
  TableStore, Expect, absent, assert, check, client, create, drop, get, ignore, invalid, key, long, plain, put,
  range, read, refused, remove, update, values, when,
} = require('./harness');

const { DefinedColumnType: Defined, IndexType, IndexUpdateMode, SyncPhase } = TableStore;
const LOCAL = IndexType.IT_LOCAL_INDEX;
const GLOBAL = IndexType.IT_GLOBAL_INDEX;
const KINDS = [LOCAL, GLOBAL];
const KEY = [{ name: 'pk1', type: 'STRING' }, { name: 'pk2', type: 'INTEGER' }];
/** The SDK has no name for a binary column's type. */
const BINARY = 7;
const COLUMNS = [
  { name: 'n', type: Defined.DCT_INTEGER }, { name: 's', type: Defined.DCT_STRING },
  { name: 'b', type: BINARY }, { name: 'd', type: Defined.DCT_DOUBLE },
];
const CAUGHT_UP_MS_MAX = 30000;
let made = 0;

/** Makes a table keyed pk1 STRING, pk2 INTEGER with defined columns n, s, b, d. */
async function indexed(indexMetas, { name, options, definedColumn = COLUMNS } = {}) {
  const tableName = name || `node_indexed_${++made}`;
  await create(tableName, KEY, { definedColumn, indexMetas, options: { maxVersions: 1, ...options } });
  return tableName;
}

/** Describes an index under a fresh name. Without a mode the SDK says asynchronous, of local ones too. */
const index = (indexType, primaryKey, definedColumn = [], name = `node_index_${++made}`) => (
  { name, primaryKey, definedColumn, indexType });

const byN = (kind) => index(kind, kind === LOCAL ? ['pk1', 'n'] : ['n'], ['s']);
const add = (mainTableName, indexMeta, includeBaseData = false) => (
  client.createIndex({ mainTableName, indexMeta, includeBaseData }));
const discard = (mainTableName, indexName) => client.dropIndex({ mainTableName, indexName });
const shown = async (tableName) => (await client.describeTable({ tableName })).indexMetas;

/** Returns a key of an index by n: pk1, n, pk2 in a local one, else n, pk1, pk2. */
function entryKey({ indexType }, pk1, n, pk2) {
  const given = { pk1, n: typeof n === 'number' ? long(n) : n, pk2: typeof pk2 === 'number' ? long(pk2) : pk2 };
  const names = indexType === LOCAL ? ['pk1', 'n', 'pk2'] : ['n', 'pk1', 'pk2'];
  return names.map((name) => ({ [name]: given[name] }));
}

/** Returns a row as an index by n has it. */
const entry = (of, pk1, n, pk2, columns = {}) => (
  [...entryKey(of, pk1, n, pk2).map((column) => plain(Object.values(column)[0])), columns]);

function whole(of, direction, limit) {
  const { INF_MIN, INF_MAX, Direction } = TableStore;
  const [low, high] = [INF_MIN, INF_MAX].map((end) => entryKey(of, end, end, end));
  const backward = direction === Direction.BACKWARD;
  return {
    direction, limit,
    inclusiveStartPrimaryKey: backward ? high : low, exclusiveEndPrimaryKey: backward ? low : high,
  };
}

/** Reads an index page by page. */
async function rows(of, direction = TableStore.Direction.FORWARD, limit = 5000) {
  const found = [];
  let query = whole(of, direction, limit);
  for (;;) {
    const page = await range(of.name, '', query);
    found.push(...page.rows.map((row) => [...row.primaryKey.map(({ value }) => plain(value)), values(row)]));
    if (!page.nextStartPrimaryKey) {
      return found;
    }
    const next = page.nextStartPrimaryKey.map((column) => ({ [column.name]: column.value }));
    query = { ...query, inclusiveStartPrimaryKey: next };
  }
}

/** Asks until something holds that an index has to catch up with. */
async function caughtUp(holding) {
  const until = Date.now() + CAUGHT_UP_MS_MAX;
  while (!await holding()) {
    assert.ok(Date.now() < until, `not caught up in ${CAUGHT_UP_MS_MAX} ms`);
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}

/** Holds a local index to its rows at once, a global one when it has caught up. */
async function holds(of, ...wanted) {
  if (of.indexType === GLOBAL) {
    await caughtUp(async () => isDeepStrictEqual(await rows(of), wanted));
  }
  assert.deepStrictEqual(await rows(of, TableStore.Direction.FORWARD, 2), wanted);
  assert.deepStrictEqual(await rows(of, TableStore.Direction.BACKWARD, 2), [...wanted].reverse());
}

async function described() {
  const local = index(LOCAL, ['pk1', 'n'], ['s', 'd']);
  const other = index(GLOBAL, ['s', 'n']);
  const name = await indexed([local, other]);
  const later = index(GLOBAL, ['b'], ['n']);
  await add(name, later);
  const told = (await shown(name)).map((meta) => [meta.name, meta.primaryKey, meta.definedColumn,
    meta.indexType, meta.indexUpdateMode, meta.indexSyncPhase]);
  const { IUM_SYNC_INDEX, IUM_ASYNC_INDEX } = IndexUpdateMode;
  assert.deepStrictEqual(told, [
    [local.name, ['pk1', 'n'], ['s', 'd'], LOCAL, IUM_SYNC_INDEX, SyncPhase.INCR],
    [other.name, ['s', 'n'], [], GLOBAL, IUM_ASYNC_INDEX, SyncPhase.INCR],
    [later.name, ['b'], ['n'], GLOBAL, IUM_ASYNC_INDEX, SyncPhase.INCR],
  ]);
  const alone = await client.describeTable({ tableName: other.name });
  assert.deepStrictEqual(alone.tableMeta.primaryKey.map((column) => column.name), ['s', 'n', 'pk1', 'pk2']);
  assert.strictEqual(alone.tableOptions.maxVersions, 1);
  const { tableNames } = await client.listTable({});
  assert.ok(tableNames.includes(name));
  assert.ok(!tableNames.includes(local.name));
  await drop(name);
}

/** An index's rows change and go with the table's. */
async function changes(kind) {
  const by = byN(kind);
  const name = await indexed([by]);
  await put(name, key('a', 1), [{ n: long(20) }, { s: 'x' }, { other: 1 }]);
  await put(name, key('a', 2), [{ n: long(10) }]);
  await put(name, key('a', 3), [{ s: 'without n' }]);
  await holds(by, entry(by, 'a', 10, 2), entry(by, 'a', 20, 1, { s: 'x' }));
  await update(name, key('a', 1), [{ PUT: [{ s: 'y' }] }]);
  await update(name, key('a', 2), [{ INCREMENT: [{ n: long(15) }] }]);
  await update(name, key('a', 3), [{ PUT: [{ n: long(30) }] }]);
  await holds(by, entry(by, 'a', 20, 1, { s: 'y' }), entry(by, 'a', 25, 2),
    entry(by, 'a', 30, 3, { s: 'without n' }));
  await update(name, key('a', 3), [{ DELETE_ALL: ['n'] }]);
  await remove(name, key('a', 1));
  await put(name, key('a', 4), [{ n: long(5) }]);
  await holds(by, entry(by, 'a', 5, 4), entry(by, 'a', 25, 2));
  await drop(name);
}

async function byKey(kind) {
  const by = byN(kind);
  by.definedColumn.push('d');
  const name = await indexed([by]);
  await put(name, key('a', 1), [{ n: long(7) }, { s: 'Grüße 你好' }, { d: 0.5 }]);
  const row = entryKey(by, 'a', 7, 1);
  if (kind === GLOBAL) {
    await caughtUp(async () => await read(by.name, row) !== null);
  }
  const cells = { d: 0.5, s: 'Grüße 你好' };
  assert.deepStrictEqual(await read(by.name, row), cells);
  assert.strictEqual(await read(by.name, entryKey(by, 'a', 7, 2)), null);
  assert.deepStrictEqual(values((await get(by.name, row, { columnsToGet: ['d'] })).row), { d: 0.5 });
  const batch = await client.batchGetRow({
    tables: [{ tableName: by.name, primaryKey: [row, entryKey(by, 'b', 7, 1)], maxVersions: 1 }],
  });
  const [found, missing] = batch.tables[0];
  assert.deepStrictEqual(values(found), cells);
  assert.strictEqual(values(missing), null);
  await drop(name);
}

/** Rows of a batch that are refused leave no trace in an index. */
async function batches() {
  const by = byN(LOCAL);
  const name = await indexed([by]);
  await put(name, key('a', 3), [{ n: long(3) }]);
  const row = (primaryKey, n, condition = ignore()) => (
    { type: 'PUT', condition, primaryKey, attributeColumns: [{ n }] });
  const told = (await client.batchWriteRow({ tables: [{ tableName: name, rows: [
    row(key('a', 1), long(2)), row(key('a', 9), long(9), when(Expect.EXPECT_EXIST)),
    { type: 'UPDATE', condition: ignore(), primaryKey: key('a', 2),
      attributeColumns: [{ PUT: [{ n: long(1) }, { s: 'x' }] }] },
    { type: 'DELETE', condition: ignore(), primaryKey: key('a', 3) },
    row(key('b', 1), long(0)), row(key('b', 2), 'no number'),
  ] }] })).tables;
  assert.deepStrictEqual(told.map((result) => result.isOk), [true, false, true, true, true, false]);
  assert.strictEqual(told[5].errorMessage,
    'Invalid column type for column n expect VT_INTEGER actual VT_STRING');
  await holds(by, entry(by, 'a', 1, 2, { s: 'x' }), entry(by, 'a', 2, 1), entry(by, 'b', 0, 1));
  await drop(name);
}

const start = async (tableName, pk1) => (
  (await client.startLocalTransaction({ tableName, primaryKey: [{ pk1 }] })).transactionId);

/** An index learns of a transaction's writes with its commit, never of an abort's. */
async function transactions() {
  const both = KINDS.map(byN);
  const name = await indexed(both);
  await put(name, key('p', 1), [{ n: long(1) }]);
  const transactionId = await start(name, 'p');
  await put(name, key('p', 2), [{ n: long(5) }, { s: 'new' }], { transactionId });
  await remove(name, key('p', 1), { transactionId });
  for (const by of both) {
    await holds(by, entry(by, 'p', 1, 1));
  }
  await client.commitTransaction({ transactionId });
  const aborted = await start(name, 'p');
  await remove(name, key('p', 2), { transactionId: aborted });
  await client.abortTransaction({ transactionId: aborted });
  for (const by of both) {
    await holds(by, entry(by, 'p', 5, 2, { s: 'new' }));
  }
  await drop(name);
}

async function transactionReads() {
  const by = byN(LOCAL);
  const name = await indexed([by]);
  const transactionId = await start(name, 'p');
  const text = 'Disallow read local index';
  const { INF_MIN, INF_MAX } = TableStore;
  await invalid(text, () => read(by.name, entryKey(by, 'p', 1, 1), { transactionId }));
  await invalid(text, () => range(by.name, '', {
    inclusiveStartPrimaryKey: entryKey(by, 'p', INF_MIN, INF_MIN),
    exclusiveEndPrimaryKey: entryKey(by, 'p', INF_MAX, INF_MAX), transactionId,
  }));
  await client.abortTransaction({ transactionId });
  await holds(by);
  await drop(name);
}

/** Once the phase says so, an index has every row that there was before. */
async function baseData(kind) {
  const name = await indexed([]);
  const by = byN(kind);
  const wanted = [];
  for (let first = 0; first < 600; first += 200) {
    const batch = [];
    for (let n = first; n < first + 200; n++) {
      const attributeColumns = [{ n: long(600 - n) }];
      batch.push({ type: 'PUT', condition: ignore(), primaryKey: key('a', n), attributeColumns });
      wanted.push(entry(by, 'a', 600 - n, n));
    }
    await client.batchWriteRow({ tables: [{ tableName: name, rows: batch }] });
  }
  await add(name, by, true);
  await caughtUp(async () => {
    const { indexSyncPhase } = (await shown(name))[0];
    if (indexSyncPhase === SyncPhase.FULL && kind === LOCAL) {
      await rows(by, TableStore.Direction.FORWARD, 600).catch((error) => (
        invalid('Disallow read local index', () => { throw error; })));
    }
    return indexSyncPhase === SyncPhase.INCR;
  });
  assert.deepStrictEqual(await rows(by, TableStore.Direction.BACKWARD), wanted);
  assert.deepStrictEqual(await rows(by, TableStore.Direction.FORWARD, 250), wanted.reverse());
  await drop(name);
}

async function laterWrites(kind) {
  const name = await indexed([]);
  for (let n = 0; n < 4; n++) {
    await put(name, key('a', n), [{ n: long(n) }]);
  }
  const by = byN(kind);
  await add(name, by);
  await holds(by);
  await put(name, key('a', 1), [{ n: long(10) }]);
  await update(name, key('a', 2), [{ PUT: [{ other: 'is written' }] }]);
  await remove(name, key('a', 0));
  await holds(by, entry(by, 'a', 2, 2), entry(by, 'a', 10, 1));
  await drop(name);
}

async function dropped(kind) {
  const by = byN(kind);
  const name = await indexed([by]);
  await put(name, key('a', 1), [{ n: long(1) }]);
  await holds(by, entry(by, 'a', 1, 1));
  await discard(name, by.name);
  assert.deepStrictEqual(await shown(name), []);
  await absent(() => rows(by));
  await absent(() => read(by.name, entryKey(by, 'a', 1, 1)));
  await absent(() => client.describeTable({ tableName: by.name }));
  await absent(() => discard(name, by.name));
  assert.deepStrictEqual(await read(name, key('a', 1)), { n: '1n' });
  await add(name, by);
  await holds(by);
  await put(name, key('a', 1), [{ n: long(2) }]);
  await holds(by, entry(by, 'a', 2, 1));
  await drop(name);
}

async function tableDropped() {
  const both = KINDS.map(byN);
  const name = await indexed(both);
  await put(name, key('a', 1), [{ n: long(1) }]);
  for (const by of both) {
    await holds(by, entry(by, 'a', 1, 1));
  }
  await drop(name);
  for (const by of both) {
    await absent(() => rows(by));
  }
  await indexed(both, { name });
  for (const by of both) {
    await holds(by);
  }
  await drop(name);
}

/** Holds an index to its refusal by CreateIndex on each table and by CreateTable. */
async function misfit(text, wrong, ...tables) {
  for (const name of tables) {
    await invalid(text, () => add(name, wrong, true));
  }
  await invalid(text, () => indexed([wrong]));
}

/** The sizes of an index are looked at before its table is. */
async function limits() {
  const name = await indexed([]);
  const names = (count) => Array.from({ length: count }, (_, n) => `k${n}`);
  const keys = 'The number of primary key columns must be in range: [1, 4] in index.';
  await misfit(keys, index(GLOBAL, []), name, 'absent');
  await misfit(keys, index(GLOBAL, names(5)), name, 'absent');
  await misfit('The number of attribute columns must be in range: [0, 32] in index.',
    index(GLOBAL, ['n'], names(33)), name, 'absent');
  await absent(() => add('absent', byN(GLOBAL)));
  await absent(() => discard('absent', 'node_index'));
  const many = Array.from({ length: 6 }, () => byN(LOCAL));
  for (const one of many.slice(0, 5)) {
    await add(name, one);
  }
  const quota = 'Number of index per table exceeds the quota:5.';
  await invalid(quota, () => add(name, many[5]));
  await invalid(quota, () => indexed(many));
  assert.strictEqual((await shown(name)).length, 5);
  await drop(name);
}

/** Four columns of its own, then the table's key, and every defined column are within them. */
async function edges() {
  const names = Array.from({ length: 32 }, (_, n) => `c${n}`);
  const fullest = index(LOCAL, ['pk1'], names);
  const widest = index(GLOBAL, names.slice(0, 4), ['c4']);
  const name = await indexed([widest, fullest],
    { definedColumn: names.map((column) => ({ name: column, type: Defined.DCT_INTEGER })) });
  assert.strictEqual((await shown(name))[0].primaryKey.length, 4);
  assert.strictEqual((await shown(name))[1].definedColumn.length, 32);
  const cells = names.map((column, n) => ({ [column]: long(n) }));
  await put(name, key('a', 1), cells);
  assert.strictEqual(Object.keys(await read(fullest.name, key('a', 1))).length, 32);
  const row = [...cells.slice(0, 4), ...key('a', 1)];
  await caughtUp(async () => await read(widest.name, row) !== null);
  assert.deepStrictEqual(await read(widest.name, row), { c4: '4n' });
  await drop(name);
}

async function errors() {
  const name = await indexed([]);
  const unknown = "Column 'm' of index 'x' is not a defined column.";
  const twice = "Duplicated column name: 'n' in index 'x'.";
  for (const [text, kind, keys, columns] of [
    [unknown, GLOBAL, ['m'], []], [unknown, LOCAL, ['pk1'], ['m']],
    ['VT_DOUBLE is an invalid type for the primary key.', GLOBAL, ['d'], []],
    [twice, GLOBAL, ['n', 'n'], []], [twice, GLOBAL, ['n'], ['n']],
    ["Invalid column name: '#n'.", GLOBAL, ['#n'], []],
    ["The first primary key column of local index 'x' must be 'pk1', the table's, but is 'n'.",
      LOCAL, ['n', 'pk1'], []],
  ]) {
    await misfit(text, index(kind, keys, columns, 'x'), name);
  }
  await drop(name);
}

async function names() {
  const by = byN(GLOBAL);
  const name = await indexed([by]);
  for (const wrong of ['3x', 'x-y', 'n'.repeat(256)]) {
    const text = `Invalid table name: '${wrong}'.`;
    await misfit(text, index(GLOBAL, ['n'], [], wrong), name, 'absent');
    await invalid(text, () => discard(name, wrong));
  }
  const exists = (call) => refused(409, 'OTSObjectAlreadyExist', 'Requested table already exists.', call);
  for (const taken of [by.name, name]) {
    await exists(() => add(name, index(LOCAL, ['pk1'], [], taken)));
    await exists(() => indexed([index(LOCAL, ['pk1'], [], taken)]));
  }
  await exists(() => indexed([], { name: by.name }));
  await drop(name);
}

/** Versions and a lifetime would change what is visible without a write. */
async function options() {
  const withIndex = await indexed([byN(LOCAL)]);
  for (const [wrong, text] of [
    [{ maxVersions: 2 }, 'The max_versions of a table with an index must be 1, but is 2.'],
    [{ timeToLive: 86400 }, 'The time_to_live of a table with an index must be -1, but is 86400.'],
  ]) {
    const name = await indexed([], { options: wrong });
    await invalid(text, () => add(name, byN(GLOBAL)));
    await invalid(text, () => indexed([byN(GLOBAL)], { options: wrong }));
    const tableOptions = { timeToLive: -1, maxVersions: 1, ...wrong };
    await invalid(text, () => client.updateTable({ tableName: withIndex, tableOptions }));
    await drop(name);
  }
  await drop(withIndex);
}

async function readOnly(kind) {
  const by = byN(kind);
  const table = await indexed([by]);
  const { name } = by;
  const row = entryKey(by, 'a', 1, 1);
  const text = `Table '${name}' is an index: it can only be read, and dropped.`;
  const putting = { type: 'PUT', condition: ignore(), primaryKey: row, attributeColumns: [{ s: 'x' }] };
  const tableOptions = { timeToLive: -1, maxVersions: 1 };
  await invalid(text, () => put(name, row, [{ s: 'x' }]));
  await invalid(text, () => update(name, row, [{ PUT: [{ s: 'x' }] }]));
  await invalid(text, () => remove(name, row));
  await invalid(text, () => client.batchWriteRow({ tables: [{ tableName: name, rows: [putting] }] }));
  await invalid(text, () => client.updateTable({ tableName: name, tableOptions }));
  await invalid(text, () => drop(name));
  await invalid(text, () => add(name, byN(GLOBAL)));
  await invalid(text, () => (
    client.startLocalTransaction({ tableName: name, primaryKey: row.slice(0, 1) })));
  await drop(table);
}

/** A write that an index could not hold is refused, and changes neither. */
async function wrongValues() {
  const by = byN(LOCAL);
  const name = await indexed([by, index(GLOBAL, ['b'])]);
  for (const [cell, text] of [
    [{ n: '1' }, 'Invalid column type for column n expect VT_INTEGER actual VT_STRING'],
    [{ b: Buffer.alloc(1025) }, "The length of primary key column: 'b' exceeds the MaxLength:1024 "
      + 'with CurrentLength:1025.'],
  ]) {
    await invalid(text, () => put(name, key('a', 1), [cell]));
    await invalid(text, () => update(name, key('a', 1), [{ PUT: [cell] }]));
  }
  assert.strictEqual(await read(name, key('a', 1)), null);
  await holds(by);
  await put(name, key('a', 1), [{ d: 'no index looks at it' }, { n: long(1) }, { b: Buffer.alloc(1024) }]);
  await holds(by, entry(by, 'a', 1, 1));
  await drop(name);
}

module.exports = async function checkIndexes() {
  const each = (scenario) => async () => {
    for (const kind of KINDS) {
      await scenario(kind);
    }
  };
  await check('index-describe', described);
  await check('index-rows', each(changes));
  await check('index-row-by-key', each(byKey));
  await check('index-batch', batches);
  await check('index-transaction', transactions);
  await check('index-transaction-read', transactionReads);
  await check('index-base-data', each(baseData));
  await check('index-later-writes', each(laterWrites));
  await check('index-drop', each(dropped));
  await check('index-table-drop', tableDropped);
  await check('index-limits', limits);
  await check('index-edges', edges);
  await check('index-errors', errors);
  await check('index-names', names);
  await check('index-options', options);
  await check('index-read-only', each(readOnly));
  await check('index-values', wrongValues);
};
