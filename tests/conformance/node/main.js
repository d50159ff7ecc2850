'use strict';
// Drives a server with the official Node SDK and prints a line per check: "ok NAME" or
// "FAILED NAME: why". The SDK shows an error as its status and the raw body.
const {
  TableStore, assert, check, client, drop, given, key, put, refused, table,
} = require('./harness');
const checkRows = require('./rows');
const checkReads = require('./reads');
const checkSchemas = require('./schemas');
const checkFilters = require('./filters');
const checkBatchWrites = require('./batchwrites');
const checkRefusals = require('./refusals');
const checkTransactions = require('./transactions');
const checkIndexes = require('./indexes');

const ABSENT = 'Requested table does not exist.';

async function life() {
  const name = await table([
    { name: 's', type: 'STRING' }, { name: 'i', type: 'INTEGER' }, { name: 'b', type: 'BINARY' },
    { name: 'n', type: 'INTEGER', option: 'AUTO_INCREMENT' },
  ]);
  assert.ok((await client.listTable({})).tableNames.includes(name));
  const told = await client.describeTable({ tableName: name });
  assert.strictEqual(told.tableMeta.tableName, name);
  assert.deepStrictEqual(told.tableMeta.primaryKey.map((part) => [part.name, part.type]),
    [['s', 2], ['i', 1], ['b', 3], ['n', 1]]);
  assert.strictEqual(told.tableMeta.primaryKey[3].option, 1);
  assert.strictEqual(told.tableStatus, 1);
  assert.strictEqual(told.tableOptions.timeToLive, -1);
  assert.strictEqual(told.tableOptions.maxVersions, 5);
  assert.strictEqual(Number(told.tableOptions.deviationCellVersionInSec), 86400);
  assert.strictEqual(told.RequestId.length, 36);
  await drop(name);
  assert.ok(!(await client.listTable({})).tableNames.includes(name));
}

async function options() {
  const name = await table();
  await client.updateTable({
    tableName: name, tableOptions: { maxVersions: 7, timeToLive: 86400, maxTimeDeviation: 1000 },
  });
  const told = (await client.describeTable({ tableName: name })).tableOptions;
  assert.deepStrictEqual([told.maxVersions, told.timeToLive], [7, 86400]);
  await drop(name);
}

async function errors() {
  const name = await table();
  const again = (tableName) => client.createTable({
    tableMeta: { tableName, primaryKey: [{ name: 'pk1', type: 'STRING' }] },
    reservedThroughput: { capacityUnit: { read: 0, write: 0 } },
    tableOptions: { timeToLive: -1, maxVersions: 1 },
  });
  await refused(409, 'OTSObjectAlreadyExist', 'Requested table already exists.', () => again(name));
  await refused(400, 'OTSParameterInvalid', "Invalid table name: '3t'.", () => again('3t'));
  await refused(404, 'OTSObjectNotExist', ABSENT, () => drop('absent'));
  await refused(404, 'OTSObjectNotExist', ABSENT, () => put('absent', key('a', 1), []));
  await refused(400, 'OTSInvalidPK', 'Validate PK size fail. Input: 1, Meta: 2.',
    () => put(name, [{ pk1: 'a' }], []));
  await refused(400, 'OTSInvalidPK', 'Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.',
    () => put(name, key('a', 'b'), []));
  await drop(name);
}

async function credentials() {
  for (const [wrong, text] of [
    ['accessKeyId', 'The AccessKeyID does not exist.'], ['secretAccessKey', 'Signature mismatch.'],
    ['instancename', 'The instance is not found.'],
  ]) {
    const stranger = new TableStore.Client({ ...given, [wrong]: `${given[wrong]}x` });
    await refused(403, 'OTSAuthFailed', text, () => stranger.listTable({}));
  }
}

(async () => {
  await check('table-life', life);
  await check('table-options', options);
  await check('table-errors', errors);
  await check('wrong-credentials', credentials);
  await checkSchemas();
  await checkRows();
  await checkFilters();
  await checkReads();
  await checkBatchWrites();
  await checkRefusals();
  await checkTransactions();
  await checkIndexes();
})();
