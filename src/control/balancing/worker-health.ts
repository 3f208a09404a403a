// Whether a worker of a load-balancing endpoint may get requests, from what it answers to GET /ping. Pure.

/** What came of one ping: 200, 204, or anything else and nothing at all. */
export type PingResult = 'ready' | 'starting' | 'failed';

/**
 * `starting`: never yet ready, or says so of itself. `missed`: ready, but for the last ping. `out`: was
 * ready, and is not to be relied on.
 */
export type WorkerHealth = 'starting' | 'ready' | 'missed' | 'out';

/** One ping may be lost on a busy worker; with the second in a row it is out. */
export function judgePing(health: WorkerHealth, result: PingResult): WorkerHealth {
  if (result !== 'failed') return result;
  switch (health) {
    case 'starting':
      return 'starting';
    case 'ready':
      return 'missed';
    default:
      return 'out';
  }
}

export function mayServe(health: WorkerHealth): boolean {
  return health === 'ready' || health === 'missed';
}
