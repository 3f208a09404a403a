// Turns a batch handler into a handler of single jobs: collects the jobs of one thread into batches, runs them, and
// decides what follows if one throws. run.ts makes one call of the batch function.
import type { Clock } from '../../base/clock.ts';
import type { AttemptContext } from '../attempt/context.ts';
import { Release } from '../attempt/refusal.ts';
import type { Job } from '../define.ts';
import type { LoadedHandler } from '../loading/load.ts';
import { isDeviceMemoryError, judgeContextLoss, retryAdvice } from '../thrown.ts';
import { BatchMember, type LeaveGate } from './member.ts';
import { BatchRun, type BatchRunOptions } from './run.ts';
import type { BatchEvent, BatchSettings } from './settings.ts';

const MAX_KEY_CHARS = 256;

type BatchHost = Omit<CollectorOptions, 'settings' | 'key' | 'run'>;

export interface BoundHandler {
  readonly handler: LoadedHandler;
  /** Undefined if the handler takes single jobs. */
  readonly batches: BatchCollector | undefined;
}

/** Call it once for each thread, or each executor that runs handlers in its own thread. */
export function bindBatches(handler: LoadedHandler, host: BatchHost): BoundHandler {
  if (!handler.batch) return { handler, batches: undefined };
  const batches = new BatchCollector({ ...handler.batch, ...host });
  return { handler: { ...handler, run: (job, ctx) => batches.join(job, ctx) }, batches };
}

interface CollectorOptions {
  settings: BatchSettings;
  key: ((input: unknown) => unknown) | undefined;
  run: BatchRunOptions['run'];
  devices: BatchRunOptions['devices'];
  clock: Clock;
  /** Creates the log of one batch with these members in every line. */
  createLog: (
    bindings: Record<string, string | number>,
  ) => ReturnType<BatchRunOptions['createLog']>;
  lines: BatchRunOptions['lines'];
  /** Jobs have joined, left, begun or ended: `countFree` and `fillMs` may have changed. */
  onChange: () => void;
  onEvent: (event: BatchEvent) => void;
}

/** Waiting jobs with the same key, which can share a batch, in the order of their arrival. */
interface KeyQueue {
  readonly key: string;
  members: BatchMember[];
  /** Its first job has waited long enough. */
  isDue: boolean;
  cancelTimer: () => void;
}

/** One batch with its reruns. */
interface StartedBatch {
  members: readonly BatchMember[];
  current: BatchRun | undefined;
  isOver: boolean;
}

