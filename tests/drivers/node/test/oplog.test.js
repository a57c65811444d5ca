// The commands of programs that read local.oplog.rs: Meteor's observers tail it. mongodump stores the entries of its run,
// and mongorestore applies them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Long, MongoClient, Timestamp } from 'mongodb';
import { connected, isReplicaSet, uri } from './support.js';

const context = connected('node_oplog');

const onSet = { skip: isReplicaSet ? false : 'a standalone server has no log' };

/** Returns the last entry of the oplog that a selector matches. */
function lastEntry(oplog, selector = {}) {
  return oplog.findOne(selector, { sort: { $natural: -1 }, projection: { ts: 1 } });
}

/** Meteor's selector: the entries of one database, and commands on it. */
function meteorSelector(database) {
  const kinds = [
    { op: { $in: ['i', 'u', 'd'] } },
    { op: 'c', 'o.drop': { $exists: true } },
    { op: 'c', 'o.dropDatabase': 1 },
    { op: 'c', 'o.applyOps': { $exists: true } },
  ];
  const namespaces = new RegExp(`^(?:${[`${database}.`, 'admin.$cmd'].map(RegExp.escape ?? escape).join('|')})`);
  return { $and: [{ $or: kinds }, { ns: { $regex: namespaces, $nin: [`${database}.excluded`] } }] };
}

function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** Returns the operations of an entry with their namespaces. A transaction has several. */
function operations(entry) {
  return entry.op === 'c' && entry.o.applyOps ? entry.o.applyOps : [entry];
}

test('Meteor tails the log and knows when it has caught up', onSet, async (t) => {
  // Two connections, as in Meteor: one of them waits in getMore.
  const tailing = new MongoClient(uri, { maxPoolSize: 1 });
  const asking = new MongoClient(uri, { maxPoolSize: 1 });
  t.after(() => Promise.all([tailing.close(), asking.close()]));
  const hello = await tailing.db('admin').command({ ismaster: 1 });
  assert.ok(hello.setName);

  const things = context.db.collection('things');
  await things.insertOne({ _id: 'before' });
  const oplog = asking.db('local').collection('oplog.rs');
  const base = meteorSelector('node_oplog');
  const { ts: since } = await lastEntry(oplog);
  const cursor = tailing.db('local').collection('oplog.rs').find(
    { ...base, ts: { $gt: since } },
    { tailable: true, awaitData: true, oplogReplay: true },
  );
  const seen = [];
  const caughtUp = async (until) => {
    while (seen.length === 0 || seen.at(-1).ts.lessThan(until)) seen.push(await cursor.next());
  };

  await things.insertOne({ _id: 1, a: 1 });
  await things.updateOne({ _id: 1 }, { $set: { a: 2 }, $unset: { b: 1 } });
  await things.replaceOne({ _id: 1 }, { c: 1 });
  await context.db.collection('excluded').insertOne({ _id: 1 });
  await context.client.db('node_elsewhere').collection('things').insertOne({ _id: 1 });
  await context.client.withSession((session) => session.withTransaction(async () => {
    await things.insertOne({ _id: 2 }, { session });
    await things.insertOne({ _id: 3 }, { session });
  }));
  await things.deleteOne({ _id: 1 });
  const first = await lastEntry(oplog, base);
  await caughtUp(first.ts);

  const told = seen.flatMap(operations).map(({ op, ns, o, o2 }) => ({ op, ns, id: (o2 ?? o)._id }));
  const ns = 'node_oplog.things';
  assert.deepEqual(told, [
    { op: 'i', ns, id: 1 }, { op: 'u', ns, id: 1 }, { op: 'u', ns, id: 1 },
    { op: 'i', ns, id: 2 }, { op: 'i', ns, id: 3 }, { op: 'd', ns, id: 1 },
  ]);
  const [, changed, replaced] = seen;
  assert.deepEqual(changed.o, { $v: 2, diff: { u: { a: 2 } } });
  assert.deepEqual(replaced.o, { _id: 1, c: 1 });
  assert.ok(seen.every((entry, at) => at === 0 || entry.ts.greaterThan(seen[at - 1].ts)));

  // A waiting cursor returns new entries.
  const next = cursor.next();
  await things.drop();
  assert.deepEqual((await next).o, { drop: 'things' });
  await cursor.close();
});

