import { expect, it } from 'vitest';
import { count, isZero, noCounts } from '../../../../src/store/live/live-endpoint.ts';
import { makeJob } from '../../../support/store/stored-jobs.ts';

it('counts of a job that was added and removed need no write', () => {
  const counts = noCounts();
  expect(isZero(counts)).toBe(true);
  count(counts, { before: undefined, after: makeJob({ id: 'a' }), retried: 0 });
  expect(counts).toEqual({ ...noCounts(), inQueue: 1 });
  expect(isZero(counts)).toBe(false);
  count(counts, { before: makeJob({ id: 'a' }), after: undefined, retried: 0 });
  expect(isZero(counts)).toBe(true);
});
