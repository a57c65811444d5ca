// Collections, indexes, validators, aggregation, explain and tailable cursors.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connected, rejection } from './support.js';

const context = connected('node_admin');

test('a unique index refuses a duplicate and says which', async () => {
  const users = context.db.collection('users');
  assert.equal(await users.createIndex({ email: 1 }, { unique: true }), 'email_1');
  await users.insertOne({ email: 'a@example.org' });
  const error = await rejection(users.insertOne({ email: 'a@example.org' }));
  assert.equal(error.code, 11000);
  assert.deepEqual(error.keyPattern, { email: 1 });
  assert.deepEqual(error.keyValue, { email: 'a@example.org' });
  assert.equal(error.message,
    'E11000 duplicate key error collection: node_admin.users index: email_1 dup key: { email: "a@example.org" }');
});

test('indexes are listed, kept apart and dropped', async () => {
  const c = context.db.collection('indexed');
  await c.createIndexes([{ key: { a: 1, b: -1 }, name: 'ab' }, { key: { c: 1 }, sparse: true }]);
  assert.deepEqual(await c.listIndexes().toArray(), [
    { v: 2, key: { _id: 1 }, name: '_id_' },
    { v: 2, key: { a: 1, b: -1 }, name: 'ab' },
    { v: 2, key: { c: 1 }, name: 'c_1', sparse: true },
  ]);
  const conflict = await rejection(c.createIndex({ other: 1 }, { name: 'ab' }));
  assert.equal(conflict.code, 86);
  await c.dropIndex('ab');
  assert.equal((await rejection(c.dropIndex('ab'))).code, 27);
  assert.deepEqual((await c.indexes()).map((index) => index.name), ['_id_', 'c_1']);
});

test('collections are created, listed, renamed and dropped', async () => {
  await context.db.createCollection('alpha');
  await context.db.createCollection('beta', { capped: true, size: 4096, max: 3 });
  const listed = await context.db.listCollections({ name: { $in: ['alpha', 'beta'] } }).toArray();
  const byName = Object.fromEntries(listed.map((entry) => [entry.name, entry]));
  assert.deepEqual(byName.beta.options, { capped: true, size: 4096, max: 3 });
  assert.deepEqual(byName.alpha.idIndex, { v: 2, key: { _id: 1 }, name: '_id_' });
  assert.equal(byName.alpha.type, 'collection');
  assert.equal(byName.alpha.info.readOnly, false);
  await context.db.collection('alpha').rename('gamma');
  assert.equal((await rejection(context.db.createCollection('beta'))).code, 48);
  assert.equal((await rejection(context.db.collection('gamma').rename('beta'))).code, 48);
  assert.equal(await context.db.collection('gamma').drop(), true);
  assert.equal((await rejection(context.db.collection('gamma').rename('x'))).code, 26);
});

test('a validator refuses with its reasons', async () => {
  const c = await context.db.createCollection('checked', {
    validator: { $jsonSchema: { required: ['n'], properties: { n: { bsonType: 'int', minimum: 0 } } } },
  });
  await c.insertOne({ n: 1 });
  const error = await rejection(c.insertOne({ n: -1 }));
  assert.equal(error.code, 121);
  assert.equal(error.errInfo.details.operatorName, '$jsonSchema');
});

test('aggregation groups, unwinds, joins and sorts', async () => {
  const orders = context.db.collection('orders');
  await context.db.collection('stock').insertMany([{ _id: 'tea', price: 3 }, { _id: 'milk', price: 1 }]);
  await orders.insertMany([
    { who: 'ann', items: ['tea', 'milk'] }, { who: 'bob', items: ['tea'] }, { who: 'ann', items: ['tea'] },
  ]);
  const result = await orders.aggregate([
    { $unwind: '$items' },
    { $lookup: { from: 'stock', localField: 'items', foreignField: '_id', as: 'stock' } },
    { $set: { price: { $first: '$stock.price' } } },
    { $group: { _id: '$who', total: { $sum: '$price' }, items: { $push: '$items' } } },
    { $sort: { _id: 1 } },
  ]).toArray();
  assert.deepEqual(result, [
    { _id: 'ann', total: 7, items: ['tea', 'milk', 'tea'] },
    { _id: 'bob', total: 3, items: ['tea'] },
  ]);
});

test('aggregation writes its result with $out and $merge', async () => {
  const source = context.db.collection('source');
  await source.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  await source.aggregate([{ $set: { n: { $multiply: ['$n', 2] } } }, { $out: 'target' }]).toArray();
  await source.aggregate([{ $match: { _id: 1 } }, { $merge: { into: 'target', whenMatched: 'replace' } }]).toArray();
  assert.deepEqual(await context.db.collection('target').find().sort({ _id: 1 }).toArray(),
    [{ _id: 1, n: 1 }, { _id: 2, n: 4 }]);
});

test('explain tells an index scan from a collection scan', async () => {
  const c = context.db.collection('explained');
  await c.createIndex({ a: 1 });
  await c.insertMany([{ a: 1 }, { a: 2 }, { a: 3 }]);
  const text = async (filter) => JSON.stringify((await c.find(filter).explain('queryPlanner')).queryPlanner.winningPlan);
  assert.match(await text({ a: 2 }), /IXSCAN/);
  assert.match(await text({ b: 2 }), /COLLSCAN/);
  const stats = (await c.find({ a: { $gte: 2 } }).explain('executionStats')).executionStats;
  assert.deepEqual([stats.nReturned, stats.totalKeysExamined, stats.totalDocsExamined], [2, 2, 2]);
});

test('collection and database statistics', async () => {
  const c = context.db.collection('measured');
  await c.insertMany([{ _id: 1 }, { _id: 2 }]);
  const [{ storageStats }] = await c.aggregate([{ $collStats: { storageStats: {} } }]).toArray();
  assert.equal(storageStats.count, 2);
  const stats = await context.db.stats();
  assert.equal(stats.db, 'node_admin');
  assert.ok(stats.objects >= 2);
});

test('a tailable cursor waits for what is inserted later', { timeout: 20_000 }, async () => {
  const log = await context.db.createCollection('log', { capped: true, size: 65536 });
  await log.insertOne({ _id: 1 });
  const cursor = log.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 5000 });
  assert.equal((await cursor.next())._id, 1);
  const waiting = cursor.next();
  await new Promise((resolve) => setTimeout(resolve, 100));
  await log.insertOne({ _id: 2 });
  assert.equal((await waiting)._id, 2);
  await cursor.close();
});

test('a capped collection forgets its oldest documents', async () => {
  const log = await context.db.createCollection('short', { capped: true, size: 4096, max: 3 });
  for (let n = 1; n <= 5; n++) await log.insertOne({ _id: n });
  assert.deepEqual((await log.find().toArray()).map((d) => d._id), [3, 4, 5]);
  assert.deepEqual((await log.find().sort({ $natural: -1 }).toArray()).map((d) => d._id), [5, 4, 3]);
});
