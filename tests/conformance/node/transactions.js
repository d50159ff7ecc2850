'use strict';
const {
  TableStore, Expect, absent, assert, check, client, drop, failed, ignore, invalid, key, long, plain, put,
  range, read, refused, remove, table, update, when,
} = require('./harness');

const CONFLICT = 'Data is being modified by the other request.';
const missing = (call) => refused(404, 'OTSSessionNotExist', 'Session not exist or may be timeout.', call);
const conflict = (call) => refused(409, 'OTSRowOperationConflict', CONFLICT, call);

async function start(tableName, primaryKey) {
  const { transactionId } = await client.startLocalTransaction({ tableName, primaryKey });
  assert.ok(transactionId, 'an id');
  return transactionId;
}

const within = (name, pk1) => start(name, [{ pk1 }]);
const commit = (transactionId) => client.commitTransaction({ transactionId });
const abort = (transactionId) => client.abortTransaction({ transactionId });
const putWithin = (transactionId, name, row, c) => put(name, row, [{ c }], { transactionId });

/** Writes in every way; the transaction's reader sees it, others after the commit. */
async function commits() {
  const name = await table();
  const rows = [0, 1, 2].map((n) => key('p', n));
  for (const row of rows) {
    await put(name, row, [{ c: 'before' }, { n: long(1) }]);
  }
  const transactionId = await within(name, 'p');
  await putWithin(transactionId, name, rows[0], 'after');
  const told = await update(name, rows[1], [{ PUT: [{ c: 'after' }] }, { INCREMENT: [{ n: long(41) }] }], {
    transactionId,
    returnContent: { returnType: TableStore.ReturnType.AfterModify, returnColumns: ['n'] },
  });
  assert.strictEqual(plain(told.row.attributes[0].columnValue), '42n');
  await remove(name, rows[2], { transactionId });
  const after = [{ c: 'after' }, { c: 'after', n: '42n' }, null];
  for (let n = 0; n < 3; n++) {
    assert.deepStrictEqual(await read(name, rows[n], { transactionId }), after[n]);
    assert.deepStrictEqual(await read(name, rows[n]), { c: 'before', n: '1n' });
  }
  await commit(transactionId);
  for (let n = 0; n < 3; n++) {
    assert.deepStrictEqual(await read(name, rows[n]), after[n]);
  }
  await drop(name);
}

async function aborts() {
  const name = await table();
  await put(name, key('p', 1), [{ c: 'before' }]);
  const transactionId = await within(name, 'p');
  await putWithin(transactionId, name, key('p', 1), 'after');
  await putWithin(transactionId, name, key('p', 2), 'new');
  await abort(transactionId);
  assert.deepStrictEqual(await read(name, key('p', 1)), { c: 'before' });
  assert.strictEqual(await read(name, key('p', 2)), null);
  await missing(() => abort(transactionId));
  await missing(() => commit(transactionId));
  await missing(() => putWithin(transactionId, name, key('p', 1), 'late'));
  await missing(() => read(name, key('p', 1), { transactionId }));
  await commit(await within(name, 'p'));
  await drop(name);
}

/** Others' writes of a held partition key fail, of another key they do not. */
async function isolation() {
  const name = await table();
  const row = key('p', 1);
  await put(name, row, [{ c: 'before' }]);
  const transactionId = await within(name, 'p');
  await conflict(() => within(name, 'p'));
  await conflict(() => put(name, row, [{ c: 'other' }]));
  await conflict(() => update(name, key('p', 9), [{ PUT: [{ c: 'other' }] }]));
  await conflict(() => remove(name, row));
  const rows = [row, key('q', 1)].map((primaryKey) => (
    { type: 'PUT', condition: ignore(), primaryKey, attributeColumns: [{ c: 'other' }] }));
  const [held, free] = (await client.batchWriteRow({ tables: [{ tableName: name, rows }] })).tables;
  assert.deepStrictEqual([held.errorCode, held.errorMessage], ['OTSRowOperationConflict', CONFLICT]);
  assert.ok(free.isOk);
  assert.deepStrictEqual(await read(name, row), { c: 'before' });
  const other = await within(name, 'q');
  await putWithin(other, name, key('q', 2), 'beside');
  await commit(other);
  await abort(transactionId);
  await put(name, row, [{ c: 'later' }]);
  assert.deepStrictEqual(await read(name, row), { c: 'later' });
  await drop(name);
}

