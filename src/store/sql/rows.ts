// Reads typed values and small records from rows. Jobs have a file of their own.
import { endpointDeployment, endpointSettings } from '../../wire/resources/endpoint.ts';
import type {
  ChunkBatch,
  Row,
  StoredDelivery,
  StoredEndpoint,
  StoredKey,
  StoredResource,
  StoredWorker,
} from '../store.ts';

/** A column does not match the schema: other software has written the row. */
export class UnreadableRowError extends Error {
  override readonly name = 'UnreadableRowError';

  constructor(column: string, expected: string, value: unknown) {
    super(
      `Column "${column}" should hold ${expected}, not ${value === null ? 'null' : typeof value}`,
    );
  }
}

export function text(row: Row, column: string): string {
  const value = row[column];
  if (typeof value !== 'string') throw new UnreadableRowError(column, 'text', value);
  return value;
}

export function textOrNull(row: Row, column: string): string | null {
  return row[column] === null ? null : text(row, column);
}

/** Also accepts bigint and decimal text: databases return 64-bit integers that way. */
export function number(row: Row, column: string): number {
  const value = row[column];
  if (typeof value === 'number') return value;
  const parsed =
    typeof value === 'bigint' || typeof value === 'string' ? Number(value) : Number.NaN;
  if (Number.isNaN(parsed)) throw new UnreadableRowError(column, 'a number', value);
  return parsed;
}

export function numberOrNull(row: Row, column: string): number | null {
  return row[column] === null ? null : number(row, column);
}

/** Flags are stored as 0 and 1, because not every database has booleans. */
export function flag(row: Row, column: string): boolean {
  return number(row, column) !== 0;
}

export function bytes(row: Row, column: string): Uint8Array {
  const value = row[column];
  if (!(value instanceof Uint8Array)) throw new UnreadableRowError(column, 'bytes', value);
  return value;
}

// Statements name their columns: Postgres refuses a prepared `select *` once another version has added a column.

export const endpointColumns = `id, user_id, deployment, deleted, shard, settings, created_at, in_queue, in_progress, completed, failed,
  cancelled, timed_out, retried`;

export function readEndpoint(row: Row): StoredEndpoint {
  const deployment = textOrNull(row, 'deployment');
  return {
    id: text(row, 'id'),
    userId: text(row, 'user_id'),
    deployment: deployment === null ? null : endpointDeployment.parse(JSON.parse(deployment)),
    deleted: flag(row, 'deleted'),
    shard: number(row, 'shard'),
    settings: endpointSettings.parse(JSON.parse(text(row, 'settings'))),
    createdAt: number(row, 'created_at'),
    inQueue: number(row, 'in_queue'),
    inProgress: number(row, 'in_progress'),
    completed: number(row, 'completed'),
    failed: number(row, 'failed'),
    cancelled: number(row, 'cancelled'),
    timedOut: number(row, 'timed_out'),
    retried: number(row, 'retried'),
  };
}

export const workerColumns =
  'endpoint_id, id, pod_id, incarnation, slots, version, devices, retry, hello_at';

export function readWorker(row: Row): StoredWorker {
  return {
    endpointId: text(row, 'endpoint_id'),
    id: text(row, 'id'),
    podId: textOrNull(row, 'pod_id'),
    incarnation: number(row, 'incarnation'),
    slots: number(row, 'slots'),
    version: text(row, 'version'),
    devices: JSON.parse(text(row, 'devices')),
    retry: JSON.parse(textOrNull(row, 'retry') ?? 'null'),
    helloAt: number(row, 'hello_at'),
  };
}

export const deliveryColumns =
  'endpoint_id, id, job_id, user_id, url, receiver, created_at, platform_ran_ms, bytes, tries, next_at';

export function readDelivery(row: Row): StoredDelivery {
  return {
    endpointId: text(row, 'endpoint_id'),
    id: text(row, 'id'),
    jobId: text(row, 'job_id'),
    userId: text(row, 'user_id'),
    url: text(row, 'url'),
    receiver: text(row, 'receiver'),
    createdAt: number(row, 'created_at'),
    platformRanMs: number(row, 'platform_ran_ms'),
    bytes: number(row, 'bytes'),
    attempts: number(row, 'tries'),
    nextAt: number(row, 'next_at'),
  };
}

export const resourceColumns = 'kind, id, user_id, parent, position, body';

export function readResource(row: Row): StoredResource {
  return {
    kind: text(row, 'kind'),
    id: text(row, 'id'),
    userId: text(row, 'user_id'),
    parent: text(row, 'parent'),
    position: number(row, 'position'),
    body: text(row, 'body'),
  };
}

export const keyColumns = 'id, hash, name, user_id, scopes, created_at, expires_at, pod_id';

export function readKey(row: Row): StoredKey {
  return {
    id: text(row, 'id'),
    hash: text(row, 'hash'),
    name: text(row, 'name'),
    userId: text(row, 'user_id'),
    scopes: JSON.parse(text(row, 'scopes')),
    createdAt: number(row, 'created_at'),
    expiresAt: numberOrNull(row, 'expires_at'),
    podId: textOrNull(row, 'pod_id'),
  };
}

export function readChunkBatch(row: Row): ChunkBatch {
  return {
    first: number(row, 'first'),
    sizes: JSON.parse(text(row, 'sizes')),
    bytes: bytes(row, 'bytes'),
  };
}

export function readFirst<T>(rows: readonly Row[], read: (row: Row) => T): T | undefined {
  const [row] = rows;
  return row && read(row);
}
