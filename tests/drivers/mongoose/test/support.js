// Shared code of the test files: a connection to a separate database, and the rule that a warning about the server fails
// the run.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import mongoose from 'mongoose';

export const uri = process.env.VELLUM_URI;
if (!uri) throw new Error('VELLUM_URI must name the server under test');

export const isReplicaSet = process.env.VELLUM_TOPOLOGY === 'replset';
export const onSet = { skip: isReplicaSet ? false : 'a standalone server has no transactions and no log' };

const warnings = [];
process.on('warning', (warning) => warnings.push(`${warning.name}: ${warning.message}`));

/** Fails with the warnings so far. */
export function noWarnings() {
  assert.deepEqual(warnings, []);
}

/** Connects before a file's tests, and drops its database and checks for warnings after them. */
export function connected(dbName) {
  const context = {};
  before(async () => {
    context.connection = await mongoose.createConnection(uri, { dbName, serverSelectionTimeoutMS: 5000 }).asPromise();
    await context.connection.dropDatabase();
  });
  after(async () => {
    await context.connection.dropDatabase();
    await context.connection.close();
    noWarnings();
  });
  /** Creates a model of the connection, with its collection and indexes. */
  context.model = async (name, schema) => {
    const model = context.connection.model(name, schema);
    await model.init();
    return model;
  };
  return context;
}

/** Returns the error of a rejected promise. */
export async function rejection(promise) {
  return promise.then(
    (result) => assert.fail(`expected an error, got ${JSON.stringify(result)}`),
    (error) => error,
  );
}
