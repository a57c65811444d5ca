// A Payload application without a front end: its configuration, and the local API over the server under test.

import { mongooseAdapter } from '@payloadcms/db-mongodb'
import { buildConfig, getPayload } from 'payload'

export const onSet = process.env.VELLUM_TOPOLOGY !== 'standalone'

const localized = { localized: true }

const collections = [
  { slug: 'users', auth: { maxLoginAttempts: 2, lockTime: 60_000 }, fields: [{ name: 'name', type: 'text' }] },
  {
    slug: 'authors',
    fields: [
      { name: 'name', type: 'text', required: true, unique: true },
      { name: 'city', type: 'text', index: true },
      { name: 'mentor', type: 'relationship', relationTo: 'authors' },
      { name: 'written', type: 'join', collection: 'posts', on: 'author' },
    ],
  },
  { slug: 'tags', fields: [{ name: 'label', type: 'text', ...localized }] },
  {
    slug: 'posts',
    trash: true,
    indexes: [{ fields: ['title', 'rank'] }],
    fields: [
      { name: 'title', type: 'text', required: true },
      { name: 'rank', type: 'number', index: true },
      { name: 'open', type: 'checkbox', defaultValue: false },
      { name: 'day', type: 'date' },
      { name: 'mail', type: 'email' },
      { name: 'kind', type: 'select', options: ['short', 'long'], hasMany: true },
      { name: 'where', type: 'point' },
      { name: 'free', type: 'json' },
      { name: 'words', type: 'text', hasMany: true },
      { name: 'author', type: 'relationship', relationTo: 'authors' },
      { name: 'tags', type: 'relationship', relationTo: 'tags', hasMany: true },
      { name: 'about', type: 'relationship', relationTo: ['authors', 'tags'] },
      { name: 'meta', type: 'group', fields: [{ name: 'source', type: 'text' }, { name: 'depth', type: 'number' }] },
      { name: 'rows', type: 'array', fields: [{ name: 'text', type: 'text' }, { name: 'size', type: 'number' }] },
      {
        name: 'layout', type: 'blocks', blocks: [
          { slug: 'quote', fields: [{ name: 'quote', type: 'text' }] },
          { slug: 'picture', fields: [{ name: 'path', type: 'text' }, { name: 'by', type: 'relationship', relationTo: 'authors' }] },
        ],
      },
    ],
  },
  {
    slug: 'pages',
    versions: { drafts: true, maxPerDoc: 3 },
    fields: [{ name: 'title', type: 'text', required: true, ...localized }, { name: 'body', type: 'textarea' }],
  },
]

const globals = [
  { slug: 'menu', versions: { max: 5 }, fields: [{ name: 'title', type: 'text', ...localized }, { name: 'first', type: 'relationship', relationTo: 'pages' }] },
]

/** Starts Payload on a database with indexes and without documents. */
export async function start(name) {
  const url = new URL(process.env.VELLUM_URI)
  url.pathname = `/payload_${name}`
  const payload = await getPayload({
    key: name,
    config: buildConfig({
      secret: 'tests', telemetry: false, logger: { options: { level: 'warn' } }, typescript: { autoGenerate: false },
      db: mongooseAdapter({ url: url.href, ensureIndexes: true, ...(onSet ? {} : { transactionOptions: false }) }),
      localization: { locales: ['en', 'de', 'fr'], defaultLocale: 'en', fallback: true },
      collections, globals,
      jobs: {
        tasks: [{ slug: 'shout', inputSchema: [{ name: 'text', type: 'text' }], outputSchema: [{ name: 'loud', type: 'text' }],
          handler: ({ input }) => ({ output: { loud: input.text.toUpperCase() } }) }],
        deleteJobOnComplete: false,
      },
    }),
  })
  await empty(payload)
  return payload
}

/** Removes the documents of all collections. */
export async function empty(payload) {
  for (const collection of await payload.db.connection.db.collections()) await collection.deleteMany({})
}

/** Ends the connections and timers of Payload. */
export async function stop(payload) {
  await payload.db.connection.dropDatabase()
  await payload.destroy()
}
