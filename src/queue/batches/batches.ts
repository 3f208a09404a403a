// Batches: the jobs of the lines of one file. The record of a batch says how far it is; feeder.ts moves it on.
import { createUuidV7 } from '../../base/id.ts';
import { ENDING, type FileKey, type Reader, type Transaction } from '../../store/store.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import type { BatchRecord } from '../../wire/job/batch-records.ts';
import { QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import { readQueue } from '../admission.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import type { QueueParts } from '../queue-parts.ts';
import {
  BATCH_PREFIX,
  FILE_PREFIX,
  listBatches,
  putBatch,
  putFile,
  type Results,
  readBatch,
  readFile,
  type StoredBatch,
  type StoredFile,
} from './batch-record.ts';
import { raiseNoFile } from './files.ts';

export interface NewBatch {
  endpointId: string;
  /** The input. */
  fileId: string;
  /** What the lines must have in common. Undefined: anything. */
  target?: string | undefined;
  /** Time until what has not ended is given up, ms. */
  windowMs?: number | undefined;
  metadata?: Readonly<Record<string, string>> | null | undefined;
  /** How long results are kept, ms. */
  retentionMs?: number | undefined;
}

type BatchesOptions = Pick<QueueParts, 'clock' | 'positions' | 'removal' | 'signals' | 'store'>;

/** Methods with the ID of a batch throw ProblemError `not_found` without one. */
export class Batches {
  readonly #options: BatchesOptions;
  readonly #onChange: (batch: StoredBatch) => void;

  /** `onChange`: the batch is on disk, and something is to be done for it. */
  constructor(options: BatchesOptions, onChange: (batch: StoredBatch) => void) {
    this.#options = options;
    this.#onChange = onChange;
  }

  /** @throws ProblemError `not_found` without the file, `invalid`, `queue_full` */
  async create(given: NewBatch): Promise<StoredBatch> {
    const { clock, positions, store } = this.#options;
    const now = clock.now();
    const chosen = createUuidV7(now);
    const position = positions.next();
    const { windowMs = BATCH_LIMITS.windowMs.default } = given;
    const batch = await store.write((tx) => {
      const { userId } = readQueue(tx, given.endpointId);
      const file = readFile(tx, { endpointId: given.endpointId, id: given.fileId }, now);
      if (file?.purpose !== 'batch') return raiseNoFile({ ...given, id: given.fileId });
      // A draft becomes the batch of the same name, once.
      const uuid = file.isDraft ? file.id.slice(FILE_PREFIX.length) : chosen;
      if (file.isDraft) {
        const known = readBatch(tx, { endpointId: file.endpointId, id: `${BATCH_PREFIX}${uuid}` });
        if (known) return known;
        const fixed: StoredFile = { ...file, isDraft: undefined };
        putFile(tx, 'whole', fixed);
      }
      const { target = file.target } = given;
      if (target !== file.target) {
        const fault = `endpoint: is ${target}, and the lines of the file have the url ${file.target}`;
        throw new ProblemError('invalid', `The batch is invalid: ${fault}`, { errors: [fault] });
      }
      judgeOpen(tx, userId);
      const created: StoredBatch = {
        ...{ endpointId: given.endpointId, id: `${BATCH_PREFIX}${uuid}`, userId, position },
        ...{ form: file.form, target, fileId: file.id, fileBytes: file.bytes, total: file.lines },
        metadata: given.metadata ?? null,
        ...{ createdAt: now, expiresAt: now + windowMs },
        retentionMs: given.retentionMs ?? BATCH_LIMITS.retentionMs.default,
        ...{ state: 'running', stoppedAt: null, endedAt: null },
        ...{ at: 0, line: 0, live: [], completed: 0, failed: 0 },
        output: noResults(`${FILE_PREFIX}${uuid}-output`),
        errors: noResults(`${FILE_PREFIX}${uuid}-errors`),
      };
      putBatch(tx, created);
      return created;
    });
    this.#onChange(batch);
    return batch;
  }

  async read(key: FileKey): Promise<StoredBatch> {
    const { removal, store } = this.#options;
    removal.refuseGone(key.endpointId);
    return (await store.read((tx) => readBatch(tx, key))) ?? raiseNoBatch(key);
  }

  /** Waits for the end of the batch, at most `waitMs`. */
  async waitForEnd(key: FileKey, waitMs: number): Promise<StoredBatch> {
    const waiter = this.#options.signals.batchEnded(key.id);
    try {
      const batch = await this.read(key);
      if (batch.endedAt !== null) return batch;
      return (await waiter.wait(waitMs)) ? await this.read(key) : batch;
    } finally {
      waiter.close();
    }
  }

  /** Newest first. `ended`: only those that have ended, or only those that have not. */
  async list({
    ended,
    ...listing
  }: {
    endpointId: string;
    before: number | undefined;
    limit: number;
    ended?: boolean | undefined;
  }): Promise<{ batches: StoredBatch[]; next: number | undefined }> {
    const kinds = ended === undefined ? undefined : ([ended ? 'ended' : 'open'] as const);
    const found = await this.#options.store.read((tx) => {
      readEndpoint(tx, listing.endpointId);
      return listBatches(tx, { ...listing, limit: listing.limit + 1 }, kinds);
    });
    const page = found.slice(0, listing.limit);
    const next = found.length > page.length ? page.at(-1)?.position : undefined;
    return { batches: page, next };
  }

  /** Its jobs are cancelled soon. A batch that is being stopped stays so. @throws ProblemError `conflict` if it has ended */
  async cancel(key: FileKey): Promise<StoredBatch> {
    const { clock, store } = this.#options;
    const now = clock.now();
    const batch = await store.write((tx): StoredBatch => {
      const before = readBatch(tx, key) ?? raiseNoBatch(key);
      if (before.state === 'cancelling' || before.state === 'cancelled') return before;
      if (before.state !== 'running') {
        throw new ProblemError('conflict', `batch ${key.id} is ${before.state}`);
      }
      return stop(tx, before, 'cancelling', now);
    }, ENDING);
    this.#onChange(batch);
    return batch;
  }
}

export function describeBatch(batch: StoredBatch): BatchRecord {
  const { completed, createdAt, endedAt, expiresAt, failed, id, live, state, total } = batch;
  return {
    ...{ id, state, total, completed, failed, live: live.length },
    ...{ createdAt, expiresAt, endedAt },
  };
}

/** The jobs of the batch are to be cancelled, and the other lines to be given up. */
export function stop(
  tx: Transaction,
  batch: StoredBatch,
  state: 'cancelling' | 'expiring',
  now: number,
): StoredBatch {
  const stopped: StoredBatch = { ...batch, state, stoppedAt: now };
  putBatch(tx, stopped);
  return stopped;
}

function noResults(id: string): Results {
  return { id, bytes: 0, lines: 0, parts: 0 };
}

/** @throws ProblemError `queue_full` */
function judgeOpen(tx: Reader, userId: string): void {
  const limit = BATCH_LIMITS.openBatchesOfUser;
  if (listBatches(tx, { userId, limit }, ['open']).length < limit) return;
  const detail = `${limit} batches of the user have not ended, the most that may`;
  throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
}

function raiseNoBatch({ id }: FileKey): never {
  throw new ProblemError('not_found', `batch ${id} not found or expired`);
}
