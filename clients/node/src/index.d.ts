import type { ChildProcess, SpawnOptions } from "node:child_process";
import { EventEmitter } from "node:events";

export interface InstanceOptions {
  args?: string[];
  port?: number;
  /** Whether another port is taken where `port` is in use; true unless said. */
  portGeneration?: boolean;
  ip?: string;
  dbName?: string;
  /** A directory to keep documents in, which stays; without it they are in memory. */
  dbPath?: string;
  storageEngine?: "ephemeralForTest" | "wiredTiger" | "inMemory";
  /** Milliseconds, at least 1000; 30,000 unless said. */
  launchTimeout?: number;
  replSet?: string;
  /** Whether only users get in; who they are says the other `auth`. */
  auth?: boolean;
}

/** With it only users get in. */
export interface AuthOptions {
  /** True unless said, where there is an `auth`. */
  enable?: boolean;
  disable?: boolean;
  /** `mongodb-memory-server-root` unless said. */
  customRootName?: string;
  /** `rootuser` unless said. */
  customRootPwd?: string;
  extraUsers?: ExtraUser[];
  force?: false;
}

export interface ExtraUser {
  createUser: string;
  pwd: string;
  roles: (string | { role: string; db: string })[];
  /** `admin` unless said. */
  database?: string;
  customData?: Record<string, unknown>;
  mechanisms?: ("SCRAM-SHA-1" | "SCRAM-SHA-256")[];
  authenticationRestrictions?: { clientSource?: string[]; serverAddress?: string[] }[];
  digestPassword?: boolean;
}

export interface DisposeOptions {
  enabled?: boolean;
  cleanup?: CleanupOptions;
}

export interface CleanupOptions {
  doCleanup?: boolean;
  force?: boolean;
}

export interface BinaryOptions {
  systemBinary?: string;
  /** Nothing is downloaded: 8.x is what there is. */
  version?: string;
  checkMD5?: boolean;
  downloadDir?: string;
}

export interface ServerOptions {
  instance?: InstanceOptions;
  binary?: BinaryOptions;
  spawn?: Omit<SpawnOptions, "stdio" | "detached">;
  auth?: AuthOptions;
  dispose?: DisposeOptions;
}

export interface ReplSetOptions {
  replSet?: Omit<InstanceOptions, "replSet"> & {
    name?: string;
    count?: 1;
    configSettings?: {
      chainingAllowed?: boolean;
      heartbeatTimeoutSecs?: number;
      heartbeatIntervalMillis?: number;
      electionTimeoutMillis?: number;
      catchUpTimeoutMillis?: number;
    };
    auth?: AuthOptions;
    spawn?: ServerOptions["spawn"];
    dispose?: DisposeOptions;
  };
  instance?: InstanceOptions;
  instanceOpts?: [] | [InstanceOptions];
  binary?: BinaryOptions;
}

export interface InstanceInfo {
  uri: string;
  ip: string;
  port: number;
  dbName: string;
  dbPath?: string;
  storageEngine: string;
  replSet?: string;
}

export interface ClockChange {
  set?: Date;
  /** Milliseconds, also negative. */
  advance?: number;
  freeze?: boolean;
  follow?: boolean;
  sweepTTL?: boolean;
}

export interface ClockState {
  now: Date;
  frozen: boolean;
  ttlDeleted?: number;
}

/** A difference, in the form of a change stream's event. */
export interface Change {
  operationType:
    | "insert" | "update" | "replace" | "delete"
    | "create" | "drop" | "modify" | "createIndexes" | "dropIndexes";
  ns: { db: string; coll: string };
  documentKey?: { _id: unknown };
  fullDocument?: Record<string, unknown>;
  updateDescription?: {
    updatedFields: Record<string, unknown>;
    removedFields: string[];
    truncatedArrays: { field: string; newSize: number }[];
  };
  operationDescription?: Record<string, unknown>;
  stateBeforeChange?: Record<string, unknown>;
}

/** A change as tests expect it: the database is known. */
export type ExpectedChange = Omit<Change, "ns"> & { ns: { db?: string; coll: string } };

/** A snapshot's name, or the database that this one was forked from. */
export type Since = string | { since: string } | { origin: string };

export interface CleanSlate {
  fork(from: string, to: string, options?: { replace?: boolean }): Promise<unknown>;
  reset(database: string): Promise<unknown>;
  snapshot(database: string, name: string, options?: { replace?: boolean }): Promise<unknown>;
  restore(database: string, name: string): Promise<unknown>;
  dropSnapshot(database: string, name: string): Promise<unknown>;
  changes(database: string, since: Since): Promise<Change[]>;
  assertChanges(database: string, since: Since, expected: ExpectedChange[]): Promise<void>;
  /** The file is written where there is none (but not in CI), and where VELLUM_APPROVE is set. */
  approveChanges(database: string, since: Since, file: string | URL): Promise<void>;
  clock(change?: ClockChange): Promise<ClockState>;
}

/** The clean slates of a server that somebody else has started; MONGO_URL's unless said. */
export function attach(uri?: string): CleanSlate & { close(): Promise<void> };

declare class VellumServer extends EventEmitter implements CleanSlate {
  readonly process: ChildProcess | undefined;
  /** A server alone: new, starting, running, stopped; a replica set: init, running, stopped. */
  readonly state: "new" | "init" | "starting" | "running" | "stopped";
  readonly instanceInfo: InstanceInfo | undefined;
  /** The first user, where only users get in. */
  readonly auth: Required<Pick<AuthOptions, "enable" | "customRootName" | "customRootPwd">> | undefined;
  start(forceSamePort?: boolean): Promise<void>;
  stop(cleanup?: CleanupOptions): Promise<boolean>;
  cleanup(options?: CleanupOptions): Promise<void>;
  ensureInstance(): Promise<InstanceInfo>;
  getUri(database?: string, otherIp?: string): string;
  fork(from: string, to: string, options?: { replace?: boolean }): Promise<unknown>;
  reset(database: string): Promise<unknown>;
  snapshot(database: string, name: string, options?: { replace?: boolean }): Promise<unknown>;
  restore(database: string, name: string): Promise<unknown>;
  dropSnapshot(database: string, name: string): Promise<unknown>;
  changes(database: string, since: Since): Promise<Change[]>;
  assertChanges(database: string, since: Since, expected: ExpectedChange[]): Promise<void>;
  /** The file is written where there is none (but not in CI), and where VELLUM_APPROVE is set. */
  approveChanges(database: string, since: Since, file: string | URL): Promise<void>;
  clock(change?: ClockChange): Promise<ClockState>;
}

export class MongoMemoryServer extends VellumServer {
  constructor(options?: ServerOptions);
  /** The options that it was made with. */
  readonly opts: ServerOptions;
  static create(options?: ServerOptions): Promise<MongoMemoryServer>;
}

export class MongoMemoryReplSet extends VellumServer {
  constructor(options?: ReplSetOptions);
  static create(options?: ReplSetOptions): Promise<MongoMemoryReplSet>;
  readonly servers: VellumServer[];
  /** The options that it was made with: the set's, its members', the binary's. */
  readonly replSetOpts: NonNullable<ReplSetOptions["replSet"]>;
  readonly instanceOpts: InstanceOptions[];
  readonly binaryOpts: BinaryOptions;
  waitUntilRunning(): Promise<void>;
}

export default MongoMemoryServer;
