// The server as used by mongodb-memory-server's users, failed starts, and killed processes.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { test } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { MongoClient } = require("mongodb");
const { MongoMemoryReplSet, MongoMemoryServer, attach } = require("../src/index.js");

async function responds(uri, serverSelectionTimeoutMS = 10_000) {
  const client = new MongoClient(uri, { serverSelectionTimeoutMS });
  try {
    await client.db("admin").command({ ping: 1 });
    return true;
  } catch {
    return false;
  } finally {
    await client.close();
  }
}

async function ends(uri) {
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; await sleep(50)) {
    if (!(await responds(uri, 300))) return true;
  }
  return false;
}

test("create, getUri, stop", async () => {
  const server = await MongoMemoryServer.create({ instance: { dbName: "mine" } });
  assert.match(server.getUri(), /^mongodb:\/\/127\.0\.0\.1:\d+\/$/);
  assert.match(server.getUri("mine"), /\/mine$/);
  assert.ok(await responds(server.getUri()));
  const uri = server.getUri();
  await server.stop({ doCleanup: true });
  assert.ok(await ends(uri));
  assert.throws(() => server.getUri(), /not running/);
});

test("a replica set is ready in its first reply", async () => {
  const set = await MongoMemoryReplSet.create({ replSet: { count: 1, name: "rs9" } });
  assert.match(set.getUri("mine"), /\/mine\?replicaSet=rs9$/);
  assert.ok(await responds(set.getUri()));
  await set.stop();
  assert.throws(() => new MongoMemoryReplSet({ replSet: { count: 3 } }), /one member/);
});

test("opts, replSetOpts, instanceOpts and binaryOpts return the options", () => {
  const server = new MongoMemoryServer({ instance: { dbName: "mine", port: 27999 } });
  assert.deepEqual(server.opts, { instance: { dbName: "mine", port: 27999 } });
  const options = { replSet: { name: "rs7" }, instanceOpts: [{ launchTimeout: 5000 }], binary: { version: "8.0.4" } };
  const set = new MongoMemoryReplSet(options);
  assert.deepEqual([set.replSetOpts, set.instanceOpts, set.binaryOpts], [options.replSet, options.instanceOpts, options.binary]);
  assert.deepEqual([new MongoMemoryReplSet().instanceOpts, new MongoMemoryReplSet().binaryOpts], [[], {}]);
});

test("unsupported options are refused by name", () => {
  for (const [options, part] of [
    [{ instance: { nonsense: 1 } }, /instance\.nonsense/],
    [{ instance: { storageEngine: "rocks" } }, /storageEngine rocks/],
    [{ auth: { force: true } }, /auth\.force is not supported/],
    [{ auth: { extraUsers: [{ createUser: "a", nonsense: 1 }] } }, /extraUsers\.nonsense/],
    [{ binary: { version: "6.0.4" } }, /binary\.version 6\.0\.4/],
    [{ binary: { arch: "arm64" } }, /binary\.arch/],
    [{ spawn: { stdio: "inherit" } }, /spawn\.stdio/],
    [{ nonsense: 1 }, /nonsense/],
  ]) assert.throws(() => new MongoMemoryServer(options), part);
  for (const [options, part] of [
    [{ replSet: { configSettings: { nonsense: 1 } } }, /configSettings\.nonsense/],
    [{ replSet: { auth: { keyfileContent: "x" } } }, /replSet\.auth\.keyfileContent/],
    [{ instanceOpts: [{ replicaMemberConfig: { priority: 0 } }] }, /replicaMemberConfig/],
    [{ instanceOpts: [{}, {}] }, /one member/],
  ]) assert.throws(() => new MongoMemoryReplSet(options), part);
});

