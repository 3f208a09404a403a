// Counts calls by user or key in fixed windows; the default counts in this process.
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';

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
  const limiter = new RateLimiterMemory({ points: limit, duration: seconds, keyPrefix: '' });
  return {
    async take(key, calls = 1) {
      try {
        return describe(await limiter.consume(key, calls), true);
      } catch (refused) {
        if (!(refused instanceof RateLimiterRes)) throw refused;
        return describe(await limiter.reward(key, calls), false);
      }
    },
    async giveBack(key, calls = 1) {
      return describe(await limiter.reward(key, calls), true);
    },
  };
};

function describe(
  { msBeforeNext, remainingPoints }: RateLimiterRes,
  isAdmitted: boolean,
): RateCount {
  return { isAdmitted, remaining: remainingPoints, msBeforeNext };
}
