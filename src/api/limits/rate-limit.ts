// Limits the calls of each user: counts them in fixed windows, by default in this process, and reports the remaining
// calls in headers.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ProblemError } from '../../wire/problem.ts';

/** Length of each, seconds. */
export const RATE_WINDOWS = { minute: 60, hour: 3_600, day: 86_400 } as const;
export type WindowName = keyof typeof RATE_WINDOWS;
export const WINDOW_NAMES: readonly WindowName[] = ['minute', 'hour', 'day'];

/** Calls of one user in each window; a missing window has no limit. */
export type RateLimits = Readonly<Partial<Record<WindowName, number>>>;

export const DEFAULT_RATE_LIMITS = {
  minute: 6_000,
  hour: 200_000,
  day: 2_000_000,
} as const satisfies RateLimits;

declare module 'fastify' {
  interface FastifyRequest {
    /** Of the user, this call included; undefined if nothing limits calls, or another node has counted it. */
    rateCounts: readonly RateCount[] | undefined;
  }
}

/** Calls of a user in one window. */
export interface RateUse {
  window: WindowName;
  limit: number;
  used: number;
  msBeforeNext: number;
}

interface RateWindow {
  name: WindowName;
  limit: number;
  counter: RateCounter;
}

/**
 * A user's first call starts a window; the first call after its end starts the next one. A rejected
 * call counts in no window, so further calls do not prolong the wait.
 */
export class RateGate {
  readonly #windows: readonly RateWindow[];
  readonly #policy: string;

  /** `createCounter`: default, a counter in memory. */
  constructor(limits: RateLimits, createCounter: CreateRateCounter = createMemoryCounter) {
    this.#windows = listWindows(limits, createCounter);
    this.#policy = this.#windows
      .map(({ limit, name }) => `"${name}";q=${limit};w=${RATE_WINDOWS[name]}`)
      .join(', ');
  }

  /**
   * Counts the caller's call and sets the rate limit headers. @throws ProblemError `rate_limited`
   */
  async admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (request.holder) await this.#admit(request, reply, 1);
  }

  /**
   * Counts a request, which was counted as one call, as several. If it is refused, it still counts as one: its body was
   * read, which a full window must be able to prevent.
   * @throws ProblemError `rate_limited`
   */
  async admitAs(calls: number, request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (!request.holder || calls < 2) return;
    await this.#admit(request, reply, calls - 1);
  }

  /** The most calls that one request may stand for: with more, it would be refused at any time. */
  get maxCalls(): number {
    return Math.min(...this.#windows.map(({ limit }) => limit));
  }

  /** The counts of an admitted request. */
  listUse({ rateCounts: counts }: Pick<FastifyRequest, 'rateCounts'>): RateUse[] {
    if (!counts) return [];
    return this.#windows.flatMap(({ limit, name: window }, index) => {
      const { msBeforeNext, remaining } = counts[index] ?? { msBeforeNext: 0, remaining: limit };
      return { window, limit, used: limit - remaining, msBeforeNext };
    });
  }

  /** Counts all of the calls or none. */
  async #admit(request: FastifyRequest, reply: FastifyReply, calls: number): Promise<void> {
    const userId = request.holder?.userId ?? '';
    const counts = await Promise.all(
      this.#windows.map(({ counter }) => counter.take(userId, calls)),
    );
    if (counts.every(({ isAdmitted }) => isAdmitted)) {
      request.rateCounts = counts;
      return this.#setHeaders(reply, counts);
    }
    const left = await Promise.all(
      this.#windows.map(async ({ counter }, index) => {
        const count = counts[index];
        return count && !count.isAdmitted ? count : counter.giveBack(userId, calls);
      }),
    );
    this.#setHeaders(reply, left);
    throw this.#refuse(left);
  }

  #setHeaders(reply: FastifyReply, counts: readonly RateCount[]): void {
    const members = counts.map(({ msBeforeNext, remaining }, index) => {
      const seconds = Math.ceil(msBeforeNext / 1_000);
      return `"${this.#windows[index]?.name}";r=${remaining};t=${seconds}`;
    });
    reply.header('ratelimit', members.join(', '));
    reply.header('ratelimit-policy', this.#policy);
  }

  /** Names the full window that ends last. */
  #refuse(counts: readonly RateCount[]): ProblemError {
    const waits = counts.map((each) => (each.isAdmitted ? 0 : each.msBeforeNext));
    const retryAfterMs = Math.max(...waits);
    const { limit, name } = this.#windows[waits.indexOf(retryAfterMs)] ?? {};
    return new ProblemError('rate_limited', `more than ${limit} calls of one user in one ${name}`, {
      retryAfterMs,
    });
  }
}

function listWindows(limits: RateLimits, createCounter: CreateRateCounter): RateWindow[] {
  return WINDOW_NAMES.flatMap((name) => {
    const limit = limits[name];
    if (limit === undefined) return [];
    const counter = createCounter({ name, limit, seconds: RATE_WINDOWS[name] });
    return { name, limit, counter };
  });
}

export interface RateCount {
  isAdmitted: boolean;
  /** Calls left in the window. */
  remaining: number;
  /** Until the window ends, ms; of a refused call, until it may succeed. */
  msBeforeNext: number;
}

/** A window's first call starts it. A refused call does not count. `calls`: several at once, default 1. */
export interface RateCounter {
  /** Admits all of the calls or none. */
  take(key: string, calls?: number): Promise<RateCount>;
  /** Takes back admitted calls. */
  giveBack(key: string, calls?: number): Promise<RateCount>;
}

export interface RateRule {
  /** Unique among the counters of a platform. */
  name: string;
  limit: number;
  /** Length of the window, s. */
  seconds: number;
}

export type CreateRateCounter = (rule: RateRule) => RateCounter;

/** Counts in the memory of this process. */
export const createMemoryCounter: CreateRateCounter = ({ limit, seconds }) => {
  /** By key, the oldest first: all are of the same length. */
  const windows = new Map<string, { endsAt: number; calls: number }>();
  const count = (key: string, calls: number): RateCount => {
    const now = Math.floor(performance.now());
    for (const [old, { endsAt }] of windows) {
      if (endsAt > now) break;
      windows.delete(old);
    }
    const window = windows.get(key) ?? { endsAt: now + seconds * 1_000, calls: 0 };
    windows.set(key, window);
    const isAdmitted = window.calls + calls <= limit;
    if (isAdmitted) window.calls = Math.max(0, window.calls + calls);
    return { isAdmitted, remaining: limit - window.calls, msBeforeNext: window.endsAt - now };
  };
  return {
    take: async (key, calls = 1) => count(key, calls),
    giveBack: async (key, calls = 1) => count(key, -calls),
  };
};
