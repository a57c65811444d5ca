// mongodb-memory-server with `systemBinary`: a link named mongod to Vellum.
import assert from "node:assert";
import test from "node:test";
import { MongoClient } from "mongodb";
import { MongoMemoryReplSet, MongoMemoryServer } from "mongodb-memory-server-core";

const binary = { systemBinary: process.env.VELLUM_AS_MONGOD, checkMD5: false, version: "8.2.0" };

async function use(uri) {
  const client = new MongoClient(uri);
  try {
    const people = client.db("test").collection("people");
    await people.insertOne({ name: "Ada" });
    assert.equal(await people.countDocuments(), 1);
  } finally {
    await client.close();
  }
}

for (const storageEngine of ["wiredTiger", "ephemeralForTest"]) {
  test(`a single server, ${storageEngine}`, async () => {
    const server = await MongoMemoryServer.create({ binary, instance: { storageEngine } });
    await use(server.getUri());
    assert.equal(await server.stop(), true);
  });
}

test("a replica set of one", async () => {
  const set = await MongoMemoryReplSet.create({ binary, replSet: { count: 1, storageEngine: "wiredTiger" } });
  await set.waitUntilRunning();
  await use(set.getUri());
  assert.equal(await set.stop(), true);
});

test("an argument of the caller's own", async () => {
  const args = ["--setParameter", "ttlMonitorEnabled=false", "--nounixsocket", "--quiet"];
  const server = await MongoMemoryServer.create({ binary, instance: { args } });
  await use(server.getUri());
  await server.stop();
});

test("what isn't there is refused by name", async () => {
  await assert.rejects(MongoMemoryServer.create({ binary, instance: { args: ["--syslog"] } }));
  await assert.rejects(MongoMemoryServer.create({ binary, instance: { args: ["--profileFilter", "{}"] } }));
});

test("users, of a single server and of a set", async () => {
  const auth = { enable: true, customRootName: "ada", customRootPwd: "secret" };
  const single = () => MongoMemoryServer.create({ binary, auth });
  const set = () => MongoMemoryReplSet.create({ binary, replSet: { count: 1, storageEngine: "wiredTiger", auth } });
  for (const create of [single, set]) {
    const server = await create();
    try {
      const uri = new URL(server.getUri());
      await assert.rejects(use(uri.href), { code: 13 });
      [uri.username, uri.password] = ["ada", "wrong"];
      uri.searchParams.set("authSource", "admin");
      await assert.rejects(use(uri.href), { code: 18 });
      uri.password = "secret";
      await use(uri.href);
    } finally {
      await server.stop();
    }
  }
});

test("a data directory that isn't there is told of in mongod's words", async () => {
  const created = MongoMemoryServer.create({ binary, instance: { dbPath: "/nowhere/at/all" } });
  await assert.rejects(created, /dbPath|NonExistentPath|ENOENT|directory/i);
});
