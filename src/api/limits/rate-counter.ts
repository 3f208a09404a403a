// Counts calls by user or key in fixed windows; the default counts in this process.
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';

export interface RateCount {
  isAdmitted: boolean;
  /** Calls left in the window. */
  remaining: number;
  /** Until the window ends, ms; of a refused call, until it may succeed. */
  msBeforeNext: number;
}

/** A window's first call starts it. A refused call does not count. */
export interface RateCounter {
  take(key: string): Promise<RateCount>;
  /** Takes back an admitted call. */
  giveBack(key: string): Promise<RateCount>;
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
  const giveBack = async (key: string) => describe(await limiter.reward(key), true);
  return {
    async take(key) {
      try {
        return describe(await limiter.consume(key), true);
      } catch (refused) {
        if (!(refused instanceof RateLimiterRes)) throw refused;
        return describe(await limiter.reward(key), false);
      }
    },
    giveBack,
  };
};

function describe(
  { msBeforeNext, remainingPoints }: RateLimiterRes,
  isAdmitted: boolean,
): RateCount {
  return { isAdmitted, remaining: remainingPoints, msBeforeNext };
}
