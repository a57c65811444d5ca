// Functions of this server only: copy-on-write copies, snapshots and resets of databases, and a settable
// clock.
"use strict";

const { deserialize, serialize } = require("bson");
const { approve, assertSame } = require("./approval");
const { Connection } = require("./wire");

/** Clean-slate commands for a running server. */
class CleanSlate {
  #uri;
  #connection;

  /** `uri`: the connection string, or a function that returns it. */
  constructor(uri) {
    this.#uri = uri;
  }

  /** Forks a database to `to` (copy-on-write). */
  fork(from, to, { replace = false } = {}) {
    return this.#run({ forkDatabase: from, to, replace });
  }

  /** Empties every collection; collections, indexes and validators stay. */
  reset(database) {
    return this.#run({ resetDatabase: database });
  }

  /** Saves a database's state under a name. */
  snapshot(database, name, { replace = false } = {}) {
    return this.#run({ snapshotDatabase: database, name, replace });
  }

  /** Restores a database from a snapshot, which stays. */
  restore(database, name) {
    return this.#run({ restoreDatabase: database, name });
  }

  /** Removes a snapshot. */
  dropSnapshot(database, name) {
    return this.#run({ dropSnapshot: database, name });
  }

  /**
   * Returns the changes since a snapshot, or with `{ origin }` since the fork from it, in the form of change
   * events.
   */
  async changes(database, since) {
    // As in a driver: all numeric types become numbers.
    return (await this.#changes(database, since)).map((event) => deserialize(serialize(event)));
  }

  /** Throws unless the changes are exactly these. `ns` of the events needs no `db`. Types count: `Long`, `Double`. */
  async assertChanges(database, since, expected) {
    assertSame(await this.#changes(database, since), expected);
  }

  /** Compares the changes with an approval file. The first run writes it, and runs with VELLUM_APPROVE=1. */
  async approveChanges(database, since, file) {
    approve(await this.#changes(database, since), file);
  }

  /** Returns the changes with their exact types. */
  async #changes(database, since) {
    const base = typeof since === "string" ? { since } : since;
    const exact = { promoteValues: false };
    let { cursor } = await this.run({ diffDatabase: database, ...base, cursor: {} }, "admin", exact);
    const changes = cursor.firstBatch;
    const [cursorDatabase, ...collection] = cursor.ns.split(".");
    while (!cursor.id.isZero()) {
      ({ cursor } = await this.run({ getMore: cursor.id, collection: collection.join(".") }, cursorDatabase, exact));
      changes.push(...cursor.nextBatch);
    }
    return changes;
  }

  /** Sets the server's clock: `{ set: Date, advance: milliseconds, freeze, follow, sweepTTL }`. */
  clock(change = {}) {
    return this.#run({ vellumClock: 1, ...change });
  }

  /** Closes the connection. The server keeps running. */
  async close() {
    this.#connection?.close();
    this.#connection = undefined;
  }

  #run(command) {
    return this.run(command, "admin");
  }

  /** Runs any command. `bsonOptions`: options of bson's `deserialize` for the reply. */
  async run(command, database, bsonOptions) {
    this.#connection ??= new Connection(typeof this.#uri === "function" ? this.#uri() : this.#uri);
    return this.#connection.command(command, database, bsonOptions);
  }
}

/**
 * Returns the clean-slate commands of a running server: by default of the server in MONGO_URL, which Jest's
 * globalSetup starts.
 */
function attach(uri = process.env.MONGO_URL) {
  if (!uri) throw new Error("attach(uri) needs a connection string, or the variable MONGO_URL that the set-up files set");
  return new CleanSlate(uri);
}

module.exports = { CleanSlate, attach };
