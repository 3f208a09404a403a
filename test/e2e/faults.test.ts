// The short form of test/soak/faults.test.ts, two networks at a time: most of it is waiting.
import { describe, expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { type FaultRun, runUnderFaults } from '../support/runs/fault-run.ts';

interface Network extends Pick<FaultRun, 'kind' | 'maxFaults'> {
  /** Fewer faults would show nothing. */
  atLeast: number;
}

const PAIRS: { networks: Network[] }[] = [
  {
    networks: [
      // Each is noticed after 15 s only.
      { kind: 'half-open', maxFaults: 2, atLeast: 1 },
      { kind: 'held', maxFaults: 40, atLeast: 10 },
    ],
  },
  {
    networks: [
      { kind: 'slow', maxFaults: 60, atLeast: 10 },
      { kind: 'cut', maxFaults: 40, atLeast: 10 },
    ],
  },
  {
    networks: [
      { kind: 'truncated', maxFaults: 40, atLeast: 10 },
      { kind: 'answer-lost', maxFaults: 40, atLeast: 10 },
    ],
  },
];

describe.each(PAIRS)('in bad networks', ({ networks }) => {
  it.concurrent.each(networks)(
    'every job ends once, with its output and each of its chunks: $kind',
    async ({ kind, maxFaults, atLeast }) => {
      const seed = chooseSeed(1);
      console.log(`${kind}: SEED=${seed}`);
      const run = { kind, jobs: 60, maxFaults, limitMs: 45_000, seed };
      const { faults, repeated, ...result } = await runUnderFaults(run);
      console.log(`${kind}: ${faults} faults, ${repeated} jobs delivered more than once`);
      expect(result).toEqual({ acknowledged: 60, wrong: [], changed: [], exitCodes: [0, 0] });
      expect(faults).toBeGreaterThanOrEqual(atLeast);
    },
  );
});
