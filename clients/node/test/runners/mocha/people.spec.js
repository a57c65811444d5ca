// Empty collections with their indexes, before every test.
const assert = require("node:assert/strict");
const { MongoClient } = require("mongodb");

const name = `mocha_${process.pid}`;

describe("people", () => {
  const client = new MongoClient(process.env.MONGO_URL);
  const people = client.db(name).collection("people");

  before(() => people.createIndex({ name: 1 }, { unique: true }));
  beforeEach(() => client.db("admin").command({ resetDatabase: name }));
  after(() => client.close());

  for (const which of ["one", "another"]) {
    it(`${which} test sees no people, and the unique index`, async () => {
      assert.equal(await people.countDocuments(), 0);
      await people.insertOne({ name: "Ada" });
      await assert.rejects(people.insertOne({ name: "Ada" }), { code: 11000 });
    });
  }
});
