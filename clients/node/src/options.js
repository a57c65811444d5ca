// The options of mongodb-memory-server, each taken or refused by name: nothing that somebody asks for is passed over.
"use strict";

const LAUNCH_MILLIS = 30_000;
const LAUNCH_MILLIS_MIN = 1_000;

/** Refuses names that nobody knows, and those that are known not to be here. */
function check(where, given, known, refused = {}) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || known.includes(name)) continue;
    const why = refused[name] ? `: ${refused[name]}` : "";
    throw new Error(`${where}${name} is not supported by @vellum/memory-server${why}`);
  }
}

const NO_USERS = "there are no users yet";

/** `auth`, which may say that it isn't wanted. */
function checkAuth(where, auth) {
  if (auth?.enable === true) throw new Error(`${where}auth is not supported by @vellum/memory-server: ${NO_USERS}`);
}

function checkBinary(binary) {
  // Nothing is downloaded, so whatever is said of downloads holds.
  check("binary.", binary, ["systemBinary", "version", "checkMD5", "downloadDir"], {
    arch: "the program is this platform's", os: "the program is this platform's", platform: "the program is this platform's",
  });
  if (binary.version !== undefined && !/^v?8(\.|$)|^latest$/.test(binary.version)) {
    throw new Error(`binary.version ${binary.version} is not supported by @vellum/memory-server: it follows MongoDB 8.0`);
  }
}

const ENGINES = [undefined, "ephemeralForTest", "wiredTiger", "inMemory"];

/** One server's options, told apart. */
function readInstance(where, instance) {
  check(where, instance, ["args", "port", "ip", "dbName", "dbPath", "storageEngine", "launchTimeout", "portGeneration", "replSet", "auth"], {
    replicaMemberConfig: "a set has one member, the primary", keyfileLocation: NO_USERS,
  });
  if (instance.auth) throw new Error(`${where}auth is not supported by @vellum/memory-server: ${NO_USERS}`);
  if (!ENGINES.includes(instance.storageEngine)) {
    throw new Error(`${where}storageEngine ${instance.storageEngine} is not supported by @vellum/memory-server`);
  }
  const { args = [], port, ip, dbName = "", dbPath, storageEngine, launchTimeout, portGeneration = true, replSet } = instance;
  const onDisk = dbPath !== undefined && [undefined, "wiredTiger"].includes(storageEngine);
  return {
    args: [
      ...args,
      ...(ip ? ["--bind", ip] : []),
      ...(onDisk ? ["--data", dbPath] : []),
      ...(replSet ? ["--replset", replSet] : []),
    ],
    port, dbName, dbPath: onDisk ? dbPath : undefined, portGeneration, replSet,
    storageEngine: onDisk ? "wiredTiger" : "ephemeralForTest",
    timeout: launchTimeout >= LAUNCH_MILLIS_MIN ? launchTimeout : LAUNCH_MILLIS,
  };
}

function readSpawn(spawn) {
  check("spawn.", Object.fromEntries(["stdio", "detached"].map((name) => [name, spawn[name]])), [], {
    stdio: "the server is spoken to through it", detached: "the server is in a group of its own",
  });
  return spawn;
}

function readDispose(dispose) {
  check("dispose.", dispose, ["enabled", "cleanup"]);
  return dispose;
}

/** The options of MongoMemoryServer. */
function readServer({ instance = {}, binary = {}, spawn = {}, auth, dispose = {}, ...rest }) {
  check("", rest, []);
  checkAuth("", auth);
  checkBinary(binary);
  return { ...readInstance("instance.", instance), binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose) };
}

/** The options of MongoMemoryReplSet. */
function readReplSet({ replSet = {}, binary = {}, instanceOpts = [], instance = {}, ...rest }) {
  check("", rest, []);
  checkBinary(binary);
  const { name = "testset", count = 1, configSettings = {}, auth, spawn = {}, dispose = {}, args = [], ...more } = replSet;
  check("replSet.", more, ["ip", "dbName", "storageEngine", "port", "dbPath", "launchTimeout"]);
  checkAuth("replSet.", auth);
  // What they settle between members: there is one, elected before anybody can ask.
  check("replSet.configSettings.", configSettings, [
    "chainingAllowed", "heartbeatTimeoutSecs", "heartbeatIntervalMillis", "electionTimeoutMillis", "catchUpTimeoutMillis",
  ]);
  if (count !== 1 || instanceOpts.length > 1) {
    throw new Error("a replica set of @vellum/memory-server has one member: replSet.count must be 1");
  }
  const member = { ...instance, ...more, ...instanceOpts[0] };
  member.args = [...args, ...(instance.args ?? []), ...(instanceOpts[0]?.args ?? [])];
  return {
    ...readInstance("instanceOpts.", { ...member, replSet: name }),
    binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose),
  };
}

module.exports = { readReplSet, readServer };
