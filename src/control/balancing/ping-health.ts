// Decides whether a worker of a load-balancing endpoint may get requests, from its answers to GET
// /ping. Pure.

/** Result of one ping: 200, 204, or anything else. */
export type PingResult = 'ready' | 'starting' | 'failed';

/**
 * `starting`: was never ready, or says that it starts. `missed`: ready, but missed the last ping.
 * `out`: was ready, but is unreliable.
 */
export type PingHealth = 'starting' | 'ready' | 'missed' | 'out';

/** A busy worker may miss one ping; after the second in a row it is out. */
export function judgePing(health: PingHealth, result: PingResult): PingHealth {
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

export function mayServe(health: PingHealth): boolean {
  return health === 'ready' || health === 'missed';
}
