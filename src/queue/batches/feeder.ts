// Moves batches on: one commit writes the results of jobs that have ended, makes the jobs of the next lines, and notes how
// far the batch is. So a restart or another node goes on where the last commit was, and each line has one result.
import { AT_ONCE, Loop, NEVER, RETRY_MS } from '../../base/loop.ts';
import {
  ENDING,
  logLevelOf,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import { BATCH_LIMITS, type BatchState } from '../../wire/job/batch.ts';
import { isTerminal } from '../../wire/job/job.ts';
import { createJob } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { NO_LINKS } from '../lifecycle/links.ts';
import type { QueueParts } from '../queue-parts.ts';
import { removeEnd } from './batch-ends.ts';
import { findForm } from './batch-form.ts';
import {
  listBatches,
  nameJob,
  putBatch,
  putFile,
  type Results,
  readOpenBatch,
  type StoredBatch,
} from './batch-record.ts';
import { stop } from './batches.ts';
import type { LineCounts } from './line-counts.ts';
import type { Advance, Candidate, NextLines } from './next-lines.ts';
import { putLines, type ResultLines, type ResultWriter } from './result-writer.ts';

/** Jobs of a stopped batch that one commit cancels. */
const CANCELLED_AT_ONCE = 128;
/** Rows that are read at once at the start. */
const READ_AT_ONCE = 128;
/** Below the priorities that callers can give, and the low one of RunPod. */
const PRIORITY = -2;
/** Added to the time to live of the jobs, so that the expiry of the batch ends them, ms. */
const SPARE_MS = 3_600_000;
/** Wait for space in the queue of the endpoint, ms. */
const FULL_MS = 1_000;

type FeederOptions = Pick<
  QueueParts,
  | 'batchForms'
  | 'batchLines'
  | 'changes'
  | 'clock'
  | 'closing'
  | 'log'
  | 'payloads'
  | 'positions'
  | 'signals'
  | 'store'
  | 'tracing'
> & { lines: NextLines; results: ResultWriter };

export interface BatchCounts {
  /** Batches that have not ended, by state. */
  open: Readonly<Record<string, number>>;
  /** Results since the start of the platform. */
  lines: LineCounts;
}

const OPEN_STATES = ['running', 'cancelling', 'expiring'] as const satisfies BatchState[];

/** An open batch. */
interface Entry {
  id: string;
  endpointId: string;
  state: BatchState;
  /** When something is to be done for it. */
  dueAt: number;
  expiresAt: number;
}

export class Feeder {
  readonly #options: FeederOptions;
  readonly #loop: Loop;
  readonly #open = new Map<string, Entry>();
  #running: Promise<void> | undefined;
  #isPassing = false;

  constructor(options: FeederOptions) {
    const { clock, closing, log, signals } = options;
    this.#options = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: () => this.#passAlone(),
      onError: (error) => log[logLevelOf(error)]({ err: error }, 'batches failed, retrying'),
    });
    signals.onBatchEnd = (id) => this.#ask(this.#open.get(id));
  }

  /** Goes on with all open batches. Without any there is no timer. */
  async start(): Promise<void> {
    let before: number | undefined;
    do {
      const listing = { before, limit: READ_AT_ONCE };
      const found = await this.#options.store.read((tx) => listBatches(tx, listing, ['open']));
      for (const batch of found) this.note(batch);
      before = found.length < READ_AT_ONCE ? undefined : found.at(-1)?.position;
    } while (before !== undefined);
  }

  /** Call this after `closing` has aborted. */
  async close(): Promise<void> {
    await this.#running;
  }

  /** When something is to be done next, Unix ms; Infinity without open batches. */
  get nextAt(): number {
    if (this.#isPassing) return AT_ONCE;
    return Math.min(...[...this.#open.values()].map(({ dueAt }) => dueAt), NEVER);
  }

  /** By endpoint. */
  counts(): Map<string, BatchCounts> {
    const open = Map.groupBy(this.#open.values(), ({ endpointId }) => endpointId);
    const { batchLines } = this.#options;
    const ids = new Set([...batchLines.endpoints, ...open.keys()]);
    return new Map(
      [...ids].map((id) => {
        const count = (state: BatchState) =>
          open.get(id)?.filter((entry) => entry.state === state).length ?? 0;
        const states = OPEN_STATES.map((state) => [state, count(state)]);
        return [id, { open: Object.fromEntries(states), lines: batchLines.of(id) }];
      }),
    );
  }

  /** The batch is new, or has been stopped. */
  note({ endedAt, endpointId, expiresAt, id, state }: StoredBatch): void {
    if (endedAt !== null) return;
    const entry = this.#open.get(id) ?? { id, endpointId, state, dueAt: AT_ONCE, expiresAt };
    entry.state = state;
    this.#open.set(id, entry);
    this.#ask(entry);
  }

  #ask(entry: Entry | undefined): void {
    if (!entry) return;
    entry.dueAt = AT_ONCE;
    this.#running ??= this.#loop.run();
    this.#loop.wake();
  }

  async #passAlone(): Promise<number> {
    this.#isPassing = true;
    try {
      await this.#pass();
    } finally {
      this.#isPassing = false;
    }
    const { nextAt } = this;
    return nextAt <= this.#options.clock.now() ? AT_ONCE : nextAt;
  }

  async #pass(): Promise<void> {
    const { clock, closing, log } = this.#options;
    const now = clock.now();
    let isLogged = false;
    for (const entry of this.#open.values()) {
      if (closing.aborted) break;
      if (entry.dueAt > now) continue;
      // What comes meanwhile makes it due again.
      entry.dueAt = entry.expiresAt > now ? entry.expiresAt : NEVER;
      try {
        const dueAt = await this.#advance(entry.id);
        if (dueAt === 'ended') this.#forget(entry);
        else entry.dueAt = Math.min(entry.dueAt, dueAt);
      } catch (error) {
        if (closing.aborted) break;
        // It holds up no other batch.
        entry.dueAt = clock.now() + RETRY_MS;
        // A failing disk fails all of them.
        if (isLogged) continue;
        isLogged = true;
        log[logLevelOf(error)]({ err: error, batch: entry.id }, 'batch failed, retrying');
      }
    }
  }

  #forget({ id }: Entry): void {
    this.#open.delete(id);
    this.#options.lines.forget(id);
    this.#options.signals.notifyBatchEnd(id);
  }

  /** @returns when it goes on */
  async #advance(id: string): Promise<number | 'ended'> {
    const { batchForms, batchLines, clock, lines, results, store } = this.#options;
    const now = clock.now();
    const found = await store.read((tx) => {
      const batch = readOpenBatch(tx, id);
      const endpoint = batch && tx.endpoint(batch.endpointId);
      if (!batch || !endpoint || endpoint.deleted) return undefined;
      return { batch, endpoint, ends: results.readEnds(tx, batch) };
    });
    if (!found) return 'ended';
    const { batch, endpoint, ends } = found;
    if (batch.state === 'running' && batch.expiresAt <= now) {
      await this.#expire(id, now);
      return AT_ONCE;
    }
    const form = findForm(batchForms, batch.form);
    // Others find space in the queue, too.
    const free = Math.floor((endpoint.settings.maxQueued - endpoint.inQueue) / 2);
    const window = BATCH_LIMITS.liveJobs - batch.live.length + ends.list.length;
    const advance =
      batch.state === 'running'
        ? await lines.read(batch, form, Math.min(free, window))
        : await lines.giveUp(batch, form);
    const written = await results.compose(batch, form, { ends: ends.list, ...advance });
    const batchNow = await this.#commit({
      batch,
      endpoint,
      now,
      ends: ends.list,
      advance,
      written,
    });
    if (batchNow === 'stopped') return AT_ONCE;
    const { errors, output } = written;
    batchLines.add(batch.endpointId, { completed: output.count, failed: errors.count });
    if (batchNow.endedAt !== null) return 'ended';
    if (ends.hasMore) return AT_ONCE;
    const isRead = batchNow.at >= batchNow.fileBytes;
    if (isRead) return NEVER;
    if (batchNow.state !== 'running') return AT_ONCE;
    if (free <= 0) return now + FULL_MS;
    return batchNow.live.length < BATCH_LIMITS.liveJobs ? AT_ONCE : NEVER;
  }

  async #expire(id: string, now: number): Promise<void> {
    const stopped = await this.#options.store.write((tx) => {
      const current = readOpenBatch(tx, id);
      return current?.state === 'running' ? stop(tx, current, 'expiring', now) : undefined;
    }, ENDING);
    if (stopped) this.note(stopped);
  }

  /** @returns `stopped` if a cancel came meanwhile; then nothing is done */
  async #commit(given: Commit): Promise<StoredBatch | 'stopped'> {
    const { changes, payloads, positions, signals, tracing } = this.#options;
    const { advance, batch, ends, now } = given;
    const staged = await this.#upload(advance.candidates, batch);
    const filePositions = [positions.next(), positions.next()] as const;
    try {
      const done = await changes.commit(
        (tx, step) => {
          // Beside this, only a cancel changes an open batch, and that only its state.
          if (readOpenBatch(tx, batch.id)?.state !== batch.state) return undefined;
          return apply(tx, step, { ...given, filePositions });
        },
        { ...ENDING, weight: 1 + advance.candidates.length + ends.length },
      );
      for (const job of done?.jobs ?? []) {
        signals.inserted(job);
        tracing?.submitted(job, now);
      }
      return done?.batch ?? 'stopped';
    } finally {
      for (const payload of staged) payloads.release(payload);
    }
  }

  /** Stores large inputs before the jobs. @returns the uploads, which the caller must release */
  async #upload(candidates: readonly Candidate[], { endpointId }: StoredBatch) {
    const { payloads } = this.#options;
    const large = candidates.filter(({ bytes }) => payloads.isLarge(bytes));
    const staged: Awaited<ReturnType<typeof payloads.upload>>[] = [];
    try {
      for (const candidate of large) {
        const key = { endpointId, id: candidate.jobId };
        const payload = await payloads.upload({ kind: 'input', key, bytes: candidate.bytes });
        staged.push(payload);
        candidate.input = payload;
      }
      return staged;
    } catch (error) {
      for (const payload of staged) payloads.release(payload);
      throw error;
    }
  }
}

