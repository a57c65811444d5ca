// Versions and drafts, globals, locales, users, preferences, jobs, keys and values.

import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import { empty, start, stop } from './shop.js'

let payload
const collection = 'pages'

before(async () => { payload = await start('versions') })
beforeEach(async () => { await empty(payload) })
after(async () => { await stop(payload) })

describe('versions', () => {
  test('drafts lie beside what is published', async () => {
    const made = await payload.create({ collection, data: { title: 'one', _status: 'published' } })
    await payload.update({ collection, id: made.id, data: { title: 'two' }, draft: true })
    assert.equal((await payload.findByID({ collection, id: made.id })).title, 'one')
    assert.equal((await payload.findByID({ collection, id: made.id, draft: true })).title, 'two')
    const drafts = await payload.find({ collection, draft: true, where: { title: { equals: 'two' } }, sort: '-title' })
    assert.deepEqual([drafts.totalDocs, drafts.docs[0]._status], [1, 'draft'])
    await payload.update({ collection, id: made.id, data: { _status: 'published', title: 'three' } })
    assert.equal((await payload.find({ collection, where: { _status: { equals: 'published' } } })).docs[0].title, 'three')
  })

  test('a draft may lack what is required', async () => {
    const made = await payload.create({ collection, data: { body: 'b' }, draft: true })
    assert.equal(made._status, 'draft')
    await assert.rejects(payload.create({ collection, data: { body: 'b', _status: 'published' } }), { name: 'ValidationError' })
    assert.equal((await payload.find({ collection, draft: true })).totalDocs, 1)
  })

  test('versions are listed, restored, and no more than wanted are kept', async () => {
    const made = await payload.create({ collection, data: { title: '0', _status: 'published' } })
    for (const title of ['1', '2', '3', '4']) await payload.update({ collection, id: made.id, data: { title } })
    const found = await payload.findVersions({ collection, where: { parent: { equals: made.id } }, sort: '-updatedAt' })
    assert.deepEqual(found.docs.map((version) => version.version.title), ['4', '3', '2'])
    assert.equal((await payload.countVersions({ collection })).totalDocs, 3)
    await payload.restoreVersion({ collection, id: found.docs[2].id })
    assert.equal((await payload.findByID({ collection, id: made.id })).title, '2')
    const named = await payload.findVersions({ collection, where: { 'version.title': { equals: '3' } } })
    assert.equal((await payload.findVersionByID({ collection, id: named.docs[0].id })).version.title, '3')
    await payload.delete({ collection, id: made.id })
    assert.equal((await payload.findVersions({ collection })).totalDocs, 0)
  })
})

describe('globals', () => {
  test('there is one of each', async () => {
    assert.equal((await payload.findGlobal({ slug: 'menu' })).title, undefined)
    const page = await payload.create({ collection, data: { title: 'home', _status: 'published' } })
    await payload.updateGlobal({ slug: 'menu', data: { title: 'a', first: page.id } })
    await payload.updateGlobal({ slug: 'menu', data: { title: 'b' } })
    const found = await payload.findGlobal({ slug: 'menu', depth: 1 })
    assert.deepEqual([found.title, found.first.title], ['b', 'home'])
    assert.equal(await payload.db.connection.db.collection('globals').countDocuments({}), 1)
  })

  test('its versions are kept', async () => {
    for (const title of ['a', 'b']) await payload.updateGlobal({ slug: 'menu', data: { title } })
    const found = await payload.findGlobalVersions({ slug: 'menu', sort: 'createdAt' })
    assert.deepEqual(found.docs.map((version) => version.version.title), ['a', 'b'])
    await payload.restoreGlobalVersion({ slug: 'menu', id: found.docs[0].id })
    assert.equal((await payload.findGlobal({ slug: 'menu' })).title, 'a')
    assert.equal((await payload.countGlobalVersions({ global: 'menu' })).totalDocs, 3)
  })
})

