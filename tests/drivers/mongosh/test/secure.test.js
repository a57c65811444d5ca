// Logins and the management of users in the shell, on a server with users and TLS.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { mongosh, uri } from './support.js';

const certificates = process.env.VELLUM_CERTIFICATES;
const authority = ['--tls', '--tlsCAFile', join(certificates ?? '', 'ca.pem')];
const nobodys = uri?.replace(/\/\/[^@/]*@/, '//');
const subject = 'C=US,ST=New York,L=New York City,O=MDB,OU=Drivers,CN=client';

/** Evaluates an expression on the database of these tests, by default as the root user. */
async function evaluate(script, options = [], address = uri) {
  const said = await mongosh(['--quiet', '--json=relaxed', ...options, '--eval', `use('secure'); ${script}`], undefined, address);
  return JSON.parse(said);
}

const known = (user, password) => ['--username', user, '--password', password, '--authenticationDatabase', 'secure'];
const whoAmI = 'db.runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers';

describe('users and TLS', { skip: !certificates }, () => {
  after(() => evaluate(`db.dropDatabase(); db.dropAllUsers(); db.dropAllRoles();
    db.getSiblingDB('$external').dropAllUsers(); 1`));

  test('users and roles are made, shown and changed', async () => {
    const made = await evaluate(`
      db.dropAllUsers(); db.dropAllRoles();
      db.c.insertOne({ _id: 1 });
      db.createUser({ user: 'sha1', pwd: 'right', roles: ['readWrite'], mechanisms: ['SCRAM-SHA-1'] });
      db.createUser({ user: 'reader', pwd: 'right', roles: ['read'], customData: { desk: 4 } });
      db.createRole({ role: 'counter', privileges: [{ resource: { db: 'secure', collection: 'c' }, actions: ['find'] }],
        roles: [] });
      db.grantRolesToUser('reader', ['counter']);
      [db.getUsers().users.map(({ user, mechanisms }) => [user, mechanisms]), db.getUser('reader').roles,
       db.getUser('reader').customData, db.getRole('counter', { showPrivileges: true }).privileges,
       db.getUser('nobody')]`);
    assert.deepEqual(made[0], [['reader', ['SCRAM-SHA-1', 'SCRAM-SHA-256']], ['sha1', ['SCRAM-SHA-1']]]);
    assert.deepEqual(made[1].map(({ role }) => role).sort(), ['counter', 'read']);
    assert.deepEqual(made.slice(2), [{ desk: 4 },
      [{ resource: { db: 'secure', collection: 'c' }, actions: ['find'] }], null]);
  });

  test('show users and show roles', async () => {
    const said = await mongosh(['--quiet'], 'use secure\nshow users\nshow roles\nexit\n');
    assert.match(said, /_id: 'secure\.reader'/);
    for (const role of ['counter', 'read', 'readWrite', 'dbOwner']) assert.match(said, new RegExp(`role: '${role}'`));
  });

  test("db.auth lets in, and a wrong password doesn't", async () => {
    assert.deepEqual(await evaluate(`
      const wrong = (() => { try { db.auth('reader', 'wrong'); } catch (error) { return [error.code, error.codeName]; } })();
      const before = (() => { try { db.c.findOne(); } catch (error) { return error.codeName; } })();
      [wrong, before, db.auth('reader', 'right').ok, ${whoAmI}, db.c.findOne()]`, [], nobodys),
    [[18, 'AuthenticationFailed'], 'Unauthorized', 1, [{ user: 'reader', db: 'secure' }], { _id: 1 }]);
  });

  test('who may only read is refused a write', async () => {
    assert.deepEqual(await evaluate(`
      const refused = (run) => { try { run(); } catch (error) { return error.code; } };
      [db.c.countDocuments(), refused(() => db.c.insertOne({ _id: 2 })), refused(() => db.c.drop()),
       refused(() => db.createUser({ user: 'another', pwd: 'x', roles: [] })), db.c.countDocuments()]`,
    known('reader', 'right'), nobodys), [1, 13, 13, 13, 1]);
  });

  test('the command line takes a user, a mechanism, an authority and a certificate', async () => {
    assert.deepEqual(await evaluate(whoAmI, [...known('sha1', 'right'), ...authority], nobodys),
      [{ user: 'sha1', db: 'secure' }]);
    const mechanism = ['--authenticationMechanism', 'SCRAM-SHA-256'];
    await assert.rejects(evaluate(whoAmI, [...known('sha1', 'right'), ...mechanism], nobodys), /Authentication failed/);
    await evaluate(`db.getSiblingDB('$external').runCommand({ createUser: '${subject}', roles: [] })`);
    const shown = ['--tlsCertificateKeyFile', join(certificates, 'client.pem'), '--authenticationMechanism', 'MONGODB-X509'];
    assert.deepEqual(await evaluate(whoAmI, [...authority, ...shown], nobodys), [{ user: subject, db: '$external' }]);
  });
});
