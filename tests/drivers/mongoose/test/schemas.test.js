// Schemas: types and casting, defaults, getters and setters, virtuals, methods, timestamps, validation, middleware,
// plugins, subdocuments.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import mongoose from 'mongoose';
import { connected, rejection } from './support.js';

const { Schema } = mongoose;
const context = connected('mongoose_schemas');

test('every type of schema is stored and read back', async () => {
  const Thing = await context.model('Thing', new Schema({
    string: String, number: Number, date: Date, buffer: Buffer, flag: Boolean, mixed: Schema.Types.Mixed,
    id: Schema.Types.ObjectId, list: [Number], nested: { deep: { value: String } }, decimal: Schema.Types.Decimal128,
    map: { type: Map, of: Number }, uuid: Schema.Types.UUID, big: BigInt, double: Schema.Types.Double, int: Schema.Types.Int32,
    documents: [new Schema({ a: Number }, { _id: false })],
  }));
  const id = new mongoose.Types.ObjectId();
  const uuid = '09190f70-3d30-11e5-8814-0f4df9a59c41';
  const { _id } = await Thing.create({
    string: 5, number: '3.5', date: '2024-02-29', buffer: Buffer.from('abc'), flag: 'yes', mixed: { any: [1, 'x'] }, id: String(id),
    list: ['1', 2], nested: { deep: { value: 'v' } }, decimal: '0.1', map: { a: 1 }, uuid, big: 2n ** 60n, double: 5, int: 7,
    documents: [{ a: '1' }],
  });
  const found = await Thing.findById(_id);
  assert.deepEqual([found.string, found.number, found.flag, found.big], ['5', 3.5, true, 2n ** 60n]);
  assert.equal(found.date.toISOString(), '2024-02-29T00:00:00.000Z');
  assert.equal(found.buffer.toString(), 'abc');
  assert.ok(found.id.equals(id));
  assert.equal(String(found.uuid), uuid);
  assert.deepEqual(found.documents.toObject(), [{ a: 1 }]);
  const types = await Thing.aggregate([{ $match: { _id } }, { $project: {
    _id: 0, decimal: { $type: '$decimal' }, big: { $type: '$big' }, double: { $type: '$double' }, int: { $type: '$int' },
    uuid: { $type: '$uuid' }, buffer: { $type: '$buffer' } } }]);
  assert.deepEqual(types, [{ decimal: 'decimal', big: 'long', double: 'double', int: 'int', uuid: 'binData', buffer: 'binData' }]);
});

test('defaults, getters, setters, virtuals, methods and statics', async () => {
  const schema = new Schema({
    first: { type: String, trim: true, lowercase: true },
    last: { type: String, default: 'doe' },
    cents: { type: Number, get: (v) => v / 100, set: (v) => v * 100 },
    seen: { type: Date, default: () => new Date(5) },
  }, { toObject: { getters: true } });
  schema.virtual('full').get(function full() { return `${this.first} ${this.last}`; });
  schema.methods.greet = function greet() { return `hello ${this.full}`; };
  schema.statics.byFirst = function byFirst(first) { return this.find({ first }); };
  schema.query.cheap = function cheap() { return this.where({ cents: { $lt: 1000 } }); };
  const Person = await context.model('Person', schema);
  await Person.create({ first: '  JOHN ', cents: 9.5 });
  const [person] = await Person.byFirst('john').cheap();
  assert.equal(person.greet(), 'hello john doe');
  assert.equal(person.cents, 9.5);
  assert.equal((await Person.findOne().lean()).cents, 950);
  assert.equal(person.seen.getTime(), 5);
});

test('timestamps move with every kind of update', async () => {
  const Note = await context.model('Note', new Schema({ text: String }, { timestamps: { createdAt: 'made', updatedAt: 'changed' } }));
  const note = await Note.create({ text: 'a' });
  assert.equal(note.made.getTime(), note.changed.getTime());
  await Note.updateOne({ _id: note._id }, { text: 'b' });
  const later = await Note.findById(note._id);
  assert.equal(later.made.getTime(), note.made.getTime());
  assert.ok(later.changed >= note.changed);
  await Note.bulkWrite([{ updateOne: { filter: { _id: note._id }, update: { text: 'c' } } }]);
  assert.ok((await Note.findById(note._id)).changed >= later.changed);
});