test("the options of mongodb-memory-server have their effect", async (context) => {
  const dbPath = fs.mkdtempSync(path.join(os.tmpdir(), "vellum-dbpath-"));
  context.after(() => fs.rmSync(dbPath, { recursive: true }));
  const options = {
    instance: { dbPath, dbName: "mine", launchTimeout: 20_000 },
    binary: { version: "8.0.4", checkMD5: false }, spawn: { cwd: dbPath }, auth: { enable: false }, dispose: { enabled: false },
  };
  for (const expected of [0, 1]) {
    const server = new MongoMemoryServer(options);
    const states = [];
    server.on("stateChange", (state) => states.push(state));
    assert.equal(server.state, "new");
    const info = await server.ensureInstance();
    assert.deepEqual([info.dbPath, info.dbName, info.ip, info.storageEngine], [dbPath, "mine", "127.0.0.1", "wiredTiger"]);
    const client = await MongoClient.connect(server.getUri());
    assert.equal(await client.db("mine").collection("c").countDocuments(), expected);
    await client.db("mine").collection("c").insertOne({});
    await client.close();
    assert.equal(await server.stop(), true);
    assert.deepEqual(states, ["starting", "running", "stopped"]);
  }
  const configSettings = { electionTimeoutMillis: 500 };
  const set = await MongoMemoryReplSet.create({ replSet: { configSettings }, instanceOpts: [{ launchTimeout: 20_000 }] });
  assert.deepEqual([set.state, set.servers.length, set.getUri("a", "localhost").split(":")[1]], ["running", 1, "//localhost"]);
  await set.stop();
  assert.deepEqual([set.state, set.servers.length], ["stopped", 0]);
});

test("a port in use is replaced, unless portGeneration is false", async (context) => {
  const first = await MongoMemoryServer.create();
  context.after(() => first.stop());
  const { port } = first.instanceInfo;
  const second = await MongoMemoryServer.create({ instance: { port } });
  context.after(() => second.stop());
  assert.notEqual(second.instanceInfo.port, port);
  await assert.rejects(MongoMemoryServer.create({ instance: { port, portGeneration: false } }), /in use/);
});

test("clean-slate commands without the server's object", async (context) => {
  const server = await MongoMemoryServer.create();
  context.after(() => server.stop());
  const slate = attach(server.getUri());
  context.after(() => slate.close());
  const client = await MongoClient.connect(server.getUri());
  context.after(() => client.close());
  await client.db("template").collection("c").insertOne({});
  await slate.fork("template", "test");
  assert.equal(await client.db("test").collection("c").countDocuments(), 1);
  await slate.reset("test");
  assert.equal(await client.db("test").collection("c").countDocuments(), 0);
  assert.throws(() => attach(""), /MONGO_URL/);
});

test("a failed start rejects with the server's error", async () => {
  await assert.rejects(MongoMemoryServer.create({ instance: { args: ["--prot", "1"] } }), /--prot/);
  await assert.rejects(MongoMemoryServer.create({ binary: { systemBinary: "/nowhere/vellum" } }), /did not start.*VELLUM_BINARY/);
});

test("settings of another server in the environment have no effect", async (context) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "vellum-"));
  const data = path.join(folder, "data");
  const others = {
    MONGO_INITDB_ROOT_USERNAME: "root", MONGO_INITDB_ROOT_PASSWORD_FILE: "/nowhere", VELLUM_DATA: data, VELLUM_POSTGRES: "host=nowhere.invalid",
  };
  Object.assign(process.env, others);
  context.after(() => {
    for (const name of Object.keys(others)) delete process.env[name];
    fs.rmSync(folder, { recursive: true });
  });
  for (const options of [{}, { spawn: { env: { ...process.env } } }, { auth: { enable: true } }]) {
    const server = await MongoMemoryServer.create(options);
    context.after(() => server.stop());
    const auth = server.auth && { username: server.auth.customRootName, password: server.auth.customRootPwd };
    const client = await MongoClient.connect(server.getUri(), { auth });
    context.after(() => client.close());
    await client.db("test").collection("c").insertOne({});
  }
  assert.ok(!fs.existsSync(data));
});

test("concurrent starts start one server", async () => {
  const server = new MongoMemoryServer();
  const states = [];
  server.on("stateChange", (state) => states.push(state));
  await Promise.all([server.start(), server.ensureInstance(), server.start()]);
  assert.deepEqual(states, ["starting", "running"]);
  await server.stop();
  // A stop waits for the start.
  const starting = server.start();
  assert.ok(await server.stop());
  await starting;
  assert.deepEqual(states.slice(2), ["stopped", "starting", "running", "stopped"]);
});

