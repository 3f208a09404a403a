import { expect, it } from 'vitest';
import { Positions } from '../../../src/control/user-resources.ts';

it('gives a later record a greater position, even if the clock was set back', () => {
  const positions = new Positions(0);
  const made = [2_000, 2_000, 1_000, 2_001].map((now) => positions.next(now));
  expect(made).toEqual(made.toSorted((a, b) => a - b));
  expect(new Set(made).size).toBe(4);
});

it('uses no position again after a restart, even if its record was removed', () => {
  const before = new Positions(0);
  const made = Array.from({ length: 900 }, () => before.next(1_000));
  expect(new Positions(0).next(1_001)).toBeGreaterThan(Math.max(...made));
});