test('a dump with its oplog is restored to the moment of its end', onSet, async (t) => {
  const { client } = context;
  const source = client.db('node_dumped');
  t.after(() => source.dropDatabase());
  await source.createCollection('notes', { validator: { n: { $type: 'number' } } });
  const notes = source.collection('notes');
  await notes.createIndex({ n: 1 }, { name: 'by_n', expireAfterSeconds: 3600 });
  await notes.insertMany([1, 2, 3].map((n) => ({ _id: n, n, at: new Timestamp({ t: 0, i: 0 }) })));

  // The dump: the latest position without an open transaction, the collections, the entries after the position.
  const oplog = client.db('local').collection('oplog.rs');
  const config = client.db('config').collection('transactions');
  const open = await config.findOne({ state: { $in: ['prepared', 'inProgress'] } }, { sort: { startOpTime: 1 } });
  assert.equal(open, null);
  const begin = (await lastEntry(oplog)).ts;
  const dump = await dumped(source);
  await notes.updateMany({}, { $inc: { n: 10 }, $push: { tags: 'late' } });
  await notes.deleteOne({ _id: 2 });
  await notes.insertOne({ _id: 4, n: 4 });
  await notes.replaceOne({ _id: 3 }, { n: 33 });
  await source.command({ collMod: 'notes', validator: {}, index: { name: 'by_n', hidden: true } });
  await source.collection('late').insertOne({ _id: 1 });
  await source.collection('late').createIndex({ a: 1 });
  await source.collection('gone').insertOne({ _id: 1 });
  await source.collection('gone').drop();
  await source.collection('late').rename('renamed');
  await source.createCollection('capped', { capped: true, size: 4096 });
  await source.createCollection('view', { viewOn: 'notes', pipeline: [{ $match: { n: 33 } }] });
  await client.withSession((session) => session.withTransaction(async () => {
    await notes.insertOne({ _id: 5, n: 5 }, { session });
    await source.collection('within').insertOne({ _id: 1 }, { session });
  }));
  const end = (await lastEntry(oplog)).ts;
  const log = await oplog
    .find({ ts: { $gte: begin, $lte: end } }, { oplogReplay: true, promoteValues: false })
    .toArray();
  const first = await oplog.findOne({}, { sort: { $natural: 1 } });
  assert.ok(first.ts.lessThanOrEqual(begin), 'the log still reaches back to the beginning of the dump');
  const expected = await dumped(source);
  await source.dropDatabase();

  await restore(source, dump);
  for (const entry of log) {
    if (entry.op === 'n' || !concerns(entry, 'node_dumped')) continue;
    for (const operation of operations(entry)) {
      const { ui, ts, wall, t: term, v, lsid, txnNumber, prevOpTime, stmtId, ...plain } = operation;
      const reply = await client.db('admin').command({ applyOps: [plain] });
      assert.deepEqual(reply.results, [true]);
    }
  }
  assert.deepEqual(await dumped(source), expected);
});

/** Returns true if an entry belongs to a database. */
function concerns(entry, database) {
  return operations(entry).some(({ ns }) => ns.startsWith(`${database}.`));
}

/** Returns the options, indexes and documents of a database. */
async function dumped(database) {
  const collections = await database.listCollections({}, { nameOnly: false }).toArray();
  collections.sort((a, b) => (a.name < b.name ? -1 : 1));
  const dump = [];
  for (const { name, type, options } of collections) {
    if (name.startsWith('system.')) continue;
    const collection = database.collection(name);
    const isView = type === 'view';
    dump.push({
      name,
      options,
      indexes: isView ? [] : await collection.listIndexes().toArray(),
      documents: isView ? [] : await collection.find({}, { hint: { _id: 1 }, promoteLongs: false }).toArray(),
    });
  }
  return dump;
}

async function restore(database, dump) {
  for (const { name, options, indexes, documents } of dump) {
    await database.command({ create: name, ...options });
    await database.command({
      insert: name,
      documents,
      ordered: false,
      bypassDocumentValidation: true,
      bypassEmptyTsReplacement: true,
      writeConcern: { w: 'majority' },
    });
    await database.command({ createIndexes: name, indexes, ignoreUnknownIndexOptions: true });
  }
}

test('the times of the log bound what is read of it', onSet, async () => {
  const oplog = context.client.db('local').collection('oplog.rs');
  await context.db.collection('many').insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n })));
  const all = await oplog.find({}, { projection: { ts: 1 } }).toArray();
  const { ts } = all.at(-3);
  for (const [condition, expected] of [
    [{ $gt: ts }, 2], [{ $gte: ts }, 3], [ts, 1], [{ $lt: ts }, all.length - 3], [{ $gt: Long.fromNumber(1) }, 0],
  ]) {
    assert.equal((await oplog.find({ ts: condition }).toArray()).length, expected);
  }
});
