import { describe, expect, it } from 'vitest';
import {
  judgePing,
  mayServe,
  type PingHealth,
  type PingResult,
} from '../../../../src/control/balancing/balanced-worker.ts';

const AFTER: Record<PingHealth, Record<PingResult, PingHealth>> = {
  starting: { ready: 'ready', starting: 'starting', failed: 'starting' },
  ready: { ready: 'ready', starting: 'starting', failed: 'missed' },
  missed: { ready: 'ready', starting: 'starting', failed: 'out' },
  out: { ready: 'ready', starting: 'starting', failed: 'out' },
};

describe('the health of a worker', () => {
  it.each(Object.entries(AFTER))('after %s follows from the ping', (health, after) => {
    for (const [result, expected] of Object.entries(after)) {
      expect([result, judgePing(health as PingHealth, result as PingResult)]).toEqual([
        ...[result, expected],
      ]);
    }
  });

  it('allows requests while it is ready and after one lost ping', () => {
    const serving = (Object.keys(AFTER) as PingHealth[]).filter(mayServe);
    expect(serving).toEqual(['ready', 'missed']);
  });
});
