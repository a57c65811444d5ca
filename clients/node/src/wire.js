// Commands to a server without a driver. MongoDB's driver causes problems in Jest, which loads its classes
// twice and compares them. Its version is also the choice of the user.
"use strict";

const net = require("node:net");
const tls = require("node:tls");
const { deserialize, serialize } = require("bson");
const { logIn } = require("./scram");
const { parse } = require("./uri");

const OP_MSG = 2013;
/** Header, flags and the kind byte of the section. */
const PREFIX = 21;
const MESSAGE_MAX = 48_000_000;
/** Connect timeout. */
const CONNECT_MS = 4000;

/** Error of a command in the form of MongoDB's driver. */
class CommandError extends Error {
  constructor(reply) {
    super(reply.errmsg);
    this.name = "CommandError";
    this.code = Number(reply.code);
    this.codeName = reply.codeName;
  }
}

/** A connection that sends commands one after another. An idle connection does not keep the process alive. */
class Connection {
  #target;
  #socket;
  #buffer = Buffer.alloc(0);
  #pending;
  #lastCommand = Promise.resolve();

  constructor(uri) {
    this.#target = parse(uri);
  }

  /**
   * Runs a command on `admin` or another database. `bsonOptions`: options of bson's `deserialize` for the reply.
   * Errors: CommandError, socket errors.
   */
  command(command, database = "admin", bsonOptions = {}) {
    const reply = this.#lastCommand.then(async () => {
      if (!this.#socket) {
        this.#socket = this.#open();
        if (this.#target.login) await this.#logIn();
      }
      return this.#send({ ...command, $db: database }, bsonOptions);
    });
    this.#lastCommand = reply.catch(() => {});
    return reply;
  }

  async #logIn() {
    try {
      await logIn(this.#target.login, (command, source) => this.#send({ ...command, $db: source }));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Closes the connection. A later command opens another one. */
  close() {
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #send(command, bsonOptions) {
    const body = serialize(command);
    const message = Buffer.alloc(PREFIX + body.length);
    message.writeInt32LE(message.length, 0);
    message.writeInt32LE(OP_MSG, 12);
    message.set(body, PREFIX);
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject, bsonOptions };
      if (!this.#socket) {
        this.#settle("reject", new Error("the server has closed the connection"));
        return;
      }
      this.#socket.ref();
      this.#socket.write(message);
    });
  }

  #open() {
    this.#buffer = Buffer.alloc(0);
    const { address, tls: tlsOptions } = this.#target;
    // An IP address is not valid as a TLS server name.
    const servername = net.isIP(address.host) ? "" : address.host;
    const socket = tlsOptions ? tls.connect({ servername, ...address, ...tlsOptions }) : net.connect(address);
    const { host = "127.0.0.1", port, path } = address;
    const timer = setTimeout(() => {
      socket.destroy(new Error(`no server responds at ${path ?? `${host}:${port}`}`));
    }, CONNECT_MS);
    timer.unref();
    socket.once("connect", () => clearTimeout(timer));
    const onEnd = (error) => {
      clearTimeout(timer);
      if (this.#socket === socket) this.#socket = undefined;
      this.#settle("reject", error ?? new Error("the server has closed the connection"));
    };
    socket.on("data", (data) => this.#receive(data));
    socket.on("error", onEnd);
    socket.on("close", () => onEnd());
    return socket;
  }

  #receive(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    if (this.#buffer.length < 4) return;
    const length = this.#buffer.readInt32LE(0);
    if (length < PREFIX || length > MESSAGE_MAX) {
      this.#socket?.destroy(new Error("the server does not use MongoDB's protocol"));
      return;
    }
    if (this.#buffer.length < length) return;
    const reply = deserialize(this.#buffer.subarray(PREFIX, length), this.#pending?.bsonOptions);
    this.#buffer = this.#buffer.subarray(length);
    this.#socket?.unref();
    // The value may be a Double.
    if (Number(reply.ok) === 1) this.#settle("resolve", reply);
    else this.#settle("reject", new CommandError(reply));
  }

  /** Ends the pending command: `outcome` is "resolve" or "reject". */
  #settle(outcome, value) {
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.[outcome](value);
  }
}

module.exports = { Connection };
