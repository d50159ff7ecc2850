'use strict';
const {
  TableStore, absent, assert, check, client, create, drop, get, ignore, invalid, key, long, put, range,
  read, refused, remove, table, update,
} = require('./harness');

const { INF_MIN, INF_MAX, Direction } = TableStore;
const TIME = 'Timestamp must be in range [0, INT64_MAX/1000).';
const MIB2 = 2097152;

const everyCall = (name, row) => [
  () => get(name, row), () => put(name, row, []), () => update(name, row, [{ PUT: [{ c: 'x' }] }]),
  () => remove(name, row),
];
const batch = (tableName, ...keys) => client.batchWriteRow({
  tables: [{
    tableName,
    rows: keys.map((primaryKey) => (
      { type: 'PUT', condition: ignore(), primaryKey, attributeColumns: [{ c: 'x' }] })),
  }],
});

/** A wrong key refuses an operation, but in a batch its row alone. */
async function keys(name) {
  const four = [{ a: '1' }, { b: '2' }, { c: '3' }, { d: '4' }];
  for (const [row, text] of [
    [[{ pk1: 'a' }], 'Validate PK size fail. Input: 1, Meta: 2.'],
    [[...key('a', 1), { pk3: long(1) }], 'Validate PK size fail. Input: 3, Meta: 2.'],
    [four, 'Validate PK size fail. Input: 4, Meta: 2.'],
    [[{ pk2: long(1) }, { pk1: 'a' }], 'Validate PK name fail. Input: pk2, Meta: pk1.'],
    [[{ pk1: 'a' }, { PK2: 'a' }], 'Validate PK name fail. Input: PK2, Meta: pk2.'],
    [[{ pk1: long(1) }, { PK2: 'a' }], 'Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.'],
    [key(Buffer.from('a'), 1), 'Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING.'],
    [key('a', '1'), 'Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.'],
  ]) {
    for (const call of everyCall(name, row)) {
      await refused(400, 'OTSInvalidPK', text, call);
    }
    const [told, other] = (await batch(name, row, key('a', 1))).tables;
    assert.deepStrictEqual([told.errorCode, told.errorMessage], ['OTSInvalidPK', text]);
    assert.ok(other.isOk);
  }
  for (const call of everyCall(name, [...four, { e: '5' }])) {
    await invalid('The number of primary key columns must be in range: [1, 4].', call);
  }
  for (const [infinite, text] of [[INF_MIN, 'VT_INF_MIN'], [INF_MAX, 'VT_INF_MAX']]) {
    for (const call of [...everyCall(name, key('a', infinite)), () => batch(name, key('a', infinite))]) {
      await invalid(`${text} is an invalid type for the primary key.`, call);
    }
  }
}

/** A name that is no name is refused wherever one may stand. Names are ASCII: the SDK's limit. */
async function columnNames(name) {
  const row = key('names', 1);
  for (const wrong of ['', '#', '#abc', '# ', 'n'.repeat(256)]) {
    const text = `Invalid column name: '${wrong}'.`;
    await invalid(text, () => put(name, row, [{ [wrong]: 'x' }]));
    for (const changes of [
      [{ PUT: [{ [wrong]: 'x' }] }], [{ DELETE_ALL: [wrong] }], [{ DELETE: [{ [wrong]: long(1) }] }],
      [{ INCREMENT: [{ [wrong]: long(1) }] }],
    ]) {
      await invalid(text, () => update(name, row, changes));
    }
    await invalid(text, () => get(name, row, { columnsToGet: ['c', wrong] }));
    if (wrong) {
      await invalid(text, () => get(name, row, { startColumn: wrong }));
      await invalid(text, () => get(name, row, { endColumn: wrong }));
    }
  }
  const good = [...'.:\'"$&*()/\\\n\r ', ' a', 'a#', '0', 'n'.repeat(255)];
  await put(name, row, good.map((allowed) => ({ [allowed]: allowed })));
  assert.strictEqual(Object.keys(await read(name, row)).length, good.length);
  for (const allowed of good) {
    assert.deepStrictEqual(await read(name, row, { columnsToGet: [allowed] }), { [allowed]: allowed });
  }
}

async function reads(name) {
  const row = key('reads', 1);
  const columnsToGet = Array.from({ length: 1025 }, (_, n) => `c${n}`);
  await invalid('The number of columns from the request exceeds the limit, limit count: 1024, '
    + 'column count: 1025.', () => get(name, row, { columnsToGet }));
  await get(name, row, { columnsToGet: columnsToGet.slice(1) });
  await invalid('', () => get(name, row, { maxVersions: -1 }));
  // The SDK always sends max_versions, which one exact version does not go with.
  await invalid('', () => get(name, row, { timeRange: { specificTime: '5' } }));
  for (const [startTime, endTime] of [['-1', '5'], ['9223372036854775', '9223372036854775807']]) {
    await invalid(TIME, () => get(name, row, { timeRange: { startTime, endTime } }));
  }
  await absent(() => get('absent', row));
}