export class BatchCollector {
  readonly #options: CollectorOptions;
  readonly #byKey = new Map<string, KeyQueue>();
  /** In the order of their first jobs. */
  #queues: KeyQueue[] = [];
  #started: StartedBatch[] = [];
  #limit;
  #batches = 0;
  #isHeld = false;

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.#limit = startLimit(options.settings.maxSize);
  }

  /** Jobs that wait for a batch to start. */
  get waiting(): number {
    return this.#queues.reduce((sum, { members }) => sum + members.length, 0);
  }

  /** Number of further jobs that could start now or after `maxWaitMs`, if the thread has `jobs`. */
  countFree(jobs: number): number {
    const { maxInFlight } = this.#options.settings;
    const started = this.#started.reduce((sum, { members }) => sum + countPresent(members), 0);
    const places = (maxInFlight - this.#started.length) * this.#limit.jobs;
    return Math.max(0, places - Math.max(0, jobs - started));
  }

  /** Time until an incomplete batch starts and takes its free places with it, ms. */
  get fillMs(): number | undefined {
    const { clock, settings } = this.#options;
    if (this.#isHeld || this.#started.length >= settings.maxInFlight) return undefined;
    const first = this.#queues[0]?.members[0];
    return first && Math.max(0, first.joinedAt + settings.maxWaitMs - clock.now());
  }

  /** Resolves with the job's output or stream. @throws what fails the attempt */
  join(job: Job, ctx: AttemptContext): Promise<unknown> {
    const key = this.#readKey(job.input);
    const joinedAt = this.#options.clock.now();
    const mayLeave: LeaveGate = (leaving, reason) => this.#mayLeave(leaving, reason);
    const member = new BatchMember({ job, ctx, key, joinedAt, mayLeave });
    if (ctx.solo) this.#start([member]);
    else this.#add(member);
    this.#options.onChange();
    return member.answer;
  }

  /** Starts no batch until the returned function is called; for tests that need full batches. */
  hold(): () => void {
    this.#isHeld = true;
    return () => {
      this.#isHeld = false;
      for (const queue of this.#queues) queue.isDue = true;
      this.#startReady();
    };
  }

  /** Frees the places of batches whose jobs have all been stopped, although their functions run on. */
  abandonStopped(): void {
    for (const batch of this.#started.toReversed()) {
      if (!batch.members.some(({ isLive }) => isLive)) this.#finish(batch);
    }
  }

  #mayLeave(member: BatchMember, reason: unknown): 'now' | 'later' {
    const batch = this.#started.find(({ members }) => members.includes(member));
    if (!batch) this.#drop(member);
    // A job that waits for its rerun is in no run.
    return batch?.current?.has(member) ? batch.current.mayLeave(reason) : 'now';
  }

  #readKey(input: unknown): string {
    const key = this.#options.key?.(input) ?? '';
    if (typeof key !== 'string') {
      throw new TypeError(`batch.key must return a string, got a ${typeof key}`);
    }
    if (key.length <= MAX_KEY_CHARS) return key;
    throw new TypeError(
      `batch.key returned ${key.length} characters; the limit is ${MAX_KEY_CHARS}`,
    );
  }

  // --- waiting jobs ---

  #add(member: BatchMember): void {
    let queue = this.#byKey.get(member.key);
    if (!queue) {
      queue = { key: member.key, members: [], isDue: false, cancelTimer: () => undefined };
      this.#byKey.set(member.key, queue);
      this.#queues.push(queue);
      this.#await(queue, this.#options.settings.maxWaitMs);
    }
    queue.members.push(member);
    this.#startReady();
  }

  #await(queue: KeyQueue, ms: number): void {
    queue.isDue = false;
    queue.cancelTimer = this.#options.clock.after(ms, () => {
      queue.isDue = true;
      this.#startReady();
    });
  }

  /** A waiting job leaves. */
  #drop(member: BatchMember): void {
    const queue = this.#byKey.get(member.key);
    const index = queue?.members.indexOf(member) ?? -1;
    if (!queue || index === -1) return;
    this.#replaceJobs(queue, queue.members.toSpliced(index, 1));
    this.#options.onChange();
  }

  /** The queue has these jobs from now on; its time is that of the first one. */
  #replaceJobs(queue: KeyQueue, members: BatchMember[]): void {
    const before = queue.members[0];
    queue.members = members;
    const first = members[0];
    if (first && first === before) return;
    queue.cancelTimer();
    this.#queues = this.#queues.filter((other) => other !== queue);
    if (!first) {
      this.#byKey.delete(queue.key);
      return;
    }
    this.#queues = [...this.#queues, queue].sort((a, b) => firstTime(a) - firstTime(b));
    const { clock, settings } = this.#options;
    this.#await(queue, Math.max(0, first.joinedAt + settings.maxWaitMs - clock.now()));
  }

  // --- running batches ---

  #startReady(): void {
    while (!this.#isHeld && this.#started.length < this.#options.settings.maxInFlight) {
      const { jobs } = this.#limit;
      const ready = this.#queues.find(({ isDue, members }) => isDue || members.length >= jobs);
      if (!ready) return;
      const members = ready.members.slice(0, jobs);
      this.#replaceJobs(ready, ready.members.slice(jobs));
      this.#start(members);
    }
  }

  #start(members: BatchMember[]): void {
    const batch: StartedBatch = { members, current: undefined, isOver: false };
    this.#started = [...this.#started, batch];
    this.#options.onChange();
    const { clock, settings } = this.#options;
    const waitMs = clock.now() - (members[0]?.joinedAt ?? 0);
    this.#options.onEvent({ kind: 'started', size: members.length, of: settings.maxSize, waitMs });
    void this.#runBatch(batch).then(() => this.#finish(batch));
  }

  #finish(batch: StartedBatch): void {
    if (batch.isOver) return;
    batch.isOver = true;
    this.#started = this.#started.filter((other) => other !== batch);
    this.#startReady();
    this.#options.onChange();
  }

  /** Runs a batch, and after an error its parts. Never rejects. */
  async #runBatch(batch: StartedBatch): Promise<void> {
    const { onEvent } = this.#options;
    const parts: (readonly BatchMember[])[] = [batch.members];
    for (let part = parts.shift(); part; part = parts.shift()) {
      const members = part.filter(({ isLive }) => isLive);
      if (members.length === 0) continue;
      const run = this.#createRun(members);
      batch.current = run;
      const end = await run.execute();
      batch.current = undefined;
      if (end.kind === 'ended') {
        this.#noteSuccess(members.length);
        continue;
      }
      this.#noteThrown(end.thrown, members.length);
      const left = members.filter(({ isLive }) => isLive);
      const advice = retryAdvice(end.thrown)?.kind;
      if (advice === 'released' || advice === 'after') {
        // No member is to blame, so parts would find no culprit: each might wait for a model again, or call a busy server.
        for (const member of left) member.fail(end.thrown);
        onEvent({ kind: 'failed', size: members.length });
        continue;
      }
      if (members.length > 1 && judgeContextLoss(end.thrown)) {
        // The parts would run without a context, and nobody knows whose the error is.
        const cause = end.thrown;
        for (const member of left) member.fail(new Release('suspect', { cause }));
        onEvent({ kind: 'failed', size: members.length });
        continue;
      }
      const hasStreamed = (member: BatchMember) => member.hasStreamed;
      const plan = planReruns({ size: members.length, left, hasStreamed });
      for (const member of plan.failed) member.fail(end.thrown);
      for (const member of plan.released) member.fail(new Release('neighbour'));
      if (plan.reruns.length > 0) onEvent({ kind: 'split', size: members.length });
      else onEvent({ kind: 'failed', size: members.length });
      parts.unshift(...plan.reruns);
    }
  }

  #createRun(members: readonly BatchMember[]): BatchRun {
    const { createLog, devices, lines, run } = this.#options;
    this.#batches += 1;
    const bindings = { batch: this.#batches, jobs: members.length };
    return new BatchRun({ run, members, devices, lines, createLog: () => createLog(bindings) });
  }

  // --- device memory ---

  #noteSuccess(size: number): void {
    const { lines, settings } = this.#options;
    const before = this.#limit;
    this.#limit = raiseLimit(before, size, settings.maxSize);
    if (before.jobs < settings.maxSize && this.#limit.jobs === settings.maxSize) {
      lines.writeText('info', `batches may have ${settings.maxSize} jobs again`);
    }
  }

  #noteThrown(thrown: unknown, size: number): void {
    // Alone, the job itself needs too much.
    if (size === 1 || !isDeviceMemoryError(thrown)) return;
    const { lines, settings } = this.#options;
    const before = this.#limit;
    this.#limit = lowerLimit(before, size);
    if (before.jobs < settings.maxSize) return;
    lines.writeText(
      'warn',
      `a batch of ${size} jobs ran out of device memory; batches have at most ${this.#limit.jobs} jobs for now`,
    );
  }
}

