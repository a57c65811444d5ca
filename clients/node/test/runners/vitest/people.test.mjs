// A database snapshotted once, and restored before every test.
import { MongoClient } from "mongodb";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

const name = `vitest_${process.env.VITEST_POOL_ID}`;
const client = new MongoClient(process.env.MONGO_URL);
const people = client.db(name).collection("people");
const admin = client.db("admin");

beforeAll(async () => {
  await people.insertOne({ name: "Ada" });
  await admin.command({ snapshotDatabase: name, name: "ready" });
});
beforeEach(() => admin.command({ restoreDatabase: name, name: "ready" }));
afterAll(() => client.close());

test.each(["one", "another"])("%s test sees Ada alone, and adds Grace", async () => {
  expect(await people.distinct("name")).toEqual(["Ada"]);
  await people.insertOne({ name: "Grace" });
});
