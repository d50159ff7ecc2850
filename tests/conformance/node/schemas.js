'use strict';
const {
  TableStore, absent, assert, check, client, create, drop, invalid, key, put, table,
} = require('./harness');

const named = (...names) => names.map((name) => ({ name, type: 'STRING' }));

async function limits() {
  for (const name of ['0', '3t', '-', 'T#', '表', 'a b', 'n'.repeat(256)]) {
    const text = `Invalid table name: '${name}'.`;
    await invalid(text, () => create(name, named('k')));
    await invalid(text, () => client.describeTable({ tableName: name }));
    await invalid(text, () => drop(name));
    await invalid(text, () => put(name, key('a', 1), []));
    await invalid(text, () => client.batchGetRow({
      tables: [{ tableName: name, primaryKey: [key('a', 1)] }],
    }));
  }
  for (const name of ['_0', '_T', 'A0', 'n'.repeat(255)]) {
    await create(name, named('k'));
    await drop(name);
  }
  const count = 'The number of primary key columns must be in range: [1, 4].';
  await invalid(count, () => create('node_limits', []));
  await invalid(count, () => create('node_limits', named('a', 'b', 'c', 'd', 'e')));
  await invalid("Duplicated primary key name: 'PK0'.",
    () => create('node_limits', named('PK0', 'PK0')));
  for (const column of ['', '#', '#abc', '#公司', '# ', 'n'.repeat(256)]) {
    await invalid(`Invalid column name: '${column}'.`, () => create('node_limits', named(column)));
  }
  for (const column of ['公司', 'a.:\'"$&*()/\\\n\r b', 'n'.repeat(255)]) {
    await create('node_limits', named(column));
    await drop('node_limits');
  }
}

async function optionErrors() {
  const name = await table();
  for (const options of [{ maxVersions: -1 }, { timeToLive: 1 }, { timeToLive: 86399 }, { timeToLive: 0 }]) {
    await invalid('', () => create('node_options', named('k'), { options }));
    await invalid('', () => client.updateTable({ tableName: name, tableOptions: options }));
  }
  await absent(() => client.updateTable({ tableName: 'absent', tableOptions: { maxVersions: 2 } }));
  const told = (await client.describeTable({ tableName: name })).tableOptions;
  assert.deepStrictEqual([told.timeToLive, told.maxVersions], [-1, 5]);
  await drop(name);
}

async function streamOptions() {
  const name = await table(undefined, {
    streamSpecification: { enableStream: true, expirationTime: 24 },
  });
  const details = async () => (await client.describeTable({ tableName: name })).streamDetails;
  const first = await details();
  assert.strictEqual(first.enableStream, true);
  assert.strictEqual(first.expirationTime, 24);
  assert.ok(first.streamId.startsWith(name));
  assert.ok(Number(first.lastEnableTime) / 1000 > Date.now() - 60000, 'microseconds');
  const change = (streamSpecification) => client.updateTable({
    tableName: name, tableOptions: { maxVersions: 5 }, streamSpecification,
  });
  await change({ enableStream: false });
  assert.strictEqual((await details()).enableStream, false);
  await invalid('', () => change({ enableStream: true, expirationTime: 169 }));
  const told = (await change({ enableStream: true, expirationTime: 168 })).streamDetails;
  assert.strictEqual(told.expirationTime, 168);
  assert.notStrictEqual(told.streamId, first.streamId);
  await drop(name);
}

async function defined() {
  const { DefinedColumnType: Type } = TableStore;
  const definedColumn = [
    { name: 'i', type: Type.DCT_INTEGER }, { name: 'd', type: Type.DCT_DOUBLE },
    { name: 'b', type: Type.DCT_BOOLEAN }, { name: 's', type: Type.DCT_STRING },
  ];
  const name = await table(undefined, { definedColumn });
  const told = (await client.describeTable({ tableName: name })).tableMeta.definedColumn;
  assert.deepStrictEqual(told.map((column) => ({ name: column.name, type: column.type })), definedColumn);
  await drop(name);
  const many = Array.from({ length: 33 }, (_, n) => ({ name: `c${n}`, type: Type.DCT_INTEGER }));
  await invalid('The number of defined columns must be in range: [0, 32].',
    () => create('node_defined', named('k'), { definedColumn: many }));
  await invalid("Invalid column name: '#c'.", () => create('node_defined', named('k'),
    { definedColumn: [{ name: '#c', type: Type.DCT_STRING }] }));
}

module.exports = async function checkSchemas() {
  await check('table-limits', limits);
  await check('table-option-errors', optionErrors);
  await check('stream-options', streamOptions);
  await check('defined-columns', defined);
};
