// Collects the jobs of one thread into batches, runs them, and decides what follows if one throws. run.ts
// makes one call of the batch function.
import type { Clock } from '../../base/clock.ts';
import { mapDelete, mapGet, mapSet } from '../../wire/primordials.ts';
import type { AttemptContext } from '../attempt/context.ts';
import { Release } from '../attempt/refusal.ts';
import type { Job } from '../define.ts';
import { isDeviceMemoryError } from '../device-memory-errors.ts';
import { BatchMember, type LeaveGate } from './member.ts';
import { lowerLimit, planReruns, raiseLimit, startLimit } from './policy.ts';
import { BatchRun, type BatchRunOptions } from './run.ts';
import type { BatchEvent, BatchSettings } from './settings.ts';

export interface CollectorOptions {
  settings: BatchSettings;
  key: ((input: unknown) => unknown) | undefined;
  run: BatchRunOptions['run'];
  devices: BatchRunOptions['devices'];
  clock: Clock;
  /** Creates the log of one batch with these members in every line. */
  createLog: (
    bindings: Record<string, string | number>,
  ) => ReturnType<BatchRunOptions['createLog']>;
  writeText: BatchRunOptions['writeText'];
  /** Jobs have joined, left, begun or ended: `countFree` and `fillMs` may have changed. */
  onChange: () => void;
  onEvent: (event: BatchEvent) => void;
}

/** Jobs that can share a batch, in the order of their arrival. */
interface Group {
  readonly key: string;
  members: BatchMember[];
  /** Its first job has waited long enough. */
  isDue: boolean;
  cancelTimer: () => void;
}

/** One batch with its reruns. */
interface Flight {
  members: readonly BatchMember[];
  current: BatchRun | undefined;
  isOver: boolean;
}

const MAX_KEY_CHARS = 256;

