// Collections: fields of every type, operators, order, pages, relationships, joins, changes in bulk, transactions.

import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import { empty, onSet, start, stop } from './shop.js'

let payload
const collection = 'posts'
const titles = (found) => found.docs.map((doc) => doc.title).join('')

before(async () => { payload = await start('collections') })
beforeEach(async () => { await empty(payload) })
after(async () => { await stop(payload) })

const create = (title, more = {}) => payload.create({ collection, data: { title, ...more } })

describe('documents', () => {
  test('fields of every type come back equal', async () => {
    const data = {
      title: 'all', rank: 1.5, open: true, day: '2024-02-29T12:30:15.250Z', mail: 'a@example.com', kind: ['short', 'long'],
      where: [7.1, 50.7], free: { a: [1, null, { b: 'c' }] }, words: ['x', 'y'], meta: { source: 's', depth: 3 },
      rows: [{ text: 'r', size: 1 }], layout: [{ blockType: 'quote', quote: 'q' }],
    }
    const made = await create('all', data)
    const found = await payload.findByID({ collection, id: made.id })
    for (const name of ['title', 'rank', 'open', 'day', 'mail', 'kind', 'where', 'free', 'words', 'meta']) {
      assert.deepEqual(found[name], data[name], name)
    }
    assert.deepEqual([found.rows[0].text, found.layout[0].quote], ['r', 'q'])
    assert.ok(found.createdAt && found.updatedAt && typeof found.id === 'string')
    const raw = await payload.db.collections.posts.collection.findOne({})
    assert.deepEqual(raw.where, { type: 'Point', coordinates: [7.1, 50.7] })
    assert.ok(raw.createdAt instanceof Date && raw.day instanceof Date)
  })

  test('updating, deleting and what is missing', async () => {
    const made = await create('a', { rank: 1, rows: [{ text: 'one' }, { text: 'two' }] })
    const changed = await payload.update({ collection, id: made.id, data: { rank: 2, rows: [made.rows[1]] } })
    assert.deepEqual([changed.rank, changed.title, changed.rows.map((row) => row.text)], [2, 'a', ['two']])
    await payload.delete({ collection, id: made.id })
    await assert.rejects(payload.findByID({ collection, id: made.id }), { name: 'NotFound' })
    assert.equal(await payload.findByID({ collection, id: made.id, disableErrors: true }), null)
    await assert.rejects(create(undefined), { name: 'ValidationError' })
  })

  test('many are updated and deleted by a condition', async () => {
    for (const rank of [1, 2, 3, 4]) await create(`${rank}`, { rank })
    const changed = await payload.update({ collection, where: { rank: { greater_than: 2 } }, data: { open: true } })
    assert.deepEqual([changed.docs.length, changed.errors], [2, []])
    const gone = await payload.delete({ collection, where: { open: { equals: true } } })
    assert.equal(gone.docs.length, 2)
    assert.deepEqual(await payload.count({ collection }), { totalDocs: 2 })
    const first = await payload.db.updateOne({ collection, where: { rank: { equals: 1 } }, data: { rank: { $inc: 10 } } })
    assert.equal(first.rank, 11)
  })

  test('what is unique is refused twice', async () => {
    await payload.create({ collection: 'authors', data: { name: 'Ann' } })
    await assert.rejects(payload.create({ collection: 'authors', data: { name: 'Ann' } }), (error) => {
      assert.equal(error.name, 'ValidationError')
      assert.equal(error.data.errors[0].path, 'name')
      return true
    })
  })

  test('a copy, and the trash', async () => {
    const made = await create('a', { rows: [{ text: 'one' }] })
    const copy = await payload.duplicate({ collection, id: made.id, data: { title: 'b' } })
    assert.deepEqual([copy.title, copy.rows[0].text], ['b', 'one'])
    await payload.update({ collection, id: made.id, data: { deletedAt: new Date().toISOString() } })
    assert.equal(titles(await payload.find({ collection })), 'b')
    assert.equal((await payload.find({ collection, trash: true })).totalDocs, 2)
    await payload.update({ collection, id: made.id, data: { deletedAt: null }, trash: true })
    assert.equal((await payload.find({ collection })).totalDocs, 2)
  })

  test('indexes as the configuration says', async () => {
    const keys = (await payload.db.collections.posts.collection.indexes()).map((index) => JSON.stringify(index.key))
    for (const key of ['{"rank":1}', '{"title":1,"rank":1}', '{"where":"2dsphere"}', '{"updatedAt":1}']) {
      assert.ok(keys.includes(key), `${key} in ${keys}`)
    }
    const names = await payload.db.collections.authors.collection.indexes()
    assert.ok(names.some((index) => index.key.name === 1 && index.unique))
  })
})

