// What only this server can do: databases copied, kept and emptied by reference, and a clock to set.
"use strict";

const { deserialize, serialize } = require("bson");
const { approve, assertSame } = require("./approval");
const { Connection } = require("./wire");

/** The commands of clean slates, to a server that is running. */
class CleanSlate {
  #uri;
  #connection;

  /** `uri`: the connection string, or a function that tells it. */
  constructor(uri) {
    this.#uri = uri;
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

  /**
   * What has changed since a snapshot, or with `{ origin }` since the fork from it: events like those of change streams.
   */
  async changes(database, since) {
    // As a driver shows them: numbers of any type as numbers.
    return (await this.#changes(database, since)).map((event) => deserialize(serialize(event)));
  }

  /** Fails unless exactly this has changed; the events' `ns` need no `db`. Types count: `Long`, `Double`. */
  async assertChanges(database, since, expected) {
    assertSame(await this.#changes(database, since), expected);
  }

  /** Compares what has changed with an approval file, which the first run writes, and VELLUM_APPROVE=1. */
  async approveChanges(database, since, file) {
    approve(await this.#changes(database, since), file);
  }

  /** Changes with their exact types. */
  async #changes(database, since) {
    const given = typeof since === "string" ? { since } : since;
    const exact = { promoteValues: false };
    let { cursor } = await this.run({ diffDatabase: database, ...given, cursor: {} }, "admin", exact);
    const changes = cursor.firstBatch;
    const [home, ...collection] = cursor.ns.split(".");
    while (!cursor.id.isZero()) {
      ({ cursor } = await this.run({ getMore: cursor.id, collection: collection.join(".") }, home, exact));
      changes.push(...cursor.nextBatch);
    }
    return changes;
  }

  /** Sets the server's clock: `{ set: Date, advance: milliseconds, freeze, follow, sweepTTL }`. */
  clock(change = {}) {
    return this.#run({ vellumClock: 1, ...change });
  }

  /** Closes the connection; the server goes on. */
  async close() {
    this.#connection?.close();
    this.#connection = undefined;
  }

  #run(command) {
    return this.run(command, "admin");
  }

  /** Runs any command; `how` its reply is read are options of bson's `deserialize`. */
  async run(command, database, how) {
    this.#connection ??= new Connection(typeof this.#uri === "function" ? this.#uri() : this.#uri);
    return this.#connection.command(command, database, how);
  }
}

/** The clean slates of a server that somebody else has started: Jest's globalSetup, say, which tells MONGO_URL. */
function attach(uri = process.env.MONGO_URL) {
  if (!uri) throw new Error("attach(uri) needs a connection string, or the variable MONGO_URL that the set-up files set");
  return new CleanSlate(uri);
}

module.exports = { CleanSlate, attach };
