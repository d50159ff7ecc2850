'use strict';
const {
  TableStore, Expect, assert, check, client, drop, get, ignore, key, long, put, range, read, table,
  units, update, values, when,
} = require('./harness');

const { ComparatorType, Direction, LogicalOperator, INF_MIN, INF_MAX } = TableStore;

async function filters(name) {
  const row = key('filter', 1);
  await put(name, row, [{ n: long(5) }, { s: 'text' }]);
  const five = new TableStore.SingleColumnCondition('n', long(5), ComparatorType.EQUAL);
  const missing = new TableStore.SingleColumnCondition('x', long(5), ComparatorType.EQUAL, false);
  const all = (operator, ...parts) => {
    const node = new TableStore.CompositeCondition(LogicalOperator[operator]);
    parts.forEach((part) => node.addSubCondition(part));
    return node;
  };
  const cases = [
    [five, true], [missing, false],
    [all('OR', five, missing), true], [all('AND', five, missing), false],
    [all('NOT', missing), true],
    [all('AND', five, all('NOT', all('AND', five, missing))), true],
  ];
  for (const [columnFilter, passes] of cases) {
    assert.strictEqual(await read(name, row, { columnFilter }) !== null, passes);
  }
}

async function pagination(name) {
  const row = key('page', 1);
  await put(name, row, Array.from({ length: 10 }, (_, n) => ({ [`c${n}`]: long(n) })));
  const columnFilter = new TableStore.ColumnPaginationFilter(4, 3);
  assert.deepStrictEqual(Object.keys(await read(name, row, { columnFilter })), ['c3', 'c4', 'c5', 'c6']);
}

async function versions(name) {
  const row = key('versions', 1);
  const base = Date.now();
  for (let n = 1; n < 9; n++) {
    await update(name, row, [{ PUT: [{ c: long(n), timestamp: base + n }] }]);
  }
  const seen = async (more) => (await get(name, row, more)).row.attributes
    .map((cell) => cell.timestamp.toNumber() - base);
  assert.deepStrictEqual(await seen({ maxVersions: 9 }), [8, 7, 6, 5, 4]);
  assert.deepStrictEqual(await seen({ maxVersions: 2 }), [8, 7]);
  const timeRange = { startTime: String(base + 5), endTime: String(base + 7) };
  assert.deepStrictEqual(await seen({ maxVersions: 9, timeRange }), [6, 5]);
}

async function columns(name) {
  const row = key('columns', 1);
  await put(name, row, ['a', 'b', 'c', 'd . e'].map((column) => ({ [column]: long(1) })));
  const seen = async (more) => {
    const found = await read(name, row, more);
    return found && Object.keys(found);
  };
  assert.deepStrictEqual(await seen({ columnsToGet: ['d . e', 'b'] }), ['b', 'd . e']);
  assert.strictEqual(await seen({ columnsToGet: ['x'] }), null);
  assert.deepStrictEqual(await seen({ startColumn: 'b', endColumn: 'c' }), ['b']);
}

/** Reads a row of 3000 columns in slices: by names, by pages, in a batch and in a range. */
async function wideColumns() {
  const name = await table();
  const row = key('wide', 1);
  const column = (n) => `c${String(n).padStart(4, '0')}`;
  for (let start = 0; start < 3000; start += 1000) {
    const cells = Array.from({ length: 1000 }, (_, n) => ({ [column(start + n)]: long(start + n) }));
    await update(name, row, [{ PUT: cells }]);
  }
  for (const [first, end] of [[0, 1], [999, 1001], [2990, 3000], [0, 3000]]) {
    const slice = { startColumn: column(first), endColumn: column(end) };
    const told = (await get(name, row, slice)).row.attributes;
    assert.strictEqual(told.length, end - first);
    assert.strictEqual(told[0].columnName, column(first));
    const batch = await client.batchGetRow({ tables: [{ tableName: name, primaryKey: [row], ...slice }] });
    assert.strictEqual(batch.tables[0][0].attributes.length, end - first);
    const ranged = await range(name, 'wide', slice);
    assert.strictEqual(ranged.rows[0].attributes.length, end - first);
  }
  let found = 0;
  for (let offset = 0; offset < 3500; offset += 700) {
    const columnFilter = new TableStore.ColumnPaginationFilter(700, offset);
    found += ((await get(name, row, { columnFilter })).row.attributes || []).length;
  }
  assert.strictEqual(found, 3000);
  await drop(name);
}