/** Number of jobs whose attempts have not ended. */
function countPresent(members: readonly BatchMember[]): number {
  return members.filter(({ isGone }) => !isGone).length;
}

function firstTime({ members }: KeyQueue): number {
  return members[0]?.joinedAt ?? 0;
}

interface ThrownBatch<Member> {
  /** Jobs with which the function was called. */
  readonly size: number;
  /** Those of them that have not ended, in order. */
  readonly left: readonly Member[];
  /** The job has sent chunks, so it cannot run again in the same attempt. */
  readonly hasStreamed: (member: Member) => boolean;
}

interface RerunPlan<Member> {
  /** It ran alone: the error is its own. */
  readonly failed: readonly Member[];
  /** New attempts, not counted as failures. */
  readonly released: readonly Member[];
  /** Batches that run next, one after the other. */
  readonly reruns: readonly (readonly Member[])[];
}

/**
 * A job fails only if it ran alone. Otherwise the jobs run again in two halves, until the one that
 * throws is alone: at most 2n − 1 runs for a batch of n.
 */
export function planReruns<Member>(batch: ThrownBatch<Member>): RerunPlan<Member> {
  const { hasStreamed, left, size } = batch;
  if (size === 1) return { failed: left, released: [], reruns: [] };
  const released: Member[] = [];
  const again: Member[] = [];
  for (let index = 0; index < left.length; index += 1) {
    const member = left[index];
    if (member === undefined) continue;
    const list = hasStreamed(member) ? released : again;
    list[list.length] = member;
  }
  if (again.length === 0) return { failed: [], released, reruns: [] };
  if (again.length === 1) return { failed: [], released, reruns: [again] };
  const middle = (again.length + 1) >> 1;
  return { failed: [], released, reruns: [cut(again, 0, middle), cut(again, middle)] };
}

function cut<Item>(items: readonly Item[], start: number, end = items.length): Item[] {
  const part: Item[] = [];
  for (let index = start; index < end; index += 1) {
    const item = items[index];
    if (item !== undefined) part[part.length] = item;
  }
  return part;
}

/** How many jobs a batch may have at the moment. */
export interface SizeLimit {
  /** 1 to `maxSize`. */
  readonly jobs: number;
  /** Batches of that size that have succeeded since the last change. */
  readonly succeeded: number;
  /** Successes after which the limit grows. Doubles whenever memory runs out again. */
  readonly needed: number;
}

const FIRST_NEEDED = 32;
const MAX_NEEDED = 1_024;

export function startLimit(maxSize: number): SizeLimit {
  return { jobs: maxSize, succeeded: 0, needed: FIRST_NEEDED };
}

/** A batch of `size` jobs ran out of device memory: half of it may fit. */
export function lowerLimit(limit: SizeLimit, size: number): SizeLimit {
  const half = Math.max(1, Math.floor(size / 2));
  if (half >= limit.jobs) return { ...limit, succeeded: 0 };
  return { jobs: half, succeeded: 0, needed: Math.min(MAX_NEEDED, limit.needed * 2) };
}

/** A batch of `size` jobs has succeeded. After enough full ones, a quarter is added to the limit. */
export function raiseLimit(limit: SizeLimit, size: number, maxSize: number): SizeLimit {
  if (limit.jobs >= maxSize || size < limit.jobs) return limit;
  const succeeded = limit.succeeded + 1;
  if (succeeded < limit.needed) return { ...limit, succeeded };
  const jobs = Math.min(maxSize, limit.jobs + Math.ceil(limit.jobs / 4));
  return { jobs, succeeded: 0, needed: limit.needed };
}
