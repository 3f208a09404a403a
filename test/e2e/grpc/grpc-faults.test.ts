// As faults.test.ts, with workers over gRPC: all that a worker says is on one connection, so that each
// fault hits everything at once.
import { describe, expect, it } from 'vitest';
import { chooseSeed } from '../../support/random.ts';
import { type FaultRun, runUnderFaults } from '../../support/runs/fault-run.ts';

interface Network extends Pick<FaultRun, 'kind' | 'maxFaults'> {
  /** Fewer faults would show nothing. */
  atLeast: number;
}

const NETWORKS: Network[] = [
  { kind: 'cut', maxFaults: 40, atLeast: 8 },
  { kind: 'answer-lost', maxFaults: 40, atLeast: 8 },
  { kind: 'held', maxFaults: 40, atLeast: 8 },
  // Each is noticed after some seconds only.
  { kind: 'half-open', maxFaults: 2, atLeast: 1 },
];

describe('in bad networks, over gRPC', () => {
  it.concurrent.each(NETWORKS)(
    'every job ends once, with its output and each of its chunks: $kind',
    async ({ kind, maxFaults, atLeast }) => {
      const seed = chooseSeed(1);
      console.log(`grpc ${kind}: SEED=${seed}`);
      const run = { kind, link: 'grpc' as const, jobs: 60, maxFaults, limitMs: 45_000, seed };
      const { faults, repeated, ...result } = await runUnderFaults(run);
      console.log(`grpc ${kind}: ${faults} faults, ${repeated} jobs delivered more than once`);
      expect(result).toEqual({ acknowledged: 60, wrong: [], changed: [], exitCodes: [0, 0] });
      expect(faults).toBeGreaterThanOrEqual(atLeast);
    },
  );
});
