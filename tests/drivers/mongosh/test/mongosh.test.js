// The shell in interactive use and in scripts. Each test is one run of mongosh. A warning about the server in its output
// fails the test.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { home, mongosh } from './support.js';

const isReplicaSet = process.env.VELLUM_TOPOLOGY === 'replset';

/** Evaluates an expression, printing its value as canonical extended JSON. */
async function evaluate(script, name = 'shell') {
  return JSON.parse(await mongosh(['--quiet', '--json=relaxed', '--eval', `use('${name}'); ${script}`]));
}

test('connects and evaluates without a warning', async () => {
  assert.match(await mongosh(['--eval', 'db.runCommand({ ping: 1 })']), /^\{\s*ok: 1/);
});

test('an interactive session greets, prompts and shows databases', async () => {
  const said = await mongosh(['--norc'], 'use shell_prompt\ndb.c.insertOne({ _id: 1 })\nshow dbs\nshow collections\ndb.dropDatabase()\nexit\n');
  assert.match(said, /Using MongoDB:\s+(7\.0|8\.[02])\.\d+/);
  assert.match(said, /The memory engine is in use: all data is lost when this server stops/);
  assert.match(said, /acknowledged: true/);
  assert.match(said, /shell_prompt\s+\d+/);
  assert.match(said, isReplicaSet ? /rs0 \[(direct: )?primary\]/ : /test>/);
  assert.match(said, /ok: 1, dropped: 'shell_prompt'/);
});

test('insertMany, find, sort and projection', async () => {
  const found = await evaluate(`
    db.c.drop();
    db.c.insertMany([{ _id: 1, n: 3, t: 'a' }, { _id: 2, n: 1, t: 'b' }, { _id: 3, n: 2, t: 'c' }]);
    db.c.find({ n: { $gt: 1 } }, { _id: 0, t: 1 }).sort({ n: -1 }).toArray()`);
  assert.deepEqual(found, [{ t: 'a' }, { t: 'c' }]);
});

test('indexes are created, listed, used and dropped', async () => {
  assert.equal(await evaluate(`db.i.drop(); db.i.insertMany([{ a: 1 }, { a: 2 }]); db.i.createIndex({ a: 1 })`), 'a_1');
  assert.deepEqual(await evaluate('db.i.getIndexes().map((index) => index.name)'), ['_id_', 'a_1']);
  const plan = await evaluate('db.i.find({ a: 2 }).explain().queryPlanner.winningPlan');
  assert.match(JSON.stringify(plan), /"stage":"IXSCAN"/);
  const stats = await evaluate('db.i.find({ a: 2 }).explain("executionStats").executionStats');
  assert.deepEqual([stats.nReturned, stats.totalKeysExamined, stats.totalDocsExamined], [1, 1, 1]);
  assert.equal((await evaluate('db.i.dropIndex("a_1")')).ok, 1);
});

test('updates, deletes, counts and aggregation', async () => {
  assert.deepEqual(await evaluate(`
    db.u.drop(); db.u.insertMany([{ k: 'x', n: 1 }, { k: 'x', n: 2 }, { k: 'y', n: 3 }]);
    db.u.updateMany({ k: 'x' }, { $inc: { n: 10 } }); db.u.deleteOne({ k: 'y' });
    [db.u.countDocuments(), db.u.aggregate([{ $group: { _id: '$k', n: { $sum: '$n' } } }]).toArray()]`),
  [2, [{ _id: 'x', n: 23 }]]);
});

test('a duplicate key is reported as such', async () => {
  const code = await evaluate(`db.d.drop(); db.d.insertOne({ _id: 1 });
    try { db.d.insertOne({ _id: 1 }); 0 } catch (error) { error.code }`);
  assert.equal(code, 11000);
});

test('statistics and administration helpers answer', async () => {
  const said = await evaluate(`db.s.drop(); db.s.insertMany([{}, {}]);
    ({ version: db.version(), count: db.s.stats().count, objects: db.stats().objects, hello: db.hello().isWritablePrimary,
       names: db.getCollectionNames().includes('s'), status: db.serverStatus().ok, size: db.s.dataSize() > 0,
       validate: db.s.validate().valid, host: db.hostInfo().ok, users: db.runCommand({ connectionStatus: 1 }).ok })`);
  assert.match(said.version, /^(7\.0|8\.[02])\./);
  delete said.version;
  assert.ok(said.objects >= 2);
  delete said.objects;
  assert.deepEqual(said, { count: 2, hello: true, names: true, status: 1, size: true, validate: true, host: 1, users: 1 });
});

test('a script file runs to its end', async () => {
  const file = join(home, 'script.js');
  writeFileSync(file, `db = db.getSiblingDB('shell_file'); db.dropDatabase();
    for (let n = 0; n < 250; n++) db.numbers.insertOne({ _id: n });
    let sum = 0; db.numbers.find().batchSize(100).forEach((d) => { sum += d._id; });
    print('sum', sum); db.dropDatabase();`);
  assert.match(await mongosh(['--quiet', '--file', file]), /sum 31125$/);
});

test('rs.status describes the set', { skip: !isReplicaSet }, async () => {
  const status = await evaluate('rs.status()', 'admin');
  assert.equal(status.myState, 1);
  assert.deepEqual(status.members.map(({ stateStr, health }) => [stateStr, health]), [['PRIMARY', 1]]);
});