test("the server ends with a killed parent", async () => {
  const index = path.join(__dirname, "../src/index.js");
  const code = `require(${JSON.stringify(index)}).MongoMemoryServer.create()
    .then((server) => { console.log(server.getUri()); setInterval(() => {}, 1000); });`;
  const holder = spawn(process.execPath, ["-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  const uri = await new Promise((resolve) => holder.stdout.once("data", (data) => resolve(String(data).trim())));
  assert.ok(await responds(uri));
  holder.kill("SIGKILL");
  assert.ok(await ends(uri));
});

test("fork, reset, snapshot, restore, clock", async (context) => {
  const server = await MongoMemoryServer.create();
  context.after(() => server.stop());
  const client = await MongoClient.connect(server.getUri());
  context.after(() => client.close());
  const count = (name) => client.db(name).collection("c").countDocuments();
  await client.db("a").collection("c").insertMany([{ at: new Date(0) }, { at: new Date(0) }]);
  await server.fork("a", "b");
  await assert.rejects(server.fork("a", "b"), { codeName: "NamespaceExists" });
  await server.snapshot("b", "ready");
  assert.equal((await server.reset("b")).n, 2);
  assert.deepEqual([await count("a"), await count("b")], [2, 0]);
  await server.restore("b", "ready");
  assert.equal(await count("b"), 2);
  await server.dropSnapshot("b", "ready");
  const noon = new Date("2026-01-31T12:00:00Z");
  assert.deepEqual((await server.clock({ freeze: true, set: noon })).now, noon);
});

test("the runners' set-up files start and stop one server", async () => {
  const vitest = await import("../setup/vitest.mjs");
  for (const [start, stop] of [
    [require("../setup/jest-setup.js"), require("../setup/jest-teardown.js")],
    [vitest.setup, vitest.teardown],
    [require("../setup/mocha.js").mochaGlobalSetup, require("../setup/mocha.js").mochaGlobalTeardown],
  ]) {
    await start();
    const uri = process.env.MONGO_URL;
    assert.ok(await responds(uri));
    await stop();
    assert.ok(await ends(uri));
  }
});

test("a server with users requires login", async (context) => {
  const extraUsers = [{ createUser: "app", pwd: "p@ss: ,=word", roles: ["readWrite"], database: "mine" }];
  const cases = [
    [MongoMemoryServer, (auth) => ({ auth })],
    [MongoMemoryReplSet, (auth) => ({ replSet: { auth } })],
  ];
  for (const [Server, options] of cases) {
    const server = await Server.create(options({ extraUsers }));
    context.after(() => server.stop());
    const connect = (username, password, authSource) =>
      MongoClient.connect(server.getUri(), username ? { auth: { username, password }, authSource } : {});
    const withoutLogin = await connect();
    await assert.rejects(withoutLogin.db("mine").collection("c").findOne(), /requires authentication/);
    await withoutLogin.close();
    const { customRootName, customRootPwd } = server.auth;
    assert.deepEqual([customRootName, customRootPwd], ["mongodb-memory-server-root", "rootuser"]);
    const root = await connect(customRootName, customRootPwd, "admin");
    await root.db("other").collection("c").insertOne({});
    await root.close();
    const app = await connect("app", extraUsers[0].pwd, "mine");
    await app.db("mine").collection("c").insertOne({});
    await server.reset("mine");
    assert.equal(await app.db("mine").collection("c").countDocuments(), 0);
    await app.close();
  }
  await assert.rejects(
    MongoMemoryServer.create({ auth: { extraUsers: [{ createUser: "a", pwd: "b", roles: ["nonsense"] }] } }), /nonsense/,
  );
});

test("TLS", async (context) => {
  const certificate = path.join(__dirname, "../../../crates/wire/tests/fixtures/plain.pem");
  const args = ["--tls-mode", "require", "--tls-certificate-key-file", certificate];
  const server = await MongoMemoryServer.create({ instance: { args } });
  context.after(() => server.stop());
  assert.match(server.getUri(), /tls=true/);
  const client = await MongoClient.connect(server.getUri(), { tlsCAFile: certificate });
  await client.db("mine").collection("c").insertOne({});
  await server.reset("mine");
  assert.equal(await client.db("mine").collection("c").countDocuments(), 0);
  await client.close();
  const slate = attach(`${server.getUri()}&tlsCAFile=${encodeURIComponent(certificate)}`);
  await slate.reset("mine");
  await slate.close();
  await assert.rejects(attach(server.getUri()).reset("mine"), /certificate/);
});
