'use strict';
// What every check uses. The server is named by ROWTIDE_ENDPOINT, ROWTIDE_INSTANCE, ROWTIDE_KEY_ID
// and ROWTIDE_KEY_SECRET.
const assert = require('assert');
const TableStore = require('tablestore');

const { Long, Condition, RowExistenceExpectation: Expect } = TableStore;
const given = {
  accessKeyId: process.env.ROWTIDE_KEY_ID,
  secretAccessKey: process.env.ROWTIDE_KEY_SECRET,
  endpoint: process.env.ROWTIDE_ENDPOINT,
  instancename: process.env.ROWTIDE_INSTANCE,
};
const client = new TableStore.Client(given);
let made = 0;

/** Runs one scenario and prints its line: "ok NAME" or "FAILED NAME: why". */
async function check(name, scenario) {
  try {
    await scenario();
    console.log(`ok ${name}`);
  } catch (error) {
    process.exitCode = 1;
    const place = /\((?:.*\/)?(\w+\.js:\d+)/.exec((error.stack || '').replace(/.*harness.*\n/g, ''));
    const why = String(error.message || error).replace(/\s+/g, ' ').slice(0, 500);
    console.log(`FAILED ${name}: ${why} at ${place ? place[1] : '?'}`);
  }
}

/**
 * Holds a refusal to what the SDK shows of it: the status, and the code and text within the body,
 * which the text ends. An empty text is not looked at.
 */
async function refused(status, code, text, call) {
  await assert.rejects(async () => call(), (error) => {
    assert.strictEqual(error.code, status, `${error.message} is not of ${code}`);
    assert.ok(error.message.includes(code), `${error.message} names no ${code}`);
    const end = text ? `${text} requestId:` : '';
    assert.ok(error.message.includes(end), `${error.message} does not say ${text}`);
    return true;
  });
}

const invalid = (text, call) => refused(400, 'OTSParameterInvalid', text, call);
const absent = (call) => refused(404, 'OTSObjectNotExist', 'Requested table does not exist.', call);
const failed = (call) => refused(403, 'OTSConditionCheckFail', 'Condition check failed.', call);

const KEY = [{ name: 'pk1', type: 'STRING' }, { name: 'pk2', type: 'INTEGER' }];

function create(tableName, primaryKey, { definedColumn, options, ...more } = {}) {
  return client.createTable({
    tableMeta: { tableName, primaryKey, definedColumn },
    reservedThroughput: { capacityUnit: { read: 0, write: 0 } },
    tableOptions: { timeToLive: -1, maxVersions: 5, ...options },
    ...more,
  });
}

/** Makes a table keyed pk1 STRING, pk2 INTEGER, unless another key is given; five versions. */
async function table(primaryKey, more) {
  const tableName = `node_${++made}`;
  await create(tableName, primaryKey || KEY, more);
  return tableName;
}

async function drop(tableName) {
  await client.deleteTable({ tableName });
}

const long = (number) => Long.fromNumber(number);
const wide = (text) => Long.fromString(text);
const key = (pk1, pk2) => [{ pk1 }, { pk2: typeof pk2 === 'number' ? long(pk2) : pk2 }];
const when = (expectation, columns) => new Condition(expectation, columns || null);
const ignore = () => when(Expect.IGNORE);

function put(tableName, primaryKey, attributeColumns, more) {
  return client.putRow({
    tableName, primaryKey, attributeColumns, condition: ignore(), ...more,
  });
}

function update(tableName, primaryKey, updateOfAttributeColumns, more) {
  return client.updateRow({
    tableName, primaryKey, updateOfAttributeColumns, condition: ignore(), ...more,
  });
}

function remove(tableName, primaryKey, more) {
  return client.deleteRow({ tableName, primaryKey, condition: ignore(), ...more });
}

/** Reads all of a partition key's rows in order, unless told otherwise. */
function range(tableName, pk1, more) {
  return client.getRange({
    tableName, direction: TableStore.Direction.FORWARD, maxVersions: 1,
    inclusiveStartPrimaryKey: key(pk1, TableStore.INF_MIN),
    exclusiveEndPrimaryKey: key(pk1, TableStore.INF_MAX), ...more,
  });
}

function get(tableName, primaryKey, more) {
  return client.getRow({ tableName, primaryKey, maxVersions: 1, ...more });
}

/** Returns a value as JavaScript compares it: integers as their decimal text with an n. */
function plain(value) {
  if (value && typeof value === 'object' && !Buffer.isBuffer(value) && value.toNumber) {
    return `${value.toString(10)}n`;
  }
  return Buffer.isBuffer(value) || value instanceof Uint8Array
    ? `hex ${Buffer.from(value).toString('hex')}` : value;
}

/** Returns a row's newest values by column, null where it is absent. */
function values(row) {
  if (!row || !row.primaryKey || row.primaryKey.length === 0) {
    return null;
  }
  const found = {};
  for (const { columnName, columnValue } of row.attributes || []) {
    if (!(columnName in found)) {
      found[columnName] = plain(columnValue);
    }
  }
  return found;
}

async function read(tableName, primaryKey, more) {
  return values((await get(tableName, primaryKey, more)).row);
}

const units = (answer) => [answer.consumed.capacityUnit.read, answer.consumed.capacityUnit.write];

module.exports = {
  TableStore, Expect, absent, assert, check, client, create, drop, failed, get, given, ignore, invalid,
  key, long, plain, put, range, read, refused, remove, table, units, update, values, when, wide,
};
