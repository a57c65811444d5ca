// One server for a whole run: the runner's main process starts it, and workers read its address from
// MONGO_URL.
"use strict";

const { MongoMemoryReplSet, MongoMemoryServer } = require("../src/index.js");

let server;

/** Starts the server. VELLUM_REPLSET sets the name of a replica set. */
async function begin() {
  const name = process.env.VELLUM_REPLSET;
  server = name ? await MongoMemoryReplSet.create({ replSet: { name } }) : await MongoMemoryServer.create();
  process.env.MONGO_URL = server.getUri();
}

/** Stops the server. */
async function end() {
  await server?.stop();
  server = undefined;
}

module.exports = { begin, end };
