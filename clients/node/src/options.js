// The options of mongodb-memory-server. Each is supported or refused by name: no option is ignored silently.
"use strict";

const LAUNCH_MILLIS = 30_000;
const LAUNCH_MILLIS_MIN = 1_000;

/** Refuses options other than `supported`. `prefix` and the reason, if one is known, are parts of the error. */
function check(prefix, options, supported, reasons = {}) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || supported.includes(name)) continue;
    const reason = reasons[name] ? `: ${reasons[name]}` : "";
    throw new Error(`${prefix}${name} is not supported by @vellum/memory-server${reason}`);
  }
}

/** Default name and password of the first user, as in mongodb-memory-server. */
const ROOT = { user: "mongodb-memory-server-root", password: "rootuser" };

/** Parses `auth` into the first user and further users; undefined without access control. */
function readAuth(prefix, auth) {
  check(prefix, auth ?? {}, ["enable", "disable", "customRootName", "customRootPwd", "extraUsers", "force"], {
    keyfileContent: "a replica set has one member, which needs no key file",
  });
  if (auth?.force) throw new Error(`${prefix}force is not supported by @vellum/memory-server: the first user is created only with new data`);
  if (!auth || auth.disable || !(auth.enable ?? true)) return undefined;
  const { customRootName = ROOT.user, customRootPwd = ROOT.password, extraUsers = [] } = auth;
  return { user: customRootName, password: customRootPwd, extraUsers: extraUsers.map(readUser) };
}

/** Returns the `createUser` commands and their databases. */
function readUser({ createUser, pwd, roles, database = "admin", customData, mechanisms, authenticationRestrictions, digestPassword, ...rest }) {
  check("auth.extraUsers.", rest, []);
  const fields = { createUser, pwd, roles, customData, mechanisms, authenticationRestrictions, digestPassword };
  const command = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return { command, database };
}

/** Checks the options of the program, and returns the argument for its version. */
function checkBinary(binary) {
  // Nothing is downloaded, so every download option is satisfied.
  check("binary.", binary, ["systemBinary", "version", "checkMD5", "downloadDir"], {
    arch: "the program is built for this platform", os: "the program is built for this platform", platform: "the program is built for this platform",
  });
  if (binary.version !== undefined && !/^v?[89](\.|$)|^latest$/.test(binary.version)) {
    throw new Error(`binary.version ${binary.version} is not supported by @vellum/memory-server: it follows MongoDB 8.2 or 9.0`);
  }
  return /^v?9(\.|$)/.test(binary.version ?? "") ? ["--compatible-with", "9.0"] : [];
}

const ENGINES = [undefined, "ephemeralForTest", "wiredTiger", "inMemory"];

/** Parses `instance` or a member of `instanceOpts` into the arguments of `launch`. */
function readInstance(prefix, instance) {
  check(prefix, instance, ["args", "port", "ip", "dbName", "dbPath", "storageEngine", "launchTimeout", "portGeneration", "replSet", "auth"], {
    replicaMemberConfig: "a set has one member, the primary", keyfileLocation: "a replica set has one member, which needs no key file",
  });
  // The other `auth` option creates users. This one only enables access control.
  const enablesAuth = Boolean(instance.auth) && !(instance.args ?? []).includes("--auth");
  if (!ENGINES.includes(instance.storageEngine)) {
    throw new Error(`${prefix}storageEngine ${instance.storageEngine} is not supported by @vellum/memory-server`);
  }
  const { args = [], port, ip, dbName = "", dbPath, storageEngine, launchTimeout, portGeneration = true, replSet } = instance;
  const onDisk = dbPath !== undefined && [undefined, "wiredTiger"].includes(storageEngine);
  return {
    args: [
      ...args,
      ...(enablesAuth ? ["--auth"] : []),
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
    stdio: "the package uses it to control the server", detached: "the server has its own process group",
  });
  return spawn;
}

function readDispose(dispose) {
  check("dispose.", dispose, ["enabled", "cleanup"]);
  return dispose;
}

/** Options of MongoMemoryServer. */
function readServer({ instance = {}, binary = {}, spawn = {}, auth, dispose = {}, ...rest }) {
  check("", rest, []);
  const withVersion = { ...instance, args: [...checkBinary(binary), ...(instance.args ?? [])] };
  return { ...readInstance("instance.", withVersion), auth: readAuth("auth.", auth), binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose) };
}

/** Options of MongoMemoryReplSet. */
function readReplSet({ replSet = {}, binary = {}, instanceOpts = [], instance = {}, ...rest }) {
  check("", rest, []);
  const versionArgs = checkBinary(binary);
  const { name = "testset", count = 1, configSettings = {}, auth, spawn = {}, dispose = {}, args = [], ...memberOptions } = replSet;
  check("replSet.", memberOptions, ["ip", "dbName", "storageEngine", "port", "dbPath", "launchTimeout"]);
  // These options configure elections. The only member is primary before any client connects.
  check("replSet.configSettings.", configSettings, [
    "chainingAllowed", "heartbeatTimeoutSecs", "heartbeatIntervalMillis", "electionTimeoutMillis", "catchUpTimeoutMillis",
  ]);
  if (count !== 1 || instanceOpts.length > 1) {
    throw new Error("a replica set of @vellum/memory-server has one member: replSet.count must be 1");
  }
  const member = { ...instance, ...memberOptions, ...instanceOpts[0] };
  member.args = [...versionArgs, ...args, ...(instance.args ?? []), ...(instanceOpts[0]?.args ?? [])];
  return {
    ...readInstance("instanceOpts.", { ...member, replSet: name }), auth: readAuth("replSet.auth.", auth),
    binary: binary.systemBinary, spawn: readSpawn(spawn), dispose: readDispose(dispose),
  };
}

module.exports = { readReplSet, readServer };
