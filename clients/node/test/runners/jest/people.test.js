// A template built once, a fork of it for every test.
const { MongoClient } = require("mongodb");

const name = `jest_${process.env.JEST_WORKER_ID}`;
let client;
let db;

beforeAll(async () => {
  client = await MongoClient.connect(process.env.MONGO_URL);
  await client.db(`${name}_template`).collection("people").createIndex({ name: 1 }, { unique: true });
  await client.db(`${name}_template`).collection("people").insertOne({ name: "Ada" });
});

beforeEach(async () => {
  await client.db("admin").command({ forkDatabase: `${name}_template`, to: name, replace: true });
  db = client.db(name);
});

afterAll(() => client.close());

test.each(["one", "another"])("%s test sees Ada alone, and adds Grace", async () => {
  expect(await db.collection("people").distinct("name")).toEqual(["Ada"]);
  await db.collection("people").insertOne({ name: "Grace" });
  await expect(db.collection("people").insertOne({ name: "Ada" })).rejects.toMatchObject({ code: 11000 });
});
