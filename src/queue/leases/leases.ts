// Gives leases to workers and ends them: hello, take, bye. renewals.ts extends leases.
import type { Waiter } from '../../base/waiters.ts';
import type { StoredJob, Transaction } from '../../store/store.ts';
import { isRetryPolicy, type RetryPolicy } from '../../wire/job/retry-policy.ts';
import {
  CAPABILITIES,
  type Lease,
  LinkError,
  PROTOCOL_VERSION,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import type { StepOn } from '../changes.ts';
import { putInputSchema } from '../input-schemas.ts';
import { joinPolicies } from '../lifecycle/retry.ts';
import type { QueueParts } from '../queue-parts.ts';
import { completeLeases, endLeases, type GivenLease, leaseJob, repeatLeases } from './handover.ts';
import { type HeldLease, isHeldBack, type PresentWorker } from './presence.ts';

/**
 * A take returns no more leases after their inputs reach this total size, so that the first job does
 * not wait for the transfer of the others.
 */
const MAX_TAKE_BYTES = 4 * 1_048_576;
/** Inputs that are read together at first; each time twice as many. */
const INPUTS_READ = 32;

/** A reason of its own, because abort() without one makes an error with its stack at each take. */
const SUPERSEDED = 'a newer take of the worker has come';

/**
 * A take that passed over jobs of groups at their limit looks again after this time, ms: another limit wakes nobody.
 * Beyond this number of such takes they look again later, so that together they cost a small part of a processor.
 */
const BLOCKED_WAIT_MS = 1_000;
const BLOCKED_TAKES = 500;

const ENDPOINT_GONE_RETRY_MS = 10_000;

const OFFERED: ReadonlySet<string> = new Set(CAPABILITIES);

export type LeasesOptions = Pick<
  QueueParts,
  | 'arrivals'
  | 'changes'
  | 'clock'
  | 'closing'
  | 'inputSchemas'
  | 'limits'
  | 'payloads'
  | 'presence'
  | 'removal'
  | 'settings'
  | 'signals'
  | 'store'
  | 'tracing'
>;

export class Leases {
  readonly #options: LeasesOptions;
  /** Takes that wait because groups are at their limit. */
  #blockedTakes = 0;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** `podId`: the pod of the caller's key; null without one. */
  async hello(
    endpointId: string,
    hello: WorkerHello,
    podId: string | null,
  ): Promise<WorkerWelcome> {
    const { changes, clock, inputSchemas, presence, settings } = this.#options;
    if (hello.protocol !== PROTOCOL_VERSION) {
      throw new LinkError(
        'invalid',
        `the platform speaks worker protocol ${PROTOCOL_VERSION}, worker ${hello.workerId} speaks ${hello.protocol}`,
      );
    }
    const missing = hello.requires?.find((name) => !OFFERED.has(name));
    if (missing !== undefined) {
      throw new LinkError(
        'invalid',
        `worker ${hello.workerId} requires '${missing}', which this platform does not support`,
      );
    }
    const worker = {
      endpointId,
      id: hello.workerId,
      podId,
      incarnation: hello.incarnation,
      slots: hello.slots,
      version: hello.version,
      devices: hello.devices,
      retry: readPolicy(hello.retry),
      helloAt: clock.now(),
    };
    const schema = inputSchemas.compare(endpointId, hello);
    const delivering = await changes.commit((tx, step) => {
      const known = tx.worker(endpointId, hello.workerId);
      if (known && known.incarnation > hello.incarnation) {
        throw new LinkError('stale_incarnation', `incarnation ${known.incarnation} said hello`);
      }
      if (tx.endpoint(endpointId)?.deleted) throw endpointGone(endpointId);
      tx.putWorker(worker);
      if (schema) putInputSchema(tx, schema, clock.now());
      const jobs = tx.jobsOfWorker(endpointId, hello.workerId);
      const older = jobs.filter((job) => job.lease && job.lease.incarnation < hello.incarnation);
      const outbox = new Set(hello.outbox.map((ref) => ref.token));
      endLeases(step, older, outbox, hello.incarnation, {
        reason: 'crashed',
        detail: 'a new process runs under its id',
      });
      return jobs.filter((job) => job.lease && outbox.has(job.lease.token));
    });
    if (schema) inputSchemas.note(schema);
    presence.arrive(worker, clock.now(), { delivering, start: hello.start });
    const { leaseMs, renewEveryMs, takeWaitMs } = settings;
    const capabilities = [...CAPABILITIES];
    return { protocol: PROTOCOL_VERSION, capabilities, leaseMs, renewEveryMs, takeWaitMs };
  }

  async bye(endpointId: string, bye: WorkerBye): Promise<void> {
    const { changes, presence } = this.#options;
    const known = presence.find(endpointId, bye.workerId);
    // The worker is already gone: the answer to the first bye was lost.
    if (!known) return;
    // A crash report may arrive after the hello of the next process, which has ended these leases.
    if (bye.reason === 'crashed' && bye.incarnation < known.incarnation) return;
    const worker = presence.require(endpointId, bye);
    worker.draining = true;
    worker.openTake?.abort();
    await changes.commit((tx, step) => {
      const stored = tx.worker(endpointId, bye.workerId);
      // The next process has just said hello.
      if (stored && stored.incarnation > bye.incarnation) return;
      const jobs = tx.jobsOfWorker(endpointId, bye.workerId);
      const delivering = new Set(bye.outbox.map((ref) => ref.token));
      const why = { reason: bye.reason, detail: bye.detail ?? 'its supervisor saw it die' };
      endLeases(step, jobs, delivering, bye.incarnation, why);
      tx.removeWorker(endpointId, bye.workerId);
    });
    presence.leave(worker);
  }

  async take(endpointId: string, request: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { clock, closing, payloads, presence, settings, signals, store } = this.#options;
    const worker = presence.require(endpointId, request);
    worker.seenAt = clock.now();
    if (isOutdated(worker, request)) return [];
    worker.openTake?.abort(SUPERSEDED);
    const superseded = new AbortController();
    worker.openTake = superseded;
    const until = clock.now() + Math.min(request.waitMs, settings.takeWaitMs);
    const ended = AbortSignal.any([signal, superseded.signal, closing]);
    await this.#compareHeld(worker, request);
    const pollAgain = () => this.#poll(worker, request, ended);
    let poll = pollAgain();
    let woken = false;
    for (;;) {
      let next: Poll | undefined;
      try {
        const { hasMore, isBarred, isBlocked, leases } = await poll.handover;
        const leftMs = until - clock.now();
        if (leases.length > 0) return await completeLeases(endpointId, leases, { payloads, store });
        // One that is to be parked waits for the end of its takes.
        if ((leftMs <= 0 && !hasMore) || isHeldBack(worker)) return [];
        if (ended.aborted) break;
        if (!hasMore) {
          // A take that gets no job must not consume the single wake-up of a new job.
          const waiter = isBarred ? poll.barred : poll.ready;
          const wait = (ms: number) =>
            waiter.wait(ms, ended, () => {
              next = pollAgain();
            });
          woken = isBlocked ? await this.#waitBlocked(wait, leftMs) : await wait(leftMs);
        }
      } finally {
        poll.ready.close();
        poll.barred.close();
      }
      poll = next ?? pollAgain();
    }
    // The job that woke this take was already taken.
    if (woken) signals.wakeTaker(endpointId);
    return [];
  }

  async #waitBlocked(wait: (ms: number) => Promise<boolean>, leftMs: number): Promise<boolean> {
    this.#blockedTakes += 1;
    const slowdown = Math.max(1, this.#blockedTakes / BLOCKED_TAKES);
    try {
      return await wait(Math.min(leftMs, BLOCKED_WAIT_MS * slowdown));
    } finally {
      this.#blockedTakes -= 1;
    }
  }

  /**
   * Compares the leases that the platform gave with those that the worker names. A given lease that
   * the worker does not name never arrived: it ends. An expired lease that the worker names is renewed;
   * otherwise the worker would get the job that it already runs.
   */
  async #compareHeld(worker: PresentWorker, request: TakeRequest): Promise<void> {
    const held = new Set(request.held);
    const differing = [...worker.leases.values()].filter(({ delivering, lost, token, takeId }) =>
      held.has(token) ? lost : !delivering && takeId !== request.takeId,
    );
    if (differing.length === 0) return;
    await this.#options.changes.commit((tx, step) => settleHeld(tx, step, { differing, held }));
  }

  /** Leases ready jobs, and opens waiters for changes after that moment. */
  #poll(worker: PresentWorker, request: TakeRequest, ended: AbortSignal): Poll {
    const { signals } = this.#options;
    const ready = signals.jobsReady(worker.endpointId);
    const barred = signals.takersBarred(worker.endpointId);
    return { ready, barred, handover: this.#leaseReady(worker, request, ended) };
  }

  /**
   * Leases ready jobs unless the take has ended meanwhile: a lease without a waiting worker delays
   * the job.
   */
  #leaseReady(worker: PresentWorker, request: TakeRequest, ended: AbortSignal): Promise<Handover> {
    return this.#options.changes.commit((tx, step, now) =>
      ended.aborted ? NOTHING : this.#give(tx, step, { worker, request, now }),
    );
  }

  #give(
    tx: Transaction,
    step: StepOn,
    { now, request, worker }: { worker: PresentWorker; request: TakeRequest; now: number },
  ): Handover {
    const { limits, payloads, presence, signals, tracing } = this.#options;
    const held = [...worker.leases.values()];
    const given = held.filter(({ takeId }) => takeId === request.takeId);
    const again = repeatLeases(tx, given, { payloads, tracing });
    if (again.length > 0) return { ...NOTHING, leases: again };
    const isBarred = worker.draining || isHeldBack(worker) || held.some(({ solo }) => solo);
    if (isBarred) return { ...NOTHING, isBarred };
    const running = new Set(request.held);
    const limit = request.max + presence.claimedCount;
    const { endpointId } = worker;
    const found = limits.find(tx, worker, { limit, now, isTake: true });
    const { hasMore, isAtLimit, isBlocked, jobs } = found;
    signals.noteBlocked(endpointId, isBlocked);
    // The lease expired while this take waited: the worker still runs the job.
    const free = jobs.filter(({ lease }) => !lease || !running.has(lease.token));
    const { takeId } = request;
    const choice = this.#chooseAll(tx, free, { request, worker });
    const ofEndpoint = tx.endpoint(worker.endpointId)?.settings.retry;
    const retry = joinPolicies(ofEndpoint, worker.retry);
    const leases = choice.chosen.map(({ input, job }) =>
      leaseJob(step, { job, worker, takeId, input, retry, tracing }),
    );
    // A worker that may take nothing needs no more jobs.
    const needsMore = hasMore && !choice.isBarred;
    const started = choice.chosen.map(({ job }) => job);
    limits.noteGranted(tx, { endpointId, jobs: started, now, search: found });
    return { leases, isBarred: choice.isBarred, isBlocked: isAtLimit, hasMore: needsMore };
  }

  /** Reads their inputs too, before any of them is leased. */
  #chooseAll(
    tx: Transaction,
    jobs: readonly StoredJob[],
    { request, worker }: { worker: PresentWorker; request: TakeRequest },
  ): { chosen: Chosen[]; isBarred: boolean } {
    const { arrivals, payloads } = this.#options;
    const chosen: Chosen[] = [];
    let bytes = 0;
    for (let at = 0, count = INPUTS_READ; at < jobs.length; at += count, count *= 2) {
      const some = jobs.slice(at, at + count);
      const stored = some.map(({ id }) => id).filter((id) => !arrivals.get(id));
      const inputs = tx.inputsUpTo(worker.endpointId, stored, payloads.partBytes);
      for (const job of some) {
        const choice = this.#choose(worker, job, chosen.length);
        if (choice === 'skip') continue;
        if (choice === 'stop') return { chosen, isBarred: true };
        const input = arrivals.get(job.id) ?? inputs.get(job.id);
        chosen.push({ job, input });
        bytes += typeof input === 'number' ? input : (input?.length ?? 0);
        bytes += job.attachment?.handlerData?.length ?? 0;
        const isEnough = chosen.length === request.max || bytes >= MAX_TAKE_BYTES;
        if (job.solo || isEnough) return { chosen, isBarred: false };
      }
    }
    return { chosen, isBarred: false };
  }

  #choose(worker: PresentWorker, job: StoredJob, taken: number): 'take' | 'skip' | 'stop' {
    if (!job.solo) return 'take';
    if (taken > 0) return 'stop';
    const { clock, presence, settings } = this.#options;
    const claim = presence.claimSolo(worker, job, clock.now() - settings.leaseMs);
    if (claim === 'now') return 'take';
    return claim === 'someone_else' ? 'skip' : 'stop';
  }
}

