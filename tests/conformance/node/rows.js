'use strict';
const {
  TableStore, Expect, assert, check, client, drop, failed, get, invalid, key, long, plain, put, read,
  refused, remove, table, update, when, wide, ignore,
} = require('./harness');

const MIB2 = 2097152;
const FAILED = 'Condition check failed.';
const { INF_MIN, INF_MAX } = TableStore;

async function types(name) {
  const every = {
    zero: [long(0), '0n'],
    int64_min: [wide('-9223372036854775808'), '-9223372036854775808n'],
    int64_max: [wide('9223372036854775807'), '9223372036854775807n'],
    double: [3.14159, 3.14159],
    double_huge: [Number.MAX_VALUE, Number.MAX_VALUE],
    double_tiny: [Number.MIN_VALUE, Number.MIN_VALUE],
    double_minus_zero: [-0, -0],
    yes: [true, true],
    no: [false, false],
    text: ['plain', 'plain'],
    text_empty: ['', ''],
    text_unicode: ['Grüße 你好 🌊', 'Grüße 你好 🌊'],
    bytes: [Buffer.from([0, 1, 127, 128, 255]), 'hex 00017f80ff'],
    bytes_empty: [Buffer.alloc(0), 'hex '],
    // Names are ASCII: the SDK sends another's length in UTF-16 units, not bytes.
    "a.:'\"$&*()/\\\n b": ['signs', 'signs'],
  };
  const columns = Object.entries(every).map(([column, [value]]) => ({ [column]: value }));
  await put(name, key('types', 1), columns);
  const wanted = Object.fromEntries(Object.entries(every).map(([column, [, shown]]) => [column, shown]));
  assert.deepStrictEqual(await read(name, key('types', 1)), wanted);
  for (const [wrong, text] of [[NaN, 'NaN'], [Infinity, 'Infinity'], [-Infinity, 'Infinity']]) {
    await refused(400, 'OTSParameterInvalid', `${text} can't be set to double value.`,
      () => put(name, key('types', 2), [{ c: wrong }]));
  }
}

async function keys() {
  const edges = {
    INTEGER: ['-9223372036854775808', '-1', '0', '9223372036854775807'].map(wide),
    STRING: ['', '\0', 'a', 'a'.repeat(1024), '你'.repeat(341)],
    BINARY: [Buffer.alloc(0), Buffer.from([0]), Buffer.alloc(1024, 255)],
  };
  for (const [type, list] of Object.entries(edges)) {
    const name = await table([{ name: 'k', type }]);
    for (const k of [...list].reverse()) {
      await put(name, [{ k }], [{ c: 'x' }]);
    }
    const { rows } = await client.getRange({
      tableName: name, direction: TableStore.Direction.FORWARD, maxVersions: 1,
      inclusiveStartPrimaryKey: [{ k: INF_MIN }], exclusiveEndPrimaryKey: [{ k: INF_MAX }],
    });
    const plainText = (value) => (Buffer.isBuffer(value) ? value.toString('hex') : String(value));
    assert.deepStrictEqual(rows.map((row) => plainText(row.primaryKey[0].value)), list.map(plainText));
    await drop(name);
  }
}

async function edges(name) {
  const largest = Buffer.alloc(MIB2, 'x');
  await put(name, key('edge', 1), [{ c: largest }, { d: largest.toString() }]);
  const { row } = await get(name, key('edge', 1));
  assert.ok(largest.equals(Buffer.from(row.attributes[0].columnValue)));
  assert.strictEqual(row.attributes[1].columnValue.length, MIB2);
  await refused(400, 'OTSParameterInvalid',
    "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153.",
    () => put(name, key('edge', 1), [{ c: Buffer.alloc(MIB2 + 1) }]));
  await refused(400, 'OTSParameterInvalid',
    "The length of primary key column: 'pk1' exceeds the MaxLength:1024 with CurrentLength:1025.",
    () => put(name, key('k'.repeat(1025), 1), []));
}

async function count(name) {
  const columns = Array.from({ length: 1024 }, (_, n) => ({ [`c${n}`]: long(n) }));
  await put(name, key('many', 1), columns);
  assert.strictEqual(Object.keys(await read(name, key('many', 1))).length, 1024);
  await refused(400, 'OTSParameterInvalid',
    'The number of attribute columns exceeds the limit, limit count: 1024, column count: 1025.',
    () => put(name, key('many', 1), [...columns, { more: 'x' }]));
}

async function life(name) {
  const row = key('life', 1);
  const now = Date.now();
  await put(name, row, ['a', 'b', 'c'].map((column) => ({ [column]: long(1), timestamp: now })));
  await update(name, row, [
    { PUT: [{ a: long(2), timestamp: now + 1 }, { d: 'new' }] },
    { DELETE: [{ b: long(now) }] },
    { DELETE_ALL: ['c'] },
  ]);
  const found = (await get(name, row, { maxVersions: 5 })).row.attributes;
  assert.deepStrictEqual(found.map((cell) => cell.columnName), ['a', 'a', 'd']);
  assert.deepStrictEqual(found.slice(0, 2).map((cell) => cell.timestamp.toNumber()), [now + 1, now]);
  await put(name, row, []);
  assert.deepStrictEqual(await read(name, row), {});
  await client.deleteRow({ tableName: name, primaryKey: row, condition: ignore() });
  assert.strictEqual(await read(name, row), null);
}

