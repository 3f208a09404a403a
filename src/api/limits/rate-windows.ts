// Defines the windows in which a user's calls are counted, and their limits.

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
