// The sliding window of grants: never more than the limit in any window, and at most a slice late.
import { describe, expect, it } from 'vitest';
import { GrantWindow } from '../../../../src/queue/limits/grant-window.ts';
import { createRandom } from '../../../support/random.ts';

/** Takes whatever is free, at random times; returns the times of the grants. */
function play(seed: number, limit: { max: number; perMs: number }, steps = 1_000): number[] {
  const random = createRandom(seed);
  let window = new GrantWindow();
  let now = 1_000_000;
  const grants: number[] = [];
  let mostEntries = 0;
  for (let step = 0; step < steps; step++) {
    now += Math.floor(random() ** 3 * limit.perMs * 0.2);
    const count = Math.min(window.free(limit, now), 1 + Math.floor(random() * limit.max * 0.5));
    if (count > 0) {
      window.add(count, limit, now);
      for (let i = 0; i < count; i++) grants.push(now);
    }
    // A restart.
    if (random() < 0.01) {
      window = new GrantWindow(JSON.parse(JSON.stringify(window.entries)), now);
    }
    mostEntries = Math.max(mostEntries, window.entries.length);
  }
  expect(mostEntries).toBeLessThanOrEqual(130);
  return grants;
}

describe('a window of grants', () => {
  it.each([
    { max: 1, perMs: 100 },
    { max: 3, perMs: 1_000 },
    { max: 50, perMs: 777 },
    { max: 1_000, perMs: 60_000 },
  ])('has never more than $max in any $perMs ms', (limit) => {
    for (let seed = 1; seed <= 20; seed++) {
      const grants = play(seed, limit);
      const spans = grants.slice(limit.max).map((at, i) => at - (grants[i] ?? 0));
      expect(spans.filter((span) => span < limit.perMs)).toEqual([]);
    }
  });

  it('frees a grant after the window, at most 1/128 of it later', () => {
    const limit = { max: 4, perMs: 12_800 };
    const window = new GrantWindow();
    for (const at of [0, 99, 100, 150]) window.add(1, limit, at);
    expect(window.free(limit, 12_799)).toBe(0);
    // The first two are one slice, and so are the last two.
    expect(window.freeAt(limit)).toBe(12_899);
    expect(window.free(limit, 12_899)).toBe(2);
    expect(window.freeAt(limit)).toBe(Number.NEGATIVE_INFINITY);
    expect(window.free(limit, 12_950)).toBe(4);
  });

  it('has each grant by itself if they are fewer than its slices', () => {
    const limit = { max: 2, perMs: 1_000 };
    const window = new GrantWindow();
    window.add(1, limit, 0);
    window.add(1, limit, 500);
    expect(window.freeAt(limit)).toBe(1_000);
    expect(window.free(limit, 1_000)).toBe(1);
    expect(window.free(limit, 1_500)).toBe(2);
  });

  it('takes a lower limit into account at once', () => {
    const window = new GrantWindow();
    window.add(10, { max: 10, perMs: 1_000 }, 0);
    window.add(2, { max: 20, perMs: 1_000 }, 500);
    expect(window.free({ max: 5, perMs: 1_000 }, 600)).toBe(0);
    expect(window.freeAt({ max: 2, perMs: 1_000 })).toBe(1_500);
  });

  it('frees grants of a later time than now as if they were from now', () => {
    const window = new GrantWindow([[5_000, 5_000, 1]], 1_000);
    expect(window.freeAt({ max: 1, perMs: 100 })).toBe(1_100);
  });
});
