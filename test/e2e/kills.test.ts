// The short form of test/soak/kills.test.ts.
import { describe, expect, it } from 'vitest';
import { runUnderKills } from '../support/kill-run.ts';
import { chooseSeed } from '../support/random.ts';

describe.each(['platform', 'worker'] as const)('SIGKILL of the %s', (victim) => {
  it('loses no acknowledged job and changes no ended one', async () => {
    const seed = chooseSeed();
    console.log(`SEED=${seed}`);
    const result = await runUnderKills({ victim, jobs: 200, kills: 4, seed });
    expect(result).toEqual({ acknowledged: 200, wrong: [], changed: [] });
  });
});