interface Commit {
  batch: StoredBatch;
  endpoint: StoredEndpoint;
  now: number;
  ends: Parameters<typeof removeEnd>[2][];
  advance: Advance;
  written: ResultLines;
}

function apply(
  tx: Transaction,
  step: StepOn,
  { filePositions, ...given }: Commit & { filePositions: readonly [number, number] },
): { batch: StoredBatch; jobs: StoredJob[] } {
  const { advance, batch: before, ends, now, written } = given;
  for (const end of ends) removeEnd(tx, before.id, end);
  const jobs = insertJobs(tx, given);
  const settled = new Set(ends.map(({ line }) => line));
  const made = advance.candidates.map(({ line }) => line);
  const batch: StoredBatch = {
    ...before,
    at: advance.at,
    line: advance.line,
    live: [...before.live.filter((line) => !settled.has(line)), ...made],
    completed: before.completed + written.output.count,
    failed: before.failed + written.errors.count,
    output: putLines(tx, before, before.output, written.output),
    errors: putLines(tx, before, before.errors, written.errors),
  };
  if (batch.state !== 'running') cancelSome(tx, step, batch);
  const isOver = batch.at >= batch.fileBytes && batch.live.length === 0;
  const after = isOver ? end(tx, batch, { filePositions, now }) : batch;
  putBatch(tx, after);
  return { batch: after, jobs };
}

