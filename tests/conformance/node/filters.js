'use strict';
const {
  TableStore, Expect, assert, check, client, drop, failed, get, invalid, key, long, put, range, read,
  remove, table, units, update, when,
} = require('./harness');

const { ComparatorType: Comparator, LogicalOperator } = TableStore;
const MIB2 = 2097152;

const single = (name, value, comparator = Comparator.EQUAL) => new TableStore.SingleColumnCondition(
  name, value, comparator, true, true);
const strict = (name, value, comparator = Comparator.EQUAL) => new TableStore.SingleColumnCondition(
  name, value, comparator, false, true);
const any = (name, value) => new TableStore.SingleColumnCondition(
  name, value, Comparator.EQUAL, false, false);

function all(operator, ...parts) {
  const node = new TableStore.CompositeCondition(LogicalOperator[operator]);
  parts.forEach((part) => node.addSubCondition(part));
  return node;
}

/** Updates a row under a condition and says whether it was written. */
async function meets(name, row, columnCondition) {
  const condition = when(Expect.IGNORE, columnCondition);
  try {
    await update(name, row, [{ PUT: [{ done: true }] }], { condition });
    return true;
  } catch (error) {
    await failed(() => { throw error; });
    return false;
  }
}

/** Compares every type with less, equal and more; another type is never equal. */
async function kinds(name) {
  const row = key('kinds', 1);
  const cases = [
    [long(4), long(5), long(6)], [1.25, 1.5, 1.75], ['a', 'b', 'ba'], ['', '你', '🌊'],
    [Buffer.from([0]), Buffer.from([0, 1]), Buffer.from([0, 255])],
  ];
  const wanted = {
    EQUAL: [false, true, false], NOT_EQUAL: [true, false, true],
    GREATER_THAN: [true, false, false], GREATER_EQUAL: [true, true, false],
    LESS_THAN: [false, false, true], LESS_EQUAL: [false, true, true],
  };
  for (const values of cases) {
    await put(name, row, [{ c: values[1] }]);
    for (const [comparator, number] of Object.entries(Comparator)) {
      const found = [];
      for (const value of values) {
        found.push(await meets(name, row, single('c', value, number)));
      }
      assert.deepStrictEqual(found, wanted[comparator], `${values[1]} ${comparator}`);
    }
  }
  await put(name, row, [{ c: long(5) }]);
  for (const other of ['5', 5, true, Buffer.from('5')]) {
    assert.strictEqual(await meets(name, row, single('c', other)), false);
  }
}

async function combined(name) {
  const row = key('combined', 1);
  await put(name, row, [{ n: long(5) }, { s: 'text' }]);
  const [yes, no, missing] = [single('n', long(5)), single('s', 'other'), strict('x', long(1))];
  const cases = [
    [all('AND', yes, yes), true], [all('AND', yes, no), false], [all('OR', no, yes), true],
    [all('OR', no, missing), false], [all('NOT', no), true], [all('NOT', yes), false],
    [all('NOT', missing), true], [missing, false], [single('x', long(1)), true],
    [all('AND', all('OR', no, yes), all('NOT', no), yes), true],
    [all('AND', all('OR', no, yes), all('NOT', yes), yes), false],
  ];
  for (const [condition, passes] of cases) {
    assert.strictEqual(await meets(name, row, condition), passes);
  }
}

/** Only what passes without its column holds for a row that is not there. */
async function absentRows(name) {
  assert.strictEqual(await meets(name, key('absent', 1), strict('c', long(1))), false);
  assert.strictEqual(await read(name, key('absent', 1)), null);
  assert.strictEqual(await meets(name, key('absent', 2), single('c', long(1))), true);
  assert.deepStrictEqual(await read(name, key('absent', 2)), { done: true });
  const condition = when(Expect.IGNORE, strict('c', long(1)));
  await failed(() => remove(name, key('absent', 3), { condition }));
}

/** A put, a delete and a row of a batch obey conditions as an update does. */
async function writes(name) {
  const row = key('writes', 1);
  const other = key('writes', 2);
  await put(name, row, [{ n: long(5) }]);
  await put(name, other, [{ n: long(5) }]);
  const [wrong, right] = [6, 5].map((n) => when(Expect.EXPECT_EXIST, single('n', long(n))));
  const batch = (condition) => client.batchWriteRow({
    tables: [{ tableName: name, rows: [
      { type: 'PUT', condition, primaryKey: row, attributeColumns: [{ n: long(5) }] },
      { type: 'DELETE', condition, primaryKey: other },
    ] }],
  });
  await failed(() => put(name, row, [{ n: long(7) }], { condition: wrong }));
  await failed(() => remove(name, row, { condition: wrong }));
  assert.deepStrictEqual((await batch(wrong)).tables.map((told) => told.errorCode),
    ['OTSConditionCheckFail', 'OTSConditionCheckFail']);
  assert.deepStrictEqual(units(await put(name, row, [{ n: long(5) }], { condition: right })), [1, 1]);
  assert.ok((await batch(right)).tables.every((told) => told.isOk));
  assert.deepStrictEqual(await read(name, row), { n: '5n' });
  assert.strictEqual(await read(name, other), null);
}

