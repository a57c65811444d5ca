// One server for a whole run: the runner's main process starts it, workers find it in MONGO_URL.
"use strict";

const { MongoMemoryReplSet, MongoMemoryServer } = require("../src/index.js");

let server;

/** Starts the server; VELLUM_REPLSET names a replica set to be shown as. */
async function begin() {
  const name = process.env.VELLUM_REPLSET;
  server = name ? await MongoMemoryReplSet.create({ replSet: { name } }) : await MongoMemoryServer.create();
  process.env.MONGO_URL = server.getUri();
}

/** Stops it. */
async function end() {
  await server?.stop();
  server = undefined;
}

module.exports = { begin, end };
