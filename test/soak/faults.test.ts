// Runs 500 streaming and 500 plain jobs under each kind of network fault.
import { describe, expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runUnderFaults } from '../support/runs/fault-run.ts';

describe.each([
  { kind: 'cut', maxFaults: 1_000, atLeast: 50 },
  { kind: 'truncated', maxFaults: 1_000, atLeast: 50 },
  { kind: 'answer-lost', maxFaults: 1_000, atLeast: 50 },
  { kind: 'held', maxFaults: 1_000, atLeast: 50 },
  { kind: 'slow', maxFaults: 1_000, atLeast: 50 },
  // The caller detects each only after 15 s.
  { kind: 'half-open', maxFaults: 30, atLeast: 10 },
] as const)('a network with the fault $kind', ({ kind, maxFaults, atLeast }) => {
  it('ends each of 1,000 jobs once, with its output and all of its chunks', async () => {
    const seed = chooseSeed();
    console.log(`${kind}: SEED=${seed}`);
    const run = { kind, jobs: 1_000, maxFaults, limitMs: 25 * 60_000, seed };
    const { faults, repeated, ...result } = await runUnderFaults(run);
    console.log(`${kind}: ${faults} faults, ${repeated} jobs delivered more than once`);
    expect(result).toEqual({ acknowledged: 1_000, wrong: [], changed: [], exitCodes: [0, 0] });
    expect(faults).toBeGreaterThanOrEqual(atLeast);
  });
});