/** A filter sees only the columns that are read. */
async function columnsRead(name) {
  const row = key('columns', 1);
  await put(name, row, [{ a: long(1) }, { b: long(2) }]);
  const seen = (columnFilter, ...columnsToGet) => read(name, row, { columnFilter, columnsToGet });
  assert.deepStrictEqual(await seen(single('a', long(1)), 'a', 'b'), { a: '1n', b: '2n' });
  assert.deepStrictEqual(await seen(single('a', long(1)), 'b'), { b: '2n' });
  assert.strictEqual(await seen(strict('a', long(1)), 'b'), null);
  const told = await get(name, row, { columnFilter: strict('x', long(1)) });
  assert.deepStrictEqual(units(told), [1, 0]);
}

/** The newest version decides, or any version that is read. */
async function versions(name) {
  const row = key('versions', 1);
  const now = Date.now();
  for (let n = 1; n < 4; n++) {
    await update(name, row, [{ PUT: [{ c: long(n), timestamp: now + n }] }]);
  }
  const passes = async (columnFilter, maxVersions) => (
    await read(name, row, { columnFilter, maxVersions }) !== null);
  assert.strictEqual(await passes(single('c', long(1)), 3), false);
  assert.strictEqual(await passes(single('c', long(3)), 3), true);
  assert.strictEqual(await passes(any('c', long(1)), 3), true);
  assert.strictEqual(await passes(any('c', long(1)), 1), false);
}

async function keyColumns() {
  const name = await table();
  for (let n = 0; n < 10; n++) {
    await put(name, key('a', n), [{ n: long(n) }]);
  }
  const count = async (columnFilter) => (await range(name, 'a', { columnFilter })).rows.length;
  assert.strictEqual(await count(single('pk2', long(4), Comparator.LESS_THAN)), 4);
  assert.strictEqual(await count(single('pk1', 'b')), 0);
  const columnFilter = all('AND', single('pk2', long(5)), single('n', long(5)));
  assert.deepStrictEqual(await read(name, key('a', 5), { columnFilter }), { n: '5n' });
  await drop(name);
}

async function batchGet(name) {
  const primaryKey = [];
  for (let n = 0; n < 4; n++) {
    primaryKey.push(key('batch', n));
    await put(name, key('batch', n), [{ even: n % 2 === 0 }]);
  }
  const told = (await client.batchGetRow({
    tables: [{ tableName: name, primaryKey, columnFilter: strict('even', true) }],
  })).tables[0];
  assert.ok(told.every((row) => row.isOk));
  assert.deepStrictEqual(told.map((row) => row.primaryKey !== null), [true, false, true, false]);
}

/** A filter, of a read and as a condition, is held to its limits, the count first. */
async function errors(name) {
  const row = key('errors', 1);
  const one = single('c', long(1));
  const many = (count) => all('AND', ...Array(count - 1).fill(one));
  let deep = one;
  for (let n = 0; n < 100; n++) {
    deep = all('NOT', deep);
  }
  const count = 'The count of filter exceeds the max: 32.';
  const not = 'Invalid NOT operator: the number of sub-filters must be 1.';
  const and = 'Invalid AND/OR operator: the number of sub-filters must be more than 1.';
  for (const [columnFilter, text] of [
    [many(33), count], [deep, count], [all('NOT', many(40), one), count], [all('NOT'), not],
    [all('NOT', one, one), not], [all('AND'), and], [all('OR', one), and],
    [all('AND', one, all('OR', one)), and], [single('#c', long(1)), "Invalid column name: '#c'."],
    [single('c', 'x'.repeat(MIB2 + 1)), "The length of attribute column: 'c' exceeds the "
      + 'MaxLength:2097152 with CurrentLength:2097153.'],
  ]) {
    await invalid(text, () => get(name, row, { columnFilter }));
    const condition = when(Expect.IGNORE, columnFilter);
    await invalid(text, () => update(name, row, [{ PUT: [{ c: 'x' }] }], { condition }));
  }
  assert.strictEqual(await read(name, row, { columnFilter: many(32) }), null);
}

/** A page counts columns, not versions, and after start and end were applied. */
async function pages(name) {
  const row = key('pages', 1);
  const now = Date.now();
  for (const at of [now, now + 1]) {
    const cells = Array.from({ length: 6 }, (_, n) => ({ [`c${n}`]: long(n), timestamp: at }));
    await update(name, row, [{ PUT: cells }]);
  }
  const seen = async (limit, offset, more) => {
    const columnFilter = new TableStore.ColumnPaginationFilter(limit, offset);
    const told = await get(name, row, { maxVersions: 2, columnFilter, ...more });
    return told.row.attributes.map((cell) => cell.columnName);
  };
  const between = { startColumn: 'c2', endColumn: 'c5' };
  assert.deepStrictEqual(await seen(2, 1), ['c1', 'c1', 'c2', 'c2']);
  assert.deepStrictEqual(await seen(2, 1, between), ['c3', 'c3', 'c4', 'c4']);
  assert.deepStrictEqual(await seen(2, 9), []);
}

module.exports = async function checkFilters() {
  const name = await table();
  await check('condition-kinds', () => kinds(name));
  await check('conditions-combined', () => combined(name));
  await check('conditions-on-absent-rows', () => absentRows(name));
  await check('conditions-on-writes', () => writes(name));
  await check('filter-columns-read', () => columnsRead(name));
  await check('filter-versions', () => versions(name));
  await check('filter-key-columns', keyColumns);
  await check('filter-batch-get', () => batchGet(name));
  await check('filter-errors', () => errors(name));
  await check('pagination-versions', () => pages(name));
  await drop(name);
};