async function ranges() {
  const name = await table();
  for (let n = 0; n < 6; n++) {
    await put(name, key('p', n), [{ c: long(n) }]);
  }
  const transactionId = await within(name, 'p');
  await putWithin(transactionId, name, key('p', 1), 'changed');
  await putWithin(transactionId, name, key('p', 7), 'added');
  await remove(name, key('p', 3), { transactionId });
  const numbers = async (more) => {
    const found = [];
    let page = await range(name, 'p', { limit: 2, ...more });
    for (;;) {
      found.push(...page.rows.map((row) => row.primaryKey[1].value.toNumber()));
      if (!page.nextStartPrimaryKey) {
        return found;
      }
      const next = page.nextStartPrimaryKey.map((column) => ({ [column.name]: column.value }));
      page = await range(name, 'p', { limit: 2, ...more, inclusiveStartPrimaryKey: next });
    }
  };
  const backward = {
    direction: TableStore.Direction.BACKWARD, inclusiveStartPrimaryKey: key('p', TableStore.INF_MAX),
    exclusiveEndPrimaryKey: key('p', TableStore.INF_MIN), transactionId,
  };
  assert.deepStrictEqual(await numbers({ transactionId }), [0, 1, 2, 4, 5, 7]);
  assert.deepStrictEqual(await numbers(backward), [7, 5, 4, 2, 1, 0]);
  assert.deepStrictEqual(await numbers({}), [0, 1, 2, 3, 4, 5]);
  await commit(transactionId);
  assert.deepStrictEqual(await numbers({}), [0, 1, 2, 4, 5, 7]);
  await drop(name);
}

/** A batch within a transaction: each row succeeds or fails alone. */
async function batches() {
  const name = await table();
  const transactionId = await within(name, 'p');
  const row = (primaryKey, condition = ignore()) => (
    { type: 'PUT', condition, primaryKey, attributeColumns: [{ c: 'x' }] });
  const told = (await client.batchWriteRow({
    transactionId,
    tables: [{ tableName: name, rows: [
      row(key('p', 1)), row(key('p', 2), when(Expect.EXPECT_EXIST)), row(key('q', 1)),
    ] }],
  })).tables;
  assert.deepStrictEqual(told.map((result) => result.errorCode),
    [null, 'OTSConditionCheckFail', 'OTSDataOutOfRange']);
  assert.strictEqual(await read(name, key('p', 1)), null);
  await commit(transactionId);
  assert.deepStrictEqual(await read(name, key('p', 1)), { c: 'x' });
  assert.strictEqual(await read(name, key('q', 1)), null);
  await drop(name);
}

/** A condition looks at what the transaction wrote; its failure ends nothing. */
async function conditions() {
  const name = await table();
  const row = key('p', 1);
  const transactionId = await within(name, 'p');
  await putWithin(transactionId, name, row, long(5));
  const attempt = (expectation, n) => {
    const columns = new TableStore.SingleColumnCondition('c', long(n), TableStore.ComparatorType.EQUAL);
    return update(name, row, [{ PUT: [{ done: true }] }],
      { transactionId, condition: when(expectation, columns) });
  };
  await failed(() => attempt(Expect.EXPECT_NOT_EXIST, 5));
  await failed(() => attempt(Expect.EXPECT_EXIST, 6));
  await attempt(Expect.EXPECT_EXIST, 5);
  await commit(transactionId);
  assert.deepStrictEqual(await read(name, row), { c: '5n', done: true });
  await drop(name);
}

async function scope() {
  const name = await table();
  const other = await table();
  const id = await within(name, 'p');
  const out = (text, call) => refused(400, 'OTSDataOutOfRange',
    `Data out of scope of transaction. ${text}`, call);
  const beside = 'Transaction PartKey:p. Data PartKey:q';
  await out(beside, () => putWithin(id, name, key('q', 1), 'v'));
  await out(beside, () => read(name, key('q', 1), { transactionId: id }));
  await out(`Transaction Table:${name}. Data Table:${other}`, () => putWithin(id, other, key('p', 1), 'v'));
  await abort(id);
  await drop(name);
  await drop(other);
}

async function errors() {
  const name = await table();
  await invalid('StartLocalTransaction support only one primary key.', () => start(name, key('p', 1)));
  await absent(() => within('absent', 'p'));
  await refused(400, 'OTSInvalidPK', 'Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.',
    () => start(name, [{ pk1: long(1) }]));
  const text = 'TransactionID is invalid.';
  for (const id of ['', 'not existed transaction id']) {
    await invalid(text, () => commit(id));
    await invalid(text, () => abort(id));
  }
  const transactionId = 'unknown';
  await invalid(text, () => put(name, key('p', 1), [], { transactionId }));
  await invalid(text, () => update(name, key('p', 1), [{ PUT: [{ c: 'x' }] }], { transactionId }));
  await invalid(text, () => remove(name, key('p', 1), { transactionId }));
  await invalid(text, () => read(name, key('p', 1), { transactionId }));
  await invalid(text, () => range(name, 'p', { transactionId }));
  await drop(name);
}

module.exports = async function checkTransactions() {
  await check('transaction-commit', commits);
  await check('transaction-abort', aborts);
  await check('transaction-isolation', isolation);
  await check('transaction-range', ranges);
  await check('transaction-batch', batches);
  await check('transaction-conditions', conditions);
  await check('transaction-scope', scope);
  await check('transaction-errors', errors);
};
