import { expect, it } from 'vitest';
import { count, isZero, noCounts } from '../../../../src/store/live/counts.ts';
import { makeJob } from '../../../conformance/store/stored-jobs.ts';

it('counts of a change that is undone are zero again, and need no write', () => {
  const counts = noCounts();
  expect(isZero(counts)).toBe(true);
  const change = { before: undefined, after: makeJob({ id: 'a' }), retried: 1 };
  count(counts, change, 1);
  expect(counts).toEqual({ ...noCounts(), inQueue: 1, retried: 1 });
  expect(isZero(counts)).toBe(false);
  count(counts, change, -1);
  expect(isZero(counts)).toBe(true);
});
