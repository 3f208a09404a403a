import { describe, expect, it } from 'vitest';
import {
  judgePing,
  mayServe,
  type PingHealth,
  type PingResult,
} from '../../../../src/control/balancing/worker-health.ts';

const AFTER: Record<PingHealth, Record<PingResult, PingHealth>> = {
  starting: { ready: 'ready', starting: 'starting', failed: 'starting' },
  ready: { ready: 'ready', starting: 'starting', failed: 'missed' },
  missed: { ready: 'ready', starting: 'starting', failed: 'out' },
  out: { ready: 'ready', starting: 'starting', failed: 'out' },
};

describe('the health of a worker', () => {
  it.each(Object.entries(AFTER))('from %s follows what a ping says', (health, after) => {
    for (const [result, expected] of Object.entries(after)) {
      expect([result, judgePing(health as PingHealth, result as PingResult)]).toEqual([
        ...[result, expected],
      ]);
    }
  });

  it('lets it serve while it is ready, and for one ping that was lost', () => {
    const serving = (Object.keys(AFTER) as PingHealth[]).filter(mayServe);
    expect(serving).toEqual(['ready', 'missed']);
  });
});
