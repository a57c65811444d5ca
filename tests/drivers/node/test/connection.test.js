// Handshake, server facts, sessions and monitoring as the driver sees them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connected, isReplicaSet, newClient, rejection } from './support.js';

const context = connected('node_connection');

test('hello describes the topology that was started', async () => {
  const hello = await context.db.admin().command({ hello: 1 });
  assert.equal(hello.isWritablePrimary, true);
  assert.equal(hello.maxBsonObjectSize, 16 * 1024 * 1024);
  assert.equal(hello.maxMessageSizeBytes, 48_000_000);
  assert.equal(hello.maxWriteBatchSize, 100_000);
  assert.equal(hello.logicalSessionTimeoutMinutes, 30);
  assert.ok(hello.maxWireVersion >= 21, `wire version ${hello.maxWireVersion}`);
  assert.equal('setName' in hello, isReplicaSet);
  if (isReplicaSet) {
    assert.deepEqual(hello.hosts, [hello.me]);
    assert.equal(hello.primary, hello.me);
  }
});

test('the version and the wire version tell the same story', async () => {
  const { version, versionArray } = await context.db.admin().buildInfo();
  const { maxWireVersion } = await context.db.admin().command({ hello: 1 });
  assert.equal(version.split('.')[0], String(versionArray[0]));
  assert.equal(maxWireVersion, { '8.0': 25, '8.2': 27 }[versionArray.slice(0, 2).join('.')]);
});

test('a client that names the replica set finds its primary', { skip: !isReplicaSet }, async () => {
  const { setName } = await context.db.admin().command({ hello: 1 });
  const client = newClient({ replicaSet: setName, readPreference: 'primary' });
  const types = [];
  client.on('topologyDescriptionChanged', (event) => types.push(event.newDescription.type));
  await client.connect();
  assert.equal((await client.db('admin').command({ ping: 1 })).ok, 1);
  await client.close();
  assert.ok(types.includes('ReplicaSetWithPrimary'), types.join());
});

test('an unknown command is refused with CommandNotFound', async () => {
  const error = await rejection(context.db.command({ noSuchCommandAtAll: 1 }));
  assert.equal(error.code, 59);
  assert.equal(error.codeName, 'CommandNotFound');
  assert.equal(error.message, "no such command: 'noSuchCommandAtAll'");
});

test('a database without collections does not exist', async () => {
  const names = async () => (await context.db.admin().listDatabases({ nameOnly: true })).databases.map((d) => d.name);
  assert.ok(!(await names()).includes('node_connection'));
  await context.db.createCollection('first');
  assert.ok((await names()).includes('node_connection'));
  await context.db.dropDatabase();
  assert.ok(!(await names()).includes('node_connection'));
});

test('an explicit session carries its cluster time along', async () => {
  const collection = context.db.collection('session');
  await context.client.withSession({ causalConsistency: true }, async (session) => {
    await collection.insertOne({ _id: 1 }, { session });
    assert.equal(Boolean(session.operationTime), isReplicaSet);
    assert.deepEqual(await collection.findOne({ _id: 1 }, { session }), { _id: 1 });
  });
});

test('command events carry requests and replies', async () => {
  const client = newClient({ monitorCommands: true });
  const events = [];
  for (const name of ['commandStarted', 'commandSucceeded', 'commandFailed']) {
    client.on(name, (event) => events.push([name, event.commandName]));
  }
  await client.db('node_connection').collection('events').insertOne({ _id: 1 });
  await rejection(client.db('node_connection').command({ noSuchCommandAtAll: 1 }));
  await client.close();
  assert.deepEqual(events.filter(([, command]) => command !== 'endSessions'), [
    ['commandStarted', 'insert'],
    ['commandSucceeded', 'insert'],
    ['commandStarted', 'noSuchCommandAtAll'],
    ['commandFailed', 'noSuchCommandAtAll'],
  ]);
});

test('fifty operations at once share the pool', async () => {
  const collection = context.db.collection('pool');
  await Promise.all(Array.from({ length: 50 }, (_, n) => collection.insertOne({ _id: n })));
  assert.equal(await collection.countDocuments(), 50);
});
