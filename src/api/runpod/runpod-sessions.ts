// The sessions of RunPod workers over all endpoints, by worker and by attempt. Nothing here
// outlives the process; unknown workers and attempts are looked up in the queue.
import { setMaxListeners } from 'node:events';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import type { Queues } from '../../queue/queues.ts';
import { LinkError, type WorkerLink } from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { WorkerAllowance } from '../worker/worker-allowance.ts';
import type { RunPodLease } from './held-leases.ts';
import { RunPodSession, SESSION_INCARNATION } from './runpod-session.ts';
import { isSharedId, readAttemptName } from './worker-requests.ts';

export interface RunPodSessionsOptions {
  /** Undefined if the endpoint does not exist. `podId`: the pod of the worker's key. */
  linkTo: (endpointId: string, podId: string | null) => WorkerLink | undefined;
  /** These workers carry no token: after a restart their leases are found by job and attempt. */
  queue: Pick<Queues, 'openLeases' | 'isClosing' | 'isClosingAt' | 'bridge'>;
  clock: Clock;
  log: Log;
  /** Default: no limit of workers per key. */
  allowance?: WorkerAllowance | undefined;
}

/** Sender of a request. `podId`: the pod of its key; null without one. */
export interface WorkerCaller {
  endpointId: string;
  workerId: string;
  podId: string | null;
}

export interface SessionLease {
  session: RunPodSession;
  held: RunPodLease;
}

export class RunPodSessions {
  readonly #options: RunPodSessionsOptions;
  /** By endpoint, then by worker. */
  readonly #sessions = new Map<string, Map<string, RunPodSession>>();
  readonly #closing = new AbortController();
  readonly #parking: Parking;

