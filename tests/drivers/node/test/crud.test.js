// Reading and writing documents through the driver's collection interface.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { Binary, Decimal128, Int32, Long, ObjectId, Timestamp, UUID } from 'mongodb';
import { connected, rejection } from './support.js';

const context = connected('node_crud');
let people;

const COMPOSERS = [
  { _id: 1, name: 'Clara', born: 1819, works: ['Trio', 'Konzert'], home: { town: 'Leipzig' } },
  { _id: 2, name: 'Fanny', born: 1805, works: ['Das Jahr'], home: { town: 'Hamburg' } },
  { _id: 3, name: 'Amy', born: 1867, works: [], home: { town: 'Henniker' } },
  { _id: 4, name: 'Lili', born: 1893, works: ['Pie Jesu'], home: { town: 'Paris' } },
];

beforeEach(async () => {
  people = context.db.collection('people');
  await people.drop();
  await people.insertMany(COMPOSERS);
});

test('documents come back in insertion order, as they were sent', async () => {
  assert.deepEqual(await people.find().toArray(), COMPOSERS);
});

test('every BSON type survives the round trip', async () => {
  const document = {
    _id: new ObjectId('64b7f0c2a1b2c3d4e5f60718'),
    double: 1.5, int: 7, long: Long.fromString('9007199254740993'),
    decimal: Decimal128.fromString('12345678901234567890.12'),
    text: 'grüße 🐘', empty: '', yes: true, nothing: null,
    date: new Date('1969-07-20T20:17:40.000Z'),
    binary: new Binary(Buffer.from([0, 1, 255])), uuid: new UUID('0f8fad5b-d9cb-469f-a165-70867728950e'),
    pattern: /^a.b/im, stamp: new Timestamp({ t: 1_700_000_000, i: 3 }),
    list: [1, [2, [3]], {}], nested: { deep: { deeper: {} } },
  };
  const types = context.db.collection('types', { promoteLongs: false });
  await types.insertOne(document);
  const found = await types.findOne({ _id: document._id });
  assert.deepEqual(Object.keys(found), Object.keys(document));
  assert.ok(found.long.equals(document.long));
  assert.equal(found.decimal.toString(), '12345678901234567890.12');
  assert.equal(found.uuid.toString(), document.uuid.toString());
  assert.deepEqual(found.pattern, document.pattern);
  assert.ok(found.stamp.equals(document.stamp));
  assert.deepEqual(found.binary.buffer, document.binary.buffer);
  for (const key of ['double', 'text', 'empty', 'yes', 'nothing', 'date']) {
    assert.deepEqual(found[key], document[key], key);
  }
  assert.deepEqual(found.nested, document.nested);
});

test('filters, sorting, skipping, limiting and projection work together', async () => {
  const found = await people
    .find({ born: { $gte: 1810 }, 'home.town': { $ne: 'Paris' } })
    .sort({ born: -1 }).skip(1).limit(1)
    .project({ _id: 0, name: 1, 'home.town': 1 })
    .toArray();
  assert.deepEqual(found, [{ name: 'Clara', home: { town: 'Leipzig' } }]);
});

test('array elements are matched and sliced', async () => {
  assert.deepEqual((await people.find({ works: 'Trio' }).toArray()).map((p) => p._id), [1]);
  assert.deepEqual((await people.find({ works: { $size: 0 } }).toArray()).map((p) => p._id), [3]);
  const sliced = await people.findOne({ _id: 1 }, { projection: { works: { $slice: 1 } } });
  assert.deepEqual(sliced.works, ['Trio']);
});

test('a cursor fetches batch after batch', async () => {
  const many = context.db.collection('many');
  await many.insertMany(Array.from({ length: 1000 }, (_, n) => ({ _id: n })));
  const seen = [];
  for await (const { _id } of many.find().batchSize(70)) seen.push(_id);
  assert.deepEqual(seen, Array.from({ length: 1000 }, (_, n) => n));
});

test('a cursor can be streamed, and closed half-way', async () => {
  const seen = [];
  for await (const { _id } of people.find().sort({ _id: -1 }).batchSize(2).stream()) seen.push(_id);
  assert.deepEqual(seen, [4, 3, 2, 1]);
  const cursor = people.find().batchSize(2);
  await cursor.next();
  const { id } = cursor;
  await cursor.close();
  const error = await rejection(context.db.command({ getMore: id, collection: 'people' }));
  assert.equal(error.code, 43);
});

test('a cursor closed on the server is not found', async () => {
  const cursor = people.find().batchSize(2);
  await cursor.next();
  await context.db.command({ killCursors: 'people', cursors: [cursor.id] });
  await cursor.next();
  const error = await rejection(cursor.next());
  assert.equal(error.code, 43);
  assert.equal(error.codeName, 'CursorNotFound');
});

