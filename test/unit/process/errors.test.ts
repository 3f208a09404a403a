// Which calls are to blame for the end of their child.
import { expect, it } from 'vitest';
import { assignBlame } from '../../../src/process/errors.ts';

const calls = (...owners: string[]) => owners.map((owner, index) => ({ id: index + 1, owner }));

it.each([
  ['one call alone', calls('a'), undefined, ['culprit']],
  ['calls of one job', calls('a', 'a'), undefined, ['culprit', 'culprit']],
  ['calls of several jobs', calls('a', 'b', 'a'), undefined, ['suspect', 'suspect', 'suspect']],
  ['a known culprit', calls('a', 'b'), 2, ['neighbour', 'culprit']],
  ['a known culprit with two calls', calls('a', 'b', 'b'), 2, ['neighbour', 'culprit', 'culprit']],
  ['a culprit that has ended', calls('a', 'b'), 9, ['neighbour', 'neighbour']],
  [
    'a call that the child never got',
    [...calls('a'), { id: 2, owner: 'b', isUnsent: true }],
    undefined,
    ['culprit', 'neighbour'],
  ],
] as const)('%s', (_, running, culprit, blames) => {
  expect([...assignBlame(running, culprit).values()]).toEqual(blames);
});
