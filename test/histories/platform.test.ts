// The short form of test/soak/histories.test.ts: clients of a platform that is killed, paused and cut off.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { LIMITED_LOAD, QUICK_LOAD, recordPlatform } from './platform-run.ts';
import { describeViolations } from './report.ts';

it('breaks no rule that clients of a failing platform see', async () => {
  const load = { ...QUICK_LOAD, seed: chooseSeed(1) };
  expect(describeViolations(await recordPlatform(load))).toEqual([]);
});

it('keeps flows whole and a limit that endpoints of a failing platform share', async () => {
  const load = { ...LIMITED_LOAD, seed: chooseSeed(2) };
  expect(describeViolations(await recordPlatform(load))).toEqual([]);
});
