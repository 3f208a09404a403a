// Counts calls by user or key in fixed windows; the default counts in this process.

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