function insertJobs(tx: Transaction, { advance, batch, endpoint, now }: Commit): StoredJob[] {
  const { endpointId, expiresAt, id } = batch;
  // By the tag, its jobs are found.
  const policy = { priority: PRIORITY, ttl: expiresAt - now + SPARE_MS, tags: [id] };
  return advance.candidates.map(({ attachment, bytes, customId, input, jobId, line, position }) => {
    const submission = { endpointId, mode: 'run', input: bytes, policy } as const;
    const queued = { id: jobId, now, position };
    const plain = createJob({ ...submission, idempotency: undefined }, endpoint, queued);
    const links = { ...NO_LINKS, batch: { id, line, customId } };
    // Its result is in the file: a webhook for each line would be one too many.
    const job: StoredJob = { ...plain, attachment, linked: true, links, webhook: null };
    tx.insertJob(job, input);
    return job;
  });
}

/** Their ends are results, too. */
function cancelSome(tx: Transaction, step: StepOn, batch: StoredBatch): void {
  const { endpointId } = batch;
  const some = batch.live.slice(0, CANCELLED_AT_ONCE);
  const jobs = tx.each(some, (line) => tx.job({ endpointId, id: nameJob(batch, line) }));
  for (const job of jobs) if (job && !isTerminal(job.status)) step(job, { type: 'cancel' });
}

const LAST_STATES = {
  running: 'completed',
  cancelling: 'cancelled',
  expiring: 'expired',
} as const;

function end(
  tx: Transaction,
  batch: StoredBatch,
  { filePositions, now }: { filePositions: readonly [number, number]; now: number },
): StoredBatch {
  const { endpointId, form, retentionMs, state, userId } = batch;
  const keep = (results: Results, name: string, position: number) => {
    if (results.lines === 0) return;
    putFile(tx, 'whole', {
      ...{ endpointId, userId, position, form, target: '', purpose: 'batch_output' },
      ...{ ...results, name: `${batch.id}_${name}.jsonl` },
      ...{ createdAt: now, expiresAt: now + retentionMs },
    });
  };
  keep(batch.output, 'output', filePositions[0]);
  keep(batch.errors, 'error', filePositions[1]);
  const last = state in LAST_STATES ? LAST_STATES[state as keyof typeof LAST_STATES] : 'completed';
  return { ...batch, state: last, endedAt: now };
}