test('updates report what they matched and changed', async () => {
  const same = await people.updateOne({ _id: 1 }, { $set: { name: 'Clara' } });
  assert.deepEqual([same.matchedCount, same.modifiedCount], [1, 0]);
  const all = await people.updateMany({}, { $inc: { born: new Int32(1) }, $push: { works: 'x' } });
  assert.deepEqual([all.matchedCount, all.modifiedCount], [4, 4]);
  const upserted = await people.updateOne({ name: 'Ethel' }, { $set: { born: 1858 } }, { upsert: true });
  assert.equal(upserted.upsertedCount, 1);
  assert.deepEqual(await people.findOne({ _id: upserted.upsertedId }),
    { _id: upserted.upsertedId, name: 'Ethel', born: 1858 });
});

test('positional operators reach into arrays', async () => {
  await people.updateOne({ works: 'Trio' }, { $set: { 'works.$': 'Quartett' } });
  await people.updateOne({ _id: 1 }, { $set: { 'works.$[w]': 'Klavierkonzert' } },
    { arrayFilters: [{ w: 'Konzert' }] });
  assert.deepEqual((await people.findOne({ _id: 1 })).works, ['Quartett', 'Klavierkonzert']);
});

test('an update may be a pipeline', async () => {
  await people.updateOne({ _id: 2 }, [{ $set: { label: { $concat: ['$name', '/', '$home.town'] } } }, { $unset: 'home' }]);
  const found = await people.findOne({ _id: 2 });
  assert.equal(found.label, 'Fanny/Hamburg');
  assert.equal('home' in found, false);
});

test('replacing keeps the _id and nothing else', async () => {
  await people.replaceOne({ _id: 3 }, { only: true });
  assert.deepEqual(await people.findOne({ _id: 3 }), { _id: 3, only: true });
  const error = await rejection(people.replaceOne({ _id: 3 }, { _id: 4 }));
  assert.equal(error.code, 66);
});

test('findOneAndUpdate returns the document before or after', async () => {
  const before = await people.findOneAndUpdate({ _id: 1 }, { $inc: { born: 1 } });
  assert.equal(before.born, 1819);
  const after = await people.findOneAndUpdate({ _id: 1 }, { $inc: { born: 1 } },
    { returnDocument: 'after', projection: { _id: 0, born: 1 } });
  assert.deepEqual(after, { born: 1821 });
  assert.equal(await people.findOneAndUpdate({ _id: 99 }, { $inc: { born: 1 } }), null);
});

test('findOneAndUpdate with metadata tells about the upsert', async () => {
  const result = await people.findOneAndUpdate({ _id: 99 }, { $set: { a: 1 } },
    { upsert: true, returnDocument: 'after', includeResultMetadata: true });
  assert.deepEqual(result.value, { _id: 99, a: 1 });
  assert.deepEqual(result.lastErrorObject, { n: 1, updatedExisting: false, upserted: 99 });
});

test('findOneAndDelete and findOneAndReplace respect the sort', async () => {
  assert.equal((await people.findOneAndDelete({}, { sort: { born: -1 } }))._id, 4);
  assert.equal((await people.findOneAndReplace({}, { r: 1 }, { sort: { born: 1 } }))._id, 2);
  assert.deepEqual(await people.findOne({ _id: 2 }), { _id: 2, r: 1 });
});

test('deleting one or many reports the count', async () => {
  assert.equal((await people.deleteOne({ born: { $lt: 1870 } })).deletedCount, 1);
  assert.equal((await people.deleteMany({ born: { $lt: 1870 } })).deletedCount, 2);
  assert.deepEqual((await people.find().toArray()).map((p) => p._id), [4]);
});

test('counting and distinct', async () => {
  assert.equal(await people.countDocuments({ born: { $lt: 1850 } }), 2);
  assert.equal(await people.estimatedDocumentCount(), 4);
  assert.deepEqual((await people.distinct('works')).sort(), ['Das Jahr', 'Konzert', 'Pie Jesu', 'Trio']);
});

test('maxTimeMS, comment, hint and let are accepted', async () => {
  const found = await people
    .find({ $expr: { $eq: ['$name', '$$wanted'] } }, { let: { wanted: 'Amy' }, comment: 'who', maxTimeMS: 1000 })
    .hint({ _id: 1 }).toArray();
  assert.deepEqual(found.map((p) => p._id), [3]);
});

test('unacknowledged writes arrive', async () => {
  const silent = people.withOptions?.({ writeConcern: { w: 0 } })
    ?? context.db.collection('people', { writeConcern: { w: 0 } });
  const result = await silent.insertOne({ _id: 5 });
  assert.equal(result.acknowledged, false);
  for (let tries = 0; tries < 100 && (await people.countDocuments({ _id: 5 })) === 0; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(await people.countDocuments({ _id: 5 }), 1);
});