/**
 * Whether a newer take of the worker has come before this one. The older one names an outdated set of held leases: it
 * would release leases that run.
 */
function isOutdated(worker: PresentWorker, { seq }: TakeRequest): boolean {
  if (seq === undefined) return false;
  if (seq < worker.takeSeq) return true;
  worker.takeSeq = seq;
  return false;
}

/** The check of hello has read it before. */
function readPolicy(text = 'null'): RetryPolicy | null {
  const policy: unknown = JSON.parse(text);
  return isRetryPolicy(policy) ? policy : null;
}

/** The same error as for an endpoint that does not exist yet, so that workers retry slowly. */
function endpointGone(endpointId: string): LinkError {
  return new LinkError('unavailable', `endpoint ${endpointId} not found`, {
    retryAfterMs: ENDPOINT_GONE_RETRY_MS,
  });
}

interface Chosen {
  job: StoredJob;
  input: Uint8Array | number | undefined;
}

interface Poll {
  /** Woken when a job is ready. */
  ready: Waiter;
  /** Woken when a worker that may take nothing may take again. */
  barred: Waiter;
  handover: Promise<Handover>;
}

interface Handover {
  leases: GivenLease[];
  /** Jobs may be ready, but not for this worker at the moment. */
  isBarred: boolean;
  /** Jobs may be ready, but their groups are at the limit. */
  isBlocked: boolean;
  /** The search for jobs was cut short. */
  hasMore: boolean;
}

const NOTHING: Handover = { leases: [], isBarred: false, isBlocked: false, hasMore: false };

function settleHeld(
  tx: Transaction,
  step: StepOn,
  { differing, held }: { differing: readonly HeldLease[]; held: ReadonlySet<string> },
): void {
  tx.each(differing, (key) => tx.job(key));
  for (const { token, ...key } of differing) {
    const job = tx.job(key);
    if (job?.lease?.token !== token) continue;
    step(job, { type: held.has(token) ? 'renew' : 'not_received' });
  }
}
