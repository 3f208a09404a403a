// The short form of test/soak/fuzz.test.ts.
import { expect, it } from 'vitest';
import { runFuzzer } from '../support/fuzz/run.ts';
import { chooseSeed } from '../support/random.ts';

it('answers 1,500 mostly invalid requests as documented', async () => {
  const allowance = { pods: 12, endpoints: 3 };
  const { faults, summary, tooMany } = await runFuzzer({
    ...{ seed: chooseSeed(5), requests: 1_500, allowance },
  });
  console.log(summary);
  expect(faults).toEqual([]);
  expect(tooMany).toBeLessThan(0.05);
});
