// The classes that users of mongodb-memory-server know, and what only this server can do: fork, reset, snapshot,
// restore.
"use strict";

const { EventEmitter } = require("node:events");
const net = require("node:net");
const { launch, stop } = require("./launch");
const { readReplSet, readServer } = require("./options");
const { CleanSlate, attach } = require("./slate");

/** What the two kinds of servers share. */
class VellumServer extends EventEmitter {
  #options;
  #running;
  #slate = new CleanSlate(() => this.#ownUri());
  #state;

  constructor(options, state) {
    super();
    this.#options = options;
    this.#state = state;
  }

  /** Where the server is in its life; the event `stateChange` tells of another. */
  get state() {
    return this.#state;
  }

  #become(state) {
    this.#state = state;
    this.emit("stateChange", state);
  }

  /** Starts the server; nothing happens if it runs already. `forceSamePort` takes no other port than the one asked for. */
  async start(forceSamePort = false) {
    if (this.#running) return;
    const before = this.#state;
    if (before !== "init") this.#become("starting");
    try {
      const options = this.#options;
      const changes = options.portGeneration && !forceSamePort;
      const port = options.port && changes && !(await isFree(options.port)) ? 0 : options.port ?? 0;
      this.#running = await launch({ ...options, port });
      await this.#makeUsers();
      this.#become("running");
    } catch (error) {
      await this.#end();
      if (before !== "init") this.#become(before);
      throw error;
    }
  }

  /** The users that `auth` names beside the first. */
  async #makeUsers() {
    for (const { command, database } of this.#options.auth?.extraUsers ?? []) {
      await this.#slate.run(command, database);
    }
  }

  /** What the server's own commands go over: with the first user, and TLS as the server that was started here has it. */
  #ownUri() {
    const { auth } = this.#options;
    const uri = this.getUri();
    const login = auth ? `${encodeURIComponent(auth.user)}:${encodeURIComponent(auth.password)}@` : "";
    const trust = /[?&]tls=true/.test(uri) ? "&tlsAllowInvalidCertificates=true" : "";
    return uri.replace("://", `://${login}`) + trust;
  }

  /** Whom only users get in for: the first of them, undefined where everybody gets in. */
  get auth() {
    const { auth } = this.#options;
    return auth && { enable: true, customRootName: auth.user, customRootPwd: auth.password };
  }

  /** The server's process, undefined while it doesn't run. */
  get process() {
    return this.#running?.child;
  }

  /** What is known of the running server. */
  get instanceInfo() {
    if (!this.#running) return undefined;
    const { hostname, port } = new URL(this.#running.uri);
    const { dbName, dbPath, storageEngine, replSet } = this.#options;
    return { uri: this.getUri(), ip: hostname, port: Number(port), dbName, dbPath, storageEngine, replSet };
  }

  /** What is known of the server, started if it isn't running. */
  async ensureInstance() {
    await this.start();
    return this.instanceInfo;
  }

  /** The connection string, with a database's name if one is given, and another address for the same port. */
  getUri(database = "", otherIp = undefined) {
    if (!this.#running) throw new Error("the server is not running: await start() first");
    const [, address, query] = /^mongodb:\/\/([^/]+)\/(.*)$/.exec(this.#running.uri);
    const host = otherIp ? `${otherIp}:${address.slice(address.lastIndexOf(":") + 1)}` : address;
    return `mongodb://${host}/${database}${query}`;
  }

  /** Stops the server. Data in memory is gone; what lies in `dbPath` stays, as it isn't ours. */
  async stop(cleanup = {}) {
    if (cleanup?.force && this.#options.dbPath) {
      throw new Error("cleanup.force is not supported by @vellum/memory-server: dbPath is yours to remove");
    }
    if (!(await this.#end())) return false;
    this.#become("stopped");
    return true;
  }

  /** Ends the process; whether there was one. */
  async #end() {
    await this.#slate.close();
    if (!this.#running) return false;
    await stop(this.#running.child);
    this.#running = undefined;
    return true;
  }

  /** Nothing is left on disk to clean up. */
  async cleanup() {}

  async [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
    if (this.#options.dispose.enabled ?? true) await this.stop(this.#options.dispose.cleanup);
  }

  fork(from, to, options) {
    return this.#slate.fork(from, to, options);
  }

  reset(database) {
    return this.#slate.reset(database);
  }

  snapshot(database, name, options) {
    return this.#slate.snapshot(database, name, options);
  }

  restore(database, name) {
    return this.#slate.restore(database, name);
  }

  dropSnapshot(database, name) {
    return this.#slate.dropSnapshot(database, name);
  }

  changes(database, since) {
    return this.#slate.changes(database, since);
  }

  assertChanges(database, since, expected) {
    return this.#slate.assertChanges(database, since, expected);
  }

  approveChanges(database, since, file) {
    return this.#slate.approveChanges(database, since, file);
  }

  clock(change) {
    return this.#slate.clock(change);
  }
}

/** Whether nobody listens on a port of the loopback address. */
function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}

/** A standalone server. */
class MongoMemoryServer extends VellumServer {
  #given;

  constructor(options = {}) {
    super(readServer(options), "new");
    this.#given = options;
  }

  /** The options that it was made with. */
  get opts() {
    return { ...this.#given };
  }

  /** A server that is running. */
  static async create(options) {
    const server = new MongoMemoryServer(options);
    await server.start();
    return server;
  }
}

/** A replica set of one member: transactions and change streams ask for one. */
class MongoMemoryReplSet extends VellumServer {
  #given;

  constructor(options = {}) {
    super(readReplSet(options), "init");
    this.#given = options;
  }

  /** The options of the set that it was made with. */
  get replSetOpts() {
    return { ...this.#given.replSet };
  }

  /** Those of its members. */
  get instanceOpts() {
    return [...(this.#given.instanceOpts ?? [])];
  }

  /** Those of the binary. */
  get binaryOpts() {
    return { ...this.#given.binary };
  }

  /** A set that is running. */
  static async create(options) {
    const server = new MongoMemoryReplSet(options);
    await server.start();
    return server;
  }

  /** The members that run: this one. */
  get servers() {
    return this.process ? [this] : [];
  }

  /** The set is ready in its first reply. */
  async waitUntilRunning() {
    await this.start();
  }
}

module.exports = { MongoMemoryServer, MongoMemoryReplSet, attach, default: MongoMemoryServer };
