// As faults.test.ts, with workers over gRPC: all that a worker says is on one connection, so that each
// fault hits everything at once.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PlatformProcess } from '../../support/processes.ts';
import { chooseSeed } from '../../support/random.ts';
import { type FaultRun, runFaultsOn, startFaultPlatform } from '../../support/runs/fault-run.ts';

interface Network extends Pick<FaultRun, 'kind' | 'maxFaults'> {
  /** Fewer faults would show nothing. */
  atLeast: number;
}

const GROUPS: { networks: Network[] }[] = [
  {
    networks: [
      { kind: 'cut', maxFaults: 40, atLeast: 8 },
      { kind: 'answer-lost', maxFaults: 40, atLeast: 8 },
    ],
  },
  // Their leases are longer.
  {
    networks: [
      { kind: 'held', maxFaults: 20, atLeast: 8 },
      // Each is noticed after some seconds only.
      { kind: 'half-open', maxFaults: 2, atLeast: 1 },
    ],
  },
];

describe.each(GROUPS)('in bad networks, over gRPC', ({ networks }) => {
  let platform: PlatformProcess;

  beforeAll(async () => {
    const kinds = networks.map(({ kind }) => kind);
    platform = await startFaultPlatform({ kinds, link: 'grpc' });
  });

  afterAll(() => platform.close());

  it.concurrent.each(networks)(
    'ends every job once, with its output and all chunks: $kind',
    async ({ kind, maxFaults, atLeast }) => {
      const seed = chooseSeed(1);
      console.log(`grpc ${kind}: SEED=${seed}`);
      const run = { kind, link: 'grpc' as const, jobs: 40, maxFaults, limitMs: 45_000, seed };
      const { faults, repeated, ...result } = await runFaultsOn(platform, run);
      console.log(`grpc ${kind}: ${faults} faults, ${repeated} jobs delivered more than once`);
      expect(result).toEqual({ acknowledged: 40, wrong: [], changed: [], exitCodes: [0, 0] });
      expect(faults).toBeGreaterThanOrEqual(atLeast);
    },
  );
});
