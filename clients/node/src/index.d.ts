import type { ChildProcess } from "node:child_process";

export interface InstanceOptions {
  args?: string[];
  port?: number;
  ip?: string;
  dbName?: string;
  storageEngine?: string;
}

export interface ServerOptions {
  instance?: InstanceOptions;
  binary?: { systemBinary?: string };
}

export interface ReplSetOptions extends ServerOptions {
  replSet?: InstanceOptions & { name?: string; count?: 1 };
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

declare class VellumServer {
  constructor(options?: ServerOptions);
  readonly process: ChildProcess | undefined;
  start(): Promise<void>;
  stop(cleanup?: unknown): Promise<boolean>;
  cleanup(): Promise<void>;
  getUri(database?: string): string;
  fork(from: string, to: string, options?: { replace?: boolean }): Promise<unknown>;
  reset(database: string): Promise<unknown>;
  snapshot(database: string, name: string, options?: { replace?: boolean }): Promise<unknown>;
  restore(database: string, name: string): Promise<unknown>;
  dropSnapshot(database: string, name: string): Promise<unknown>;
  clock(change?: ClockChange): Promise<ClockState>;
}

export class MongoMemoryServer extends VellumServer {
  static create(options?: ServerOptions): Promise<MongoMemoryServer>;
  readonly instanceInfo: { uri: string; port: number; ip: string } | undefined;
}

export class MongoMemoryReplSet extends VellumServer {
  constructor(options?: ReplSetOptions);
  static create(options?: ReplSetOptions): Promise<MongoMemoryReplSet>;
  waitUntilRunning(): Promise<void>;
}
