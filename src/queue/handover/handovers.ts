// Delivers the messages of this shard: to itself in commits of their own, and to the queues of other shards, which take each
// in once. One loop for each receiver, so that none waits for another one.
import { backoffMs } from '../../base/backoff.ts';
import { AT_ONCE, Loop, NEVER } from '../../base/loop.ts';
import {
  ENDING,
  type JobKey,
  logLevelOf,
  type Reader,
  type StoredJob,
  type UploadedPayload,
} from '../../store/store.ts';
import { type Problem, ProblemError } from '../../wire/problem.ts';
import { judgeCount } from '../flows/flow-insertion.ts';
import { nameInputOf, noteJobsAdded } from '../flows/flow-messages.ts';
import { describeState } from '../flows/flow-states.ts';
import { isFull } from '../flows/parents.ts';
import { boundHistoryMessage } from '../lifecycle/attempt-end.ts';
import { describeEnd } from '../lifecycle/links.ts';
import { readWholeOutput } from '../payloads/outputs.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { HandoverMessage } from './messages.ts';
import { putSeen, readSeen } from './outbox.ts';
import type {
  JobCount,
  JobState,
  NumberedMessage,
  OutputPart,
  ParentState,
  ShardService,
} from './peers.ts';
import { takeIn } from './take-in.ts';

/** Pauses between attempts to deliver to a shard that nobody serves, or that refuses. */
const BACKOFF = { baseMs: 500, maxMs: 10_000, factor: 2, jitter: 0.2 } as const;
/** Bytes of an output in one part. */
const PART_BYTES = 8 * 1_048_576;

type HandoversOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'closing'
  | 'log'
  | 'outbox'
  | 'payloads'
  | 'peers'
  | 'positions'
  | 'random'
  | 'settings'
  | 'signals'
  | 'store'
  | 'tracing'
>;

interface Channel {
  loop: Loop;
  /** There may be messages. */
  isAsked: boolean;
  failures: number;
  retryAt: number;
}

export class Handovers implements ShardService {
  readonly #options: HandoversOptions;
  readonly #channels = new Map<number, Channel>();
  readonly #running: Promise<void>[] = [];

  constructor(options: HandoversOptions) {
    this.#options = options;
    options.outbox.onSent = (shard) => this.#ask(shard);
  }

  /** Continues what an earlier run has left. */
  async start(): Promise<void> {
    const { outbox, store } = this.#options;
    for (const shard of await outbox.load(store)) this.#ask(shard);
  }

  /** Call this after `closing` has aborted. */
  async close(): Promise<void> {
    await Promise.all(this.#running);
  }

  #ask(shard: number): void {
    const channel = this.#channels.get(shard) ?? this.#open(shard);
    channel.isAsked = true;
    channel.loop.wake();
  }

