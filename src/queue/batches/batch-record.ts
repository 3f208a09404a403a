// The records of files and batches as they are stored: resources of their endpoint, so one commit has a batch and its jobs.
import { deriveUuidV7 } from '../../base/id.ts';
import type { FileKey, Reader, StoredResource, Transaction } from '../../store/store.ts';
import type { BatchState } from '../../wire/job/batch.ts';

/** Bytes of each part of an uploaded file but the last. Parts of results may be smaller. */
export const PART_BYTES = 262_144;

export const FILE_KINDS = {
  /** Has its parts. */
  whole: 'file',
  /** Parts are being written. */
  upload: 'file_upload',
  /** Parts are being removed. */
  removed: 'file_removed',
} as const;

const BATCH_KINDS = { open: 'batch', ended: 'batch_ended' } as const;

/** A job of a batch has ended; its line is yet to be written. */
export const END_KIND = 'batch_end';

const VERSION = 1;

interface RecordHead extends FileKey {
  userId: string;
  position: number;
}

export interface StoredFile extends RecordHead {
  name: string;
  purpose: 'batch' | 'batch_output';
  /** Form of its lines. */
  form: string;
  /** What its lines have in common. */
  target: string;
  bytes: number;
  lines: number;
  parts: number;
  createdAt: number;
  expiresAt: number;
  /** Lines may be added until a batch reads it. */
  isDraft?: boolean | undefined;
}

/** A file of results while its batch runs. */
export interface Results {
  id: string;
  bytes: number;
  lines: number;
  parts: number;
}

export interface StoredBatch extends RecordHead {
  form: string;
  target: string;
  /** The input. */
  fileId: string;
  fileBytes: number;
  total: number;
  metadata: Readonly<Record<string, string>> | null;
  createdAt: number;
  expiresAt: number;
  /** How long its results are kept, ms. */
  retentionMs: number;
  state: BatchState;
  /** When a cancel or its expiry stopped it. */
  stoppedAt: number | null;
  endedAt: number | null;
  /** Bytes and lines of the input that have jobs, or were given up. */
  at: number;
  line: number;
  /** Lines whose jobs have no result yet. */
  live: readonly number[];
  completed: number;
  failed: number;
  output: Results;
  errors: Results;
}

function toResource(kind: string, { endpointId, id, position, userId, ...body }: RecordHead) {
  const text = JSON.stringify({ v: VERSION, ...body });
  return { kind, id, userId, parent: endpointId, position, body: text };
}

/** The caller knows what the resource is. */
function fromResource<T>({ body, id, parent, position, userId }: StoredResource): T & RecordHead {
  const { v, ...members } = JSON.parse(body);
  if (v !== VERSION) throw new Error(`the record ${id} has version ${v}`);
  return { ...members, endpointId: parent, id, position, userId };
}

export function putFile(tx: Transaction, kind: keyof typeof FILE_KINDS, file: RecordHead): void {
  tx.putResource(toResource(FILE_KINDS[kind], file));
}

export function readFile(
  tx: Reader,
  { endpointId, id }: FileKey,
  now: number,
): StoredFile | undefined {
  const found = tx.resource({ kind: FILE_KINDS.whole, id });
  const file = found?.parent === endpointId ? fromResource<StoredFile>(found) : undefined;
  return file && file.expiresAt > now ? file : undefined;
}

export function hasFile(tx: Reader, kind: 'upload' | 'whole', { id }: FileKey): boolean {
  return tx.resource({ kind: FILE_KINDS[kind], id }) !== undefined;
}

/** Its parts are removed later. */
export function removeFile(tx: Transaction, kind: 'upload' | 'whole', file: RecordHead): void {
  const { endpointId, id, position, userId } = file;
  tx.removeResource({ kind: FILE_KINDS[kind], id });
  putFile(tx, 'removed', { endpointId, id, position, userId });
}

export interface RecordListing {
  endpointId?: string | undefined;
  userId?: string | undefined;
  before?: number | undefined;
  limit: number;
}

/** Newest first. */
export function listFiles(tx: Reader, { endpointId, ...listing }: RecordListing): StoredFile[] {
  const found = tx.resources({ kind: FILE_KINDS.whole, parent: endpointId, ...listing });
  return found.map((each) => fromResource<StoredFile>(each));
}

export function listRemains(
  tx: Reader,
  kind: 'removed' | 'upload',
  { endpointId, limit }: Pick<RecordListing, 'endpointId' | 'limit'>,
): RecordHead[] {
  const found = tx.resources({ kind: FILE_KINDS[kind], parent: endpointId, limit });
  return found.map((each) => fromResource<RecordHead>(each));
}

export function readOpenBatch(tx: Reader, id: string): StoredBatch | undefined {
  const found = tx.resource({ kind: BATCH_KINDS.open, id });
  return found && fromResource<StoredBatch>(found);
}

export function readBatch(tx: Reader, { endpointId, id }: FileKey): StoredBatch | undefined {
  const found =
    tx.resource({ kind: BATCH_KINDS.open, id }) ?? tx.resource({ kind: BATCH_KINDS.ended, id });
  return found?.parent === endpointId ? fromResource<StoredBatch>(found) : undefined;
}

export function putBatch(tx: Transaction, batch: StoredBatch): void {
  if (batch.endedAt === null) tx.putResource(toResource(BATCH_KINDS.open, batch));
  else {
    tx.removeResource({ kind: BATCH_KINDS.open, id: batch.id });
    tx.putResource(toResource(BATCH_KINDS.ended, batch));
  }
}

/** The parts of its results are removed later. */
export function dropOpenBatch(tx: Transaction, batch: StoredBatch): void {
  tx.removeResource({ kind: BATCH_KINDS.open, id: batch.id });
  const { endpointId, position, userId } = batch;
  for (const { id } of [batch.output, batch.errors]) {
    putFile(tx, 'removed', { endpointId, id, position, userId });
  }
}

export function removeEndedBatch(tx: Transaction, { id }: Pick<StoredBatch, 'id'>): void {
  tx.removeResource({ kind: BATCH_KINDS.ended, id });
}

/** Newest first. */
export function listBatches(
  tx: Reader,
  { endpointId, ...listing }: RecordListing,
  kinds: readonly (keyof typeof BATCH_KINDS)[] = ['open', 'ended'],
): StoredBatch[] {
  const found = tx.each(kinds, (kind) =>
    tx.resources({ kind: BATCH_KINDS[kind], parent: endpointId, ...listing }),
  );
  return found
    .flat()
    .sort((a, b) => b.position - a.position)
    .slice(0, listing.limit)
    .map((each) => fromResource<StoredBatch>(each));
}

/** The ID of the job of a line: always the same. */
export function nameJob({ id }: Pick<StoredBatch, 'id'>, line: number): string {
  return deriveUuidV7(id.slice(BATCH_PREFIX.length), line);
}

export const BATCH_PREFIX = 'batch_';
export const FILE_PREFIX = 'file-';
