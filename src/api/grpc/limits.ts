// The limits of gRPC calls that show no valid key. Apart from what acts on them, which loads the library.

export interface KeylessLimits {
  /** Bytes that one call may send. Default 65,536. */
  bytes: number;
  /** How long a call may last, ms; a health `Watch` that was answered may last. Default 5,000. */
  ms: number;
  /** Calls that one address may have open. Default 100. */
  calls: number;
  /** Health `Watch` calls that one address may have open. Default 100. */
  watches: number;
}

export const DEFAULT_KEYLESS_LIMITS: KeylessLimits = {
  bytes: 65_536,
  ms: 5_000,
  calls: 100,
  watches: 100,
};
