// The short form of test/soak/histories.test.ts: clients of a platform that is killed, paused and cut off.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { recordPlatform } from './platform-run.ts';
import { describeViolations } from './report.ts';
import { QUICK_STORIES } from './stories.ts';

it('what clients of a failing platform see breaks no rule', async () => {
  const seed = chooseSeed(1);
  const load = {
    seed,
    clients: 15,
    loadMs: 5_000,
    calmMs: 1_500,
    settleMs: 60_000,
    stories: QUICK_STORIES,
  };
  expect(describeViolations(await recordPlatform(load))).toEqual([]);
});
