// What a user of @vellum/memory-server writes.
import assert from "node:assert";
import { MongoClient } from "mongodb";
import { MongoMemoryServer } from "@vellum/memory-server";

const server = await MongoMemoryServer.create();
const client = await MongoClient.connect(server.getUri());
await client.db("template").collection("people").insertOne({ name: "Ada" });
await server.fork("template", "test");
assert.equal(await client.db("test").collection("people").countDocuments(), 1);
await client.close();
await server.stop();
console.log("forked");