async function ranges(name) {
  const attempt = (inclusiveStartPrimaryKey, exclusiveEndPrimaryKey, direction, limit) => (
    range(name, 'a', { inclusiveStartPrimaryKey, exclusiveEndPrimaryKey, direction, limit }));
  const [low, high] = [key('a', INF_MIN), key('a', INF_MAX)];
  const forward = 'Begin key must less than end key in FORWARD';
  const backward = 'Begin key must more than end key in BACKWARD';
  await attempt(low, high, Direction.FORWARD);
  await attempt(high, low, Direction.BACKWARD);
  await invalid(forward, () => attempt(high, low, Direction.FORWARD));
  await invalid(forward, () => attempt(key('a', 1), key('a', 1), Direction.FORWARD));
  await invalid(backward, () => attempt(low, high, Direction.BACKWARD));
  await invalid(backward, () => attempt(low, low, Direction.BACKWARD));
  await invalid('The limit must be greater than 0.', () => attempt(low, high, Direction.FORWARD, -1));
  await refused(400, 'OTSInvalidPK', 'Validate PK size fail. Input: 1, Meta: 2.',
    () => attempt([{ pk1: 'a' }], high, Direction.FORWARD));
  await refused(400, 'OTSInvalidPK', 'Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.',
    () => attempt(low, key('a', 'b'), Direction.FORWARD));
}

async function writes(name) {
  const row = key('writes', 1);
  await put(name, row, [{ s: 'text' }, { n: long(1) }]);
  await invalid('Attribute column is missing.', () => update(name, row, []));
  const many = Array.from({ length: 1025 }, (_, n) => ({ [`c${n}`]: 'x' }));
  await invalid('The number of attribute columns exceeds the limit, limit count: 1024, column '
    + 'count: 1025.', () => update(name, row, [{ PUT: many }]));
  await invalid("The length of attribute column: 'c' exceeds the MaxLength:2097152 with "
    + 'CurrentLength:2097153.', () => update(name, row, [{ PUT: [{ c: 'x'.repeat(MIB2 + 1) }] }]));
  await invalid('', () => update(name, row, [{ INCREMENT: [{ s: long(1) }] }]));
  await invalid('', () => update(name, row, [{ INCREMENT: [{ n: long(1) }] }, { PUT: [{ n: long(1) }] }]));
  assert.deepStrictEqual(await read(name, row), { n: '1n', s: 'text' });
  await absent(() => put('absent', row, []));
  await absent(() => remove('absent', row));
}

/** A wrong wish for what is returned refuses the write itself. */
async function returns(name) {
  const row = key('returns', 1);
  const { AfterModify, Primarykey } = TableStore.ReturnType;
  for (const [returnType, column] of [[AfterModify, 's'], [Primarykey, 'n']]) {
    const returnContent = { returnType, returnColumns: [column] };
    await invalid('', () => update(name, row, [{ INCREMENT: [{ n: long(1) }] }], { returnContent }));
  }
  assert.strictEqual(await read(name, row), null);
}

/** A version must be in range and near the server's clock. */
async function versions(name) {
  const row = key('versions', 1);
  for (const timestamp of ['-1', '9223372036854775', '9223372036854775807']) {
    const at = TableStore.Long.fromString(timestamp);
    await invalid(TIME, () => update(name, row, [{ DELETE: [{ c: at }] }]));
  }
  await invalid('', () => put(name, row, [{ c: 'x', timestamp: 1000 }]));
  await invalid('', () => put(name, row, [{ c: 'x', timestamp: Date.now() + 2 * 86400000 }]));
}

async function updateRefused() {
  const name = 'node_no_update';
  await create(name, [{ name: 'k', type: 'STRING' }], { options: { allowUpdate: false } });
  const row = [{ k: 'a' }];
  const text = 'Update operation is not allowed in this table';
  await invalid(text, () => update(name, row, [{ PUT: [{ c: 'x' }] }]));
  await put(name, row, [{ c: 'x' }]);
  assert.deepStrictEqual(await read(name, row), { c: 'x' });
  await drop(name);
}

module.exports = async function checkRefusals() {
  const name = await table();
  await check('key-errors', () => keys(name));
  await check('column-name-errors', () => columnNames(name));
  await check('read-errors', () => reads(name));
  await check('range-errors', () => ranges(name));
  await check('write-errors', () => writes(name));
  await check('return-errors', () => returns(name));
  await check('version-errors', () => versions(name));
  await check('update-refused', updateRefused);
  await drop(name);
};
