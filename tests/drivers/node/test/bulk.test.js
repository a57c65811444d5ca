// Many writes in one call: collection.bulkWrite, client.bulkWrite, retried statements.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { Long } from 'mongodb';
import { connected, hasFailPoints, isReplicaSet, newClient, rejection } from './support.js';

const context = connected('node_bulk');
let items;

beforeEach(async () => {
  items = context.db.collection('items');
  await items.drop();
  await items.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
});

test('an ordered bulk of all kinds of writes', async () => {
  const result = await items.bulkWrite([
    { insertOne: { document: { _id: 3, n: 3 } } },
    { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 10 } } } },
    { updateMany: { filter: { n: { $lt: 5 } }, update: { $set: { small: true } } } },
    { replaceOne: { filter: { _id: 9 }, replacement: { n: 9 }, upsert: true } },
    { deleteOne: { filter: { _id: 2 } } },
  ]);
  assert.deepEqual(
    [result.insertedCount, result.matchedCount, result.modifiedCount, result.upsertedCount, result.deletedCount],
    [1, 3, 3, 1, 1]);
  assert.deepEqual(result.upsertedIds, { 3: 9 });
  assert.deepEqual(await items.find().sort({ _id: 1 }).toArray(),
    [{ _id: 1, n: 11 }, { _id: 3, n: 3, small: true }, { _id: 9, n: 9 }]);
});

test('an ordered bulk stops at the first error, an unordered one goes on', async () => {
  const writes = [{ insertOne: { document: { _id: 1 } } }, { insertOne: { document: { _id: 4 } } }];
  const stopped = await rejection(items.bulkWrite(writes));
  assert.equal(stopped.code, 11000);
  assert.equal(stopped.insertedCount, 0);
  const finished = await rejection(items.bulkWrite(writes, { ordered: false }));
  assert.equal(finished.insertedCount, 1);
  assert.deepEqual(finished.writeErrors.map((error) => [error.index, error.code]), [[0, 11000]]);
});

test('insertMany splits what exceeds one message', async () => {
  const filler = 'x'.repeat(1024 * 1024);
  const large = context.db.collection('large');
  const result = await large.insertMany(Array.from({ length: 60 }, (_, n) => ({ _id: n, filler })));
  assert.equal(result.insertedCount, 60);
  assert.equal(await large.countDocuments(), 60);
  await large.drop();
});

test('client.bulkWrite writes to several collections', async () => {
  const result = await context.client.bulkWrite([
    { namespace: 'node_bulk.items', name: 'insertOne', document: { _id: 7, n: 7 } },
    { namespace: 'node_bulk.other', name: 'insertOne', document: { _id: 1 } },
    { namespace: 'node_bulk.items', name: 'updateMany', filter: {}, update: { $set: { seen: true } } },
    { namespace: 'node_bulk.other', name: 'replaceOne', filter: { _id: 2 }, replacement: { r: 1 }, upsert: true },
    { namespace: 'node_bulk.items', name: 'deleteOne', filter: { _id: 1 } },
  ], { verboseResults: true });
  assert.deepEqual(
    [result.insertedCount, result.matchedCount, result.modifiedCount, result.upsertedCount, result.deletedCount],
    [2, 3, 3, 1, 1]);
  assert.equal(result.updateResults.get(3).upsertedId, 2);
  assert.equal(await items.countDocuments({ seen: true }), 2);
});

test('client.bulkWrite names the write that failed', async () => {
  const error = await rejection(context.client.bulkWrite([
    { namespace: 'node_bulk.items', name: 'insertOne', document: { _id: 8 } },
    { namespace: 'node_bulk.items', name: 'insertOne', document: { _id: 1 } },
  ]));
  assert.equal(error.constructor.name, 'MongoClientBulkWriteError');
  assert.deepEqual([...error.writeErrors.keys()], [1]);
  assert.equal(error.writeErrors.get(1).code, 11000);
  assert.equal(error.partialResult.insertedCount, 1);
});

test('a statement sent twice is applied once', { skip: !isReplicaSet }, async () => {
  const command = { update: 'items', updates: [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }], txnNumber: Long.fromNumber(1) };
  // A separate client has a new session, whose numbers begin at 1.
  const client = newClient();
  await client.withSession(async (session) => {
    const db = client.db(context.db.databaseName);
    const first = await db.command(command, { session });
    const second = await db.command(command, { session });
    assert.deepEqual([first.n, first.nModified, first.retriedStmtIds], [1, 1, undefined]);
    assert.deepEqual([second.n, second.nModified, second.retriedStmtIds], [1, 1, [0]]);
  });
  await client.close();
  assert.equal((await items.findOne({ _id: 1 })).n, 2);
});

test('a lost reply makes the driver send the write again', { skip: !isReplicaSet }, async (t) => {
  if (!(await hasFailPoints(context.client))) return t.skip('the server has no fail points');
  const client = newClient({ monitorCommands: true });
  const events = [];
  client.on('commandStarted', (event) => event.commandName === 'insert' && events.push('started'));
  client.on('commandFailed', (event) => event.commandName === 'insert' && events.push('failed'));
  await client.connect();
  await context.db.admin().command({
    configureFailPoint: 'failCommand', mode: { times: 1 }, data: { failCommands: ['insert'], closeConnection: true },
  });
  await client.db('node_bulk').collection('items').insertOne({ _id: 20 });
  await client.close();
  assert.deepEqual(events, ['started', 'failed', 'started']);
  assert.equal(await items.countDocuments({ _id: 20 }), 1);
});