export class BatchCollector {
  readonly #options: CollectorOptions;
  readonly #byKey = new Map<string, Group>();
  /** In the order of their first jobs. */
  #groups: Group[] = [];
  #flights: Flight[] = [];
  #limit;
  #batches = 0;
  #isHeld = false;

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.#limit = startLimit(options.settings.maxSize);
  }

  /** Jobs that wait for a batch to start. */
  get waiting(): number {
    let waiting = 0;
    for (let index = 0; index < this.#groups.length; index += 1) {
      waiting += this.#groups[index]?.members.length ?? 0;
    }
    return waiting;
  }

  /** Number of further jobs that could start now or after `maxWaitMs`, if the thread has `jobs`. */
  countFree(jobs: number): number {
    const { maxInFlight } = this.#options.settings;
    let flying = 0;
    for (let index = 0; index < this.#flights.length; index += 1) {
      flying += countPresent(this.#flights[index]?.members ?? []);
    }
    const places = (maxInFlight - this.#flights.length) * this.#limit.jobs;
    return Math.max(0, places - Math.max(0, jobs - flying));
  }

  /** Time until an incomplete batch starts and takes its free places with it, ms. */
  get fillMs(): number | undefined {
    const { clock, settings } = this.#options;
    if (this.#isHeld || this.#flights.length >= settings.maxInFlight) return undefined;
    const first = this.#groups[0]?.members[0];
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
      for (let index = 0; index < this.#groups.length; index += 1) {
        const group = this.#groups[index];
        if (group) group.isDue = true;
      }
      this.#startReady();
    };
  }

  /** Frees the places of batches whose jobs have all been stopped, although their functions run on. */
  abandonStopped(): void {
    for (let index = this.#flights.length - 1; index >= 0; index -= 1) {
      const flight = this.#flights[index];
      if (flight && !flight.members.some(({ isLive }) => isLive)) this.#land(flight);
    }
  }

  #mayLeave(member: BatchMember, reason: unknown): 'now' | 'later' {
    const flight = this.#flights.find(({ members }) => members.includes(member));
    if (!flight) this.#drop(member);
    // A job that waits for its rerun is in no run.
    return flight?.current?.has(member) ? flight.current.mayLeave(reason) : 'now';
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
    let group = mapGet(this.#byKey, member.key);
    if (!group) {
      group = { key: member.key, members: [], isDue: false, cancelTimer: () => undefined };
      mapSet(this.#byKey, member.key, group);
      this.#groups[this.#groups.length] = group;
      this.#await(group, this.#options.settings.maxWaitMs);
    }
    group.members[group.members.length] = member;
    this.#startReady();
  }

  #await(group: Group, ms: number): void {
    group.isDue = false;
    group.cancelTimer = this.#options.clock.after(ms, () => {
      group.isDue = true;
      this.#startReady();
    });
  }

  /** A waiting job leaves. */
  #drop(member: BatchMember): void {
    const group = mapGet(this.#byKey, member.key);
    const index = group?.members.indexOf(member) ?? -1;
    if (!group || index === -1) return;
    this.#regroup(group, [...group.members.slice(0, index), ...group.members.slice(index + 1)]);
    this.#options.onChange();
  }

  /** The group has these jobs from now on; its time is that of the first one. */
  #regroup(group: Group, members: BatchMember[]): void {
    const before = group.members[0];
    group.members = members;
    const first = members[0];
    if (first && first === before) return;
    group.cancelTimer();
    this.#groups = this.#groups.filter((other) => other !== group);
    if (!first) {
      mapDelete(this.#byKey, group.key);
      return;
    }
    this.#groups = [...this.#groups, group].sort((a, b) => firstTime(a) - firstTime(b));
    const { clock, settings } = this.#options;
    this.#await(group, Math.max(0, first.joinedAt + settings.maxWaitMs - clock.now()));
  }

  // --- running batches ---

  #startReady(): void {
    while (!this.#isHeld && this.#flights.length < this.#options.settings.maxInFlight) {
      const { jobs } = this.#limit;
      const ready = this.#groups.find(({ isDue, members }) => isDue || members.length >= jobs);
      if (!ready) return;
      const members = ready.members.slice(0, jobs);
      this.#regroup(ready, ready.members.slice(jobs));
      this.#start(members);
    }
  }

  #start(members: BatchMember[]): void {
    const flight: Flight = { members, current: undefined, isOver: false };
    this.#flights = [...this.#flights, flight];
    this.#options.onChange();
    const { clock, settings } = this.#options;
    const waitMs = clock.now() - (members[0]?.joinedAt ?? 0);
    this.#options.onEvent({ kind: 'started', size: members.length, of: settings.maxSize, waitMs });
    void this.#fly(flight).then(() => this.#land(flight));
  }

  #land(flight: Flight): void {
    if (flight.isOver) return;
    flight.isOver = true;
    this.#flights = this.#flights.filter((other) => other !== flight);
    this.#startReady();
    this.#options.onChange();
  }

  /** Runs a batch, and after an error its parts. Never rejects. */
  async #fly(flight: Flight): Promise<void> {
    const { onEvent } = this.#options;
    const parts: (readonly BatchMember[])[] = [flight.members];
    for (let part = parts.shift(); part; part = parts.shift()) {
      const members = part.filter(({ isLive }) => isLive);
      if (members.length === 0) continue;
      const run = this.#createRun(members);
      flight.current = run;
      const end = await run.execute();
      flight.current = undefined;
      if (end.kind === 'ended') {
        this.#noteSuccess(members.length);
        continue;
      }
      this.#noteThrown(end.thrown, members.length);
      const left = members.filter(({ isLive }) => isLive);
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
    const { createLog, devices, run, writeText } = this.#options;
    this.#batches += 1;
    const bindings = { batch: this.#batches, jobs: members.length };
    return new BatchRun({ run, members, devices, writeText, createLog: () => createLog(bindings) });
  }

  // --- device memory ---

  #noteSuccess(size: number): void {
    const { settings, writeText } = this.#options;
    const before = this.#limit;
    this.#limit = raiseLimit(before, size, settings.maxSize);
    if (before.jobs < settings.maxSize && this.#limit.jobs === settings.maxSize) {
      writeText('info', `batches may have ${settings.maxSize} jobs again`);
    }
  }

  #noteThrown(thrown: unknown, size: number): void {
    // Alone, the job itself needs too much.
    if (size === 1 || !isDeviceMemoryError(thrown)) return;
    const { settings, writeText } = this.#options;
    const before = this.#limit;
    this.#limit = lowerLimit(before, size);
    if (before.jobs < settings.maxSize) return;
    writeText(
      'warn',
      `a batch of ${size} jobs ran out of device memory; batches have at most ${this.#limit.jobs} jobs for now`,
    );
  }
}

/** Number of jobs whose attempts have not ended. */
function countPresent(members: readonly BatchMember[]): number {
  let present = 0;
  for (let index = 0; index < members.length; index += 1) {
    if (members[index]?.isGone === false) present += 1;
  }
  return present;
}

function firstTime({ members }: Group): number {
  return members[0]?.joinedAt ?? 0;
}
