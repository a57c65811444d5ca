// The classes of mongodb-memory-server, with additional methods of this server: fork, reset, snapshot,
// restore.
"use strict";

const { EventEmitter } = require("node:events");
const net = require("node:net");
const { launch, stop } = require("./launch");
const { readReplSet, readServer } = require("./options");
const { CleanSlate, attach } = require("./slate");

/** Common parts of both kinds of servers. */
class VellumServer extends EventEmitter {
  #options;
  #running;
  #starting;
  #slate = new CleanSlate(() => this.#adminUri());
  #state;

  constructor(options, state) {
    super();
    this.#options = options;
    this.#state = state;
  }

  /** State of the server. Changes emit the event `stateChange`. */
  get state() {
    return this.#state;
  }

  #setState(state) {
    this.#state = state;
    this.emit("stateChange", state);
  }

  /**
   * Starts the server, unless it runs already or another call is starting it. `forceSamePort` allows only the requested
   * port.
   */
  start(forceSamePort = false) {
    this.#starting ??= this.#start(forceSamePort).finally(() => (this.#starting = undefined));
    return this.#starting;
  }

  async #start(forceSamePort) {
    if (this.#running) return;
    const previous = this.#state;
    if (previous !== "init") this.#setState("starting");
    try {
      const options = this.#options;
      const mayChange = options.portGeneration && !forceSamePort;
      const port = options.port && mayChange && !(await isFree(options.port)) ? 0 : options.port ?? 0;
      this.#running = await launch({ ...options, port });
      await this.#createUsers();
      this.#setState("running");
    } catch (error) {
      await this.#end();
      if (previous !== "init") this.#setState(previous);
      throw error;
    }
  }

  /** Further users given by `auth`. */
  async #createUsers() {
    for (const { command, database } of this.#options.auth?.extraUsers ?? []) {
      await this.#slate.run(command, database);
    }
  }

  /** Connection for the server's own commands: with the first user, and TLS as configured for the started server. */
  #adminUri() {
    const { auth } = this.#options;
    const uri = this.getUri();
    const login = auth ? `${encodeURIComponent(auth.user)}:${encodeURIComponent(auth.password)}@` : "";
    const trust = /[?&]tls=true/.test(uri) ? "&tlsAllowInvalidCertificates=true" : "";
    return uri.replace("://", `://${login}`) + trust;
  }

  /** The first user with access control, otherwise undefined. */
  get auth() {
    const { auth } = this.#options;
    return auth && { enable: true, customRootName: auth.user, customRootPwd: auth.password };
  }

  /** Process of the server, undefined while it does not run. */
  get process() {
    return this.#running?.child;
  }

  /** Information about the running server. */
  get instanceInfo() {
    if (!this.#running) return undefined;
    const { hostname, port } = new URL(this.#running.uri);
    const { dbName, dbPath, storageEngine, replSet } = this.#options;
    return { uri: this.getUri(), ip: hostname, port: Number(port), dbName, dbPath, storageEngine, replSet };
  }

  /** Information about the server, which is started if it does not run. */
  async ensureInstance() {
    await this.start();
    return this.instanceInfo;
  }

  /** Connection string, optionally with a database name, and with another address for the same port. */
  getUri(database = "", otherIp = undefined) {
    if (!this.#running) throw new Error("the server is not running: await start() first");
    const [, address, query] = /^mongodb:\/\/([^/]+)\/(.*)$/.exec(this.#running.uri);
    const host = otherIp ? `${otherIp}:${address.slice(address.lastIndexOf(":") + 1)}` : address;
    return `mongodb://${host}/${database}${query}`;
  }

  /**
   * Stops the server. Data in memory is gone. Data in `dbPath` stays, because the directory belongs to the
   * caller.
   */
  async stop(cleanup = {}) {
    if (cleanup?.force && this.#options.dbPath) {
      throw new Error("cleanup.force is not supported by @vellum/memory-server: delete dbPath yourself");
    }
    await this.#starting?.catch(() => {});
    if (!(await this.#end())) return false;
    this.#setState("stopped");
    return true;
  }

  /** Ends the process. Returns true if it was running. */
  async #end() {
    await this.#slate.close();
    if (!this.#running) return false;
    await stop(this.#running.child);
    this.#running = undefined;
    return true;
  }

  /** Does nothing: no files are left to clean up. */
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

/** Returns true if a port of the loopback address is free. */
function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}

/** A standalone server. */
class MongoMemoryServer extends VellumServer {
  #userOptions;

  constructor(options = {}) {
    super(readServer(options), "new");
    this.#userOptions = options;
  }

  /** Options given to the constructor. */
  get opts() {
    return { ...this.#userOptions };
  }

  /** Creates and starts a server. */
  static async create(options) {
    const server = new MongoMemoryServer(options);
    await server.start();
    return server;
  }
}

/** A replica set of one member, as required by transactions and change streams. */
class MongoMemoryReplSet extends VellumServer {
  #userOptions;

  constructor(options = {}) {
    super(readReplSet(options), "init");
    this.#userOptions = options;
  }

  /** Replica set options given to the constructor. */
  get replSetOpts() {
    return { ...this.#userOptions.replSet };
  }

  /** Member options given to the constructor. */
  get instanceOpts() {
    return [...(this.#userOptions.instanceOpts ?? [])];
  }

  /** Binary options given to the constructor. */
  get binaryOpts() {
    return { ...this.#userOptions.binary };
  }

  /** Creates and starts a set. */
  static async create(options) {
    const server = new MongoMemoryReplSet(options);
    await server.start();
    return server;
  }

  /** The running members: always one. */
  get servers() {
    return this.process ? [this] : [];
  }

  /** Waits for the set, which is ready in its first reply. */
  async waitUntilRunning() {
    await this.start();
  }
}

module.exports = { MongoMemoryServer, MongoMemoryReplSet, attach, default: MongoMemoryServer };