describe('conditions', () => {
  beforeEach(async () => {
    const tag = await payload.create({ collection: 'tags', data: { label: 'green' } })
    const ann = await payload.create({ collection: 'authors', data: { name: 'Ann', city: 'Bonn' } })
    const ben = await payload.create({ collection: 'authors', data: { name: 'Ben', city: 'Ulm', mentor: ann.id } })
    await create('A', { rank: 1, open: true, day: '2024-01-10', kind: ['short'], where: [7, 50], words: ['red fox'], author: ann.id,
      meta: { depth: 1 }, rows: [{ text: 'x', size: 1 }, { text: 'y', size: 5 }], tags: [tag.id], about: { relationTo: 'tags', value: tag.id } })
    await create('B', { rank: 2, day: '2024-02-10', kind: ['short', 'long'], where: [7.1, 50], words: ['red', 'blue'], author: ben.id,
      meta: { depth: 2, source: 'web' }, rows: [{ text: 'z', size: 3 }], about: { relationTo: 'authors', value: ann.id } })
    await create('C', { rank: 3, day: '2024-03-10', where: [9, 48], words: ['blue'], free: { deep: { n: 4 } },
      layout: [{ blockType: 'quote', quote: 'so it goes' }, { blockType: 'picture', path: '/p', by: ann.id }] })
  })

  const cases = [
    ['B', { rank: { equals: 2 } }], ['AC', { rank: { not_equals: 2 } }], ['BC', { rank: { greater_than: 1 } }],
    ['BC', { rank: { greater_than_equal: 2 } }], ['A', { rank: { less_than: 2 } }], ['AB', { rank: { less_than_equal: 2 } }],
    ['AC', { rank: { in: [1, 3] } }], ['B', { rank: { not_in: [1, 3] } }], ['B', { 'meta.source': { exists: true } }],
    ['AC', { 'meta.source': { exists: false } }], ['A', { words: { like: 'fox red' } }], ['BC', { words: { contains: 'BLU' } }],
    ['BC', { words: { not_like: 'fox' } }], ['A', { open: { equals: true } }], ['BC', { day: { greater_than: '2024-02-01' } }],
    ['AB', { kind: { in: ['short'] } }], ['B', { kind: { equals: ['short', 'long'] } }], ['AB', { where: { near: [7, 50, 20_000] } }],
    ['BA', { where: { near: [7.1, 50, 20_000] } }, false],
    ['AB', { where: { within: { type: 'Polygon', coordinates: [[[6, 49], [8, 49], [8, 51], [6, 51], [6, 49]]] } } }],
    ['AB', { where: { intersects: { type: 'Polygon', coordinates: [[[6, 49], [8, 49], [8, 51], [6, 51], [6, 49]]] } } }],
    ['A', { 'rows.size': { greater_than: 4 } }], ['B', { 'rows.text': { equals: 'z' } }], ['C', { 'free.deep.n': { equals: 4 } }],
    ['C', { 'layout.quote': { contains: 'goes' } }], ['A', { 'author.name': { equals: 'Ann' } }],
    ['B', { 'author.mentor.name': { equals: 'Ann' } }], ['A', { 'tags.label': { equals: 'green' } }],
    ['A', { 'about.relationTo': { equals: 'tags' } }], ['AC', { or: [{ rank: { equals: 1 } }, { rank: { equals: 3 } }] }],
    ['B', { and: [{ rank: { greater_than: 1 } }, { or: [{ title: { equals: 'B' } }, { title: { equals: 'A' } }] }] }],
    ['AB', { author: { exists: true } }], ['C', { author: { equals: null } }],
  ]
  for (const [wanted, where, sorted = true] of cases) {
    test(JSON.stringify(where), async () => {
      const found = await payload.find({ collection, where, ...(sorted && !('where' in where && 'near' in where.where) ? { sort: 'title' } : {}) })
      assert.equal(titles(found), wanted)
      if (!('where' in where)) assert.equal((await payload.count({ collection, where })).totalDocs, wanted.length)
    })
  }

  test('order and pages', async () => {
    assert.equal(titles(await payload.find({ collection, sort: '-rank' })), 'CBA')
    assert.equal(titles(await payload.find({ collection, sort: ['open', '-title'] })), 'CBA')
    assert.equal(titles(await payload.find({ collection, sort: '-author.name' })).slice(0, 2), 'BA')
    const page = await payload.find({ collection, sort: 'title', limit: 2, page: 1 })
    assert.deepEqual([titles(page), page.totalDocs, page.totalPages, page.hasNextPage, page.nextPage], ['AB', 3, 2, true, 2])
    assert.equal(titles(await payload.find({ collection, sort: 'title', limit: 2, page: 2 })), 'C')
    assert.equal(titles(await payload.find({ collection, sort: 'title', pagination: false })), 'ABC')
    const values = await payload.findDistinct({ collection, field: 'rank', sort: '-rank' })
    assert.deepEqual(values.values.map((value) => value.rank), [3, 2, 1])
  })

  test('relationships are populated to the depth asked for', async () => {
    const find = async (depth) => (await payload.find({ collection, where: { title: { equals: 'B' } }, depth })).docs[0]
    assert.equal(typeof (await find(0)).author, 'string')
    assert.equal((await find(1)).author.name, 'Ben')
    assert.equal(typeof (await find(1)).author.mentor, 'string')
    const deep = await find(2)
    assert.deepEqual([deep.author.mentor.name, deep.about.value.name, deep.about.relationTo], ['Ann', 'Ann', 'authors'])
    const picked = (await payload.find({ collection, where: { title: { equals: 'B' } }, select: { title: true, meta: { depth: true } } })).docs[0]
    assert.deepEqual(picked, { id: picked.id, title: 'B', meta: { depth: 2 } })
    const shown = await payload.find({ collection, where: { title: { equals: 'B' } }, depth: 1, populate: { authors: { city: true } } })
    assert.deepEqual(shown.docs[0].author, { id: shown.docs[0].author.id, city: 'Ulm' })
  })

  test('joins show who refers', async () => {
    const find = async (joins) => (await payload.find({ collection: 'authors', where: { name: { equals: 'Ann' } }, joins })).docs[0]
    const ann = await find(undefined)
    assert.deepEqual([ann.written.docs.length, ann.written.hasNextPage], [1, false])
    await create('D', { rank: 9, author: ann.id })
    const sorted = await find({ written: { sort: '-rank', limit: 1, count: true } })
    assert.deepEqual([sorted.written.docs[0].title, sorted.written.hasNextPage, sorted.written.totalDocs], ['D', true, 2])
    assert.equal((await find({ written: { where: { rank: { less_than: 5 } } } })).written.docs[0].title, 'A')
    assert.equal((await find(false)).written, undefined)
  })
})

describe('transactions', { skip: !onSet && 'a standalone server has no transactions' }, () => {
  test('they commit whole', async () => {
    const transactionID = await payload.db.beginTransaction()
    const req = { transactionID, payload }
    await payload.create({ collection, data: { title: 'a' }, req })
    await payload.create({ collection, data: { title: 'b' }, req })
    assert.equal((await payload.find({ collection })).totalDocs, 0)
    assert.equal((await payload.find({ collection, req })).totalDocs, 2)
    await payload.db.commitTransaction(transactionID)
    assert.equal((await payload.find({ collection })).totalDocs, 2)
  })

  test('or not at all', async () => {
    const transactionID = await payload.db.beginTransaction()
    const made = await payload.create({ collection, data: { title: 'a' }, req: { transactionID, payload } })
    await payload.db.rollbackTransaction(transactionID)
    assert.equal(await payload.findByID({ collection, id: made.id, disableErrors: true }), null)
  })
})
