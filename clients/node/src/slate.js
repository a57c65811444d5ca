// What only this server can do: databases copied, kept and emptied by reference, and a clock to set.
"use strict";

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

  /** Runs any command. */
  async run(command, database) {
    this.#connection ??= new Connection(typeof this.#uri === "function" ? this.#uri() : this.#uri);
    return this.#connection.command(command, database);
  }
}

/** The clean slates of a server that somebody else has started: Jest's globalSetup, say, which tells MONGO_URL. */
function attach(uri = process.env.MONGO_URL) {
  if (!uri) throw new Error("attach(uri) needs a connection string, or the variable MONGO_URL that the set-up files set");
  return new CleanSlate(uri);
}

module.exports = { CleanSlate, attach };
