// What callers of the HTTP API may use at most: every bound with its default, in one place.

export interface HttpBounds {
  /** Bytes of a submission's JSON without the value of `input`. Default 65,536. */
  maxBesideInputBytes: number;
}

export const DEFAULT_BOUNDS: HttpBounds = {
  maxBesideInputBytes: 65_536,
};

export function completeBounds(bounds: Partial<HttpBounds> = {}): HttpBounds {
  return { ...DEFAULT_BOUNDS, ...bounds };
}
