import type { ChildProcess, SpawnOptions } from "node:child_process";
import { EventEmitter } from "node:events";

export interface InstanceOptions {
  args?: string[];
  port?: number;
  /** Uses another port if `port` is in use; true by default. */
  portGeneration?: boolean;
  ip?: string;
  dbName?: string;
  /** Directory for documents, which is kept. Without it, documents are in memory. */
  dbPath?: string;
  storageEngine?: "ephemeralForTest" | "wiredTiger" | "inMemory";
  /** Milliseconds, at least 1000; 30,000 by default. */
  launchTimeout?: number;
  replSet?: string;
  /** Enables access control. The other `auth` option defines the users. */
  auth?: boolean;
}

/** Enables access control. */
export interface AuthOptions {
  /** True by default, if `auth` is given. */
  enable?: boolean;
  disable?: boolean;
  /** `mongodb-memory-server-root` by default. */
  customRootName?: string;
  /** `rootuser` by default. */
  customRootPwd?: string;
  extraUsers?: ExtraUser[];
  force?: false;
}

export interface ExtraUser {
  createUser: string;
  pwd: string;
  roles: (string | { role: string; db: string })[];
  /** `admin` by default. */
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
  /** Nothing is downloaded: only 8.x is available. */
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
  /** Milliseconds; may be negative. */
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

/** A difference, in the form of a change event. */
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

/** A change as expected by tests: the database is implied. */
export type ExpectedChange = Omit<Change, "ns"> & { ns: { db?: string; coll: string } };

/** The name of a snapshot, or the database of origin of this fork. */
export type Since = string | { since: string } | { origin: string };

export interface CleanSlate {
  fork(from: string, to: string, options?: { replace?: boolean }): Promise<unknown>;
  reset(database: string): Promise<unknown>;
  snapshot(database: string, name: string, options?: { replace?: boolean }): Promise<unknown>;
  restore(database: string, name: string): Promise<unknown>;
  dropSnapshot(database: string, name: string): Promise<unknown>;
  changes(database: string, since: Since): Promise<Change[]>;
  assertChanges(database: string, since: Since, expected: ExpectedChange[]): Promise<void>;
  /** Writes the file if it is missing (except in CI), or if VELLUM_APPROVE is set. */
  approveChanges(database: string, since: Since, file: string | URL): Promise<void>;
  clock(change?: ClockChange): Promise<ClockState>;
}

/** Returns the clean-slate commands of a running server; MONGO_URL by default. */
export function attach(uri?: string): CleanSlate & { close(): Promise<void> };

declare class VellumServer extends EventEmitter implements CleanSlate {
  readonly process: ChildProcess | undefined;
  /** States of a server: new, starting, running, stopped; of a replica set: init, running, stopped. */
  readonly state: "new" | "init" | "starting" | "running" | "stopped";
  readonly instanceInfo: InstanceInfo | undefined;
  /** The first user, with access control. */
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
  /** Writes the file if it is missing (except in CI), or if VELLUM_APPROVE is set. */
  approveChanges(database: string, since: Since, file: string | URL): Promise<void>;
  clock(change?: ClockChange): Promise<ClockState>;
}

export class MongoMemoryServer extends VellumServer {
  constructor(options?: ServerOptions);
  /** Options given to the constructor. */
  readonly opts: ServerOptions;
  static create(options?: ServerOptions): Promise<MongoMemoryServer>;
}

export class MongoMemoryReplSet extends VellumServer {
  constructor(options?: ReplSetOptions);
  static create(options?: ReplSetOptions): Promise<MongoMemoryReplSet>;
  readonly servers: VellumServer[];
  /** Options given to the constructor: of the set, its members and the binary. */
  readonly replSetOpts: NonNullable<ReplSetOptions["replSet"]>;
  readonly instanceOpts: InstanceOptions[];
  readonly binaryOpts: BinaryOptions;
  waitUntilRunning(): Promise<void>;
}

export default MongoMemoryServer;
