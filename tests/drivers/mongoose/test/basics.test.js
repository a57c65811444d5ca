// Mongoose, the most used object mapper of Node.js: connections, documents and errors.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import mongoose from 'mongoose';
import { noWarnings, rejection, uri } from './support.js';

const { Schema } = mongoose;
let connection, Author, Book;

before(async () => {
  connection = await mongoose.createConnection(uri, { dbName: 'node_mongoose', serverSelectionTimeoutMS: 5000 }).asPromise();
  await connection.dropDatabase();
  const authors = new Schema({
    name: { type: String, required: true },
    email: { type: String, unique: true, sparse: true },
    born: { type: Number, min: 1000 },
    tags: [String],
    prizes: [{ title: String, year: Number }],
    facts: { type: Map, of: String },
    income: Schema.Types.Decimal128,
  }, { timestamps: true });
  authors.virtual('books', { ref: 'Book', localField: '_id', foreignField: 'author' });
  const books = new Schema({
    title: { type: String, index: true },
    pages: Number,
    author: { type: Schema.Types.ObjectId, ref: 'Author' },
  });
  Author = connection.model('Author', authors);
  Book = connection.model('Book', books);
  await Promise.all([Author.init(), Book.init()]);
});

after(async () => {
  await connection.dropDatabase();
  await connection.close();
  noWarnings();
});

test('models create their collections and indexes', async () => {
  assert.deepEqual((await Author.listIndexes()).map((index) => index.name), ['_id_', 'email_1']);
  assert.deepEqual(await Author.syncIndexes(), []);
  assert.ok((await connection.listCollections()).some(({ name }) => name === 'books'));
});

test('create, read back, change, save', async () => {
  const created = await Author.create({
    name: 'Selma', born: 1858, tags: ['a'], facts: { town: 'Mårbacka' }, income: '12.50', prizes: [{ title: 'Nobel', year: 1909 }],
  });
  const found = await Author.findById(created._id);
  assert.equal(found.facts.get('town'), 'Mårbacka');
  assert.equal(found.income.toString(), '12.50');
  assert.ok(found.createdAt instanceof Date);
  found.tags.push('b');
  found.prizes[0].year = 1910;
  found.set('born', undefined);
  await found.save();
  const again = await Author.findById(created._id).lean();
  assert.deepEqual(again.tags, ['a', 'b']);
  assert.equal(again.prizes[0].year, 1910);
  assert.equal('born' in again, false);
  assert.equal(again.__v, 1);
});

test('validation refuses before anything is sent', async () => {
  const error = await rejection(Author.create({ born: 3 }));
  assert.equal(error.name, 'ValidationError');
  assert.deepEqual(Object.keys(error.errors).sort(), ['born', 'name']);
});

test('a unique index violation is a duplicate key error', async () => {
  await Author.create({ name: 'A', email: 'same@example.org' });
  const error = await rejection(Author.create({ name: 'B', email: 'same@example.org' }));
  assert.equal(error.name, 'MongoServerError');
  assert.equal(error.code, 11000);
  assert.deepEqual(error.keyValue, { email: 'same@example.org' });
});

test('populate follows references both ways', async () => {
  const author = await Author.create({ name: 'Tove' });
  await Book.create([{ title: 'One', pages: 10, author }, { title: 'Two', pages: 20, author }]);
  const book = await Book.findOne({ title: 'Two' }).populate('author');
  assert.equal(book.author.name, 'Tove');
  const withBooks = await Author.findById(author._id).populate({ path: 'books', options: { sort: { pages: -1 } } });
  assert.deepEqual(withBooks.books.map(({ title }) => title), ['Two', 'One']);
});

test('findOneAndUpdate upserts and returns the new document', async () => {
  const document = await Author.findOneAndUpdate(
    { name: 'Astrid' }, { $set: { born: 1907 }, $push: { tags: { $each: ['x', 'y'], $slice: -1 } } },
    { upsert: true, returnDocument: 'after', setDefaultsOnInsert: true });
  assert.equal(document.born, 1907);
  assert.deepEqual([...document.tags], ['y']);
});

test('a stale version is refused', async () => {
  const { _id } = await Author.create({ name: 'Karin', tags: ['a', 'b', 'c'] });
  const [one, two] = await Promise.all([Author.findById(_id), Author.findById(_id)]);
  one.tags.pull('a');
  await one.save();
  two.tags.set(2, 'z');
  assert.equal((await rejection(two.save())).name, 'VersionError');
});

test('queries: regex, comparison, count, distinct, exists', async () => {
  await Book.deleteMany({});
  await Book.insertMany([1, 2, 3, 4].map((n) => ({ title: `Vol ${n}`, pages: n * 100 })));
  assert.equal(await Book.countDocuments({ pages: { $gt: 150, $lte: 400 } }), 3);
  assert.equal(await Book.estimatedDocumentCount(), 4);
  assert.deepEqual((await Book.find({ title: /^vol [12]$/i }).sort('title')).map(({ pages }) => pages), [100, 200]);
  assert.deepEqual((await Book.distinct('pages')).sort(), [100, 200, 300, 400]);
  assert.ok(await Book.exists({ title: 'Vol 3' }));
});

test('aggregate, bulkWrite and cursors', async () => {
  await Book.deleteMany({});
  const result = await Book.bulkWrite([
    { insertOne: { document: { title: 'a', pages: 1 } } },
    { insertOne: { document: { title: 'b', pages: 2 } } },
    { updateOne: { filter: { title: 'c' }, update: { $set: { pages: 3 } }, upsert: true } },
    { deleteOne: { filter: { title: 'a' } } },
  ]);
  assert.deepEqual([result.insertedCount, result.upsertedCount, result.deletedCount], [2, 1, 1]);
  const [sum] = await Book.aggregate([{ $group: { _id: null, pages: { $sum: '$pages' }, titles: { $addToSet: '$title' } } }]);
  assert.equal(sum.pages, 5);
  const titles = [];
  for await (const { title } of Book.find().sort('-title').cursor({ batchSize: 1 })) titles.push(title);
  assert.deepEqual(titles, ['c', 'b']);
  let pages = 0;
  await Book.find().cursor().eachAsync((book) => { pages += book.pages; });
  assert.equal(pages, 5);
});

test('discriminators share a collection', async () => {
  const Event = connection.model('Event', new Schema({ at: Date }, { discriminatorKey: 'kind' }));
  const Click = Event.discriminator('Click', new Schema({ x: Number }));
  await Event.create({ at: new Date(0) });
  await Click.create({ at: new Date(1), x: 5 });
  assert.deepEqual((await Click.find().lean()).map(({ kind, x }) => [kind, x]), [['Click', 5]]);
  assert.equal(await Event.countDocuments(), 2);
});
