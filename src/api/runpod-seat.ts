// Stands in the queue for one RunPod worker, which has neither tokens nor renewals: says hello, holds its
// leases, renews them while it is heard of, and keeps the list of what it has to stop. It can be thrown
// away at any time: what it has to know is found again by the worker's id.
import { randomUUID } from 'node:crypto';
import { type Clock, sleep } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Queue } from '../queue/queue.ts';
import type { AttemptError } from '../wire/job.ts';
import {
  type Lease,
  PROTOCOL_VERSION,
  type WorkerLink,
  type WorkerWelcome,
} from '../wire/worker-link.ts';
import { HeldLease, type Saying } from './runpod-lease.ts';
import { SeatLink } from './runpod-seat-link.ts';
import { StopList } from './runpod-stops.ts';
import { Wear } from './runpod-wear.ts';

/** Smaller than that of any worker with a link of its own: these have no processes to tell apart. */
export const SEAT_INCARNATION = 0;
/** A lease lasts so many pings of its worker, and a job that so many do not name is not there. */
export const PINGS_TO_LOSE = 3;
/** What was handed over and never heard of within this time never arrived, ms. */
const HANDOVER_MS = 1_000;
/** Polls of a worker that is to be replaced are answered this often, ms. */
const WORN_POLL_MS = 1_000;
const RETRY_MS = 500;

export interface SeatOptions {
  endpointId: string;
  workerId: string;
  link: WorkerLink;
  queue: Pick<Queue, 'openLeases' | 'isClosing'>;
  clock: Clock;
  log: Log;
  /** Aborts when the platform stops. */
  closing: AbortSignal;
  /** It has fallen silent: whoever has it lets go of it. */
  onSilent: (seat: Seat) => void;
}

export interface SeatTake {
  max: number;
  /** The worker says that it has no job at all, and is one whose word on that is good. */
  isIdle: boolean;
  /** Aborts when nobody waits for the answer any more. */
  signal: AbortSignal;
}

export interface HandedOut {
  lease: Lease;
  held: HeldLease;
}

export class Seat {
  readonly held = new Map<string, HeldLease>();
  readonly #options: SeatOptions;
  readonly #identity;
  readonly #stops: StopList;
  readonly #wear: Wear;
  readonly #link: SeatLink;
  #heardAt: number;
  #pingMs = 10_000;
  #openPolls = 0;
  #openTakes = 0;
  #turn: Promise<void> = Promise.resolve();
  #isKeeping = false;
  #isShared = false;
  #ending = new AbortController();

