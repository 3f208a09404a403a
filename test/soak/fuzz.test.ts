// Sends random requests of all users, most of them invalid, to every operation.
import { expect, it } from 'vitest';
import { runFuzzer } from '../support/fuzz/run.ts';
import { chooseSeed } from '../support/random.ts';

// About 40 minutes on a busy machine.
const LIMIT_MS = 2 * 3_600_000;
const requests = Number(process.env['FUZZ_REQUESTS'] ?? 200_000);

it('answers 200,000 mostly invalid requests as documented', {
  timeout: LIMIT_MS,
}, async () => {
  const allowance = { pods: 40, endpoints: 10 };
  const { faults, neverSucceeded, summary, tooMany } = await runFuzzer({
    ...{ seed: chooseSeed(), requests, allowance },
  });
  console.log(summary);
  expect(faults).toEqual([]);
  expect(tooMany).toBeLessThan(0.05);
  // A few operations rarely receive a valid request.
  expect(neverSucceeded.length, neverSucceeded.join()).toBeLessThan(4);
});
