// Logins by each mechanism and the privileges of roles, on a server with users and optional TLS.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { newClient, noWarnings, rejection, uri } from './support.js';

const certificates = process.env.VELLUM_CERTIFICATES;
const authority = { tls: true, tlsCAFile: join(certificates ?? '', 'ca.pem') };
const nobodys = uri.replace(/\/\/[^@/]*@/, '//');
const subject = 'C=US,ST=New York,L=New York City,O=MDB,OU=Drivers,CN=client';

/** Runs a function as a user on one connection, and closes the connection. */
async function as(options, run) {
  const client = newClient({ maxPoolSize: 1, ...options }, nobodys);
  try {
    return await run(client.db('secure'));
  } finally {
    await client.close();
  }
}

const known = (username, password, more = {}) => ({ auth: { username, password }, authSource: 'secure', ...more });
const whoAmI = async (db) => (await db.command({ connectionStatus: 1 })).authInfo.authenticatedUsers;

describe('users and TLS', { skip: !certificates }, () => {
  const root = {};

  before(async () => {
    root.client = newClient();
    root.db = root.client.db('secure');
    await root.db.dropDatabase();
    await root.db.command({ dropAllUsersFromDatabase: 1 });
    for (const mechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
      const readWrite = [{ role: 'readWrite', db: 'secure' }];
      await root.db.command({ createUser: mechanism, pwd: 'right', roles: readWrite, mechanisms: [mechanism] });
    }
    await root.db.command({ createUser: 'reader', pwd: 'right', roles: ['read'] });
    await root.db.collection('c').insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
  });

  after(async () => {
    await root.db.command({ dropAllUsersFromDatabase: 1 });
    await root.client.db('$external').command({ dropAllUsersFromDatabase: 1 });
    await root.db.dropDatabase();
    await root.client.close();
    noWarnings();
  });

  for (const mechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
    test(`${mechanism} lets in, named or not, in the clear and over TLS`, async () => {
      for (const more of [{}, { authMechanism: mechanism }, authority, { ...authority, authMechanism: mechanism }]) {
        assert.deepEqual(await as(known(mechanism, 'right', more), whoAmI), [{ user: mechanism, db: 'secure' }]);
      }
    });
  }

  test('a wrong password, an unknown user and the wrong mechanism are refused alike', async () => {
    for (const options of [known('reader', 'wrong'), known('nobody', 'right'),
      known('SCRAM-SHA-1', 'right', { authMechanism: 'SCRAM-SHA-256' })]) {
      const error = await rejection(as(options, whoAmI));
      assert.equal(error.name, 'MongoServerError');
      assert.equal(error.message, 'Authentication failed.');
      assert.deepEqual([error.code, error.codeName], [18, 'AuthenticationFailed']);
    }
  });

  test('without a user nothing is read', async () => {
    const error = await rejection(as({}, (db) => db.collection('c').findOne()));
    assert.deepEqual([error.code, error.codeName], [13, 'Unauthorized']);
  });

  test('who may only read is refused a write, which changes nothing', async () => {
    await as(known('reader', 'right'), async (db) => {
      assert.equal(await db.collection('c').countDocuments(), 3);
      for (const write of [db.collection('c').insertOne({ _id: 4 }), db.collection('c').updateOne({}, { $set: { a: 1 } }),
        db.collection('c').deleteMany({}), db.collection('c').drop(), db.collection('c').createIndex({ a: 1 }),
        db.collection('c').aggregate([{ $out: 'd' }]).toArray()]) {
        const error = await rejection(write);
        assert.equal(error.name, 'MongoServerError');
        assert.deepEqual([error.code, error.codeName], [13, 'Unauthorized']);
        assert.match(error.message, /^not authorized on secure to execute command/);
      }
    });
    assert.deepEqual(await root.db.collection('c').find().toArray(), [{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    assert.deepEqual((await root.db.listCollections().toArray()).map(({ name }) => name), ['c']);
  });

  test('a role given or taken away is in force at once, under an open cursor too', async () => {
    await as(known('reader', 'right'), async (db) => {
      await root.db.command({ grantRolesToUser: 'reader', roles: ['readWrite'] });
      await db.collection('c').insertOne({ _id: 5 });
      const cursor = db.collection('c').find({}, { batchSize: 1 });
      assert.notEqual(await cursor.next(), null);
      await root.db.command({ revokeRolesFromUser: 'reader', roles: ['read', 'readWrite'] });
      assert.equal((await rejection(cursor.next())).code, 13);
      assert.equal((await rejection(db.collection('c').insertOne({ _id: 6 }))).code, 13);
      await root.db.command({ grantRolesToUser: 'reader', roles: ['read'] });
      assert.equal(await db.collection('c').countDocuments({ _id: 6 }), 0);
    });
    await root.db.collection('c').deleteOne({ _id: 5 });
  });

  test('a transaction whose user loses the right to it changes nothing', async () => {
    await as(known('SCRAM-SHA-256', 'right'), async (db) => {
      const session = db.client.startSession();
      session.startTransaction();
      await db.collection('c').insertOne({ _id: 7 }, { session });
      await root.db.command({ updateUser: 'SCRAM-SHA-256', roles: ['read'] });
      assert.equal((await rejection(db.collection('c').insertOne({ _id: 8 }, { session }))).code, 13);
      await session.abortTransaction();
      await session.endSession();
    });
    await root.db.command({ updateUser: 'SCRAM-SHA-256', roles: ['readWrite'] });
    assert.equal(await root.db.collection('c').countDocuments({ _id: { $gt: 6 } }), 0);
  });

  test('a server whose certificate nobody has vouched for is not talked to', async () => {
    const error = await rejection(as(known('reader', 'right', { tls: true, serverSelectionTimeoutMS: 1000 }), whoAmI));
    assert.equal(error.name, 'MongoServerSelectionError');
    assert.match(error.message, /certificate/);
  });

  test('a certificate lets its user in, once there is one', async () => {
    const shown = { ...authority, tlsCertificateKeyFile: join(certificates, 'client.pem') };
    const options = { ...shown, authMechanism: 'MONGODB-X509' };
    assert.equal((await rejection(as(options, whoAmI))).code, 18);
    const roles = [{ role: 'read', db: 'secure' }];
    await root.client.db('$external').command({ createUser: subject, roles });
    await as(options, async (db) => {
      assert.deepEqual(await whoAmI(db), [{ user: subject, db: '$external' }]);
      assert.equal(await db.collection('c').countDocuments(), 3);
      assert.equal((await rejection(db.collection('c').insertOne({}))).code, 13);
    });
    const bare = await rejection(as({ ...options, tlsCertificateKeyFile: undefined }, whoAmI));
    assert.deepEqual([bare.code, bare.message], [18, 'No verified subject name available from client']);
  });
});
