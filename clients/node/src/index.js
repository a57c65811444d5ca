// The classes that users of mongodb-memory-server know, and what only this server can do: fork, reset, snapshot,
// restore.
"use strict";

const { MongoClient } = require("mongodb");
const { launch, stop } = require("./launch");

/** What the two kinds of servers share. */
class VellumServer {
  #options;
  #running;
  #client;

  constructor(options = {}) {
    this.#options = options;
  }

  /** Starts the server; nothing happens if it runs already. */
  async start() {
    this.#running ??= await launch(this.launchOptions(this.#options));
  }

  /** What the process is started with. */
  launchOptions(options) {
    const { dbName: _, ip, ...instance } = options.instance ?? {};
    const unknown = Object.keys(instance).filter((name) => !["args", "port", "storageEngine"].includes(name));
    if (unknown.length > 0) throw new Error(`instance.${unknown[0]} is not supported by @vellum/memory-server`);
    const args = [...(instance.args ?? [])];
    if (ip) args.push("--bind", ip);
    return { args, port: instance.port ?? 0, binary: options.binary?.systemBinary };
  }

  /** The server's process, undefined while it doesn't run. */
  get process() {
    return this.#running?.child;
  }

  /** The connection string, with a database's name if one is given. */
  getUri(database = "") {
    if (!this.#running) throw new Error("the server is not running: await start() first");
    const [, address, query] = /^mongodb:\/\/([^/]+)\/(.*)$/.exec(this.#running.uri);
    return `mongodb://${address}/${database}${query}`;
  }

  /** Stops the server; all its data is gone. Options of mongodb-memory-server's own are taken and need nothing. */
  async stop(_cleanup) {
    await this.#client?.close();
    if (this.#running) await stop(this.#running.child);
    this.#client = this.#running = undefined;
    return true;
  }

  /** Nothing is left on disk to clean up. */
  async cleanup() {}

  async [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
    await this.stop();
  }

  /** Makes `to` a copy-on-write twin of a database. */
  fork(from, to, { replace = false } = {}) {
    return this.#run({ forkDatabase: from, to, replace });
  }

  /** Empties every collection; collections, indexes and validators stay. */
  reset(database) {
    return this.#run({ resetDatabase: database });
  }

  /** Keeps a database's state under a name. */
  snapshot(database, name, { replace = false } = {}) {
    return this.#run({ snapshotDatabase: database, name, replace });
  }

  /** Puts a database back into the state of a snapshot, which stays. */
  restore(database, name) {
    return this.#run({ restoreDatabase: database, name });
  }

  /** Forgets a snapshot. */
  dropSnapshot(database, name) {
    return this.#run({ dropSnapshot: database, name });
  }

  /** Sets the server's clock: `{ set: Date, advance: milliseconds, freeze, follow, sweepTTL }`. */
  clock(change = {}) {
    return this.#run({ vellumClock: 1, ...change });
  }

  async #run(command) {
    this.#client ??= new MongoClient(this.getUri());
    return this.#client.db("admin").command(command);
  }
}

/** A standalone server. */
class MongoMemoryServer extends VellumServer {
  /** A server that is running. */
  static async create(options) {
    const server = new MongoMemoryServer(options);
    await server.start();
    return server;
  }

  /** The name of the database in `instance.dbName`, and the connection string. */
  get instanceInfo() {
    return this.process && { uri: this.getUri(), port: Number(new URL(this.getUri()).port), ip: "127.0.0.1" };
  }
}

/** A replica set of one member: transactions and change streams ask for one. */
class MongoMemoryReplSet extends VellumServer {
  #name;

  constructor(options = {}) {
    const { replSet = {}, ...rest } = options;
    const { name = "testset", count = 1, args, ip, port, storageEngine: _, dbName: __, ...unknown } = replSet;
    if (Object.keys(unknown).length > 0) {
      throw new Error(`replSet.${Object.keys(unknown)[0]} is not supported by @vellum/memory-server`);
    }
    if (count !== 1) throw new Error("a replica set of @vellum/memory-server has one member: replSet.count must be 1");
    super({ ...rest, instance: { ...rest.instance, args, ip, port } });
    this.#name = name;
  }

  /** A set that is running. */
  static async create(options) {
    const server = new MongoMemoryReplSet(options);
    await server.start();
    return server;
  }

  launchOptions(options) {
    const launch = super.launchOptions(options);
    launch.args.push("--replset", this.#name);
    return launch;
  }

  /** The set is ready in its first reply. */
  async waitUntilRunning() {
    await this.start();
  }
}

module.exports = { MongoMemoryServer, MongoMemoryReplSet };
