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

/** The first user's name and password, unless others are given: mongodb-memory-server's own. */
const ROOT = { user: "mongodb-memory-server-root", password: "rootuser" };

/** `auth`, as the first user and those to make besides; undefined where nobody has to log in. */
function readAuth(where, auth) {
  check(where, auth ?? {}, ["enable", "disable", "customRootName", "customRootPwd", "extraUsers", "force"], {
    keyfileContent: "there is no other member to show a key to",
  });
  if (auth?.force) throw new Error(`${where}force is not supported by @vellum/memory-server: the first user is made with new data`);
  if (!auth || auth.disable || !(auth.enable ?? true)) return undefined;
  const { customRootName = ROOT.user, customRootPwd = ROOT.password, extraUsers = [] } = auth;
  return { user: customRootName, password: customRootPwd, extraUsers: extraUsers.map(readUser) };
}

/** What `createUser` is to be sent, and where. */
function readUser({ createUser, pwd, roles, database = "admin", customData, mechanisms, authenticationRestrictions, digestPassword, ...rest }) {
  check("auth.extraUsers.", rest, []);
  const given = { createUser, pwd, roles, customData, mechanisms, authenticationRestrictions, digestPassword };
  const command = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return { command, database };
}

function checkBinary(binary) {
  // Nothing is downloaded, so whatever is said of downloads holds.
  check("binary.", binary, ["systemBinary", "version", "checkMD5", "downloadDir"], {
    arch: "the program is this platform's", os: "the program is this platform's", platform: "the program is this platform's",
  });
  if (binary.version !== undefined && !/^v?8(\.|$)|^latest$/.test(binary.version)) {
    throw new Error(`binary.version ${binary.version} is not supported by @vellum/memory-server: it follows MongoDB 8.2`);
  }
}

const ENGINES = [undefined, "ephemeralForTest", "wiredTiger", "inMemory"];

/** One server's options, told apart. */
function readInstance(where, instance) {
  check(where, instance, ["args", "port", "ip", "dbName", "dbPath", "storageEngine", "launchTimeout", "portGeneration", "replSet", "auth"], {
    replicaMemberConfig: "a set has one member, the primary", keyfileLocation: "there is no other member to show a key to",
  });
  // The other `auth` makes users; this one only has the server ask for them.
  const asks = Boolean(instance.auth) && !(instance.args ?? []).includes("--auth");
  if (!ENGINES.includes(instance.storageEngine)) {
    throw new Error(`${where}storageEngine ${instance.storageEngine} is not supported by @vellum/memory-server`);
  }
  const { args = [], port, ip, dbName = "", dbPath, storageEngine, launchTimeout, portGeneration = true, replSet } = instance;
  const onDisk = dbPath !== undefined && [undefined, "wiredTiger"].includes(storageEngine);
  return {
    args: [
      ...args,
      ...(asks ? ["--auth"] : []),
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
  checkBinary(binary);
  return { ...readInstance("instance.", instance), auth: readAuth("auth.", auth), binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose) };
}

/** The options of MongoMemoryReplSet. */
function readReplSet({ replSet = {}, binary = {}, instanceOpts = [], instance = {}, ...rest }) {
  check("", rest, []);
  checkBinary(binary);
  const { name = "testset", count = 1, configSettings = {}, auth, spawn = {}, dispose = {}, args = [], ...more } = replSet;
  check("replSet.", more, ["ip", "dbName", "storageEngine", "port", "dbPath", "launchTimeout"]);
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
    ...readInstance("instanceOpts.", { ...member, replSet: name }), auth: readAuth("replSet.auth.", auth),
    binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose),
  };
}

module.exports = { readReplSet, readServer };