async function increment(name) {
  const row = key('increment', 1);
  const returnContent = { returnColumns: ['n'], returnType: TableStore.ReturnType.AfterModify };
  for (const [by, result] of [['5', '5'], ['-7', '-2'], ['9223372036854775807', '9223372036854775805']]) {
    const told = await update(name, row, [{ INCREMENT: [{ n: wide(by) }] }], { returnContent });
    assert.strictEqual(told.row.attributes[0].columnValue.toString(10), result);
  }
  await refused(400, 'OTSParameterInvalid', '',
    () => update(name, row, [{ INCREMENT: [{ n: long(3) }] }]));
  assert.deepStrictEqual(await read(name, row), { n: '9223372036854775805n' });
}

/** Several counters in one change, of which those named are told. */
async function incrementReturns(name) {
  const row = key('counters', 1);
  await put(name, row, [{ n: long(10) }, { other: 'kept' }]);
  const returnContent = { returnColumns: ['n', 'm'], returnType: TableStore.ReturnType.AfterModify };
  const changes = [
    { INCREMENT: [{ n: wide('-9223372036854775808') }, { m: long(-3) }, { quiet: long(1) }] },
    { PUT: [{ s: 'beside' }] },
  ];
  const told = await update(name, row, changes, { returnContent });
  assert.deepStrictEqual(
    Object.fromEntries(told.row.attributes.map((cell) => [cell.columnName, plain(cell.columnValue)])),
    { m: '-3n', n: '-9223372036854775798n' });
  assert.deepStrictEqual(await read(name, row), {
    m: '-3n', n: '-9223372036854775798n', other: 'kept', quiet: '1n', s: 'beside',
  });
  await invalid('', () => update(name, row, [{ INCREMENT: [{ n: long(-11) }] }]));
}

const numbered = () => table([
  { name: 'pk1', type: 'STRING' }, { name: 'pk2', type: 'INTEGER', option: 'AUTO_INCREMENT' },
]);

/** A row's number is given by the server alone, in UpdateRow too. */
async function autoRules() {
  const name = await numbered();
  await failed(() => put(name, key('a', 7), [{ c: 'x' }]));
  await failed(() => update(name, key('a', 7), [{ PUT: [{ c: 'x' }] }]));
  const told = await update(name, key('a', TableStore.PK_AUTO_INCR),
    [{ INCREMENT: [{ n: long(5) }] }],
    { returnContent: { returnType: TableStore.ReturnType.Primarykey } });
  const assigned = key('a', told.row.primaryKey[1].value);
  assert.deepStrictEqual(await read(name, assigned), { n: '5n' });
  await put(name, assigned, [{ c: 'again' }]);
  assert.deepStrictEqual(await read(name, assigned), { c: 'again' });
  const asked = key('a', TableStore.PK_AUTO_INCR);
  await refused(400, 'OTSParameterInvalid', "PKAutoIncr can't be used for read operations.",
    () => read(name, asked));
  await refused(400, 'OTSParameterInvalid', 'Invalid row to delete which with pk auto increment.',
    () => remove(name, asked));
  await drop(name);
}

async function autoIncrement() {
  const name = await numbered();
  let last = 0n;
  for (let n = 0; n < 10; n++) {
    const told = await put(name, key('a', TableStore.PK_AUTO_INCR), [{ c: long(n) }],
      { returnContent: { returnType: TableStore.ReturnType.Primarykey } });
    const assigned = told.row.primaryKey[1].value;
    assert.ok(BigInt(assigned.toString(10)) > last, 'increases');
    last = BigInt(assigned.toString(10));
    assert.deepStrictEqual(await read(name, key('a', assigned)), { c: `${n}n` });
  }
  await drop(name);
}

async function expectations(name) {
  const row = key('expect', 1);
  for (const there of [false, true]) {
    const [wrong, right] = there
      ? [Expect.EXPECT_NOT_EXIST, Expect.EXPECT_EXIST] : [Expect.EXPECT_EXIST, Expect.EXPECT_NOT_EXIST];
    const change = (condition) => update(name, row, [{ PUT: [{ c: there }] }], { condition });
    await refused(403, 'OTSConditionCheckFail', FAILED, () => change(when(wrong)));
    await change(when(right));
    assert.deepStrictEqual(await read(name, row), { c: there });
  }
}

async function conditions(name) {
  const row = key('condition', 1);
  await put(name, row, [{ n: long(5) }]);
  const passing = ['EQUAL', 'GREATER_EQUAL', 'LESS_EQUAL'];
  for (const [comparator, number] of Object.entries(TableStore.ComparatorType)) {
    const condition = when(Expect.IGNORE, new TableStore.SingleColumnCondition('n', long(5), number));
    const change = () => update(name, row, [{ PUT: [{ done: true }] }], { condition });
    if (passing.includes(comparator)) {
      await change();
    } else {
      await refused(403, 'OTSConditionCheckFail', FAILED, change);
    }
  }
}

module.exports = async function checkRows() {
  const name = await table();
  await check('types-in-columns', () => types(name));
  await check('types-in-keys', keys);
  await check('value-edges', () => edges(name));
  await check('column-count', () => count(name));
  await check('put-update-delete', () => life(name));
  await check('increment', () => increment(name));
  await check('increment-returns', () => incrementReturns(name));
  await check('auto-increment', autoIncrement);
  await check('auto-increment-rules', autoRules);
  await check('expectations', () => expectations(name));
  await check('column-conditions', () => conditions(name));
  await drop(name);
};
