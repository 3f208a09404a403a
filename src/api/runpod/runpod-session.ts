// Represents one RunPod worker in the queue, because RunPod's protocol has neither tokens nor
// renewals. Says hello, takes jobs, and renews the leases in held-leases.ts while the worker sends
// requests. A session can be dropped at any time: its successor finds everything that it needs by the
// worker's ID.
import { randomUUID } from 'node:crypto';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Queues } from '../../queue/queues.ts';
import {
  type Lease,
  PROTOCOL_VERSION,
  RUNPOD_WORKER_VERSION,
  type WorkerLink,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { HeldLeases, MAX_MISSED_PINGS, type RunPodLease } from './held-leases.ts';
import { SessionLink } from './session-link.ts';
import { isSharedId, type TakeSigns } from './worker-requests.ts';

/**
 * Smaller than any incarnation of a worker with its own link: RunPod workers do not distinguish
 * processes.
 */
export const SESSION_INCARNATION = 0;
/** Interval at which polls of a worker to be replaced are answered, ms. */
const RECYCLING_POLL_MS = 1_000;
const RETRY_MS = 500;

export interface RunPodSessionOptions {
  endpointId: string;
  workerId: string;
  /** The pod of the worker's key; null without one. */
  podId: string | null;
  link: WorkerLink;
  queue: Pick<Queues, 'openLeases' | 'isClosing' | 'isClosingAt'>;
  clock: Clock;
  log: Log;
  /** Aborts when the platform stops. */
  closing: AbortSignal;
  /** The worker has fallen silent: the owner of the session drops it. */
  onSilent: (session: RunPodSession) => void;
  /** Same when this queue stops serving the endpoint; its successor finds the leases. */
  onMoved: (session: RunPodSession) => void;
}

export interface SessionTake extends TakeSigns {
  max: number;
  /** Aborts when nobody waits for the answer. */
  signal: AbortSignal;
}

export interface TakenJob {
  lease: Lease;
  held: RunPodLease;
}

export class RunPodSession {
  readonly endpointId: string;
  readonly workerId: string;
  /** The pod of the worker's key; null without one. */
  readonly podId: string | null;
  readonly held: HeldLeases;
  readonly #options: RunPodSessionOptions;
  readonly #identity;
  readonly #recycling: Recycling;
  readonly #link: SessionLink;
  readonly #activity: WorkerActivity;
  #openTakes = 0;
  #last: Promise<void> = Promise.resolve();
  #isRenewing = false;
  /** Last time at which a second take was open, Unix ms; undefined if one worker uses this ID. */
  #overlappedAt: number | undefined;
  #ending = new AbortController();

  constructor(options: RunPodSessionOptions) {
    this.#options = options;
    this.endpointId = options.endpointId;
    this.workerId = options.workerId;
    this.podId = options.podId;
    this.#identity = { workerId: options.workerId, incarnation: SESSION_INCARNATION };
    this.#link = new SessionLink({
      ...options,
      identity: this.#identity,
      sayHello: (link) => this.#sayHello(link),
    });
    this.held = new HeldLeases({ ...options, link: this.#link });
    this.#recycling = new Recycling(options.clock, () =>
      this.#warn('it asked for a new process and continues'),
    );
    this.#activity = new WorkerActivity(options.clock);
  }

  /** The worker has sent a request of any kind. */
  noteRequest(): void {
    this.#recycling.noteSilence(this.#activity.silentMs);
    this.#activity.note();
  }

  /**
   * Opens the session in the queue, with the leases that it has there. @throws LinkError, and the
   * queue's errors
   */
  open(): Promise<WorkerWelcome> {
    return this.#link.open();
  }

  /** @throws LinkError, and the queue's errors */
  async take({ max, isIdle, isNew, signal }: SessionTake): Promise<TakenJob[]> {
    const { takeWaitMs } = await this.open();
    if (this.#openTakes > 0) this.#noteOverlap();
    if (isNew) this.#recycling.end();
    if (isIdle && !this.#mayBeShared()) {
      await this.held.loseAll('its pings name no job', { hasRestarted: isNew });
    }
    const until = this.#options.clock.now() + takeWaitMs;
    this.#openTakes += 1;
    try {
      const take = () => this.#takeNow(max, until, signal);
      return await this.#activity.poll(() => this.#exclusively(take));
    } finally {
      this.#openTakes -= 1;
    }
  }

  /** The response with these jobs was not completely written. */
  async release(taken: readonly TakenJob[]): Promise<void> {
    for (const { held } of taken) await this.held.release(held);
  }

  /** Resolves with the names of attempts to stop; empty if there are none for a while. */
  async waitForStops(signal: AbortSignal): Promise<string[]> {
    const { takeWaitMs } = await this.open();
    const ended = AbortSignal.any([signal, this.#options.closing, this.#ending.signal]);
    // An exiting process waits for this response first.
    const longestMs = this.#recycling.isActive ? RECYCLING_POLL_MS : this.#activity.pingMs;
    const waitMs = Math.min(takeWaitMs, longestMs);
    return this.#activity.poll(() => this.held.stops.wait(waitMs, ended));
  }

  /** The response with these names was completely written. */
  noteStopsSent(names: readonly string[]): Promise<void> {
    return this.held.stops.noteSent(names);
  }

  /** The worker runs an attempt that is not, or no longer, its own. */
  stop(name: string): void {
    this.held.stops.add(name);
  }

  /** A ping has named all jobs of its worker. */
  async noteNamed(names: ReadonlySet<string>, pingMs: number): Promise<void> {
    this.#activity.pingMs = pingMs;
    if (this.#mayBeShared()) await this.held.noteSomeNamed(names, pingMs);
    else await this.held.noteNamed(names);
  }

  /**
   * The worker wants to be replaced: it gets no more jobs, and its open polls end so that it can
   * exit.
   */
  recycle(): void {
    this.#recycling.begin();
    this.#ending.abort();
    this.#ending = new AbortController();
  }

  /** Cancels all timers and calls. */
  close(): void {
    this.held.close();
    this.#ending.abort();
  }

  async #sayHello(link: WorkerLink): Promise<WorkerWelcome> {
    const { endpointId, queue, workerId } = this.#options;
    const rest = { protocol: PROTOCOL_VERSION, version: RUNPOD_WORKER_VERSION, slots: 1 };
    const welcome = await link.hello({ ...this.#identity, ...rest, devices: [], outbox: [] });
    for (const lease of await queue.openLeases.ofWorker(endpointId, workerId)) {
      if (lease.incarnation === SESSION_INCARNATION) this.held.add(lease).isKnown = true;
    }
    // After the waiting caller has continued, because the loop itself calls `open`.
    setImmediate(() => void this.#renewWhileActive());
    return welcome;
  }

  // --- taking -----------------------------------------------------------------------------------

  /** A take of a worker ends its previous one: workers that share an ID wait for each other. */
  async #exclusively<T>(act: () => Promise<T>): Promise<T> {
    const before = this.#last;
    const over = Promise.withResolvers<void>();
    this.#last = over.promise;
    try {
      await before;
      return await act();
    } finally {
      over.resolve();
    }
  }

  async #takeNow(max: number, until: number, signal: AbortSignal): Promise<TakenJob[]> {
    const { clock, closing } = this.#options;
    const ended = AbortSignal.any([signal, closing, this.#ending.signal]);
    if (this.#recycling.isActive) await sleep(clock, RECYCLING_POLL_MS, ended);
    const waitMs = until - clock.now();
    if (waitMs <= 0 || ended.aborted || this.#recycling.isActive) return [];
    const leases = await this.#link.call((link) => {
      const held = this.held.refs.map(({ token }) => token);
      const request = { ...this.#identity, takeId: randomUUID(), max, waitMs, held };
      return link.take(request, ended);
    });
    const startedAt = clock.now();
    const taken = leases.map((lease) => {
      const fresh = { ...lease, startedAt, lastSeq: 0, chunkCount: 0, isBroken: false };
      return { lease, held: this.held.add(fresh) };
    });
    if (!ended.aborted) return taken;
    await this.release(taken);
    return [];
  }

  /**
   * Several workers may use this ID, so what one of them says does not apply to the others. One worker whose
   * connection broke looks the same at first. It is one worker if for three pings no second take was open, and
   * no job was named or taken.
   */
  #mayBeShared(): boolean {
    if (isSharedId(this.workerId)) return true;
    if (this.#overlappedAt === undefined) return false;
    const withinMs = MAX_MISSED_PINGS * this.#activity.pingMs;
    const isRecent = this.#options.clock.now() - this.#overlappedAt < withinMs;
    if (!isRecent && !this.held.isAnyNamed(withinMs)) this.#overlappedAt = undefined;
    return this.#overlappedAt !== undefined;
  }

  #noteOverlap(): void {
    if (!this.#mayBeShared())
      this.#warn('it has two takes open: other workers use its ID, or it has reconnected');
    this.#overlappedAt = this.#options.clock.now();
  }

  #warn(problem: string): void {
    const { endpointId, log, workerId } = this.#options;
    log.warn({ endpoint: endpointId, workerId, problem }, 'RunPod worker violates the protocol');
  }

  // --- renewing ---------------------------------------------------------------------------------

  /** Renews until the worker falls silent; its leases then expire. */
  async #renewWhileActive(): Promise<void> {
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    const { clock, closing, endpointId, log, onMoved, onSilent, queue, workerId } = this.#options;
    const activity = this.#activity;
    // A closing queue answers each renewal at once, so the loop would spin.
    while (!closing.aborted && !queue.isClosingAt(endpointId)) {
      try {
        const { leaseMs, renewEveryMs } = await this.open();
        const terms = { leaseMs, renewEveryMs, pingMs: activity.pingMs };
        if (activity.silentMs >= findLeaseEndMs(terms)) break;
        if (activity.silentMs < findQuietMs(terms)) await this.#renew(renewEveryMs);
        // The leases expire by themselves, unless the worker sends a request first.
        else await activity.waitForRequest(findLeaseEndMs(terms), closing);
      } catch (error) {
        log.warn({ err: error, endpoint: endpointId, workerId }, 'lease renewal failed');
        if (activity.silentMs >= MAX_MISSED_PINGS * activity.pingMs) break;
        await sleep(clock, RETRY_MS, closing);
      }
    }
    this.#isRenewing = false;
    if (closing.aborted || queue.isClosing) return;
    if (queue.isClosingAt(endpointId)) onMoved(this);
    else onSilent(this);
  }

  async #renew(waitMs: number): Promise<void> {
    const { closing } = this.#options;
    const { ended } = await this.#link.call((link) => {
      const leases = this.held.refs.map((ref) => ({ ...ref, stopping: false }));
      return link.renew({ ...this.#identity, waitMs, leases }, closing);
    });
    this.held.noteEnded(ended);
  }
}

interface SilenceTerms {
  leaseMs: number;
  renewEveryMs: number;
  pingMs: number;
}

/** How long a lease lasts after the worker's last request: three pings, and at least a lease. */
function findLeaseEndMs({ leaseMs, pingMs }: SilenceTerms): number {
  return Math.max(MAX_MISSED_PINGS * pingMs, leaseMs);
}

/**
 * The silence after which leases are no longer renewed: the last renewal was up to a renewal's wait
 * ago.
 */
function findQuietMs(terms: SilenceTerms): number {
  const { leaseMs, renewEveryMs } = terms;
  return findLeaseEndMs(terms) - leaseMs + renewEveryMs;
}

/** How long a worker has been silent. One that waits for an answer is not silent. */
class WorkerActivity {
  /** Interval of the worker's pings, ms. */
  pingMs = 10_000;
  readonly #clock: Clock;
  #lastRequestAt: number;
  #openPolls = 0;
  /** Aborts when the worker sends a request again. */
  #quiet: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastRequestAt = clock.now();
  }

  get silentMs(): number {
    return this.#openPolls > 0 ? 0 : this.#clock.now() - this.#lastRequestAt;
  }

  /** The worker has sent a request, or got the answer to one. */
  note(): void {
    this.#lastRequestAt = this.#clock.now();
    this.#quiet?.abort();
  }

  /** Runs a poll of the worker, which is active until the poll ends. */
  async poll<T>(run: () => Promise<T>): Promise<T> {
    this.#openPolls += 1;
    try {
      return await run();
    } finally {
      this.note();
      this.#openPolls -= 1;
    }
  }

  /** Waits for the next request, at most until the worker has been silent for `silentMs`. */
  async waitForRequest(silentMs: number, signal: AbortSignal): Promise<void> {
    this.#quiet = new AbortController();
    const leftMs = Math.max(0, silentMs - this.silentMs);
    await sleep(this.#clock, leftMs, AbortSignal.any([signal, this.#quiet.signal]));
    this.#quiet = undefined;
  }
}

/** A worker that has asked and was silent for this long has exited, ms. */
const GONE_MS = 2_000;
/** A worker that has asked and still polls after this time is not being replaced, ms. */
const UNREPLACED_MS = 30_000;

/**
 * Decides when a worker that has asked to be replaced gets jobs again: after its successor has arrived, or if nobody
 * replaces it. Both use the same ID: the successor is recognised by its first take, or by a silence before it.
 */
class Recycling {
  readonly #clock: Clock;
  readonly #onNotReplaced: () => void;
  #since: number | undefined;

  /** `onNotReplaced`: the worker is not replaced and gets jobs again. */
  constructor(clock: Clock, onNotReplaced: () => void) {
    this.#clock = clock;
    this.#onNotReplaced = onNotReplaced;
  }

  begin(): void {
    this.#since = this.#clock.now();
  }

  /** A request has arrived after this silence. */
  noteSilence(silentMs: number): void {
    if (silentMs >= GONE_MS) this.end();
  }

  /** The successor has arrived. */
  end(): void {
    this.#since = undefined;
  }

  get isActive(): boolean {
    if (this.#since === undefined) return false;
    if (this.#clock.now() - this.#since < UNREPLACED_MS) return true;
    this.#since = undefined;
    this.#onNotReplaced();
    return false;
  }
}
