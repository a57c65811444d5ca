// Shared code of the test files: the server's address, and the rule that a warning about the server fails the run.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { MongoClient } from 'mongodb';

export const uri = process.env.VELLUM_URI;
if (!uri) throw new Error('VELLUM_URI must name the server under test');

export const isReplicaSet = process.env.VELLUM_TOPOLOGY === 'replset';

const warnings = [];
process.on('warning', (warning) => warnings.push(`${warning.name}: ${warning.message}`));

// The driver's log from `warn` upwards, which must stay empty.
const driverLog = { write: (entry) => void warnings.push(`driver log: ${JSON.stringify(entry)}`) };

/** Returns a client whose warnings are collected. */
export function newClient(options = {}, address = uri) {
  return new MongoClient(address, {
    serverSelectionTimeoutMS: 5000,
    mongodbLogPath: driverLog,
    mongodbLogComponentSeverities: { default: 'warn' },
    ...options,
  });
}

/** Connects before a file's tests, and drops its database and checks for warnings after them. */
export function connected(name) {
  const context = {};
  before(async () => {
    context.client = newClient();
    await context.client.connect();
    context.db = context.client.db(name);
    await context.db.dropDatabase();
  });
  after(async () => {
    await context.db.dropDatabase();
    await context.client.close();
    noWarnings();
  });
  return context;
}

/** Fails with the warnings so far. */
export function noWarnings() {
  assert.deepEqual(warnings, []);
}

/** Returns the error of a rejected promise. */
export async function rejection(promise) {
  const value = await promise.then(
    (result) => assert.fail(`expected an error, got ${JSON.stringify(result)}`),
    (error) => error,
  );
  return value;
}

/** Returns true if the server has the fail point failCommand. */
export async function hasFailPoints(client) {
  const reply = await client.db('admin').command({ getParameter: 1, enableTestCommands: 1 }).catch(() => ({}));
  return Boolean(reply.enableTestCommands);
}
