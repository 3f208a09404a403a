// 1,000 jobs while the platform, or the worker, is killed 20 times.
import { describe, expect, it } from 'vitest';
import { runUnderKills } from '../support/kill-run.ts';
import { chooseSeed } from '../support/random.ts';

describe.each(['platform', 'worker'] as const)('SIGKILL of the %s', (victim) => {
  it('loses no acknowledged job and changes no ended one, in 20 kills over 1,000 jobs', async () => {
    const seed = chooseSeed();
    console.log(`SEED=${seed}`);
    const result = await runUnderKills({ victim, jobs: 1_000, kills: 20, seed });
    console.log(`${result.acknowledged} acknowledged jobs, all ended`);
    expect(result).toEqual({ acknowledged: 1_000, wrong: [], changed: [] });
  });
});
