// The short form of test/soak/faults.test.ts, three networks at a time: most of it is waiting.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PlatformProcess } from '../support/processes.ts';
import { chooseSeed } from '../support/random.ts';
import {
  type FaultRun,
  runFaultsOn,
  runUnderFaults,
  startFaultPlatform,
} from '../support/runs/fault-run.ts';

interface Network extends Pick<FaultRun, 'kind' | 'maxFaults'> {
  /** Fewer faults would show nothing. */
  atLeast: number;
}

const GROUPS: { networks: Network[] }[] = [
  {
    networks: [
      { kind: 'held', maxFaults: 40, atLeast: 10 },
      { kind: 'slow', maxFaults: 60, atLeast: 10 },
      // Each is noticed after 15 s only.
      { kind: 'half-open', maxFaults: 2, atLeast: 1 },
    ],
  },
  {
    networks: [
      { kind: 'cut', maxFaults: 40, atLeast: 10 },
      { kind: 'truncated', maxFaults: 40, atLeast: 10 },
      { kind: 'answer-lost', maxFaults: 40, atLeast: 10 },
    ],
  },
];

/** Of all but `half-open`, whose leases are longer. */
let platform: PlatformProcess;

beforeAll(async () => {
  const kinds: FaultRun['kind'][] = ['held', 'slow', 'cut', 'truncated', 'answer-lost'];
  platform = await startFaultPlatform({ kinds, link: 'http' });
});

afterAll(() => platform.close());

describe.each(GROUPS)('in bad networks', ({ networks }) => {
  it.concurrent.each(networks)(
    'ends every job once, with its output and all chunks: $kind',
    async ({ kind, maxFaults, atLeast }) => {
      const seed = chooseSeed(1);
      console.log(`${kind}: SEED=${seed}`);
      const run = { kind, jobs: 40, maxFaults, limitMs: 180_000, seed };
      const isShared = kind !== 'half-open';
      const { faults, repeated, ...result } = await (isShared
        ? runFaultsOn(platform, run)
        : runUnderFaults(run));
      console.log(`${kind}: ${faults} faults, ${repeated} jobs delivered more than once`);
      expect(result).toEqual({ acknowledged: 40, wrong: [], changed: [], exitCodes: [0, 0] });
      expect(faults).toBeGreaterThanOrEqual(atLeast);
    },
  );
});