  #open(shard: number): Channel {
    const { clock, closing, log } = this.#options;
    const loop = new Loop({
      clock,
      closing,
      pass: () => this.#deliverTo(shard, channel),
      onError: (error) =>
        log[logLevelOf(error)]({ err: error }, 'taking in messages failed, retrying'),
    });
    const channel: Channel = { loop, isAsked: true, failures: 0, retryAt: 0 };
    this.#channels.set(shard, channel);
    this.#running.push(loop.run());
    return channel;
  }

  async #deliverTo(shard: number, channel: Channel): Promise<number> {
    const { clock, log, peers, random } = this.#options;
    if (shard === peers.shard) return this.#deliverHere(channel);
    if (!channel.isAsked) return NEVER;
    if (clock.now() < channel.retryAt) return channel.retryAt;
    channel.isAsked = false;
    try {
      const isLast = await this.#deliver(shard);
      channel.failures = 0;
      if (isLast) return channel.isAsked ? AT_ONCE : NEVER;
      channel.isAsked = true;
      return AT_ONCE;
    } catch (error) {
      channel.isAsked = true;
      channel.failures += 1;
      const waitMs = backoffMs(channel.failures, { ...BACKOFF, random });
      channel.retryAt = clock.now() + waitMs;
      const level = channel.failures === 1 ? 'warn' : 'debug';
      log[level]({ err: error, shard }, 'delivering messages to a shard failed, retrying');
      return channel.retryAt;
    }
  }

  /** @returns whether no message is left */
  async #deliver(shard: number): Promise<boolean> {
    const { changes, outbox, peers, store } = this.#options;
    const next = await store.read((tx) => {
      const found = outbox.next(tx, shard);
      return tx.each(found, (each) => ({ ...each, message: addInput(tx, each.message) }));
    });
    if (next.length === 0) return true;
    const messages = next.flatMap(({ message, number }) => (message ? [{ message, number }] : []));
    const [first] = messages;
    const taken = first && (await peers.at(shard).receive({ from: peers.shard, messages }));
    // Those before the first one are of flows and handlers that are gone.
    const done = next.filter(({ message, number }) => !message || number <= (taken ?? 0));
    await changes.commit((tx, step) => {
      const removed = done.flatMap(({ message }) => (message ? [{ shard, message }] : []));
      noteJobsAdded(tx, step, removed);
      outbox.remove(tx, shard, done);
    });
    outbox.removed(done);
    return false;
  }

  async #deliverHere(channel: Channel): Promise<number> {
    if (!channel.isAsked) return NEVER;
    channel.isAsked = false;
    const { changes, outbox, peers, positions } = this.#options;
    const taking = { nextPosition: () => positions.next(), uploads: NO_UPLOADS, added: [] };
    try {
      const taken = await changes.inSlice(() =>
        changes.commit((tx, step, now) => {
          const next = outbox.next(tx, peers.shard);
          const messages = next.map(({ message }) => message);
          takeIn(tx, step, { ...taking, from: peers.shard, now, messages });
          outbox.remove(tx, peers.shard, next);
          return next;
        }),
      );
      outbox.removed(taken);
      if (taken.length === 0) return channel.isAsked ? AT_ONCE : NEVER;
      channel.isAsked = true;
      return AT_ONCE;
    } catch (error) {
      channel.isAsked = true;
      throw error;
    }
  }

  async receive({
    from,
    messages,
  }: {
    from: number;
    messages: readonly NumberedMessage[];
  }): Promise<number> {
    const { changes, payloads, positions, signals, store, tracing } = this.#options;
    const seen = await store.read((tx) => readSeen(tx, from));
    const uploads = new Map<string, UploadedPayload>();
    try {
      await this.#upload(
        messages.filter(({ number }) => number > seen),
        uploads,
      );
      const taken = await changes.inSlice(() =>
        changes.commit((tx, step, now) => {
          const seen = readSeen(tx, from);
          const fresh = messages.filter(({ number }) => number > seen);
          const last = fresh.at(-1)?.number ?? seen;
          const added: StoredJob[] = [];
          const nextPosition = () => positions.next();
          const given = fresh.map(({ message }) => message);
          takeIn(tx, step, { from, now, nextPosition, uploads, added, messages: given });
          if (last > seen) putSeen(tx, from, last);
          return { last, added };
        }),
      );
      for (const job of taken.added) {
        signals.inserted(job);
        tracing?.submitted(job, job.submittedAt);
      }
      return taken.last;
    } finally {
      for (const payload of uploads.values()) payloads.release(payload);
    }
  }

  /** Stores the large inputs of new jobs before them, in `uploads`, which the caller must release. */
  async #upload(
    messages: readonly NumberedMessage[],
    uploads: Map<string, UploadedPayload>,
  ): Promise<void> {
    const { payloads } = this.#options;
    for (const { message } of messages) {
      if (!('inputBytes' in message) || message.input === undefined) continue;
      const bytes = Buffer.from(message.input, 'base64');
      if (!payloads.isLarge(bytes)) continue;
      const { endpointId, id } = message.job;
      const key = { endpointId, id };
      uploads.set(id, await payloads.upload({ kind: 'input', key, bytes, options: ENDING }));
    }
  }

  describeParents({
    keys,
    userId,
  }: {
    userId: string;
    keys: readonly JobKey[];
  }): Promise<(ParentState | null)[]> {
    return this.#options.store.read((tx) => tx.each(keys, (key) => describe(tx, key, userId)));
  }

  async judgeJobs({
    jobs,
    userId,
  }: {
    userId: string;
    jobs: readonly JobCount[];
  }): Promise<Problem | null> {
    try {
      await this.#options.store.read((tx) => {
        for (const each of jobs) judgeCount(tx, userId, each);
      });
      return null;
    } catch (error) {
      if (error instanceof ProblemError) return error.toProblem();
      throw error;
    }
  }

  describeJobs({ keys }: { keys: readonly JobKey[] }): Promise<(JobState | null)[]> {
    return this.#options.store.read((tx) =>
      tx.each(keys, (key) => {
        const job = tx.job(key);
        return job ? describeState(job) : null;
      }),
    );
  }

  async readOutput({ at, key }: { key: JobKey; at: number }): Promise<OutputPart> {
    const output = await readWholeOutput(this.#options, key);
    if (typeof output === 'string') {
      const error = await this.#options.store.read((tx) => tx.job(key)?.error);
      const { code = undefined, message = '' } = error ?? {};
      return {
        kind: output,
        ...(code && { error: { code, message: boundHistoryMessage(message) } }),
      };
    }
    const part = Buffer.from(output.buffer, output.byteOffset, output.length);
    return {
      kind: 'part',
      part: part.subarray(at, at + PART_BYTES).toString('base64'),
      totalBytes: output.length,
    };
  }
}

const NO_UPLOADS: ReadonlyMap<string, UploadedPayload> = new Map();

/** Undefined: the flow of the job is gone, or the endpoint of the handler, and the job is not to be added. */
function addInput(tx: Reader, message: HandoverMessage): HandoverMessage | undefined {
  if (!('inputBytes' in message)) return message;
  const stored = tx.resource(nameInputOf(message));
  return stored && { ...message, input: stored.body };
}

function describe(tx: Reader, key: JobKey, userId: string): ParentState | null {
  const endpoint = tx.endpoint(key.endpointId);
  const job = endpoint?.userId === userId && !endpoint.deleted ? tx.job(key) : undefined;
  if (!job) return null;
  const status = describeEnd(job);
  return { isFull: isFull(job), ...(status !== undefined && { status }) };
}