async function batches(name) {
  const other = await table();
  const tables = [];
  for (const tableName of [name, other]) {
    await put(tableName, key('batch', 0), [{ c: 'old' }]);
    const rows = Array.from({ length: 99 }, (_, n) => ({
      type: 'PUT', condition: when(Expect.EXPECT_NOT_EXIST), primaryKey: key('batch', n),
      attributeColumns: [{ c: long(n) }],
    }));
    rows.push({
      type: 'UPDATE', condition: ignore(), primaryKey: key('batch', 99),
      attributeColumns: [{ PUT: [{ c: tableName }] }],
    });
    tables.push({ tableName, rows });
  }
  const told = (await client.batchWriteRow({ tables })).tables;
  assert.strictEqual(told.length, 200);
  const failed = told.map((row, n) => [n, row]).filter(([, row]) => !row.isOk);
  assert.deepStrictEqual(failed.map(([n, row]) => [n, row.errorCode, row.errorMessage]),
    [0, 100].map((n) => [n, 'OTSConditionCheckFail', 'Condition check failed.']));
  const wanted = [99, 0, 500].map((n) => key('batch', n));
  const found = (await client.batchGetRow({
    tables: [name, other].map((tableName) => ({ tableName, primaryKey: wanted })),
  })).tables;
  [name, other].forEach((tableName, n) => {
    const shown = found[n].map((row) => values({ ...row, attributes: row.attributes }));
    assert.deepStrictEqual(shown, [{ c: tableName }, { c: 'old' }, null]);
    assert.ok(found[n][2].isOk, 'absent is no error');
  });
  await drop(other);
}

async function batchErrors(name) {
  const { tables } = await client.batchGetRow({
    tables: [
      { tableName: name, primaryKey: [key('a', 1), key('a', 'b')] },
      { tableName: 'absent', primaryKey: [key('a', 1)] },
    ],
  });
  assert.deepStrictEqual(tables.map((rows) => rows.map((row) => row.errorCode)),
    [[null, 'OTSInvalidPK'], ['OTSObjectNotExist']]);
  assert.strictEqual(tables[1][0].errorMessage, 'Requested table does not exist.');
}

async function filled() {
  const name = await table();
  for (const letter of ['a', 'b', 'c']) {
    const rows = Array.from({ length: 100 }, (_, n) => ({
      type: 'PUT', condition: ignore(), primaryKey: key(letter, n),
      attributeColumns: [{ n: long(n) }, { even: n % 2 === 0 }],
    }));
    await client.batchWriteRow({ tables: [{ tableName: name, rows }] });
  }
  return name;
}

async function pages() {
  const name = await filled();
  const numbers = Array.from({ length: 100 }, (_, n) => n);
  for (const limit of [undefined, 1, 99, 100]) {
    for (const direction of [Direction.FORWARD, Direction.BACKWARD]) {
      const backward = direction === Direction.BACKWARD;
      let start = key('b', backward ? INF_MAX : INF_MIN);
      const end = key('b', backward ? INF_MIN : INF_MAX);
      const found = [];
      while (start) {
        const told = await client.getRange({
          tableName: name, direction, maxVersions: 1, limit,
          inclusiveStartPrimaryKey: start, exclusiveEndPrimaryKey: end,
        });
        found.push(...told.rows.map((row) => row.primaryKey[1].value.toNumber()));
        const next = told.nextStartPrimaryKey;
        start = next && next.map((column) => ({ [column.name]: column.value }));
      }
      assert.deepStrictEqual(found, backward ? [...numbers].reverse() : numbers);
    }
  }
  await drop(name);
}

async function rangeFilter() {
  const name = await filled();
  const told = await client.getRange({
    tableName: name, direction: Direction.FORWARD, maxVersions: 1,
    inclusiveStartPrimaryKey: key('c', INF_MIN), exclusiveEndPrimaryKey: key('c', INF_MAX),
    columnFilter: new TableStore.SingleColumnCondition('even', true, ComparatorType.EQUAL),
  });
  assert.strictEqual(told.rows.length, 50);
  assert.strictEqual(told.nextStartPrimaryKey, null);
  await drop(name);
}

async function capacity(name) {
  const row = key('units', 1);
  assert.deepStrictEqual(units(await put(name, row, [{ c: Buffer.alloc(5000) }])), [0, 2]);
  assert.deepStrictEqual(units(await get(name, row)), [2, 0]);
  const gone = await client.deleteRow({
    tableName: name, primaryKey: row, condition: when(Expect.EXPECT_EXIST),
  });
  assert.deepStrictEqual(units(gone), [1, 1]);
  assert.deepStrictEqual(units(await get(name, row)), [1, 0]);
}

module.exports = async function checkReads() {
  const name = await table();
  await check('filters', () => filters(name));
  await check('pagination-filter', () => pagination(name));
  await check('versions', () => versions(name));
  await check('column-choice', () => columns(name));
  await check('wide-columns', wideColumns);
  await check('batch-write-and-get', () => batches(name));
  await check('batch-row-errors', () => batchErrors(name));
  await check('range-pages', pages);
  await check('range-filter', rangeFilter);
  await check('capacity-units', () => capacity(name));
  await drop(name);
};
