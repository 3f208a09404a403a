// What the sessions of a simulated server share: schemas, locks, and the rules that each commit must obey.
import { DatabaseError } from 'pg';
import type { PostgresTarget } from '../../../src/store/postgres/connection-url.ts';
import type { MemoryTables } from '../memory-tables.ts';
import type { VirtualTime } from '../virtual-time.ts';
import type { ClusterTables } from './cluster-tables.ts';
import type { ServerCalls } from './remote-tables.ts';

export const TARGET: PostgresTarget = {
  ...{ host: 'database', port: 5432, user: 'millrace', database: 'millrace', password: undefined },
  ...{ schema: 'public', tls: () => undefined, mayBePlain: true, name: 'postgres://database' },
};

export function nameSchema(shard: number): string {
  return shard === 0 ? TARGET.schema : `${TARGET.schema}_${shard}`;
}

export function nameStoreLock(schema: string): string {
  return `store ${schema}`;
}

export function nameNodeLock(schema: string, id: string): string {
  return `node ${schema}/${id}`;
}

/** A session, as others see it. */
export interface Holder {
  readonly pid: number;
  readonly node: string;
  terminate(): void;
}

/** The tables of one shard. */
export interface Schema {
  readonly name: string;
  readonly shard: number;
  readonly tables: MemoryTables;
  /** Of the last commit. */
  number: number;
  /** The session whose transaction has written. Others wait for its end before they write. */
  writer: Holder | undefined;
  readonly waiting: { holder: Holder; go: () => void }[];
  /** Called when the open transaction commits. */
  readonly notes: (() => void)[];
}

/**
 * - `full`: fails, as on a full disk.
 * - `unheard`: succeeds, and the connection is cut before the answer.
 * - `lost`: the connection is cut, and the server rolls back.
 * - a time: succeeds after so many ms, during which the session cannot be ended.
 */
export type CommitFate = 'done' | 'full' | 'unheard' | 'lost' | number;

/** What a session has seen and holds when it commits. */
export interface Committer extends Holder {
  readonly schema: Schema;
  /** The last commit that it has read or written. */
  readonly known: number | undefined;
  readonly lockedAt: number;
  readonly hasLostLock: boolean;
}

export interface Database {
  readonly time: VirtualTime;
  readonly calls: ServerCalls;
  readonly cluster: ClusterTables;
  /** By name. */
  readonly locks: Map<string, Holder>;
  readonly sessions: Map<number, Holder>;
  chooseFate(): CommitFate;
  /** Whether the next transaction fails when it begins to write. */
  failsWrite(): boolean;
  /** A session has tried to commit without having seen all commits. */
  onFenced(): void;
  complain(fault: string): void;
}

/** Reports a commit that a correct node cannot make. */
export function checkCommit(database: Database, committer: Committer): void {
  const { complain, locks, time } = database;
  const { hasLostLock, known, node, schema } = committer;
  const name = `${time.now()}: commit ${schema.number + 1} of shard ${schema.shard} by ${node}`;
  if (known !== schema.number) complain(`${name}: the node knows commit ${known} only`);
  const isHolder = locks.get(nameStoreLock(schema.name)) === committer;
  if (!isHolder && !hasLostLock) complain(`${name}: the session does not hold the lock`);
}

/** Reports a session that is about to use a shard which another node had claimed before it took the lock. */
export function checkOwner({ cluster, complain, time }: Database, session: Committer): void {
  const { lockedAt, node, schema } = session;
  const shard = cluster.shards[schema.shard];
  if (!shard || shard.owner === null || shard.owner === node) return;
  if (lockedAt <= shard.claimedAt) return;
  complain(`${time.now()}: ${node} took the lock of shard ${shard.id}, which ${shard.owner} owns`);
}

/** The error that pg makes of an answer of the server. */
export function describeError(message: string, code: string, severity = 'ERROR'): DatabaseError {
  return Object.assign(new DatabaseError(message, message.length, 'error'), { code, severity });
}