describe('locales', () => {
  test('each has its own text, or the default one', async () => {
    const tag = await payload.create({ collection: 'tags', data: { label: 'green' }, locale: 'en' })
    await payload.update({ collection: 'tags', id: tag.id, data: { label: 'grün' }, locale: 'de' })
    const label = async (locale, more = {}) => (await payload.findByID({ collection: 'tags', id: tag.id, locale, ...more })).label
    assert.deepEqual([await label('en'), await label('de'), await label('fr')], ['green', 'grün', 'green'])
    assert.equal(await label('fr', { fallbackLocale: false }) ?? null, null)
    assert.deepEqual(await label('all'), { en: 'green', de: 'grün' })
    const raw = await payload.db.collections.tags.collection.findOne({})
    assert.deepEqual(raw.label, { en: 'green', de: 'grün' })
  })

  test('conditions and order go by the locale', async () => {
    for (const [en, de] of [['a', 'z'], ['b', 'y']]) {
      const tag = await payload.create({ collection: 'tags', data: { label: en } })
      await payload.update({ collection: 'tags', id: tag.id, data: { label: de }, locale: 'de' })
    }
    const find = (more) => payload.find({ collection: 'tags', ...more }).then((found) => found.docs.map((tag) => tag.label).join(''))
    assert.equal(await find({ locale: 'de', sort: 'label' }), 'yz')
    assert.equal(await find({ locale: 'en', sort: 'label' }), 'ab')
    assert.equal(await find({ locale: 'de', where: { label: { equals: 'z' } } }), 'z')
    assert.equal(await find({ locale: 'en', where: { 'label.de': { equals: 'y' } } }), 'b')
  })
})

describe('what else is kept', () => {
  test('users log in, and are locked out', async () => {
    const email = 'ann@example.com'
    await payload.create({ collection: 'users', data: { email, password: 'secret', name: 'Ann' } })
    const login = (password) => payload.login({ collection: 'users', data: { email, password } })
    const { token, user } = await login('secret')
    assert.ok(token && user.name === 'Ann' && user.sessions.length === 1)
    await assert.rejects(login('wrong'), { name: 'AuthenticationError' })
    await assert.rejects(login('wrong'))
    await assert.rejects(login('secret'), { name: 'LockedAuth' })
    await payload.unlock({ collection: 'users', data: { email } })
    assert.ok((await login('secret')).token)
    const reset = await payload.forgotPassword({ collection: 'users', data: { email }, disableEmail: true })
    await payload.resetPassword({ collection: 'users', data: { token: reset, password: 'other' }, overrideAccess: true })
    assert.ok((await login('other')).token)
  })

  test('jobs are queued and run', async () => {
    await payload.jobs.queue({ task: 'shout', input: { text: 'hey' } })
    await payload.jobs.queue({ task: 'shout', input: { text: 'later' }, waitUntil: new Date(Date.now() + 3_600_000) })
    await payload.jobs.run()
    const found = await payload.find({ collection: 'payload-jobs', sort: 'createdAt' })
    assert.deepEqual(found.docs.map((job) => [job.input.text, Boolean(job.completedAt)]), [['hey', true], ['later', false]])
    assert.equal(found.docs[0].log[0].output.loud, 'HEY')
  })

  test('keys and values', async () => {
    await payload.kv.set('a', { n: 1 })
    await payload.kv.set('a', { n: 2 })
    assert.deepEqual(await payload.kv.get('a'), { n: 2 })
    assert.deepEqual([await payload.kv.has('b'), await payload.kv.keys()], [false, ['a']])
    await payload.kv.delete('a')
    assert.equal(await payload.kv.get('a'), null)
  })

  test('preferences of a user', async () => {
    const user = await payload.create({ collection: 'users', data: { email: 'b@example.com', password: 'secret' } })
    const data = { key: 'list', value: { limit: 5 }, user: { relationTo: 'users', value: user.id } }
    await payload.create({ collection: 'payload-preferences', data, user: { ...user, collection: 'users' } })
    const found = await payload.find({
      collection: 'payload-preferences', where: { 'user.value': { equals: user.id }, key: { equals: 'list' } }, depth: 0 })
    assert.deepEqual(found.docs[0].value, { limit: 5 })
  })
})