  constructor(options: RunPodSessionsOptions) {
    this.#options = options;
    this.#parking = new Parking(options.clock);
    // Each open poll listens to it.
    setMaxListeners(0, this.#closing.signal);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Like `use`, for a worker with this key. @throws ProblemError `not_found`, `rate_limited` */
  admit(holder: KeyHolder | undefined, endpointId: string, workerId: string): RunPodSession {
    const { allowance } = this.#options;
    const worker = { endpointId, workerId };
    if (holder) allowance?.countId(holder, worker);
    const session = this.use(endpointId, workerId, holder?.podId ?? null);
    // The caller opens it too, and gets the error.
    if (holder) allowance?.noteArriving(worker, session.open()).catch(() => {});
    return session;
  }

  /**
   * Returns the worker's session, creating it if necessary. `podId`: the pod of the worker's key; a
   * pod's key takes the session over from any other key. @throws ProblemError `not_found`
   */
  use(endpointId: string, workerId: string, podId: string | null): RunPodSession {
    const known = this.find(endpointId, workerId);
    const isTakenOver = known !== undefined && podId !== null && known.podId !== podId;
    if (isTakenOver) this.#drop(endpointId, workerId, known);
    const session = known && !isTakenOver ? known : this.#create(endpointId, workerId, podId);
    const sessions = this.#sessions.get(endpointId) ?? new Map<string, RunPodSession>();
    this.#sessions.set(endpointId, sessions.set(workerId, session));
    session.noteRequest();
    return session;
  }

  find(endpointId: string, workerId: string): RunPodSession | undefined {
    return this.#sessions.get(endpointId)?.get(workerId);
  }

  /** The session of the caller, if there is one. */
  findOwn(caller: WorkerCaller): RunPodSession | undefined {
    const session = this.find(caller.endpointId, caller.workerId);
    return session && isOwn(caller, session) ? session : undefined;
  }

  /**
   * An attempt of the caller. Undefined if it is another worker's, is over, or a newer one has begun. These
   * workers have no tokens, so the worker's ID and the pod of its key must be those of the take.
   */
  async locate(caller: WorkerCaller, name: string): Promise<SessionLease | undefined> {
    const { endpointId, podId } = caller;
    for (const session of this.#sessions.get(endpointId)?.values() ?? []) {
      const held = session.held.get(name);
      if (held) return this.#isOwn(caller, session) ? { session, held } : undefined;
    }
    const attempt = readAttemptName(name);
    if (!attempt) return undefined;
    const { openLeases } = this.#options.queue;
    const lease = await openLeases.ofJob({ endpointId, id: attempt.jobId });
    // The lease belongs to a worker with its own link.
    if (lease?.incarnation !== SESSION_INCARNATION) return undefined;
    if (!this.#isOwn(caller, { workerId: lease.workerId, podId: null })) return undefined;
    const session = this.use(endpointId, lease.workerId, podId);
    await session.open();
    const held = session.held.get(name);
    return held && { session, held };
  }

  /** While the platform stops, a chunk waits for the end and is then rejected. @throws LinkError */
  hold({ held }: SessionLease): Promise<void> {
    return this.#parking.hold(held);
  }

  /** The platform stops: resolves when each streaming worker can send its chunk again later. */
  async stopStreams(): Promise<void> {
    const { log, queue } = this.#options;
    const listStreaming = () =>
      [...this.#sessions.values()]
        .flatMap((sessions) => [...sessions.values()])
        .flatMap(({ held }) => held.streaming);
    const parked = await this.#parking.park(listStreaming);
    queue.bridge(parked.map(({ ref }) => ref.token));
    const attempts = listStreaming().filter((held) => !parked.includes(held)).length;
    if (attempts > 0) log.warn({ attempts }, 'stopping while RunPod workers may lose chunks');
  }

  /** A client has received chunks of the attempt. */
  async isShown(endpointId: string, { held }: SessionLease): Promise<boolean> {
    const { openLeases } = this.#options.queue;
    const lease = await openLeases.ofJob({ endpointId, id: held.ref.jobId });
    return lease?.isShown ?? false;
  }

  close(): void {
    this.#closing.abort();
    for (const sessions of this.#sessions.values())
      for (const session of sessions.values()) session.close();
  }

  #isOwn(caller: WorkerCaller, owner: Owner): boolean {
    if (isOwn(caller, owner)) return true;
    const { endpointId: endpoint, workerId } = caller;
    const problem = `it names a job of worker ${owner.workerId}`;
    this.#options.log.warn({ endpoint, workerId, problem }, 'RunPod worker violates the protocol');
    return false;
  }

  #create(endpointId: string, workerId: string, podId: string | null): RunPodSession {
    const { clock, linkTo, log, queue } = this.#options;
    const link = linkTo(endpointId, podId);
    if (!link) throw new ProblemError('not_found', `endpoint ${endpointId} not found`);
    const session = new RunPodSession({
      endpointId,
      workerId,
      podId,
      link,
      queue,
      clock,
      log,
      closing: this.closing,
      onSilent: (session) => void this.#remove(endpointId, workerId, session),
      onMoved: (session) => this.#drop(endpointId, workerId, session),
    });
    // Only an open session detects that its worker falls silent. The caller opens it too, and gets
    // the error.
    session.open().catch(() => this.#drop(endpointId, workerId, session));
    return session;
  }

  #drop(endpointId: string, workerId: string, session: RunPodSession): void {
    const sessions = this.#sessions.get(endpointId);
    if (sessions?.get(workerId) === session) sessions.delete(workerId);
    if (sessions?.size === 0) this.#sessions.delete(endpointId);
    session.close();
  }

  /**
   * Its leases expire by themselves. If the worker sends a request again, it gets a new session.
   */
  async #remove(endpointId: string, workerId: string, session: RunPodSession): Promise<void> {
    const { linkTo, log } = this.#options;
    this.#drop(endpointId, workerId, session);
    if (session.held.size > 0) {
      const about = { endpoint: endpointId, workerId, jobs: session.held.size };
      log.warn(about, 'worker stopped sending pings, its leases expire');
      return;
    }
    try {
      const identity = { workerId, incarnation: SESSION_INCARNATION };
      await linkTo(endpointId, session.podId)?.bye({ ...identity, reason: 'drained', outbox: [] });
    } catch (error) {
      log.debug(
        { err: error, endpoint: endpointId, workerId },
        'releasing the leases of a worker failed',
      );
    }
  }
}

type Owner = Pick<WorkerCaller, 'podId' | 'workerId'>;

/** The caller is this worker, or one of several with a shared ID. */
function isOwn(caller: WorkerCaller, { podId, workerId }: Owner): boolean {
  if (isSharedId(workerId)) return true;
  return workerId === caller.workerId && (podId === null || podId === caller.podId);
}

/** How long to wait for the next chunk of a worker that has yielded before, ms. */
const PARK_MS = 2_000;
const POLL_MS = 20;

/**
 * Holds chunks during the last seconds of a stopping platform. A runpod-python worker drops a chunk that it cannot
 * deliver. If the answer is 503, it repeats the chunk after 2 s. So chunks wait here and get 503 at the end: their
 * workers then send nothing while the platform is down.
 */
class Parking {
  readonly #clock: Clock;
  readonly #held = new Set<RunPodLease>();
  #over: PromiseWithResolvers<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves at once unless the platform stops. @throws LinkError `unavailable` when it exits */
  async hold(held: RunPodLease): Promise<void> {
    if (!this.#over) return;
    this.#held.add(held);
    await this.#over.promise;
    throw new LinkError('unavailable', 'the platform is stopping');
  }

  /**
   * Waits for the next chunk of the attempts in `listStreaming`.
   * @returns the attempts whose chunk has arrived: their workers send it again later, so no chunk
   * is missing
   */
  async park(listStreaming: () => readonly RunPodLease[]): Promise<RunPodLease[]> {
    this.#over ??= Promise.withResolvers();
    const until = this.#clock.now() + PARK_MS;
    const isComplete = () => listStreaming().every((held) => this.#held.has(held));
    while (!isComplete() && this.#clock.now() < until) await sleep(this.#clock, POLL_MS);
    // Collected before the answer, which refuses a chunk of each of them.
    const whole = [...this.#held].filter(({ isBroken }) => !isBroken);
    this.#over.resolve();
    return whole;
  }
}
