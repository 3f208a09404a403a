// Limits of gRPC calls without a valid key. A separate file, because the code that applies them
// loads the gRPC library.

export interface KeylessLimits {
  /** Bytes that one call may send. Default 65,536. */
  bytes: number;
  /** How long a call may last, ms; an answered health `Watch` has no limit. Default 5,000. */
  ms: number;
  /** Open calls of one address. Default 100. */
  calls: number;
  /** Open health `Watch` calls of one address. Default 100. */
  watches: number;
}

export const DEFAULT_KEYLESS_LIMITS: KeylessLimits = {
  bytes: 65_536,
  ms: 5_000,
  calls: 100,
  watches: 100,
};