  constructor(options: SeatOptions) {
    this.#options = options;
    this.#identity = { workerId: options.workerId, incarnation: SEAT_INCARNATION };
    this.#link = new SeatLink({
      ...options,
      identity: this.#identity,
      greet: (link) => this.#greet(link),
    });
    this.#stops = new StopList(options.clock);
    this.#wear = new Wear(options.clock, () => this.#warn('it asked to be replaced, and is not'));
    this.#heardAt = options.clock.now();
  }

  /** The worker, whatever it wants. */
  hear(): void {
    const now = this.#options.clock.now();
    const silentMs = now - this.#heardAt;
    if (this.#openPolls === 0) this.#wear.noteSilence(silentMs);
    this.#heardAt = now;
  }

  /** More than one worker goes by its name: what one of them says does not hold for the others. */
  share(): void {
    this.#isShared = true;
  }

  /** In the queue, with the leases that it has there. @throws LinkError, and what the queue throws */
  open(): Promise<WorkerWelcome> {
    return this.#link.open();
  }

  /** @throws LinkError, and what the queue throws */
  async take({ max, isIdle, signal }: SeatTake): Promise<HandedOut[]> {
    const { takeWaitMs } = await this.open();
    if (this.#openTakes > 0) this.#noteSharing();
    if (isIdle && !this.#isShared) await this.#loseAll('it says that it runs none');
    const until = this.#options.clock.now() + takeWaitMs;
    this.#openTakes += 1;
    this.#openPolls += 1;
    try {
      return await this.#inTurn(() => this.#takeNow(max, until, signal));
    } finally {
      this.hear();
      this.#openTakes -= 1;
      this.#openPolls -= 1;
    }
  }

  /** The answer that named them was not written whole. */
  async giveBack(handed: readonly HandedOut[]): Promise<void> {
    const released = { kind: 'released', reason: 'not_started' } as const;
    for (const { held } of handed) await this.#end(held, released);
  }

  /** Resolves with the names of attempts to be stopped; empty if there are none for a while. */
  async waitForStops(signal: AbortSignal): Promise<string[]> {
    const { takeWaitMs } = await this.open();
    this.#openPolls += 1;
    const ended = AbortSignal.any([signal, this.#options.closing, this.#ending.signal]);
    try {
      return await this.#stops.wait(Math.min(takeWaitMs, this.#pingMs), ended);
    } finally {
      this.hear();
      this.#openPolls -= 1;
    }
  }

  /** The answer that named them was written whole. */
  stopsTold(names: readonly string[]): Promise<void> {
    return this.#stops.told(names);
  }

  /** The worker runs something that is not, or no more, its to run. */
  stop(name: string): void {
    this.#stops.add(name);
  }

  /** What a ping of this worker says: all the jobs that it has. */
  async noteNamed(names: ReadonlySet<string>, pingMs: number): Promise<void> {
    this.#pingMs = pingMs;
    for (const held of [...this.held.values()]) {
      if (names.has(held.name)) this.noteKnown(held);
      else held.missedPings += 1;
      if (this.#isShared || held.missedPings < PINGS_TO_LOSE) continue;
      await this.#lose(held, `${PINGS_TO_LOSE} of its pings do not name it`);
    }
  }

  noteKnown(held: HeldLease): void {
    held.missedPings = 0;
    held.isKnown = true;
  }

  /** What the worker reports of an attempt. @throws LinkError, and what the queue throws */
  async report(held: HeldLease, saying: Saying, { isWorn = false } = {}) {
    this.noteKnown(held);
    const answer = await held.say(saying, { isWorn });
    const goesOn = saying.kind === 'chunks' || saying.kind === 'progress';
    if (!goesOn || answer === 'superseded' || answer === 'gone') this.#letGo(held);
    return answer;
  }

  /** It wants to be replaced: it gets nothing more, and its open polls end so that it can leave. */
  wear(): void {
    this.#wear.begin();
    this.#ending.abort();
    this.#ending = new AbortController();
  }

  /** No timer and no call of it is left to wait for. */
  close(): void {
    for (const held of this.held.values()) held.cancelTimeout();
    this.#ending.abort();
  }

  async #greet(link: WorkerLink): Promise<WorkerWelcome> {
    const { endpointId, queue, workerId } = this.#options;
    const rest = { protocol: PROTOCOL_VERSION, version: 'runpod', slots: 1 };
    const welcome = await link.hello({ ...this.#identity, ...rest, devices: [], outbox: [] });
    for (const lease of await queue.openLeases.ofWorker(endpointId, workerId)) {
      if (lease.incarnation === SEAT_INCARNATION) this.#hold(lease).isKnown = true;
    }
    // After whoever waits for this: the loop itself calls `open`.
    setImmediate(() => void this.#keep());
    return welcome;
  }

  #hold(lease: ConstructorParameters<typeof HeldLease>[0]['lease']): HeldLease {
    const { clock } = this.#options;
    const held = new HeldLease({ lease, link: this.#link, now: clock.now });
    const known = this.held.get(held.name);
    if (known) return known;
    this.held.set(held.name, held);
    const leftMs = Math.max(0, lease.startedAt + lease.executionTimeoutMs - clock.now());
    held.cancelTimeout = clock.after(leftMs, () => void this.#timeOut(held, lease));
    return held;
  }

  #letGo(held: HeldLease): void {
    held.cancelTimeout();
    if (this.held.get(held.name) === held) this.held.delete(held.name);
    this.#stops.remove(held);
  }

  // --- taking -----------------------------------------------------------------------------------

  /** One take of a worker ends the one before it: several workers of one name wait for each other. */
  async #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const before = this.#turn;
    const turn = Promise.withResolvers<void>();
    this.#turn = turn.promise;
    try {
      await before;
      return await act();
    } finally {
      turn.resolve();
    }
  }

  async #takeNow(max: number, until: number, signal: AbortSignal): Promise<HandedOut[]> {
    const { clock, closing } = this.#options;
    const ended = AbortSignal.any([signal, closing, this.#ending.signal]);
    if (this.#wear.isWorn) await sleep(clock, WORN_POLL_MS, ended);
    const waitMs = until - clock.now();
    if (waitMs <= 0 || ended.aborted || this.#wear.isWorn) return [];
    const leases = await this.#link.call((link) => {
      const held = [...this.held.values()].map(({ ref }) => ref.token);
      const request = { ...this.#identity, takeId: randomUUID(), max, waitMs, held };
      return link.take(request, ended);
    });
    const startedAt = clock.now();
    const handed = leases.map((lease) => {
      const fresh = { ...lease, startedAt, lastSeq: 0, chunkCount: 0 };
      return { lease, held: this.#hold(fresh) };
    });
    if (!ended.aborted) return handed;
    await this.giveBack(handed);
    return [];
  }

  #noteSharing(): void {
    if (!this.#isShared) this.#warn('several workers go by its id');
    this.#isShared = true;
  }

  #warn(problem: string): void {
    const { endpointId, log, workerId } = this.#options;
    log.warn({ endpoint: endpointId, workerId, problem }, 'a RunPod worker');
  }

  // --- renewing ---------------------------------------------------------------------------------

  /** Until the worker falls silent: its leases then run out. */
  async #keep(): Promise<void> {
    if (this.#isKeeping) return;
    this.#isKeeping = true;
    const { clock, closing, endpointId, log, onSilent, queue, workerId } = this.#options;
    // A queue that closes answers at once, and for ever.
    while (!closing.aborted && !queue.isClosing) {
      try {
        const { leaseMs, renewEveryMs } = await this.open();
        await this.#renew(renewEveryMs);
        // The last renewal is such that the leases outlast the pings that may be missed.
        if (this.#isSilent(renewEveryMs - leaseMs)) break;
      } catch (error) {
        log.warn({ err: error, endpoint: endpointId, workerId }, 'leases are not renewed');
        if (this.#isSilent(0)) break;
        await sleep(clock, RETRY_MS, closing);
      }
    }
    this.#isKeeping = false;
    if (!closing.aborted && !queue.isClosing) onSilent(this);
  }

  async #renew(waitMs: number): Promise<void> {
    const { closing } = this.#options;
    const { ended } = await this.#link.call((link) => {
      const leases = [...this.held.values()].map(({ ref }) => ({ ...ref, stopping: false }));
      return link.renew({ ...this.#identity, waitMs, leases }, closing);
    });
    for (const { token, verdict } of ended) {
      const held = [...this.held.values()].find(({ ref }) => ref.token === token);
      if (!held) continue;
      this.#letGo(held);
      this.#stops.add(held.name, verdict === 'cancelled' ? held : undefined);
    }
  }

  #isSilent(moreMs: number): boolean {
    if (this.#openPolls > 0) return false;
    const silentMs = this.#options.clock.now() - this.#heardAt;
    return silentMs > PINGS_TO_LOSE * this.#pingMs + moreMs;
  }

  // --- ends that the worker does not report -----------------------------------------------------

  /** These workers know of no timeout. */
  async #timeOut(held: HeldLease, { executionTimeoutMs }: { executionTimeoutMs: number }) {
    const message = `the job ran longer than its execution timeout of ${executionTimeoutMs} ms`;
    const error: AttemptError = { code: 'execution_timeout', message };
    const executionMs = Math.max(executionTimeoutMs, this.#options.clock.now() - held.startedAt);
    const outcome = { kind: 'timed_out', executionMs, error, stopped: 'signal' } as const;
    await this.#end(held, { kind: 'outcome', outcome });
    this.stop(held.name);
  }

  async #loseAll(why: string): Promise<void> {
    for (const held of [...this.held.values()]) await this.#lose(held, why);
  }

  async #lose(held: HeldLease, why: string): Promise<void> {
    const { clock, workerId } = this.#options;
    const isFresh = !held.isKnown && clock.now() - held.startedAt < HANDOVER_MS;
    if (isFresh) return await this.#end(held, { kind: 'released', reason: 'not_started' });
    const message = `worker ${workerId} has lost the job, or its result: ${why}`;
    const error: AttemptError = { code: 'worker_crashed', message };
    await this.#end(held, { kind: 'failed', error, retry: 'default' });
  }

  /** Nobody waits for this report: where it fails the lease runs out instead. */
  async #end(held: HeldLease, saying: Saying): Promise<void> {
    this.#letGo(held);
    try {
      await held.say(saying);
    } catch (error) {
      this.#options.log.warn({ err: error, job: held.ref.jobId }, 'an end was not reported');
    }
  }
}
