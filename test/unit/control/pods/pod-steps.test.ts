import { expect, it } from 'vitest';
import { letOthersRun } from '../../../../src/base/clock.ts';
import { CallLimit } from '../../../../src/control/pods/pod-steps.ts';

it('limits concurrent calls, keeps the order of the others, and continues after a failed call', async () => {
  const limit = new CallLimit(2);
  const begun: number[] = [];
  const gates = [0, 1, 2, 3].map(() => Promise.withResolvers<void>());
  const calls = gates.map(({ promise }, index) =>
    limit.run(async () => {
      begun.push(index);
      await promise;
    }),
  );
  await letOthersRun();
  expect(begun).toEqual([0, 1]);
  gates[1]?.reject(new Error('no'));
  await expect(calls[1]).rejects.toThrow('no');
  await letOthersRun();
  expect(begun).toEqual([0, 1, 2]);
  for (const gate of gates) gate.resolve();
  await Promise.allSettled(calls);
  expect(begun).toEqual([0, 1, 2, 3]);
  await limit.run(async () => void begun.push(4));
  expect(begun).toContain(4);
});