test('validators of all kinds, on documents and on updates', async () => {
  const Egg = await context.model('Egg', new Schema({
    count: { type: Number, min: [6, 'few'], max: 12 }, colour: { type: String, enum: ['white', 'brown'] },
    code: { type: String, match: /^E/, minLength: 2 }, owner: { type: String, required() { return this.count > 10; } },
    phone: { type: String, validate: { validator: async (v) => /^\d+$/.test(v), message: 'no number' } },
  }));
  const error = await rejection(Egg.create({ count: 2, colour: 'red', code: 'x', phone: 'abc' }));
  assert.deepEqual(Object.keys(error.errors).sort(), ['code', 'colour', 'count', 'phone']);
  assert.equal((await rejection(Egg.create({ count: 11 }))).errors.owner.kind, 'required');
  assert.equal((await rejection(Egg.create({ count: 'many' }))).errors.count.name, 'CastError');
  await Egg.create({ count: 6 });
  assert.equal((await rejection(Egg.updateOne({}, { count: 99 }, { runValidators: true }))).errors.count.kind, 'max');
  assert.equal(await Egg.countDocuments({ count: 6 }), 1);
});

test('middleware around documents, queries, aggregations and bulk inserts', async () => {
  const told = [];
  const schema = new Schema({ a: Number, slug: String });
  schema.pre('save', function pre() { this.slug = `s${this.a}`; });
  schema.post('save', (document) => { told.push(`saved ${document.a}`); });
  schema.pre('updateOne', function pre() { this.set({ slug: 'updated' }); });
  schema.pre('find', function pre() { this.where({ a: { $ne: 0 } }); });
  schema.post('find', (found) => { told.push(`found ${found.length}`); });
  schema.pre('aggregate', function pre() { this.pipeline().unshift({ $match: { a: { $ne: 0 } } }); });
  schema.pre('insertMany', (documents) => { told.push(`inserting ${documents.length}`); });
  schema.pre('deleteOne', { document: true, query: false }, function pre() { told.push(`deleting ${this.a}`); });
  const Hooked = await context.model('Hooked', schema);
  await Hooked.create({ a: 1 });
  await Hooked.insertMany([{ a: 0 }, { a: 2 }]);
  await Hooked.updateOne({ a: 2 }, { $inc: { a: 1 } });
  const found = await Hooked.find().sort('a');
  assert.deepEqual(found.map(({ slug }) => slug), ['s1', 'updated']);
  assert.equal((await Hooked.aggregate([{ $count: 'n' }]))[0].n, 2);
  await found[0].deleteOne();
  assert.deepEqual(told, ['saved 1', 'inserting 2', 'found 2', 'deleting 1']);
});

test('plugins add paths and hooks to schemas', async () => {
  const schema = new Schema({ name: String });
  schema.plugin((plugged, { path }) => {
    plugged.add({ [path]: Number });
    plugged.pre('save', function pre() { this[path] = (this[path] ?? 0) + 1; });
  }, { path: 'saves' });
  const Plugged = await context.model('Plugged', schema);
  const document = await Plugged.create({ name: 'x' });
  document.name = 'y';
  await document.save();
  assert.equal((await Plugged.findById(document._id)).saves, 2);
});

test('subdocuments are found, changed, pushed and removed in place', async () => {
  const Parent = await context.model('Parent', new Schema({
    children: [new Schema({ name: String, toys: [{ kind: String }] })], only: new Schema({ name: String }),
  }));
  const parent = await Parent.create({ children: [{ name: 'a' }, { name: 'b', toys: [{ kind: 'ball' }] }], only: { name: 'o' } });
  parent.children.id(parent.children[1]._id).toys[0].kind = 'kite';
  parent.children.push({ name: 'c' });
  parent.children.id(parent.children[0]._id).deleteOne();
  parent.only.name = 'p';
  await parent.save();
  const found = await Parent.findById(parent._id).lean();
  assert.deepEqual(found.children.map(({ name }) => name), ['b', 'c']);
  assert.deepEqual([found.children[0].toys[0].kind, found.only.name], ['kite', 'p']);
  await Parent.updateOne({ 'children.name': 'c' }, { $set: { 'children.$.name': 'd' } });
  await Parent.updateOne({}, { $set: { 'children.$[child].name': 'e' } }, { arrayFilters: [{ 'child.name': 'b' }] });
  assert.deepEqual((await Parent.findOne().lean()).children.map(({ name }) => name), ['e', 'd']);
});

test('versions guard arrays, and whole documents by optimistic concurrency', async () => {
  const House = await context.model('House', new Schema({ status: String, photos: [String] }, { optimisticConcurrency: true }));
  const { _id } = await House.create({ status: 'open', photos: ['a', 'b'] });
  const [one, two] = await Promise.all([House.findById(_id), House.findById(_id)]);
  one.status = 'sold';
  await one.save();
  two.photos.push('c');
  assert.equal((await rejection(two.save())).name, 'VersionError');
  assert.equal((await House.findById(_id)).__v, 1);
});
