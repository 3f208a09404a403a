// How much of the platform the workers of one key may use: their calls, and the worker ids they run under.
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { ProblemError } from '../../wire/problem.ts';
import { WORKER_CALL_WINDOW_S, type WorkerLimits } from './worker-limits.ts';

/** When a worker beyond the limit may ask again, ms: others may have left by then. */
const IDS_RETRY_MS = 10_000;

export interface WorkerAllowanceOptions {
  limits: WorkerLimits;
  /** Whether the platform knows the worker: it has said hello, and has neither left nor been forgotten. */
  isPresent: (endpointId: string, workerId: string) => boolean;
}

export class WorkerAllowance {
  readonly #options: WorkerAllowanceOptions;
  readonly #calls: RateLimiterMemory;
  /** Ids by endpoint, by key. */
  readonly #ids = new Map<string, Map<string, Set<string>>>();

  constructor(options: WorkerAllowanceOptions) {
    this.#options = options;
    const { calls } = options.limits;
    this.#calls = new RateLimiterMemory({ points: calls, duration: WORKER_CALL_WINDOW_S });
  }

  /** Counts a call. @throws ProblemError `rate_limited` */
  async countCall(keyId: string): Promise<void> {
    try {
      await this.#calls.consume(keyId);
    } catch (refused) {
      if (!(refused instanceof RateLimiterRes)) throw refused;
      const { calls } = this.#options.limits;
      const detail = `more than ${calls} worker calls with one key in ${WORKER_CALL_WINDOW_S} s`;
      throw new ProblemError('rate_limited', detail, { retryAfterMs: refused.msBeforeNext });
    }
  }

  /** Counts the id among those of the key, once. @throws ProblemError `rate_limited` */
  admitId(keyId: string, endpointId: string, workerId: string): void {
    const ofKey = this.#ids.get(keyId) ?? this.#addKey(keyId);
    if (ofKey.get(endpointId)?.has(workerId)) return;
    const { ids } = this.#options.limits;
    if (countIds(ofKey) >= ids) this.#forgetAbsent(ofKey);
    if (countIds(ofKey) >= ids) {
      const detail = `the key has ${ids} live workers already; use another key or stop some`;
      throw new ProblemError('rate_limited', detail, { retryAfterMs: IDS_RETRY_MS });
    }
    ofKey.set(endpointId, (ofKey.get(endpointId) ?? new Set()).add(workerId));
  }

  /** Keys come and go: those whose workers have all left are forgotten. */
  #addKey(keyId: string): Map<string, Set<string>> {
    for (const [id, ofKey] of this.#ids) {
      this.#forgetAbsent(ofKey);
      if (ofKey.size === 0) this.#ids.delete(id);
    }
    const added = new Map<string, Set<string>>();
    this.#ids.set(keyId, added);
    return added;
  }

  #forgetAbsent(ofKey: Map<string, Set<string>>): void {
    for (const [endpointId, ids] of ofKey) {
      for (const id of ids) if (!this.#options.isPresent(endpointId, id)) ids.delete(id);
      if (ids.size === 0) ofKey.delete(endpointId);
    }
  }
}

function countIds(ofKey: ReadonlyMap<string, ReadonlySet<string>>): number {
  let count = 0;
  for (const ids of ofKey.values()) count += ids.size;
  return count;
}
