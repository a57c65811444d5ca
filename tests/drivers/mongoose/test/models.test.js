// Models: queries and their helpers, updates, bulk work, populate, discriminators, indexes, aggregation, cursors,
// places and text, collation, capped collections and views, GridFS, transactions, change streams.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import mongoose from 'mongoose';
import { connected, onSet, rejection } from './support.js';

const { Schema } = mongoose;
const context = connected('mongoose_models');

test('queries: builders, casting, projections, lean, counts', async () => {
  const Person = await context.model('Person', new Schema({ name: { first: String, last: String }, age: Number, likes: [String], born: Date }));
  await Person.insertMany([
    { name: { first: 'A', last: 'Ghost' }, age: 20, likes: ['vaporizing', 'talking'], born: '2000-01-01' },
    { name: { first: 'B', last: 'Ghost' }, age: 60, likes: ['talking'] }, { name: { first: 'C', last: 'Host' }, age: 30, likes: [] }]);
  const found = await Person.find().where('name.last').equals('Ghost').where('age').gt(17).lt(66)
    .where('likes').in(['vaporizing', 'talking']).limit(10).sort('-age').select('name age -_id').lean();
  assert.deepEqual(found, [{ name: { first: 'B', last: 'Ghost' }, age: 60 }, { name: { first: 'A', last: 'Ghost' }, age: 20 }]);
  assert.equal((await Person.findOne({ age: '30' })).name.first, 'C');
  assert.equal((await Person.find({ likes: { $size: 0 } })).length, 1);
  assert.equal((await Person.find({ born: { $lt: '2001-01-01' } })).length, 1);
  assert.equal((await Person.find({}, { likes: { $slice: 1 } }).sort('age'))[0].likes.length, 1);
  assert.equal((await Person.find().or([{ age: 20 }, { age: 30 }]).nor([{ 'name.first': 'C' }])).length, 1);
  assert.equal((await rejection(Person.find({ age: 'x' }))).name, 'CastError');
  assert.equal((await rejection(Person.findOne({ age: 99 }).orFail())).name, 'DocumentNotFoundError');
  assert.equal((await Person.find({ age: 20 }).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'COLLSCAN');
  assert.deepEqual(await Person.distinct('likes'), ['talking', 'vaporizing']);
});

test('updates: one, many, replace, find-and-modify, pipelines, raw results', async () => {
  const Tally = await context.model('Tally', new Schema({ key: String, n: Number, list: [Number], gone: String }));
  await Tally.create([{ key: 'a', n: 1, gone: 'x' }, { key: 'b', n: 2 }]);
  assert.equal((await Tally.updateMany({}, { $inc: { n: '10' }, $unset: { gone: 1 } })).modifiedCount, 2);
  await Tally.updateOne({ key: 'a' }, [{ $set: { n: { $multiply: ['$n', 2] } } }], { updatePipeline: true });
  assert.equal((await Tally.findOne({ key: 'a' })).n, 22);
  const raw = await Tally.findOneAndUpdate({ key: 'c' }, { n: 3 }, { upsert: true, returnDocument: 'after', includeResultMetadata: true });
  assert.equal(raw.lastErrorObject.updatedExisting, false);
  assert.equal((await Tally.findOneAndReplace({ key: 'c' }, { key: 'd' }, { returnDocument: 'after' })).n, undefined);
  assert.equal((await Tally.findOneAndDelete({ key: 'd' })).key, 'd');
  await Tally.updateOne({ key: 'a' }, { $push: { list: { $each: [3, 1, 2], $sort: -1, $slice: 2 } }, $max: { n: 100 } });
  assert.deepEqual((await Tally.findOne({ key: 'a' }).lean()).list, [3, 2]);
  await Tally.replaceOne({ key: 'b' }, { key: 'b', n: 0 });
  assert.equal((await Tally.deleteMany({})).deletedCount, 2);
});

test('bulkSave, insertMany unordered, and what went wrong', async () => {
  const Item = await context.model('Item', new Schema({ sku: { type: String, unique: true }, n: Number }));
  const items = await Item.insertMany([{ sku: 'a' }, { sku: 'b' }]);
  items.forEach((item, at) => { item.n = at; });
  await Item.bulkSave(items);
  assert.deepEqual((await Item.find().sort('sku')).map(({ n }) => n), [0, 1]);
  const error = await rejection(Item.insertMany([{ sku: 'a' }, { sku: 'c' }], { ordered: false }));
  assert.equal(error.code, 11000);
  assert.equal(await Item.countDocuments(), 3);
});

test('populate: nested, by match, dynamic references, counts, virtuals', async () => {
  const Story = await context.model('Story', new Schema({
    title: String, author: { type: Schema.Types.ObjectId, ref: 'Writer' }, fans: [{ type: Schema.Types.ObjectId, ref: 'Writer' }] }));
  const writers = new Schema({ name: String, age: Number, friend: { type: Schema.Types.ObjectId, ref: 'Writer' } });
  writers.virtual('stories', { ref: 'Story', localField: '_id', foreignField: 'author' });
  writers.virtual('storyCount', { ref: 'Story', localField: '_id', foreignField: 'author', count: true });
  const Writer = await context.model('Writer', writers);
  const Comment = await context.model('Comment', new Schema({ about: { type: Schema.Types.ObjectId, refPath: 'kind' }, kind: String }));
  const friend = await Writer.create({ name: 'friend', age: 50 });
  const writer = await Writer.create({ name: 'ian', age: 20, friend });
  const story = await Story.create({ title: 'casino', author: writer, fans: [friend, writer] });
  const found = await Story.findOne().populate({ path: 'author', populate: 'friend' }).populate({ path: 'fans', match: { age: { $gte: 21 } } });
  assert.deepEqual([found.author.friend.name, found.fans.map(({ name }) => name)], ['friend', ['friend']]);
  const counted = await Writer.findOne({ name: 'ian' }).populate('stories storyCount');
  assert.deepEqual([counted.stories[0].title, counted.storyCount], ['casino', 1]);
  await Comment.create([{ about: story, kind: 'Story' }, { about: writer, kind: 'Writer' }]);
  const comments = await Comment.find().sort('kind').populate('about');
  assert.deepEqual(comments.map(({ about }) => about.title ?? about.name), ['casino', 'ian']);
});

test('discriminators in arrays and by collection', async () => {
  const shapes = new Schema({ shapes: [new Schema({ name: String }, { discriminatorKey: 'kind', _id: false })] });
  shapes.path('shapes').discriminator('Circle', new Schema({ radius: Number }, { _id: false }));
  shapes.path('shapes').discriminator('Square', new Schema({ side: Number }, { _id: false }));
  const Drawing = await context.model('Drawing', shapes);
  await Drawing.create({ shapes: [{ kind: 'Circle', radius: '5' }, { kind: 'Square', side: 4, radius: 1 }] });
  assert.deepEqual((await Drawing.findOne().lean()).shapes, [{ kind: 'Circle', radius: 5 }, { kind: 'Square', side: 4 }]);
});

test('indexes of every kind are made, compared and dropped', async () => {
  const schema = new Schema({ a: { type: Number, index: true }, b: { type: String, unique: true, sparse: true }, when: Date, words: String, place: { type: [Number], index: '2dsphere' } });
  schema.index({ a: 1, b: -1 }, { name: 'both' });
  schema.index({ when: 1 }, { expires: '1h' });
  schema.index({ words: 'text' }, { weights: { words: 3 } });
  schema.index({ 'extra.$**': 1 });
  schema.index({ a: 'hashed' });
  schema.index({ when: -1 }, { partialFilterExpression: { a: { $gt: 5 } } });
  schema.index({ b: 1 }, { name: 'collated', collation: { locale: 'en', strength: 2 } });
  const Indexed = await context.model('Indexed', schema);
  const indexes = await Indexed.listIndexes();
  assert.deepEqual(indexes.map(({ name }) => name).sort(), ['_id_', 'a_1', 'a_hashed', 'b_1', 'both', 'collated', 'extra.$**_1',
    'place_2dsphere', 'when_-1', 'when_1', 'words_text']);
  assert.equal(indexes.find(({ name }) => name === 'when_1').expireAfterSeconds, 3600);
  await Indexed.collection.createIndex({ stray: 1 });
  assert.deepEqual((await Indexed.diffIndexes()).toDrop, ['stray_1']);
  assert.deepEqual(await Indexed.syncIndexes(), ['stray_1']);
});

test('aggregation through the builder, with lookups, facets and windows', async () => {
  const Sale = await context.model('Sale', new Schema({ shop: String, at: Date, amount: Number }));
  await Sale.insertMany([['x', 1, 10], ['x', 2, 20], ['y', 3, 5]].map(([shop, day, amount]) => ({ shop, amount, at: new Date(day * 864e5) })));
  const sums = await Sale.aggregate().match({ amount: { $gt: 1 } }).group({ _id: '$shop', sum: { $sum: '$amount' } }).sort('-sum');
  assert.deepEqual(sums, [{ _id: 'x', sum: 30 }, { _id: 'y', sum: 5 }]);
  const [facets] = await Sale.aggregate().facet({ n: [{ $count: 'n' }], shops: [{ $sortByCount: '$shop' }] });
  assert.deepEqual([facets.n[0].n, facets.shops[0]._id], [3, 'x']);
  const joined = await Sale.aggregate().lookup({ from: Sale.collection.name, localField: 'shop', foreignField: 'shop', as: 'same' })
    .project({ n: { $size: '$same' } }).sort('_id');
  assert.deepEqual(joined.map(({ n }) => n), [2, 2, 1]);
  const windows = await Sale.aggregate([{ $setWindowFields: { partitionBy: '$shop', sortBy: { at: 1 }, output: {
    total: { $sum: '$amount', window: { documents: ['unbounded', 'current'] } } } } }, { $sort: { at: 1 } }]);
  assert.deepEqual(windows.map(({ total }) => total), [10, 30, 5]);
  let seen = 0;
  for await (const sale of Sale.aggregate([{ $match: {} }]).cursor({ batchSize: 1 })) seen += sale.amount;
  assert.equal(seen, 35);
});

test('places and text', async () => {
  const point = new Schema({ type: { type: String, enum: ['Point'] }, coordinates: [Number] }, { _id: false });
  const City = await context.model('City', new Schema({ name: String, at: { type: point, index: '2dsphere' }, about: { type: String, index: 'text' } }));
  await City.create([
    { name: 'Denver', at: { type: 'Point', coordinates: [-104.9903, 39.7392] }, about: 'mile high' },
    { name: 'Bern', at: { type: 'Point', coordinates: [7.4474, 46.948] }, about: 'bears and clocks' }]);
  const near = await City.find({ at: { $near: { $geometry: { type: 'Point', coordinates: [7, 47] }, $maxDistance: 200000 } } });
  assert.deepEqual(near.map(({ name }) => name), ['Bern']);
  const box = { type: 'Polygon', coordinates: [[[-109, 41], [-102, 41], [-102, 37], [-109, 37], [-109, 41]]] };
  assert.equal((await City.findOne().where('at').within(box)).name, 'Denver');
  const scored = await City.find({ $text: { $search: 'bear' } }, { score: { $meta: 'textScore' } }).sort({ score: { $meta: 'textScore' } }).lean();
  assert.deepEqual([scored.length, scored[0].score > 0], [1, true]);
});

test('collations, capped collections and views', async () => {
  const Word = await context.model('Word', new Schema({ word: String }, { collation: { locale: 'en', strength: 1 } }));
  await Word.create([{ word: 'a' }, { word: 'A' }, { word: 'b' }]);
  assert.equal(await Word.countDocuments({ word: 'A' }), 2);
  const Last = await context.model('Last', new Schema({ n: Number }, { capped: { size: 4096, max: 2 } }));
  for (const n of [1, 2, 3]) await Last.create({ n });
  assert.deepEqual((await Last.find().sort({ $natural: 1 })).map(({ n }) => n), [2, 3]);
  const Shown = await context.model('Shown', new Schema({ word: String }, { autoCreate: false, autoIndex: false }));
  await Shown.createCollection({ viewOn: Word.collection.name, pipeline: [{ $match: { word: 'b' } }], collation: { locale: 'en', strength: 1 } });
  assert.deepEqual((await Shown.find()).map(({ word }) => word), ['b']);
});

test('cursors: batches, async iteration, eachAsync in parallel, closing', async () => {
  const Row = await context.model('Row', new Schema({ n: Number }));
  await Row.insertMany(Array.from({ length: 250 }, (_, n) => ({ n })));
  let sum = 0;
  await Row.find().cursor({ batchSize: 20 }).eachAsync(async (rows) => { sum += rows.length; }, { batchSize: 50, parallel: 2 });
  assert.equal(sum, 250);
  const cursor = Row.find().sort('n').cursor({ batchSize: 10 });
  assert.equal((await cursor.next()).n, 0);
  await cursor.close();
});

test('files through GridFS of the driver that Mongoose brings', async () => {
  const bucket = new mongoose.mongo.GridFSBucket(context.connection.db, { bucketName: 'papers', chunkSizeBytes: 1000 });
  const bytes = Buffer.alloc(3500, 'x');
  await new Promise((resolve, reject) => { bucket.openUploadStream('a.txt').on('finish', resolve).on('error', reject).end(bytes); });
  const parts = [];
  for await (const part of bucket.openDownloadStreamByName('a.txt')) parts.push(part);
  assert.ok(Buffer.concat(parts).equals(bytes));
});

test('transactions commit, abort, and undo the state of documents', onSet, async () => {
  const Account = await context.model('Account', new Schema({ owner: String, cents: Number }));
  await Account.create([{ owner: 'a', cents: 100 }, { owner: 'b', cents: 0 }]);
  await context.connection.transaction(async (session) => {
    const [a, b] = await Promise.all(['a', 'b'].map((owner) => Account.findOne({ owner }).session(null)));
    a.cents -= 40;
    b.cents += 40;
    await a.save({ session });
    await b.save({ session });
  });
  assert.deepEqual((await Account.find().sort('owner')).map(({ cents }) => cents), [60, 40]);
  const fresh = new Account({ owner: 'c', cents: 1 });
  const error = await rejection(context.connection.transaction(async (session) => {
    await fresh.save({ session });
    throw new Error('changed my mind');
  }));
  assert.equal(error.message, 'changed my mind');
  assert.deepEqual([fresh.isNew, await Account.countDocuments()], [true, 2]);
});

test('change streams tell of a model and of all of a connection', onSet, async () => {
  const Watched = await context.model('Watched', new Schema({ a: Number }));
  const stream = Watched.watch([], { fullDocument: 'updateLookup' });
  await stream.$driverChangeStreamPromise;
  // Mongoose emits `ready` before the server has opened the stream. The driver's cursor has the real state.
  const opened = new Promise((resolve) => { stream.driverChangeStream.cursor.once('init', resolve); });
  const told = [];
  stream.on('change', (change) => told.push(change));
  const twoTold = new Promise((resolve) => { stream.on('change', () => told.length === 2 && resolve()); });
  const threeTold = new Promise((resolve) => { stream.on('change', () => told.length === 3 && resolve()); });
  await opened;
  const document = await Watched.create({ a: 1 });
  document.a = 2;
  await document.save();
  // The stream looks up the updated document at the read, so the document must still exist.
  await twoTold;
  await document.deleteOne();
  await threeTold;
  assert.deepEqual(told.map(({ operationType }) => operationType), ['insert', 'update', 'delete']);
  assert.equal(told[1].fullDocument.a, 2);
  await stream.close();
});
