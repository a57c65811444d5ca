// A template built once, and a fork of it for every test. The server object is in another process.
const path = require("node:path");
const { attach } = require("@vellum/memory-server");
const { MongoClient } = require("mongodb");

const name = `jest_${process.env.JEST_WORKER_ID}`;
const slate = attach();
let client;

beforeAll(async () => {
  client = await MongoClient.connect(process.env.MONGO_URL);
  await client.db(`${name}_template`).collection("people").createIndex({ name: 1 }, { unique: true });
  await client.db(`${name}_template`).collection("people").insertOne({ name: "Ada" });
});

beforeEach(() => slate.fork(`${name}_template`, name, { replace: true }));

afterAll(() => Promise.all([client.close(), slate.close()]));

const people = () => client.db(name).collection("people");

test.each(["one", "another"])("%s test sees Ada alone, and adds Grace", async () => {
  expect(await people().distinct("name")).toEqual(["Ada"]);
  await people().insertOne({ name: "Grace" });
  await expect(people().insertOne({ name: "Ada" })).rejects.toMatchObject({ code: 11000 });
});

test("a reset empties collections and keeps indexes", async () => {
  await slate.reset(name);
  expect(await people().countDocuments()).toBe(0);
  expect((await people().indexes()).length).toBe(2);
});

test("what a test changes is asserted, or approved by a file", async () => {
  await slate.snapshot(name, "ready", { replace: true });
  const at = new Date();
  await people().insertOne({ _id: 1, name: "Grace", at });
  const grace = { operationType: "insert", ns: { db: name, coll: "people" }, documentKey: { _id: 1 } };
  expect(await slate.changes(name, "ready")).toMatchObject([grace]);
  await slate.assertChanges(name, "ready", [{ ...grace, fullDocument: { _id: 1, name: "Grace", at } }]);
  await slate.approveChanges(name, "ready", path.join(__dirname, "grace.approved.json"));
  await people().deleteOne({ name: "Ada" });
  await expect(slate.approveChanges(name, "ready", path.join(__dirname, "grace.approved.json"))).rejects.toThrow(/"delete"/);
  await slate.dropSnapshot(name, "ready");
});
