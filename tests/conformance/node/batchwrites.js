'use strict';
const {
  TableStore, assert, check, client, drop, ignore, invalid, key, long, plain, read, table,
} = require('./harness');

const MIB2 = 2097152;

const putting = (primaryKey, ...attributeColumns) => ({
  type: 'PUT', condition: ignore(), primaryKey, attributeColumns,
});
const send = (tableName, rows) => client.batchWriteRow({ tables: [{ tableName, rows }] });

async function order() {
  const name = await table();
  const row = key('a', 1);
  const told = await send(name, [
    putting(row, { c: long(1) }), { type: 'DELETE', condition: ignore(), primaryKey: row },
    putting(row, { d: long(2) }), putting(key('a', 2)),
  ]);
  assert.ok(told.tables.every((result) => result.isOk));
  assert.deepStrictEqual(await read(name, row), { d: '2n' });
  assert.deepStrictEqual(await read(name, key('a', 2)), {});
  await drop(name);
}

async function returns() {
  const auto = await table([
    { name: 'pk1', type: 'STRING' }, { name: 'pk2', type: 'INTEGER', option: 'AUTO_INCREMENT' },
  ]);
  const name = await table();
  const rows = Array.from({ length: 3 }, (_, n) => ({
    ...putting(key('a', TableStore.PK_AUTO_INCR), { c: long(n) }),
    returnContent: { returnType: TableStore.ReturnType.Primarykey },
  }));
  const steps = Array.from({ length: 3 }, () => ({
    type: 'UPDATE', condition: ignore(), primaryKey: key('counter', 1),
    attributeColumns: [{ INCREMENT: [{ n: long(5) }] }],
    returnContent: { returnType: TableStore.ReturnType.AfterModify, returnColumns: ['n'] },
  }));
  const told = (await client.batchWriteRow({
    tables: [{ tableName: auto, rows }, { tableName: name, rows: steps }],
  })).tables;
  let last = 0n;
  for (let n = 0; n < 3; n++) {
    const assigned = told[n].primaryKey[1].value;
    assert.ok(BigInt(assigned.toString(10)) > last, 'increases');
    last = BigInt(assigned.toString(10));
    assert.deepStrictEqual(await read(auto, key('a', assigned)), { c: `${n}n` });
    assert.strictEqual(plain(told[3 + n].attributes[0].columnValue), `${5 * (n + 1)}n`);
  }
  await drop(auto);
  await drop(name);
}

async function limits() {
  const name = await table();
  const bare = (count) => Array.from({ length: count }, (_, n) => putting(key('a', n)));
  assert.ok((await send(name, bare(200))).tables.every((result) => result.isOk));
  await invalid('Rows count exceeds the upper limit: 200.', () => send(name, bare(201)));
  const fetch = (count) => client.batchGetRow({
    tables: [{ tableName: name, primaryKey: bare(count).map((row) => row.primaryKey) }],
  });
  assert.strictEqual((await fetch(100)).tables[0].length, 100);
  await invalid('Rows count exceeds the upper limit: 100.', () => fetch(101));
  // A row is 3 + 1 bytes and 3 + 8 of its key, 1 of its column's name, and its value.
  const sized = (size) => [
    putting(key('a', 1), { c: Buffer.alloc(MIB2 - 16) }),
    putting(key('a', 2), { c: Buffer.alloc(size - MIB2 - 16) }),
  ];
  assert.ok((await send(name, sized(2 * MIB2))).tables.every((result) => result.isOk));
  await invalid('The total data size of BatchWriteRow request exceeds the limit, limit size: '
    + '4194304, data size: 4194305.', () => send(name, sized(2 * MIB2 + 1)));
  await invalid(`No operation is specified for table: '${name}'.`, () => send(name, []));
  await invalid('No row specified in the request of BatchGetRow.',
    () => client.batchGetRow({ tables: [] }));
  assert.deepStrictEqual((await fetch(0)).tables, [[]]);
  await drop(name);
}

module.exports = async function checkBatchWrites() {
  await check('batch-order', order);
  await check('batch-returns', returns);
  await check('batch-limits', limits);
};
