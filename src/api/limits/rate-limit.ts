// Limits the calls of each user: counts them in fixed windows, and reports the remaining calls in
// headers.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { ProblemError } from '../../wire/problem.ts';
import { RATE_WINDOWS, type RateLimits, WINDOW_NAMES, type WindowName } from './rate-windows.ts';

interface RateWindow {
  name: WindowName;
  limit: number;
  limiter: RateLimiterMemory;
}

/**
 * Counts in memory. A user's first call starts a window; the first call after its end starts the next
 * one. A rejected call counts in no window, so further calls do not prolong the wait.
 */
export class RateGate {
  readonly #windows: readonly RateWindow[];
  readonly #policy: string;

  constructor(limits: RateLimits) {
    this.#windows = listWindows(limits);
    this.#policy = this.#windows
      .map(({ limit, name }) => `"${name}";q=${limit};w=${RATE_WINDOWS[name]}`)
      .join(', ');
  }

  /**
   * Counts the caller's call and sets the rate limit headers. @throws ProblemError `rate_limited`
   */
  async admit({ holder }: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (!holder) return;
    const { userId } = holder;
    try {
      this.#setHeaders(reply, await this.#each((limiter) => limiter.consume(userId)));
    } catch (refused) {
      if (!(refused instanceof RateLimiterRes)) throw refused;
      const used = await this.#each((limiter) => limiter.reward(userId));
      this.#setHeaders(reply, used);
      throw this.#refuse(used);
    }
  }

  #each(act: (limiter: RateLimiterMemory) => Promise<RateLimiterRes>): Promise<RateLimiterRes[]> {
    return Promise.all(this.#windows.map(({ limiter }) => act(limiter)));
  }

  #setHeaders(reply: FastifyReply, used: readonly RateLimiterRes[]): void {
    const members = used.map(({ msBeforeNext, remainingPoints }, index) => {
      const seconds = Math.ceil(msBeforeNext / 1_000);
      return `"${this.#windows[index]?.name}";r=${remainingPoints};t=${seconds}`;
    });
    reply.header('ratelimit', members.join(', '));
    reply.header('ratelimit-policy', this.#policy);
  }

  /** Names the full window that ends last. */
  #refuse(used: readonly RateLimiterRes[]): ProblemError {
    const waits = used.map((each) => (each.remainingPoints > 0 ? 0 : each.msBeforeNext));
    const retryAfterMs = Math.max(...waits);
    const { limit, name } = this.#windows[waits.indexOf(retryAfterMs)] ?? {};
    return new ProblemError('rate_limited', `more than ${limit} calls of one user in one ${name}`, {
      retryAfterMs,
    });
  }
}

function listWindows(limits: RateLimits): RateWindow[] {
  return WINDOW_NAMES.flatMap((name) => {
    const points = limits[name];
    if (points === undefined) return [];
    const limiter = new RateLimiterMemory({ points, duration: RATE_WINDOWS[name], keyPrefix: '' });
    return { name, limit: points, limiter };
  });
}
