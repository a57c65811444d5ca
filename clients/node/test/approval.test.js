// Changes of a test: as events, in an assertion, in an approval file.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, before, beforeEach, test } = require("node:test");
const { pathToFileURL } = require("node:url");
const { Long, MongoClient, ObjectId, UUID } = require("mongodb");
const { MongoMemoryServer } = require("../src/index.js");

const SHARED_FILE = path.join(__dirname, "../../changes.approved.json");
let server, client, db;

before(async () => {
  delete process.env.CI;
  delete process.env.VELLUM_APPROVE;
  server = await MongoMemoryServer.create();
  client = await MongoClient.connect(server.getUri());
  db = client.db("test");
  await db.collection("people").insertMany([{ _id: 1, name: "Ada", born: 1815, x: 1 }, { _id: 2, name: "Grace" }]);
  await server.snapshot("test", "ready");
});
beforeEach(() => server.restore("test", "ready"));
after(async () => {
  await client.close();
  await server.stop();
});

test("changes since a snapshot or a fork, in several batches", async () => {
  assert.deepEqual(await server.changes("test", "ready"), []);
  await db.collection("new").insertMany(Array.from({ length: 300 }, (_, number) => ({ _id: number, n: Long.fromNumber(5) })));
  const [created, ...inserted] = await server.changes("test", { since: "ready" });
  assert.deepEqual(created, { operationType: "create", ns: { db: "test", coll: "new" }, operationDescription: {} });
  assert.deepEqual(inserted.map((change) => change.fullDocument), Array.from({ length: 300 }, (_, number) => ({ _id: number, n: 5 })));
  await server.fork("test", "copy");
  await client.db("copy").collection("people").deleteOne({ _id: 2 });
  assert.deepEqual((await server.changes("copy", { origin: "test" })).map((change) => change.operationType), ["delete"]);
  await client.db("copy").dropDatabase();
  await assert.rejects(server.changes("test", "never"), { code: 26, codeName: "NamespaceNotFound" });
});

test("assertChanges compares all values with their types", async () => {
  const _id = new ObjectId();
  const at = new Date();
  await db.collection("people").insertOne({ _id, at, n: Long.fromNumber(7) });
  const expected = (document) => [{ operationType: "insert", ns: { coll: "people" }, documentKey: { _id }, fullDocument: document }];
  await server.assertChanges("test", "ready", expected({ n: Long.fromNumber(7), _id, at }));
  for (const other of [{ _id, at }, { _id, at, n: 7 }, { _id, at: new Date(0), n: Long.fromNumber(7) }]) {
    await assert.rejects(server.assertChanges("test", "ready", expected(other)), { name: "AssertionError" });
  }
  await assert.rejects(server.assertChanges("test", "ready", []), /expected changes:[^]*"operationType": "insert"/);
});

test("the file is the same in all languages", async () => {
  const people = db.collection("people");
  const orders = db.collection("orders");
  await people.updateOne({ _id: 1 }, { $set: { born: Long.fromNumber(1816) }, $unset: { x: 1, name: 1 } });
  await people.deleteOne({ _id: 2 });
  await people.createIndex({ name: 1, born: -1 }, { unique: true });
  const by = new ObjectId();
  const at = new Date(Date.UTC(2026, 0, 31));
  // Their order differs from the order of their random keys.
  for (const number of [2, 1]) await orders.insertOne({ _id: new UUID(), number, by, at });
  await orders.insertOne({ _id: "z", b: 1.5, a: [true, null, { d: 'é "<&>\n', c: [] }], by, next: new ObjectId() });
  await server.approveChanges("test", "ready", SHARED_FILE);
});

test("approveChanges writes a missing file and fails on differences", async (context) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "vellum-"));
  context.after(() => fs.rmSync(folder, { recursive: true }));
  const file = pathToFileURL(path.join(folder, "approved", "one.json"));
  const approve = () => server.approveChanges("test", "ready", file);
  const change = (n) => db.collection("people").updateOne({ _id: 1 }, { $set: { n } });
  const withVariable = async (name, value, work) => {
    process.env[name] = value;
    try {
      await work();
    } finally {
      delete process.env[name];
    }
  };
  await change(1);
  await withVariable("CI", "1", () => assert.rejects(approve(), /VELLUM_APPROVE=1/));
  await approve();
  await approve();
  await change(2);
  await assert.rejects(approve(), /one\.json; VELLUM_APPROVE=1 writes the file[^]*"n": 2[^]*"n": 1/);
  await withVariable("VELLUM_APPROVE", "1", approve);
  await approve();
});
