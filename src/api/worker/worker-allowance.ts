// Limits the calls and the worker IDs of one key. Worker IDs are also limited per user, because a user
// can rotate a key or create more.
import type { KeyHolder } from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type CreateRateCounter,
  createMemoryCounter,
  type RateCounter,
} from '../limits/rate-limit.ts';

/**
 * Length of the window in which calls are counted, s. Shorter than a lease, so that a refused renewal
 * can succeed before its lease expires.
 */
export const WORKER_CALL_WINDOW_S = 10;

export interface WorkerLimits {
  /** Calls with one worker key in 10 s. Default 50,000. */
  calls: number;
  /** Live worker IDs of one key. Default 1,000. */
  ids: number;
  /** Live worker IDs of one user, over all keys. Default 2,000. */
  userids: number;
}

export const DEFAULT_WORKER_LIMITS: WorkerLimits = { calls: 50_000, ids: 1_000, userids: 2_000 };

/** Retry-After for a worker beyond the limit, ms: other workers may have left by then. */
const IDS_RETRY_MS = 10_000;

export interface WorkerAllowanceOptions {
  limits: WorkerLimits;
  /** Whether the worker is live: it has said hello, has not said bye, and the queue still knows it. */
  isPresent: (endpointId: string, workerId: string) => boolean;
  /** Counts the calls. Default: in memory. */
  createCounter?: CreateRateCounter | undefined;
}

type Caller = Pick<KeyHolder, 'keyId' | 'userId'>;

interface WorkerName {
  endpointId: string;
  workerId: string;
}

/** The key of each worker's last hello, by endpoint and worker ID. */
type UserIds = Map<string, Map<string, string>>;

export class WorkerAllowance {
  readonly #options: WorkerAllowanceOptions;
  readonly #calls: RateCounter;
  readonly #ids = new Map<string, UserIds>();
  /** Hellos under way by worker: until one has ended, the queue does not know the worker. */
  readonly #arriving = new Map<string, number>();

  constructor(options: WorkerAllowanceOptions) {
    this.#options = options;
    const { createCounter = createMemoryCounter, limits } = options;
    const rule = { name: 'worker calls', limit: limits.calls, seconds: WORKER_CALL_WINDOW_S };
    this.#calls = createCounter(rule);
  }

  /** Counts a call. @throws ProblemError `rate_limited` */
  async countCall(keyId: string): Promise<void> {
    const { isAdmitted, msBeforeNext } = await this.#calls.take(keyId);
    if (isAdmitted) return;
    const { calls } = this.#options.limits;
    const detail = `more than ${calls} worker calls with one key in ${WORKER_CALL_WINDOW_S} s`;
    throw new ProblemError('rate_limited', detail, { retryAfterMs: msBeforeNext });
  }

  /**
   * Counts the ID, and says hello. @throws ProblemError `rate_limited`, and what `hello` throws
   */
  async admit<T>(caller: Caller, worker: WorkerName, hello: () => Promise<T>): Promise<T> {
    this.countId(caller, worker);
    return this.noteArriving(worker, hello());
  }

  /** The worker counts as live until its hello has ended: from then on the queue knows it. */
  async noteArriving<T>({ endpointId, workerId }: WorkerName, hello: Promise<T>): Promise<T> {
    const name = nameOf(endpointId, workerId);
    this.#arriving.set(name, (this.#arriving.get(name) ?? 0) + 1);
    try {
      return await hello;
    } finally {
      const others = (this.#arriving.get(name) ?? 0) - 1;
      if (others > 0) this.#arriving.set(name, others);
      else this.#arriving.delete(name);
    }
  }

  /** Counts the ID once, for the key and for its user. @throws ProblemError `rate_limited` */
  countId({ keyId, userId }: Caller, { endpointId, workerId }: WorkerName): void {
    const ofUser = this.#ids.get(userId) ?? this.#addUser(userId);
    const ofEndpoint = ofUser.get(endpointId) ?? new Map<string, string>();
    const known = ofEndpoint.get(workerId);
    if (known === keyId) return;
    const isNew = known === undefined;
    if (this.#findExcess(ofUser, { keyId, isNew })) this.#forgetAbsent(ofUser);
    const detail = this.#findExcess(ofUser, { keyId, isNew });
    if (detail) throw new ProblemError('rate_limited', detail, { retryAfterMs: IDS_RETRY_MS });
    ofUser.set(endpointId, ofEndpoint.set(workerId, keyId));
  }

  #findExcess(ofUser: UserIds, { isNew, keyId }: { keyId: string; isNew: boolean }) {
    const { ids, userids } = this.#options.limits;
    const keys = [...ofUser.values()].flatMap((ofEndpoint) => [...ofEndpoint.values()]);
    if (keys.filter((each) => each === keyId).length >= ids) {
      return `the key already has ${ids} live workers; use another key or stop some workers`;
    }
    if (!isNew || keys.length < userids) return undefined;
    return `the key's user already has ${userids} live workers; stop some workers`;
  }

  /** Also removes users without live workers. */
  #addUser(userId: string): UserIds {
    for (const [id, ofUser] of this.#ids) {
      this.#forgetAbsent(ofUser);
      if (ofUser.size === 0) this.#ids.delete(id);
    }
    const added: UserIds = new Map();
    this.#ids.set(userId, added);
    return added;
  }

  #forgetAbsent(ofUser: UserIds): void {
    for (const [endpointId, ofEndpoint] of ofUser) {
      for (const id of ofEndpoint.keys()) {
        if (!this.#isLive(endpointId, id)) ofEndpoint.delete(id);
      }
      if (ofEndpoint.size === 0) ofUser.delete(endpointId);
    }
  }

  #isLive(endpointId: string, workerId: string): boolean {
    return (
      this.#arriving.has(nameOf(endpointId, workerId)) ||
      this.#options.isPresent(endpointId, workerId)
    );
  }
}

function nameOf(endpointId: string, workerId: string): string {
  return `${endpointId}/${workerId}`;
}
